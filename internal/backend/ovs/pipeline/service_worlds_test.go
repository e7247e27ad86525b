// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"pgregory.net/rapid"

	"coelan.io/coelan/internal/intent"
)

// drawView draws what a node of some cluster knows, in either mode.
func drawView(t *rapid.T) *intent.State {
	w := drawWorld(t)
	o := w.view(0)
	w.drawServices(t, &o)
	w.drawPolicies(t, &o)
	return stateFrom(t, o)
}

// sharedSlot are names of Services in namespace default that share a Slot, sorted.
var sharedSlot = sync.OnceValue(func() []string {
	bySlot := map[uint32][]string{}
	for i := range 20000 {
		v := intent.NodeService{Namespace: "default", Name: fmt.Sprint("s", i)}
		list := append(bySlot[serviceSlot(v)], v.Name)
		if bySlot[serviceSlot(v)] = list; len(list) == 4 {
			slices.Sort(list)
			return list
		}
	}
	panic("no four names share a slot")
})

// drawServices draws ranges of ClusterIPs and, if the bridges balance them, some Services.
func (w *clusterWorld) drawServices(t *rapid.T, o *intent.Objects) {
	ranges := both(w, worldServiceRanges[0], worldServiceRanges[1])
	for _, p := range ranges {
		if rapid.IntRange(0, 4).Draw(t, "no range") != 0 {
			o.ServiceRanges = append(o.ServiceRanges, intent.ServiceRange{Prefix: p})
		}
	}
	if !w.native {
		return
	}
	names := append([]string{"web", "dns", "api"}, sharedSlot()...)
	for i, name := range names {
		if rapid.IntRange(0, 2).Draw(t, "no service") > 0 {
			o.NodeServices = append(o.NodeServices, w.drawService(t, i, name))
		}
	}
}

func (w *clusterWorld) drawService(t *rapid.T, i int, name string) intent.NodeService {
	routers := []string{"default", "default", "gone"}
	for _, rt := range w.routers {
		routers = append(routers, rt.Name)
	}
	v := intent.NodeService{
		Namespace: "default", Name: name, UID: fmt.Sprint("uid-", i),
		Router:          rapid.SampledFrom(routers).Draw(t, "router"),
		AffinitySeconds: rapid.SampledFrom([]int{0, 0, 0, 10, 86400}).Draw(t, "affinity"),
		InternalLocal:   rapid.Bool().Draw(t, "internal local"),
		ExternalLocal:   rapid.Bool().Draw(t, "external local"),
	}
	for _, p := range both(w, netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("::/0")) {
		if rapid.IntRange(0, 3).Draw(t, "source range") == 0 {
			v.SourceRanges = append(v.SourceRanges, p)
		}
	}
	// Addresses that Services share have other ports at each.
	for j := range rapid.IntRange(1, 3).Draw(t, "ports") {
		for _, third := range both(w, false, true) {
			p := intent.NodeServicePort{
				Name: fmt.Sprint("p", j), IPv6: third, Port: uint16(1000*i + j + 1),
				Protocol: rapid.SampledFrom([]intent.Protocol{intent.TCP, intent.UDP, intent.SCTP}).Draw(t, "protocol"),
			}
			w.drawFrontends(t, i, &p)
			p.Endpoints = w.drawEndpoints(t, p.IPv6)
			if v.InternalLocal || v.ExternalLocal {
				p.LocalEndpoints = w.drawEndpoints(t, p.IPv6)
			}
			p.Unserved = len(p.Endpoints) == 0 && rapid.Bool().Draw(t, "unserved")
			v.Ports = append(v.Ports, p)
		}
	}
	return v
}

func (w *clusterWorld) drawFrontends(t *rapid.T, i int, p *intent.NodeServicePort) {
	of := func(v4, v6 netip.Addr) netip.Addr {
		if p.IPv6 {
			return v6
		}
		return v4
	}
	if rapid.IntRange(0, 5).Draw(t, "no cluster IP") > 0 {
		p.ClusterIP = of(address4(10, 96, 0, i+1), netip.MustParseAddr(fmt.Sprint("fd00:96::", i+1)))
		if rapid.IntRange(0, 5).Draw(t, "of no range") == 0 {
			p.ClusterIP = of(address4(10, 200, 0, i+1), netip.MustParseAddr(fmt.Sprint("fd00:200::", i+1)))
		}
	}
	if rapid.Bool().Draw(t, "node port") {
		p.NodePort = 30000 + p.Port
	}
	if rapid.Bool().Draw(t, "external") {
		p.ExternalIPs = []netip.Addr{of(address4(198, 51, 100, 1), netip.MustParseAddr("2001:db8::1"))}
	}
	if rapid.Bool().Draw(t, "load balancer") {
		p.LoadBalancerIPs = []netip.Addr{of(address4(192, 0, 2, 1), netip.MustParseAddr("2001:db8:1::1"))}
	}
}

// drawEndpoints draws ports of the world, nodes and strangers, or very many.
func (w *clusterWorld) drawEndpoints(t *rapid.T, v6 bool) (list []intent.Endpoint) {
	var all []netip.Addr
	for _, a := range w.addresses() {
		if a.Is6() == v6 {
			all = append(all, a)
		}
	}
	for range rapid.IntRange(0, 4).Draw(t, "endpoints") {
		list = append(list, intent.Endpoint{Address: rapid.SampledFrom(all).Draw(t, "endpoint"), Port: 8080})
	}
	if rapid.IntRange(0, 19).Draw(t, "many") == 0 {
		for i := range 300 {
			a := address4(10, 243, i/200, i%200)
			if v6 {
				a = address6(243, i/200, i%200)
			}
			list = append(list, intent.Endpoint{Address: a, Port: 8080})
		}
	}
	if rapid.IntRange(0, 29).Draw(t, "wrong family") == 0 {
		list = append(list, intent.Endpoint{Address: map[bool]netip.Addr{true: address4(1, 2, 3, 4), false: address6(1, 2, 3)}[v6], Port: 1})
	}
	slices.SortFunc(list, intent.Endpoint.Compare)
	return slices.Compact(list)
}
