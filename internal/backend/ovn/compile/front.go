// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"strconv"

	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/internal/backend/ovn/nb"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/rendezvous"
)

// frontKind are FloatingIPs of Services. Each has a router in front, with a port on the external
// Network that one of the nodes' chassis has. OVN itself chooses that one, and another one when it
// goes. What comes for the address is led to the Router default, which gives it to the kernel of
// the node that it is on, as all that leaves the cluster. The kernel treats it as what comes for a
// load balancer's address, and its answers, from the floating IP, are led back the same way.
//
//	wire ─ Front ─┐
//	wire ─ Front ─┴─ Fronts ─ Router default ─ kernel of the node
//
// OVN routes by source with routes, which may have any next hop, and with policies, where the next
// hop has to be of a network of the router's. The Router default has to look at the destination
// first, and so needs a policy. Fronts is there for the routes: no Front needs a network of its
// own.
//
// Units are those of FloatingIPs, namespace/name, and Fronts.
type frontKind struct {
	cluster names.Cluster
	// others are what another system has made of Networks and the Router default; nil: nothing is.
	others *Others
}

// fronts is the unit of the router between those of FloatingIPs and the Router default.
const fronts = "fronts"

// The priorities of the Router default's policies, between those of nodes and of the way out.
const (
	unansweredPriority = 700 // drops what nodes send for a floating IP, and no Service has
	answerPriority     = 600 // to Fronts, from a floating IP
)

// mostChassis is how many nodes may answer for a FloatingIP one after the other, without a change
// of the rows. Each of them watches the others.
const mostChassis = 5

// The ends of the way between the Router default and Fronts.
var (
	defaultEnd = []string{"240.255.0.5/30", "fd69:c0e1::5/126"}
	frontsEnd  = []string{"240.255.0.6/30", "fd69:c0e1::6/126"}
)

// Name implements Kind.
func (frontKind) Name() string { return "Front" }

// Affected implements Kind.
func (frontKind) Affected(from, to *intent.State, d intent.Delta, yield func(string)) {
	all := len(d.Networks)+len(d.Nodes)+len(d.Routers) > 0
	for _, s := range states(from, to) {
		each := func(f intent.FloatingIP) {
			if f.Service != "" {
				yield(f.Name)
				yield(fronts)
			}
		}
		if all {
			for f := range s.FloatingIPs().All() {
				each(f)
			}
			continue
		}
		for _, name := range d.FloatingIPs {
			if f, ok := s.FloatingIPs().Get(name); ok {
				each(f)
			}
		}
		for _, key := range d.Services {
			for f := range s.FloatingIPsOfService(key) {
				each(f)
			}
		}
	}
}

// Compile implements Kind.
func (k frontKind) Compile(s *intent.State, key string, u *nb.Unit) {
	if key == fronts {
		k.fronts(s, u)
		return
	}
	f, ok := s.FloatingIPs().Get(key)
	if !ok {
		return
	}
	if nodes := k.nodes(s, f); len(nodes) > 0 {
		n, _ := s.Networks().Get(f.Network)
		k.front(s, f, n, nodes, u)
	}
}

// nodes are those that may answer for a FloatingIP, the first of them first.
func (k frontKind) nodes(s *intent.State, f intent.FloatingIP) []string {
	nodes, ok := s.Answering(f)
	if _, known := s.Routers().Get(intent.DefaultRouterName); !ok || !known || !k.others.mayTake(s, f) {
		return nil
	}
	nodes = rendezvous.Rank(f.Address, nodes)
	return nodes[:min(len(nodes), mostChassis)]
}

// frontsRef is the Logical_Router of Fronts.
func frontsRef() nb.Ref { return nb.Ref{Table: "Logical_Router", Key: "Front/" + fronts} }

// frontSetRef is the Address_Set of the FloatingIPs of Services, of the family of an address.
func frontSetRef(like netip.Addr) nb.Ref {
	return nb.Ref{Table: "Address_Set", Key: nb.Key("Front/"+fronts, family(like))}
}

func (k frontKind) set(like netip.Addr, ref nb.Ref) string {
	return k.cluster.Set(family(like), ref.Key)
}

// fronts makes the router Fronts while there is a Front, and what leads there.
func (k frontKind) fronts(s *intent.State, u *nb.Unit) {
	if !slices.ContainsFunc(slices.Collect(s.FloatingIPs().All()), func(f intent.FloatingIP) bool {
		return len(k.nodes(s, f)) > 0
	}) {
		return
	}
	ref := u.Add("Front/"+fronts, &nb.LogicalRouter{Name: k.cluster.Fronts()})
	to, own := k.cluster.WayToFronts(), k.cluster.FrontsPort()
	router := routerRef(intent.DefaultRouterName)
	leaves := fmt.Sprintf("outport == %q", wayOutPort(k.cluster))
	if k.others != nil { // policies of more priority have what stays
		to, leaves = othersLayout{}.portName(to), ""
	}
	u.AddTo(router, "ports", nb.Key(ref.Key, "from"), &nb.LogicalRouterPort{
		Name: to, Peer: &own, MAC: ownMAC(ref.Key + " from").String(), Networks: defaultEnd,
	})
	u.AddTo(ref, "ports", nb.Key(ref.Key, "to"), &nb.LogicalRouterPort{
		Name: own, Peer: &to, MAC: ownMAC(ref.Key + " to").String(), Networks: frontsEnd,
	})
	u.AddTo(ref, "policies", nb.Key(ref.Key, "from"), &nb.RouterPolicy{ // OVN has no inport != …
		Priority: withinPriority + 1, Match: fmt.Sprintf("inport == %q", own), Action: "allow",
	})
	for i, all := range everything {
		like := all.Destination.Addr()
		fam := family(like)
		set := frontSetRef(like)
		u.Add(set.Key, &nb.AddressSet{Name: k.set(like, set)})
		floating := "$" + k.set(like, set)
		u.AddTo(ref, "static_routes", nb.Key(ref.Key, fam), &nb.StaticRoute{
			IPPrefix: all.Destination.String(), Nexthop: addressIn(defaultEnd[i]), OutputPort: &own,
		})
		u.AddTo(ref, "policies", nb.Key(ref.Key, "sources", fam), &nb.RouterPolicy{
			Priority: withinPriority, Action: "drop",
			Match: fmt.Sprintf("%s.src == {$%s, %s}", fam, k.set(like, clusterSetRef(like)), floating),
		})
		u.AddTo(router, "policies", nb.Key(ref.Key, "answers", fam), &nb.RouterPolicy{
			Priority: answerPriority, Action: "reroute",
			Match:    and(leaves, fam+".src == "+floating),
			Nexthops: []string{addressIn(frontsEnd[i])},
		})
		u.AddTo(router, "policies", nb.Key(ref.Key, "unanswered", fam), &nb.RouterPolicy{
			Priority: unansweredPriority, Action: "drop",
			Match: and(leaves, fam+".dst == "+floating, fam+".src == $"+k.set(like, nodesSetRef(like))),
		})
	}
}

// addressIn is the address of an end with its prefix.
func addressIn(end string) string { return netip.MustParsePrefix(end).Addr().String() }

// front makes the router of a FloatingIP. It translates the address to itself, so that OVN answers
// for it on the wire. The router has no other address there: its own is that of the subnet itself.
func (k frontKind) front(s *intent.State, f intent.FloatingIP, n intent.Network, nodes []string, u *nb.Unit) {
	key, fam := "Front/"+f.Name, family(f.Address)
	ref := u.Add(key, &nb.LogicalRouter{Name: k.cluster.Front(f.Name), Options: map[string]string{
		"mac_binding_age_threshold": "300",
	}})
	subnet := subnetOf(n, f.Address)
	out := k.cluster.FrontPort(f.Name)
	row := &nb.LogicalRouterPort{
		Name: out, MAC: externalMAC(f.Address), Networks: []string{subnet.Prefix.Masked().String()},
	}
	if mtu := leastMTU(s); mtu > 0 {
		row.Options = map[string]string{"gateway_mtu": strconv.Itoa(mtu)}
	}
	port := u.AddTo(ref, "ports", nb.Key(key, "out"), row)
	side := routerSidePort(k.cluster.FrontSwitchPort(f.Name), out)
	side.Options["nat-addresses"] = "router" // announces the address where the port comes to
	u.AddTo(switchRef(f.Network, ""), "ports", port.Key, side)
	for i, node := range nodes {
		u.AddTo(port, "gateway_chassis", nb.Key(port.Key, node), &nb.GatewayChassis{
			Name: out + "@" + node, ChassisName: node, Priority: firstChassis - i,
		})
	}
	u.AddTo(ref, "nat", nb.Key(key), &nb.NAT{
		Type: "dnat_and_snat", ExternalIP: f.Address.String(), LogicalIP: f.Address.String(),
		Options: map[string]string{"stateless": "true"},
	})
	in, up := frontEnd(f, 0), frontEnd(f, 1)
	k.ways(f, u, in, up)
	whole := netip.PrefixFrom(f.Address, f.Address.BitLen()).String()
	u.AddTo(ref, "static_routes", nb.Key(key, "in"), &nb.StaticRoute{
		IPPrefix: whole, Nexthop: up.hop(f.Address), OutputPort: ptr(k.cluster.FrontWayIn(f.Name)),
	})
	u.AddTo(frontsRef(), "static_routes", nb.Key(key, "out"), &nb.StaticRoute{
		Policy: ptr("src-ip"), IPPrefix: whole, Nexthop: in.hop(f.Address),
		OutputPort: ptr(k.cluster.FrontWayOut(f.Name)),
	})
	if subnet.Gateway.IsValid() {
		for _, all := range everything {
			if family(all.Destination.Addr()) == fam {
				u.AddTo(ref, "static_routes", nb.Key(key, "gateway"), &nb.StaticRoute{
					IPPrefix: all.Destination.String(), Nexthop: subnet.Gateway.String(), OutputPort: &out,
				})
			}
		}
	}
	u.Put(frontSetRef(f.Address), "addresses", f.Address.String())
}

// ways makes the ports between a Front and Fronts.
func (k frontKind) ways(f intent.FloatingIP, u *nb.Unit, in, up end) {
	key := "Front/" + f.Name
	inName, upName := k.cluster.FrontWayIn(f.Name), k.cluster.FrontWayOut(f.Name)
	u.AddTo(nb.Ref{Table: "Logical_Router", Key: key}, "ports", nb.Key(key, "in"), &nb.LogicalRouterPort{
		Name: inName, Peer: &upName, MAC: in.mac.String(), Networks: []string{in.address.String()},
	})
	u.AddTo(frontsRef(), "ports", nb.Key(key, "up"), &nb.LogicalRouterPort{
		Name: upName, Peer: &inName, MAC: up.mac.String(), Networks: []string{up.address.String()},
	})
}

// end is what a router has on the way between a Front and Fronts: as on links between Routers, the
// next hops of routes that name a port.
type end struct {
	mac     intent.MAC
	address netip.Prefix
}

// frontEnd is one of the ends of a FloatingIP's way: made of its name, since only their neighbors
// have to tell them apart.
func frontEnd(f intent.FloatingIP, which byte) end {
	h := fnv.New32a()
	h.Write([]byte(f.Name))
	sum := h.Sum(nil)
	address := netip.AddrFrom4([4]byte{241 + which, sum[1], sum[2], sum[3]})
	return end{ownMAC(fmt.Sprintf("Front/%s %d", f.Name, which)), netip.PrefixFrom(address, address.BitLen())}
}

// hop is the end as a next hop to what is like an address.
func (e end) hop(like netip.Addr) string {
	if like.Is6() {
		return e.mac.LinkLocal().String()
	}
	return e.address.Addr().String()
}
