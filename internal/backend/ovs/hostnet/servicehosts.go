// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"coelan.io/coelan/internal/intent"
)

// HostEndpoints are endpoints of a Service's port that are no pods, and that the kernel chooses
// among itself. Where a list is empty, the bridge balances. Only Outside is used without
// Services.ByAddress.
type HostEndpoints struct {
	// Cluster are those at the ClusterIP, for all clients; Inside and Outside those at all other
	// addresses, for pods and processes of nodes and for all others.
	Cluster, Inside, Outside []intent.Endpoint
	// Sticky keeps a client's address at its endpoint as long as the endpoints stay.
	Sticky bool
}

func (e HostEndpoints) equal(o HostEndpoints) bool {
	return e.Sticky == o.Sticky && slices.Equal(e.Cluster, o.Cluster) && slices.Equal(e.Inside, o.Inside) &&
		slices.Equal(e.Outside, o.Outside)
}

// hostSlots is how many places endpoints share: as many as up to six can share evenly. More
// endpoints than that are not used.
const hostSlots = 60

// hostTranslation are the contents of one family's maps of host endpoints. A key is a frontend and
// a place.
type hostTranslation struct {
	inside, outside, stickyInside, stickyOutside map[string]string
	// ends are the endpoints.
	ends map[string]string
}

func newHostTranslation() hostTranslation {
	return hostTranslation{map[string]string{}, map[string]string{}, map[string]string{}, map[string]string{},
		map[string]string{}}
}

// port adds the frontends of a port. Node ports are at the family's hop.
func (h *hostTranslation) port(p *ServicePort, f serviceFamily) {
	inside, outside := h.inside, h.outside
	if p.Hosts.Sticky {
		inside, outside = h.stickyInside, h.stickyOutside
	}
	if f.has(p.ClusterIP) {
		h.spread(inside, p, p.ClusterIP, p.Port, p.Hosts.Cluster)
		h.spread(outside, p, p.ClusterIP, p.Port, p.Hosts.Cluster)
	}
	at := func(a netip.Addr, port uint16) {
		h.spread(inside, p, a, port, p.Hosts.Inside)
		h.spread(outside, p, a, port, p.Hosts.Outside)
	}
	if p.NodePort != 0 {
		at(f.hop, p.NodePort)
	}
	for _, a := range slices.Concat(p.ExternalIPs, p.LoadBalancerIPs) {
		if f.has(a) {
			at(a, p.Port)
		}
	}
}

// spread gives each place of a frontend an endpoint.
func (h *hostTranslation) spread(into map[string]string, p *ServicePort, a netip.Addr, port uint16,
	endpoints []intent.Endpoint,
) {
	if len(endpoints) == 0 {
		return
	}
	for i := range hostSlots {
		e := endpoints[i%len(endpoints)]
		place := binaryutil.NativeEndian.PutUint32(uint32(i))
		into[frontend(a, p.Protocol, port)+string(place)] = endpoint(e.Address, e.Port)
		h.ends[frontend(e.Address, p.Protocol, e.Port)] = ""
	}
}

// outsideSets are the maps that the rules for clients outside ask, named for their family.
func (h hostTranslation) outsideSets(f serviceFamily) []set {
	return []set{f.hostMap("outside", h.outside), f.hostMap("sticky-outside", h.stickyOutside)}
}

// insideSets are those that the rules for all others ask.
func (h hostTranslation) insideSets(f serviceFamily) []set {
	at := concat(f.addr, nftables.TypeInetProto, nftables.TypeInetService)
	return []set{
		f.hostMap("inside", h.inside), f.hostMap("sticky-inside", h.stickyInside),
		{name: "ends" + f.name, key: at, kind: keys, elements: h.ends},
	}
}

func (f serviceFamily) hostMap(name string, elements map[string]string) set {
	return set{
		name: name + f.name, kind: keys, elements: elements,
		key:   concat(f.addr, nftables.TypeInetProto, nftables.TypeInetService, nftables.TypeMark),
		value: concat(f.addr, nftables.TypeInetService),
	}
}

// hostRules translate to endpoints that are no pods, for clients that a condition on the packet
// picks: a chance place for each connection, or one that the client's address decides.
func (f serviceFamily) hostRules(maps, when string, clients []expr.Any, nodePorts bool) []rule {
	place := f.words() + 2
	load := f.load(f.src, place+1)
	chance := one(&expr.Numgen{Register: register(place), Modulus: hostSlots, Type: unix.NFT_NG_RANDOM})
	client := append(load, &expr.Hash{
		SourceRegister: register(place + 1), DestRegister: register(place), Length: f.sz, Modulus: hostSlots,
		Type: expr.HashTypeJenkins,
	})
	var list []rule
	for _, c := range []struct {
		text, name string
		choose     []expr.Any
	}{
		{fmt.Sprintf("numgen random mod %d", hostSlots), maps, chance},
		{fmt.Sprintf("jhash %s saddr mod %d", f.ip, hostSlots), "sticky-" + maps, client},
	} {
		find := lookup(expr.Lookup{SetName: c.name + f.name, DestRegister: register(0), IsDestRegSet: true})
		dnat := f.nat(expr.NAT{Type: expr.NATTypeDestNAT, RegProtoMin: register(f.words())})
		list = append(list,
			f.rule(fmt.Sprintf("%sdnat to %s daddr . meta l4proto . th dport . %s map @%s%s", when, f.ip, c.text, c.name,
				f.name), clients, f.frontend(), c.choose, find, dnat))
		if !nodePorts {
			continue
		}
		list = append(list,
			f.rule(fmt.Sprintf("%sfib daddr type local %s daddr @node%s dnat to %s . meta l4proto . th dport . %s map @%s%s",
				when, f.ip, f.name, f.hop, c.text, c.name, f.name),
				clients, local(), f.load(f.dst, 0), f.in("node"), immediate(f.hop), protocolAndPort(f.words()),
				c.choose,
				find, dnat))
	}
	return list
}

// hostPreroutingRules are for what comes in: from pods by the gateway, or from outside.
func (f serviceFamily) hostPreroutingRules(gateway string) []rule {
	return slices.Concat(
		f.insideRules("iifname "+gateway+" ", device(expr.MetaKeyIIFNAME, expr.CmpOpEq, gateway)),
		f.outsideRules(gateway))
}

// outsideRules are for clients outside.
func (f serviceFamily) outsideRules(gateway string) []rule {
	return f.hostRules("outside", "iifname != "+gateway+" ", device(expr.MetaKeyIIFNAME, expr.CmpOpNeq, gateway), true)
}

// insideRules are for pods and the host's own processes: endpoints that are no pods, or frontends
// that the bridge has for them alone.
func (f serviceFamily) insideRules(when string, clients []expr.Any) []rule {
	find := lookup(expr.Lookup{SetName: "within" + f.name, DestRegister: register(0), IsDestRegSet: true})
	dnat := f.nat(expr.NAT{Type: expr.NATTypeDestNAT, RegProtoMin: register(f.words())})
	return append(f.hostRules("inside", when, clients, true),
		f.rule(fmt.Sprintf("%sdnat to %s daddr . meta l4proto . th dport map @within%s", when, f.ip, f.name),
			clients, f.frontend(), find, dnat),
		f.rule(fmt.Sprintf("%sfib daddr type local %s daddr @node%s dnat to %s . meta l4proto . th dport map @within%s",
			when, f.ip, f.name, f.hop, f.name),
			clients, local(), f.load(f.dst, 0), f.in("node"), immediate(f.hop), protocolAndPort(f.words()), find, dnat))
}

// hostSourceRule masquerades what the kernel has translated and another host answers, so that
// answers come back here.
func (f serviceFamily) hostSourceRule(gateway string) rule {
	return f.rule(fmt.Sprintf("oifname != { lo, %s } ct status dnat %s daddr . meta l4proto . th dport @ends%s "+
		"masquerade fully-random", gateway, f.ip, f.name),
		device(expr.MetaKeyOIFNAME, expr.CmpOpNeq, gateway), device(expr.MetaKeyOIFNAME, expr.CmpOpNeq, "lo"),
		translatedTo(), f.frontend(), f.in("ends"), one(&expr.Masq{FullyRandom: true}))
}
