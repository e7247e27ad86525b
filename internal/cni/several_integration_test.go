// SPDX-License-Identifier: Apache-2.0

//go:build integration

package cni

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/cni/wire"
)

// newPlannedNode is a node with pods that get what a planner says, with a plugin of
// others chained behind ours.
func newPlannedNode(t *testing.T) (*node, *planner) {
	n, p := newNode(t, t.TempDir()), newPlanner()
	n.server.opts.Planner = p
	dir := filepath.Dir(n.plugin)
	build := exec.Command("go", "build", "-ldflags", "-s -w", "-o", filepath.Join(dir, "tuning"), "github.com/containernetworking/plugins/plugins/meta/tuning")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the plugin tuning: %v: %s", err, out)
	}
	n.list = n.config(fmt.Sprintf(`{"cniVersion":"1.0.0","name":"coelan","plugins":[{"type":"coelan-cni","socket":%q},{"type":"tuning","sysctl":{"net.ipv4.conf.eth0.arp_filter":"1"},"dataDir":%q}]}`,
		n.socket(), t.TempDir()))
	return n, p
}

func (n *node) socket() string { return filepath.Join(n.ovs.Dir, "cni.sock") }

func (n *node) config(text string) *libcni.NetworkConfigList {
	n.t.Helper()
	list, err := libcni.ConfListFromBytes([]byte(text))
	n.must(err)
	return list
}

// summaryOf is a result as people would write it down, without host interfaces.
func summaryOf(r *types100.Result) string {
	var lines []string
	for _, ip := range r.IPs {
		lines = append(lines, r.Interfaces[*ip.Interface].Name+" "+ip.Address.String())
	}
	return strings.Join(lines, ", ")
}

// Pods with several interfaces reach each other on each, what is chained behind ours works on the
// first, and one DEL takes all of them away.
func TestPodsWithSeveralInterfaces(t *testing.T) {
	n, p := newPlannedNode(t)
	p.networks["red"].free = prefixes("10.9.0.16/28", "fd09::10/124")
	p.pods["pod-a"] = []attachment.Plan{p.on("red", "net1"), p.on("blue", "net2", addresses("10.9.0.77"), hardware("02:00:00:00:00:07"))}
	p.pods["pod-b"] = []attachment.Plan{p.on("red", "data", defaultRoute)}
	a, b := n.newPod("pod-a"), n.newPod("pod-b")
	n.must(n.add(a))
	n.must(n.add(b))
	for _, tt := range []struct{ got, want string }{
		{summaryOf(a.result), "eth0 10.244.1.2/24, eth0 fd00:10:244:1::2/64, net1 10.9.0.16/24, net1 fd09::10/64, net2 10.9.0.77/24"},
		{summaryOf(b.result), "eth0 10.244.1.3/24, eth0 fd00:10:244:1::3/64, data 10.9.0.17/24, data fd09::11/64"},
	} {
		if tt.got != tt.want {
			t.Errorf("result %s\nwant   %s", tt.got, tt.want)
		}
	}
	for i := range 4 {
		transfer(t, a, b, b.ip(i))
	}
	if out := a.Command(t, "cat", "/proc/sys/net/ipv4/conf/eth0/arp_filter"); strings.TrimSpace(out) != "1" {
		t.Errorf("the plugin behind ours did not work on eth0: arp_filter is %s", out)
	}
	if out := b.Command(t, "ip", "route", "show", "default"); !strings.Contains(out, "via 10.9.0.1 dev data") {
		t.Errorf("default route: %s", out)
	}
	n.must(n.runtime.CheckNetworkList(t.Context(), n.list, b.rt))
	b.Command(t, "ip", "link", "set", "data", "down")
	wantCode(t, n.runtime.CheckNetworkList(t.Context(), n.list, b.rt), wire.CodeCheck, "interface data is down")
	n.must(n.add(b)) // repairs it
	if out := b.Command(t, "ip", "link", "show", "data"); !strings.Contains(out, "state UP") {
		t.Errorf("after the second ADD:\n%s", out)
	}
	b.Close() // the namespace goes before DEL
	n.must(n.del(a))
	n.must(n.del(b))
	n.wantNothing()
	if len(p.claimed) != 0 {
		t.Errorf("still claimed: %v", p.claimed)
	}
}

// Multus asks for each interface by itself, with addresses in runtimeConfig.
func TestDelegatesByThePlugin(t *testing.T) {
	n, p := newPlannedNode(t)
	a, b := n.newPod("pod-a"), n.newPod("pod-b")
	n.must(n.add(a))
	n.must(n.add(b))
	nad := n.config(fmt.Sprintf(`{"cniVersion":"1.0.0","name":"nad-red","plugins":[{"type":"coelan-cni","socket":%q,"network":"red",
		"capabilities":{"ips":true,"mac":true}}]}`, n.socket()))
	for i, pod := range []*pod{a, b} {
		rt := *pod.rt
		rt.IfName = "net1"
		rt.CapabilityArgs = map[string]any{"ips": []string{fmt.Sprintf("10.9.0.%d/24", 50+i)}, "mac": fmt.Sprintf("02:00:00:00:00:%02d", i)}
		result, err := n.runtime.AddNetworkList(t.Context(), nad, &rt)
		n.must(err)
		r, err := types100.NewResultFromResult(result)
		n.must(err)
		if got, want := summaryOf(r), fmt.Sprintf("net1 10.9.0.%d/24", 50+i); got != want {
			t.Errorf("result %s, want %s", got, want)
		}
		if out := pod.Command(t, "ip", "link", "show", "net1"); !strings.Contains(out, fmt.Sprintf("02:00:00:00:00:%02d", i)) {
			t.Errorf("net1 has another MAC:\n%s", out)
		}
		n.must(n.runtime.CheckNetworkList(t.Context(), nad, &rt))
	}
	transfer(t, a, b, "10.9.0.51")
	rt := *a.rt
	rt.IfName = "net1"
	n.must(n.runtime.DelNetworkList(t.Context(), nad, &rt))
	transfer(t, a, b, b.ip(0))
	if out := a.Command(t, "ip", "-o", "link"); strings.Contains(out, "net1") {
		t.Errorf("after DEL of net1:\n%s", out)
	}
	n.must(n.del(a))
	n.must(n.del(b))
	rt = *b.rt
	rt.IfName = "net1"
	n.must(n.runtime.DelNetworkList(t.Context(), nad, &rt))
	n.wantNothing()
	if len(p.claimed) != 0 {
		t.Errorf("still claimed: %v", p.claimed)
	}
}
