// SPDX-License-Identifier: Apache-2.0

//go:build integration

package backend

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/test/lab"
)

// pods reach each other, their nodes and the world; an address that is gone is given back.
func pods(t *testing.T, w *world) {
	reaches(t, "pod to pod", w.a.Host, w.b.Host, w.b.Address, w.b.Address, w.a.Address)
	reaches(t, "pod to pod on another node", w.a.Host, w.c.Host, w.c.Address, w.c.Address, w.a.Address)
	reaches(t, "pod to its node", w.a.Host, w.n1.Host, w.n1.Address, w.n1.Address, w.a.Address)
	reaches(t, "pod to another node", w.a.Host, w.n2.Host, w.n2.Address, w.n2.Address, w.n1.Address)
	reaches(t, "node to its pod", w.n1.Host, w.a.Host, w.a.Address, w.a.Address, nil)
	reaches(t, "node to a pod of another node", w.n1.Host, w.c.Host, w.c.Address, w.c.Address, nil)
	reaches(t, "pod to the internet", w.a.Host, w.Outside, lab.Internet, lab.Internet, w.n1.Address)
	for _, p := range []*lab.Pod{w.a, w.b, w.c} {
		must(t, p.Check(t.Context()))
	}
	gone := w.pod(t, w.n1, "lab", "gone")
	reaches(t, "pod to a pod that will go", w.a.Host, gone.Host, gone.Address, gone.Address, w.a.Address)
	must(t, gone.Delete(t.Context()))
	unreachable(t, "pod to a pod that is gone", w.a.Host, gone.Address)
}

// tenants with the same subnet have pods with the same addresses, and nothing to do with each
// other or with the pods of the cluster.
func tenants(t *testing.T, w *world) {
	pods := map[string][]*lab.Pod{}
	for _, name := range []string{"red", "blue"} {
		w.tenant(t, name, "", "10.50.0.0/24", "fd00:50::/64")
		for i, n := range []*lab.Node{w.n1, w.n1, w.n2} {
			pods[name] = append(pods[name], w.pod(t, n, name, fmt.Sprint(name, i)))
		}
	}
	red, blue := pods["red"], pods["blue"]
	for f := range lab.Dual.Each {
		if red[0].Own("eth0", f) != blue[0].Own("eth0", f) {
			t.Errorf("%s: the tenants' first pods have %s and %s", f, red[0].Own("eth0", f), blue[0].Own("eth0", f))
		}
	}
	for name, p := range pods {
		reaches(t, name+" on its node", p[0].Host, p[1].Host, own(p[1], "eth0"), own(p[1], "eth0"), own(p[0], "eth0"))
		reaches(t, name+" to another node", p[0].Host, p[2].Host, own(p[2], "eth0"), own(p[2], "eth0"), own(p[0], "eth0"))
	}
	unreachable(t, "tenant to a pod of the cluster", red[0].Host, w.b.Address)
	unreachable(t, "tenant to a pod of the cluster on another node", red[0].Host, w.c.Address)
	unreachable(t, "pod of the cluster to a tenant", w.a.Host, own(red[0], "eth0"))
	tenantNodes(t, w, red, blue)
	// The other tenant's pod with this address answers no more.
	must(t, red[1].Delete(t.Context()))
	unreachable(t, "tenant to an address that only the other one has", red[0].Host, own(blue[1], "eth0"))
	reaches(t, "the other one", blue[0].Host, blue[1].Host, own(blue[1], "eth0"), own(blue[1], "eth0"), own(blue[0], "eth0"))
}

// tenantNodes has nodes reach tenants' pods by their addresses in the cluster, and these nodes, the
// outside and Services of the cluster; pods of others reach them by neither address.
func tenantNodes(t *testing.T, w *world, red, blue []*lab.Pod) {
	for name, p := range map[string]*lab.Pod{"red": red[0], "blue": blue[0]} {
		reaches(t, "node to its pod of "+name, w.n1.Host, p.Host, p.Address, own(p, "eth0"), nil)
		reaches(t, "another node to a pod of "+name, w.n2.Host, p.Host, p.Address, own(p, "eth0"), nil)
		reaches(t, name+" to its node", p.Host, w.n1.Host, w.n1.Address, w.n1.Address, p.Address)
		reaches(t, name+" to another node", p.Host, w.n2.Host, w.n2.Address, w.n2.Address, w.n1.Address)
		reaches(t, name+" to the internet", p.Host, w.Outside, lab.Internet, lab.Internet, w.n1.Address)
	}
	const near, far = 45, 46
	w.service("lab", "near", near, nil, podEndpoints(w.b)...)
	w.service("lab", "far", far, nil, podEndpoints(w.c)...)
	seen := red[0].Address
	if w.Neutron != nil {
		seen = nil // its node's: the switches of tenants balance no Services of others
	}
	w.serves(t, w.b, []client{{"tenant by a ClusterIP, on its node", red[0].Host, byClusterIP(near), seen}})
	w.serves(t, w.c, []client{{"tenant by a ClusterIP", red[0].Host, byClusterIP(far), seen}})
	unreachable(t, "pod to a tenant by its address in the cluster", w.a.Host, red[0].Address)
	unreachable(t, "pod on another node to a tenant by its address in the cluster", w.c.Host, red[0].Address)
	unreachable(t, "tenant to another one by its address in the cluster", red[0].Host, blue[1].Address)
	unreachable(t, "tenant to another one on another node", red[0].Host, blue[2].Address)
}

// sharedRouter has pods of another subnet be part of the cluster.
func sharedRouter(t *testing.T, w *world) {
	w.API.AddRouter("shop", lab.Shared())
	w.tenant(t, "shop", "shop", "10.60.0.0/16", "fd00:60::/64")
	s0, s1 := w.pod(t, w.n1, "shop", "s0"), w.pod(t, w.n2, "shop", "s1")
	reaches(t, "within, to another node", s0.Host, s1.Host, s1.Address, s1.Address, s0.Address)
	reaches(t, "to a pod of the cluster", s0.Host, w.b.Host, w.b.Address, w.b.Address, s0.Address)
	reaches(t, "from a pod of the cluster on another node", w.a.Host, s1.Host, s1.Address, s1.Address, w.a.Address)
	reaches(t, "from the node", w.n1.Host, s0.Host, s0.Address, s0.Address, nil)
	reaches(t, "to the internet", s0.Host, w.Outside, lab.Internet, lab.Internet, w.n1.Address)
}

const asksNetworks = "k8s.v1.cni.cncf.io/networks"

// severalInterfaces has pods with more interfaces than one, and addresses that they ask for.
func severalInterfaces(t *testing.T, w *world) {
	w.network(t, "front", v1alpha1.NetworkSpec{Subnets: subnets("10.71.0.0/24", "fd00:71::/64")})
	w.network(t, "back", v1alpha1.NetworkSpec{Subnets: subnets("10.72.0.0/24", "fd00:72::/64")})
	w.API.AddDefinition("lab", "front", "front")
	w.API.AddDefinition("lab", "back", "back")
	p1 := w.podAs(t, w.n1, lab.PodSpec{Name: "p1", Annotations: map[string]string{asksNetworks: "front@f0,back@b0"}})
	p2 := w.podAs(t, w.n2, lab.PodSpec{Name: "p2", Annotations: map[string]string{
		asksNetworks: `[{"name":"front","interface":"f0","ips":["10.71.0.77","fd00:71::77"],"mac":"02:00:00:00:71:77"},` +
			`{"name":"back","interface":"b0"}]`,
	}})
	for _, link := range []string{"f0", "b0"} {
		reaches(t, "by "+link, p1.Host, p2.Host, own(p2, link), own(p2, link), own(p1, link))
	}
	reaches(t, "by eth0", p1.Host, p2.Host, p2.Address, p2.Address, p1.Address)
	if got := p2.Own("f0", lab.IPv4).String(); got != "10.71.0.77" {
		t.Errorf("the address that was asked for is %s", got)
	}
	_, err := w.n1.AddPodAs(t.Context(), lab.PodSpec{Name: "p3", Annotations: map[string]string{
		asksNetworks: `[{"name":"front","ips":["10.71.0.77"]}]`,
	}})
	if err == nil || !strings.Contains(err.Error(), "10.71.0.77") {
		t.Errorf("a second pod asks for the address: %v", err)
	}
}

var (
	vmMAC      = intent.MAC{0x52, 0x54, 0, 0x12, 0x34, 0x57}
	vmPrefixes = []netip.Prefix{netip.MustParsePrefix("10.70.0.200/24"), netip.MustParsePrefix("fd00:70::200/64")}
)

// machines are plugged in by other programs, by the name of their Port, and move.
func machines(t *testing.T, w *world) {
	w.network(t, "lan", v1alpha1.NetworkSpec{Subnets: subnets("10.70.0.0/24", "fd00:70::/64")})
	w.API.AddDefinition("lab", "lan", "lan")
	onLAN := map[string]string{asksNetworks: "lan@lan0"}
	p1 := w.podAs(t, w.n1, lab.PodSpec{Name: "m1", Annotations: onLAN})
	p2 := w.podAs(t, w.n2, lab.PodSpec{Name: "m2", Annotations: onLAN})
	port := w.port(t, w.n1, machine{"lab", "vm", "lan", vmMAC, vmPrefixes})
	vm, err := w.n1.AddGuest(t.Context(), "vm", port, vmMAC.HardwareAddr(), vmPrefixes)
	must(t, err)
	for name, p := range map[string]*lab.Pod{"pod": p1, "pod of another node": p2} {
		reaches(t, name+" to the machine", p.Host, vm.Host, vm.Address, vm.Address, own(p, "lan0"))
		reaches(t, "the machine to the "+name, vm.Host, p.Host, own(p, "lan0"), own(p, "lan0"), vm.Address)
	}
	must(t, vm.Unplug(t.Context()))
	w.movePort(t, port, w.n2)
	moved, err := w.n2.AddGuest(t.Context(), "moved", port, vmMAC.HardwareAddr(), vmPrefixes)
	must(t, err)
	reaches(t, "pod to the machine that has moved", p1.Host, moved.Host, moved.Address, moved.Address, own(p1, "lan0"))
	w.removePort(t, port, "lab", "vm")
	cutOff(t, "a machine without a Port", p1.Host, moved.Address)
}

// routes of a Router lead to what is behind a machine that forwards, on another Network of it.
func routes(t *testing.T, w *world) {
	behind := map[lab.Family]netip.Addr{lab.IPv4: netip.MustParseAddr("198.19.7.1"), lab.IPv6: netip.MustParseAddr("fd00:19:7::1")}
	w.API.AddRouter("green", v1alpha1.RouterSpec{Routes: []v1alpha1.Route{
		{Destination: "198.19.7.0/24", NextHop: "10.52.0.9"}, {Destination: "fd00:19:7::/64", NextHop: "fd00:52::9"},
	}})
	w.tenant(t, "green", "green", "10.51.0.0/24", "fd00:51::/64")
	w.network(t, "beyond", v1alpha1.NetworkSpec{Router: "green", Subnets: subnets("10.52.0.0/24", "fd00:52::/64")})
	mac := intent.MAC{0x52, 0x54, 0, 0x12, 0x34, 0x58}
	prefixes := []netip.Prefix{netip.MustParsePrefix("10.52.0.9/24"), netip.MustParsePrefix("fd00:52::9/64")}
	port := w.port(t, w.n2, machine{"green", "hop", "beyond", mac, prefixes})
	hop, err := w.n2.AddGuest(t.Context(), "hop", port, mac.HardwareAddr(), prefixes,
		netip.MustParseAddr("10.52.0.1"), netip.MustParseAddr("fd00:52::1"))
	must(t, err)
	for _, a := range behind {
		_, err := hop.Run(t.Context(), "ip", "addr", "add", a.String(), "dev", "lo")
		must(t, err)
	}
	g := w.pod(t, w.n1, "green", "g")
	reaches(t, "the other Network", g.Host, hop.Host, hop.Address, hop.Address, own(g, "eth0"))
	to := func(f lab.Family) netip.Addr { return behind[f] }
	reaches(t, "behind the machine", g.Host, hop.Host, to, to, own(g, "eth0"))
	unreachable(t, "by no route", w.a.Host, to)
}
