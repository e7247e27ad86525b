// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/cni/wire"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/reserved"
)

func addresses(list ...string) func(*attachment.Plan) {
	return func(i *attachment.Plan) {
		for _, s := range list {
			i.Addresses = append(i.Addresses, netip.MustParseAddr(s))
		}
	}
}

func hardware(s string) func(*attachment.Plan) {
	return func(i *attachment.Plan) {
		mac, err := intent.ParseMAC(s)
		if err != nil {
			panic(err)
		}
		i.MAC = &mac
	}
}

func defaultRoute(i *attachment.Plan) { i.DefaultRoute = true }

// summary is a result as people would write it down.
func summary(t *testing.T, out []byte) []string {
	t.Helper()
	var r types100.Result
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, ip := range r.IPs {
		i := r.Interfaces[*ip.Interface]
		if i.Sandbox == "" {
			t.Errorf("address %s is on the host's interface %s", ip.Address.String(), i.Name)
		}
		lines = append(lines, fmt.Sprintf("%s %s %s gw %s", i.Name, i.Mac, ip.Address.String(), ip.Gateway))
	}
	for _, route := range r.Routes {
		lines = append(lines, fmt.Sprintf("route %s via %s", route.Dst.String(), route.GW))
	}
	return append(lines, fmt.Sprintf("%d interfaces", len(r.Interfaces)))
}

func TestMACOfTheOwnAddress(t *testing.T) {
	own := netip.MustParseAddr("10.9.0.5")
	i := planned{&attachment.Plan{Requested: attachment.Requested{Addresses: []netip.Addr{own}}}}
	if err := i.checkMAC(reserved.PodMAC(own)); err != nil {
		t.Error(err)
	}
}

func TestThreeInterfaces(t *testing.T) {
	w, p := newPlanned(t)
	var changes []string
	w.opts.Changed = func(list []attachment.Attachment) {
		changes = append(changes, fmt.Sprint(len(list), " ", len(w.store.List())))
	}
	p.pods["pod-a"] = []attachment.Plan{
		p.on("red", "net1", func(i *attachment.Plan) {
			i.MTU, i.NAD = 1300, "default/red"
			i.Routes = []attachment.Route{
				{Destination: netip.MustParsePrefix("10.50.0.0/16")},
				{Destination: netip.MustParsePrefix("fd50::/16"), NextHop: netip.MustParseAddr("fd09::fe")},
			}
		}),
		p.on("blue", "net2", addresses("10.9.0.7", "10.9.0.8"), hardware("02:00:00:00:00:07"), func(i *attachment.Plan) { i.MTU = 9000 }),
		p.on("wire", "net10"),
	}
	out := w.must(addRequest("a"))
	want := []string{
		"eth0 0a:ce:0a:f4:01:02 10.244.1.2/24 gw 10.244.1.1", "eth0 0a:ce:0a:f4:01:02 fd00:10:244:1::2/64 gw fd00:10:244:1::1",
		"net1 0a:ce:0a:09:00:10 10.9.0.16/24 gw 10.9.0.1", "net1 0a:ce:0a:09:00:10 fd09::10/64 gw fd09::1",
		"net2 02:00:00:00:00:07 10.9.0.7/24 gw 10.9.0.1", "net2 02:00:00:00:00:07 10.9.0.8/24 gw 10.9.0.1",
		"route 0.0.0.0/0 via 10.244.1.1", "route ::/0 via fd00:10:244:1::1",
		"route 10.50.0.0/16 via 10.9.0.1", "route fd50::/16 via fd09::fe", "8 interfaces",
	}
	if diff := cmp.Diff(want, summary(t, out)); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
	var list []string
	for _, a := range w.store.List() {
		list = append(list, fmt.Sprint(a.IfName, " ", a.NetworkName, " ", a.NetworkID, " ", a.MTU, " ", a.MadeWith, " ", a.Primary, " ", a.NAD, " ", a.PortName))
	}
	if diff := cmp.Diff([]string{
		"eth0 default 1 1450  true  pod-a.eth0", "net1 red 2 1300 eth0 false default/red pod-a.net1",
		"net10 wire 4 1450 eth0 false  pod-a.net10", "net2 blue 3 1450 eth0 false  pod-a.net2",
	}, list); diff != "" {
		t.Errorf("attachments (-want +got):\n%s", diff)
	}
	if want := map[string]string{"blue 10.9.0.7": "default/pod-a.net2", "blue 10.9.0.8": "default/pod-a.net2", "blue 02:00:00:00:00:07": "default/pod-a.net2"}; !cmp.Equal(want, p.claimed) {
		t.Errorf("claimed: %v", p.claimed)
	}
	w.must(as("DEL", addRequest("a")))
	if got := w.snapshot(); len(got) != 0 || len(p.claimed) != 0 {
		t.Errorf("left behind: %v, %v", got, p.claimed)
	}
	if diff := cmp.Diff([]string{"4 4", "4 0"}, changes); diff != "" {
		t.Errorf("told about changes (-want +got):\n%s", diff)
	}
}

// The node's own podCIDR may be one of those that cannot be merged with others'.
func TestWayToClusterLeavesOutTheOwnSubnet(t *testing.T) {
	w, p := newPlanned(t)
	w.node.node.Cluster = func() []netip.Prefix { return prefixes("10.244.1.0/24", "10.244.2.0/24", "192.168.33.11/32") }
	p.pods["pod-a"] = []attachment.Plan{p.on("blue", "net1", defaultRoute)}
	w.must(addRequest("a"))
	var got []string
	for _, r := range w.kernel.pods["/run/netns/a"]["eth0"].AllRoutes() {
		got = append(got, r.Destination.String())
	}
	if diff := cmp.Diff([]string{"::/0", "10.244.2.0/24", "192.168.33.11/32"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The default route moves family by family, and where it has moved the first interface keeps its
// way to the cluster.
func TestDefaultRoute(t *testing.T) {
	const keeps4, keeps6 = "eth0 10.244.0.0/16 10.244.1.1", "eth0 fd00:10:244::/48 fd00:10:244:1::1"
	for _, tt := range []struct {
		name    string
		further func(p *planner) []attachment.Plan
		want    []string
	}{
		{"stays", func(p *planner) []attachment.Plan { return []attachment.Plan{p.on("red", "net1")} },
			[]string{"eth0 0.0.0.0/0 10.244.1.1", "eth0 ::/0 fd00:10:244:1::1"}},
		{"moves", func(p *planner) []attachment.Plan {
			return []attachment.Plan{p.on("blue", "net1"), p.on("red", "net2", defaultRoute), p.on("red", "net3", defaultRoute)}
		}, []string{keeps4, keeps6, "net2 0.0.0.0/0 10.9.0.1", "net2 ::/0 fd09::1"}},
		{"moves for one family", func(p *planner) []attachment.Plan { return []attachment.Plan{p.on("blue", "net1", defaultRoute)} },
			[]string{"eth0 ::/0 fd00:10:244:1::1", keeps4, "net1 0.0.0.0/0 10.9.0.1"}},
		{"by another gateway", func(p *planner) []attachment.Plan {
			return []attachment.Plan{p.on("red", "net1", defaultRoute, func(i *attachment.Plan) { i.Gateways = []netip.Addr{netip.MustParseAddr("10.9.0.99")} })}
		}, []string{keeps4, keeps6, "net1 0.0.0.0/0 10.9.0.99", "net1 ::/0 fd09::1"}},
		{"not to a Network without addresses", func(p *planner) []attachment.Plan { return []attachment.Plan{p.on("wire", "net1", defaultRoute)} },
			[]string{"eth0 0.0.0.0/0 10.244.1.1", "eth0 ::/0 fd00:10:244:1::1"}},
		{"fixed addresses of one family", func(p *planner) []attachment.Plan {
			return []attachment.Plan{p.on("red", "net1", defaultRoute, addresses("fd09::77"))}
		}, []string{"eth0 0.0.0.0/0 10.244.1.1", keeps6, "net1 ::/0 fd09::1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, p := newPlanned(t)
			w.node.node.Cluster = func() []netip.Prefix {
				return prefixes("10.244.0.0/17", "fd00:10:244:8000::/49", "10.244.128.0/17", "fd00:10:244::/49")
			}
			p.pods["pod-a"] = tt.further(p)
			w.must(addRequest("a"))
			var got []string
			for _, name := range []string{"eth0", "net1", "net2", "net3"} {
				for _, r := range w.kernel.pods["/run/netns/a"][name].AllRoutes() {
					got = append(got, fmt.Sprint(name, " ", r.Destination, " ", r.NextHop))
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The runtime gets the node addresses of a tenant's pod; the pod has its own.
func TestNodeAddresses(t *testing.T) {
	w, p := newPlanned(t)
	tenant := func(network string) attachment.Plan {
		return p.on(network, "", func(i *attachment.Plan) { i.NodeAddresses = true })
	}
	p.primary["pod-a"], p.primary["pod-b"] = tenant("red"), tenant("blue")
	p.networks["blue"].free = prefixes("10.9.0.16/30")
	a, b := w.must(addRequest("a")), w.must(addRequest("b"))
	if diff := cmp.Diff([]string{
		"eth0 0a:ce:0a:09:00:10 10.244.1.2/24 gw 10.244.1.1", "eth0 0a:ce:0a:09:00:10 fd00:10:244:1::2/64 gw fd00:10:244:1::1",
		"route 0.0.0.0/0 via 10.9.0.1", "route ::/0 via fd09::1", "2 interfaces",
	}, summary(t, a)); diff != "" {
		t.Errorf("result of red (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{
		"eth0 0a:ce:0a:09:00:10 10.244.1.3/24 gw 10.244.1.1", "route 0.0.0.0/0 via 10.9.0.1", "2 interfaces",
	}, summary(t, b)); diff != "" {
		t.Errorf("result of blue (-want +got):\n%s", diff)
	}
	for name, want := range map[string]string{"a": "[10.9.0.16/24 fd09::10/64]", "b": "[10.9.0.16/24]"} {
		if got := fmt.Sprint(w.kernel.pods["/run/netns/"+name]["eth0"].Addresses); got != want {
			t.Errorf("pod-%s has %s, want %s", name, got, want)
		}
	}
	check := as("CHECK", addRequest("a"))
	check.Config = []byte(strings.Replace(config, `"type"`, `"prevResult":`+string(a)+`,"type"`, 1))
	w.must(check)
}

// When any step of any interface fails, all of them go.
func TestSeveralOrNone(t *testing.T) {
	for _, method := range []string{"Create", "Configure", "Attach", "Claim", "Ranges"} {
		t.Run(method, func(t *testing.T) {
			w, p := newPlanned(t)
			p.pods["pod-a"] = []attachment.Plan{p.on("red", "net1"), p.on("blue", "net2", addresses("10.9.0.7"))}
			broken := errors.New("it is broken")
			w.kernel.failsFor, w.bridge.failsFor = "net2", "net2"
			w.kernel.fails[method], w.bridge.fails[method], p.fails[method] = broken, broken, broken
			if _, err := w.Handle(t.Context(), addRequest("a")); err == nil || !strings.Contains(err.Error(), "it is broken") {
				t.Errorf("error %v", err)
			}
			if got := w.snapshot(); len(got) != 0 || len(p.claimed) != 0 {
				t.Errorf("left behind: %v, %v", got, p.claimed)
			}
			clear(w.kernel.fails)
			clear(w.bridge.fails)
			clear(p.fails)
			w.must(addRequest("a"))
		})
	}
}

func TestADDOfSeveralTwice(t *testing.T) {
	w, p := newPlanned(t)
	p.pods["pod-a"] = []attachment.Plan{p.on("red", "net2"), p.on("blue", "net1", addresses("10.9.0.7"))}
	first := w.must(addRequest("a"))
	before := w.snapshot()
	delete(w.kernel.pods["/run/netns/a"], "net1")
	w.kernel.remove(attachment.HostInterface(attachment.Key{ContainerID: "a", IfName: "net1"}))
	delete(w.bridge.ports, attachment.HostInterface(attachment.Key{ContainerID: "a", IfName: "net2"}))
	p.fails["Plan"], p.fails["Ranges"] = errors.New("the API server is away"), errors.New("the API server is away")
	second := w.must(addRequest("a"))
	sorted := func(b []byte) []string { s := summary(t, b); slices.Sort(s); return s }
	if diff := cmp.Diff(sorted(first), sorted(second)); diff != "" {
		t.Errorf("results (-first +second):\n%s", diff)
	}
	if string(second) != string(w.must(addRequest("a"))) {
		t.Error("the third result differs from the second")
	}
	if diff := cmp.Diff(before, w.snapshot()); diff != "" {
		t.Errorf("state (-before +after):\n%s", diff)
	}
}

func TestCHECKOfSeveral(t *testing.T) {
	w, p := newPlanned(t)
	p.pods["pod-a"] = []attachment.Plan{p.on("red", "net1")}
	r := as("CHECK", addRequest("a"))
	prev := string(w.must(addRequest("a")))
	r.Config = []byte(strings.Replace(config, `"type"`, `"prevResult":`+prev+`,"type"`, 1))
	w.must(r)
	w.kernel.pods["/run/netns/a"]["net1"] = bare(attachment.HostInterface(attachment.Key{ContainerID: "a", IfName: "net1"}))
	if _, err := w.Handle(t.Context(), r); err == nil || err.Code != wire.CodeCheck || !strings.Contains(err.Error(), "interface net1 differs") {
		t.Errorf("error %v, want it to name net1", err)
	}
	r.Config = []byte(strings.Replace(string(r.Config), "10.9.0.16/24", "10.9.0.99/24", 1))
	if _, err := w.Handle(t.Context(), r); err == nil || !strings.Contains(err.Error(), "prevResult lacks the address 10.9.0.16/24 of default/pod-a/net1") {
		t.Errorf("error %v, want it to name the address", err)
	}
}

// delegate is a call of Multus for an interface on a Network.
func delegate(name, ifName, keys string) wire.Request {
	r := addRequest(name)
	r.IfName = ifName
	r.Config = []byte(`{"cniVersion":"1.0.0","name":"nad","type":"coelan-cni",` + keys + `}`)
	return r
}

// An interface that is asked for by itself comes and goes by itself.
func TestDelegates(t *testing.T) {
	w, p := newPlanned(t)
	p.pods["pod-a"] = []attachment.Plan{p.on("wire", "net9")}
	w.must(addRequest("a"))
	before := w.snapshot()
	for _, keys := range []string{`"network":"red"`, `"nfn-network":"red"`, `"nfn-network":"red","network":"red"`} {
		r := delegate("a", "net1", keys)
		out := w.must(r)
		if got := summary(t, out); !strings.HasPrefix(got[0], "net1 ") || got[len(got)-1] != "2 interfaces" || len(got) != 3 {
			t.Errorf("%s: result %v", keys, got)
		}
		if string(out) != string(w.must(r)) {
			t.Errorf("%s: the second result differs", keys)
		}
		check := as("CHECK", delegate("a", "net1", keys+`,"prevResult":`+string(out)))
		w.must(check)
		w.must(as("DEL", r))
		if diff := cmp.Diff(before, w.snapshot()); diff != "" {
			t.Errorf("%s: after DEL of net1 (-before +after):\n%s", keys, diff)
		}
	}
	w.must(delegate("a", "net1", `"network":"red"`))
	w.must(as("DEL", addRequest("a")))
	if list := w.store.List(); len(list) != 1 || list[0].IfName != "net1" {
		t.Errorf("after DEL of eth0: %v", list)
	}
	for _, tt := range []struct {
		r    wire.Request
		code uint
		want string
	}{
		{delegate("a", "net1", `"network":"blue"`), 4, "the pod has this interface on Network red already, not on blue"},
		{delegate("a", "net2", `"network":"green"`), wire.CodeRefused, `Network "green" is not known`},
		{delegate("a", "net2", `"network":"red","nfn-network":"blue"`), 7, `network "red" and nfn-network "blue" in the network configuration name different Networks`},
		{delegate("a", "net2", `"network":7`), 7, "network in the network configuration has the value 7"},
	} {
		if _, err := w.Handle(t.Context(), tt.r); err == nil || err.Code != tt.code || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("error %v\nwant %d %s", err, tt.code, tt.want)
		}
	}
}

func TestGCOfSeveral(t *testing.T) {
	w, p := newPlanned(t)
	p.pods["pod-a"] = []attachment.Plan{p.on("red", "net1")}
	p.pods["pod-b"] = []attachment.Plan{p.on("red", "net1")}
	w.must(addRequest("a"))
	w.must(addRequest("b"))
	w.must(delegate("a", "net2", `"network":"blue"`))
	if _, err := w.store.Allocate(attachment.Plan{Spec: attachment.Spec{Key: attachment.PortKey("shop", "vm"), HostInterface: "tap0"}}); err != nil {
		t.Fatal(err)
	}
	w.must(wire.Request{Command: "GC", Config: []byte(strings.Replace(config, `"type"`,
		`"cni.dev/valid-attachments":[{"containerID":"a","ifname":"eth0"}],"type"`, 1))})
	var left []string
	for _, a := range w.store.List() {
		left = append(left, a.Key.String())
	}
	if diff := cmp.Diff([]string{"a/eth0", "a/net1", "a/net2", "port:shop/vm"}, left); diff != "" {
		t.Errorf("left after GC (-want +got):\n%s", diff)
	}
	w.kernel.end("/run/netns/a")
	report, err := w.Reconcile(t.Context())
	if err != nil || len(report.Released) != 3 {
		t.Errorf("released %v, %v", report.Released, err)
	}
	if list := w.store.List(); len(list) != 1 || !list[0].IsPort() {
		t.Errorf("left after the namespace ended: %v", list)
	}
}

// What a DEL that did not end has left is cleaned up by the next ADD.
func TestADDAfterHalfADEL(t *testing.T) {
	w, p := newPlanned(t)
	p.pods["pod-a"] = []attachment.Plan{p.on("red", "net1")}
	w.must(addRequest("a"))
	if _, err := w.store.Release(attachment.Key{ContainerID: "a", IfName: "eth0"}); err != nil {
		t.Fatal(err)
	}
	host := attachment.HostInterface(attachment.Key{ContainerID: "a", IfName: "eth0"})
	w.kernel.remove(host)
	delete(w.bridge.ports, host)
	w.must(addRequest("a"))
	if list := w.store.List(); len(list) != 2 {
		t.Errorf("attachments: %v", list)
	}
}
