// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"coelan.io/coelan/api/v1alpha1"
)

//go:embed testdata/attachments.yaml
var attachments string

const (
	networksAnnotation = "k8s.v1.cni.cncf.io/networks"
	nfnAnnotation      = "k8s.plugin.opnfv.org/nfn-network"
)

// sideNet and secondNet are IPv4 addresses of the Networks side and second.
var (
	sideNet   = netip.MustParsePrefix("10.60.0.0/16")
	secondNet = netip.MustParsePrefix("10.61.0.0/16")
)

// networkStatus is an element of the annotation k8s.v1.cni.cncf.io/network-status.
type networkStatus struct {
	Name      string   `json:"name"`
	Interface string   `json:"interface"`
	IPs       []string `json:"ips"`
	MAC       string   `json:"mac"`
	Default   bool     `json:"default"`
}

// testAttachments gives pods further interfaces by the annotation of the network
// plumbing group, without Multus.
func testAttachments(t *testing.T) {
	ctx := within(t, 3*time.Minute)
	const asked = `[{"name": "side", "interface": "data0", "ips": ["10.60.7.7/16", "fd00:60::77"], "mac": "0a:00:00:00:07:07"},
		{"name": "second", "default-route": ["10.61.0.1"]}]`
	makePod(ctx, t, annotated(webServer("s1", worker1), networksAnnotation, asked))
	makePod(ctx, t, annotated(webServer("s2", worker2), networksAnnotation, "side, e2e/second@up0"))
	makePod(ctx, t, annotated(webServer("s3", worker1), networksAnnotation, "side"))
	defer removePods(context.WithoutCancel(ctx), t, "s1", "s2", "s3")
	if err := world.waitReady(ctx, "s1", "s2", "s3"); err != nil {
		t.Fatal(err)
	}
	s1, s2, s3 := world.pod(ctx, t, "s1"), world.pod(ctx, t, "s2"), world.pod(ctx, t, "s3")
	want := []netip.Addr{netip.MustParseAddr("10.60.7.7"), netip.MustParseAddr("fd00:60::77")}
	if diff := cmp.Diff(want, s1.on(t, "data0"), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("s1's data0: %s", diff)
	}
	if mac := s1.mac(t, "data0"); mac != "0a:00:00:00:07:07" {
		t.Errorf("s1's data0 has MAC %s", mac)
	}
	for _, w := range []struct {
		from   place
		to     place
		ifname string
		in     netip.Prefix
	}{
		{s1, s2, "net1", sideNet}, {s3, s1, "data0", sideNet}, {s2, s1, "data0", sideNet}, {s1, s2, "up0", secondNet}, {s2, s3, "net1", sideNet},
	} {
		for _, address := range w.to.on(t, w.ifname) {
			seen, err := clientOf(ctx, w.from, netip.AddrPortFrom(address, webPort))
			if err != nil || address.Is4() && !w.in.Contains(seen) {
				t.Errorf("%s to %s's %s: seen as %s, %v; want one of %s", w.from.name, w.to.name, w.ifname, seen, err, w.in)
			}
		}
	}
	for ifname, lines := range map[string][]string{
		"net2": {"default via 10.61.0.1 ", "172.31.0.0/16 via 10.61.0.9 "},
		"up0":  {"172.31.0.0/16 via 10.61.0.9 "},
	} {
		routes := map[string]place{"net2": s1, "up0": s2}[ifname].run(ctx, t, "ip", "route", "show", "dev", ifname)
		for _, line := range lines {
			if !strings.Contains(routes, line) {
				t.Errorf("%s has routes %q, want %q", ifname, routes, line)
			}
		}
	}
	for _, to := range []string{"web1", "web2"} { // the default network is still there
		if err := ask(ctx, t, "s1", to); err != nil {
			t.Error(err)
		}
	}
	checkStatus(t, s1, statusOf(ctx, t, "s1", 3), []string{"eth0", "data0", "net2"})
	checkStatus(t, s2, statusOf(ctx, t, "s2", 3), []string{"eth0", "net1", "up0"})
	port := named(&v1alpha1.Port{}, "e2e/s1.data0")
	if err := wait(ctx, port, portIn(v1alpha1.PortBound)); err != nil {
		t.Error(err)
	}
	if s := port.Status; s.Node != worker1 || s.MAC != "0a:00:00:00:07:07" || !slices.Equal(s.Addresses, []string{"10.60.7.7", "fd00:60::77"}) {
		t.Errorf("Port e2e/s1.data0 has status %+v", s)
	}
}

// checkStatus compares network-status with the interfaces that are there. The first
// one is the cluster's.
func checkStatus(t *testing.T, p place, status []networkStatus, ifnames []string) {
	t.Helper()
	for i, ifname := range ifnames {
		at := slices.IndexFunc(status, func(s networkStatus) bool { return s.Interface == ifname })
		if at < 0 {
			t.Errorf("%s: network-status has no %s: %+v", p.name, ifname, status)
			continue
		}
		s := status[at]
		if s.Default != (i == 0) || s.MAC != p.mac(t, ifname) || fmt.Sprint(s.IPs) != fmt.Sprint(p.on(t, ifname)) {
			t.Errorf("%s: network-status has %+v, want %s with %v, %s", p.name, s, ifname, p.on(t, ifname), p.mac(t, ifname))
		}
	}
}

// statusOf is a pod's annotation network-status once it has that many elements.
func statusOf(ctx context.Context, t *testing.T, key string, n int) []networkStatus {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, objectTimeout)
	defer cancel()
	var status []networkStatus
	_, err := world.waitPod(ctx, key, func(p *corev1.Pod) bool {
		status = nil
		return json.Unmarshal([]byte(p.Annotations["k8s.v1.cni.cncf.io/network-status"]), &status) == nil && len(status) == n
	})
	if err != nil {
		t.Fatalf("network-status is %+v, want %d elements: %v", status, n, err)
	}
	return status
}

// testNFN asks in the words of OVN4NFV.
func testNFN(t *testing.T) {
	ctx := within(t, 2*time.Minute)
	const asked = `{"type": "ovn4nfv", "interface": [
		{"name": "side", "interface": "net0", "defaultGateway": "false", "ipAddress": "10.60.8.8", "macAddress": "0a:00:00:00:08:08"},
		{"name": "second", "interface": "net1", "defaultGateway": "true"}]}`
	makePod(ctx, t, annotated(webServer("n1", worker2), nfnAnnotation, asked))
	defer removePods(context.WithoutCancel(ctx), t, "n1")
	var got []struct {
		IPs            []string `json:"ip_address"`
		MAC            string   `json:"mac_address"`
		Gateways       []string `json:"gateway_ip"`
		DefaultGateway string   `json:"defaultGateway"`
		Interface      string   `json:"interface"`
	}
	_, err := world.waitPod(ctx, "n1", func(p *corev1.Pod) bool {
		got = nil
		return ready(p) && json.Unmarshal([]byte(p.Annotations["k8s.plugin.opnfv.org/ovnInterfaces"]), &got) == nil && len(got) == 3
	})
	if err != nil {
		t.Fatalf("ovnInterfaces is %+v: %v", got, err)
	}
	n1 := world.pod(ctx, t, "n1")
	if a := n1.on(t, "net0"); len(a) != 1 || a[0].String() != "10.60.8.8" {
		t.Errorf("net0 has %v", a)
	}
	byName := map[string]int{}
	for i, g := range got {
		byName[g.Interface] = i
	}
	for name, want := range map[string][]string{"net0": {"10.60.8.8/16"}, "net1": {n1.on(t, "net1")[0].String() + "/16"}} {
		if g := got[byName[name]]; !slices.Equal(g.IPs, want) || g.MAC != n1.mac(t, name) || g.DefaultGateway != fmt.Sprint(name == "net1") {
			t.Errorf("ovnInterfaces has %+v, want %s with %v, %s", g, name, want, n1.mac(t, name))
		}
	}
	if _, ok := byName["*"]; !ok {
		t.Errorf("ovnInterfaces has no element for eth0: %+v", got)
	}
	if routes := n1.run(ctx, t, "ip", "route", "show", "default"); !strings.HasPrefix(routes, "default via 10.61.0.1 dev net1") {
		t.Errorf("default route %q", routes)
	}
}

// mac is an interface's MAC address.
func (p place) mac(t *testing.T, ifname string) string {
	t.Helper()
	return macOn(t, p, ifname).String()
}
