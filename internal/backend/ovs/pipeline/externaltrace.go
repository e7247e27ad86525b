// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// WritesSource reports whether flows of a table write a floating IP over the source address.
func WritesSource(table int) bool { return table == int(externalSource.ID) }

// WritesDestination reports whether flows of a table write the Port's address over a floating IP,
// or have conntrack write it over a gateway's.
func WritesDestination(table int) bool { return table == int(floatingPort.ID) }

// LetsOut reports whether flows of a table let go on what has a gateway's address as source.
func LetsOut(table int) bool { return table == int(gatewaySource.ID) }

// FindsNextHop reports whether flows of a table find a next hop on an external Network, or give the
// agent the packet if they do not know its MAC.
func FindsNextHop(table int) bool {
	return table == int(nextHop.ID) || table == int(nextHopMAC.ID) || ByPolicy(table)
}

// Inbound is what leads a packet from the wire to an address that this node answers for.
type Inbound struct {
	Uplink uint32 // the OpenFlow port
	VLAN   uint16 // 0: untagged
	MAC    intent.MAC
}

// InboundOf is how packets from the wire come in for a floating IP. The error says why this node
// does not answer for it.
func InboundOf(in Input, f intent.FloatingIP) (Inbound, error) {
	r := askFor(in)
	e, ok := r.chosen(f)
	otherwise := "the Port is not on this node"
	if f.Service != "" {
		otherwise = "another node has been chosen to answer for its Service"
	}
	if t, is := r.translation(f); is {
		e, ok = t.externalAddress, true
	}
	if !ok {
		return Inbound{}, r.unanswered(otherwise)
	}
	return e.inboundWay(), nil
}

// InboundOfGateway is how packets from the wire come in for the address of a Router's gateway. The
// error says why this node does not answer for it.
func InboundOfGateway(in Input, g intent.GatewayAddress) (Inbound, error) {
	r := askFor(in)
	if g.Node != r.local.Node {
		return Inbound{}, errors.New("it is the address of node " + g.Node)
	}
	e, _, ok := r.gateway(g)
	if !ok {
		return Inbound{}, r.unanswered("the Router's gateway is not known")
	}
	return e.inboundWay(), nil
}

// RoutedTo is the routed gateway of this node by which the outside reaches an address; false if
// there is none. The error says why that cannot be told: several Routers may have the address.
func RoutedTo(in Input, a netip.Addr) (found intent.GatewayAddress, ok bool, err error) {
	r := askFor(in)
	for g := range in.State.GatewayAddressesAt(r.local.Node) {
		rt, known := in.State.Routers().Get(g.Router)
		if !g.Routed || g.Address.Is4() != a.Is4() || !known || !r.routes(rt, a) {
			continue
		}
		if ok && g.Router != found.Router {
			return found, false, fmt.Errorf("the Routers %s and %s both have it: trace from the Port in place of outside",
				found.Router, g.Router)
		}
		found, ok = g, true
	}
	return found, ok, nil
}

// routes reports whether a routed gateway of a Router leads to an address.
func (r *rules) routes(rt intent.Router, a netip.Addr) bool {
	for p := range r.prefixesOf(rt) {
		if p.Contains(a) {
			return true
		}
	}
	if rt.Name != intent.DefaultRouterName {
		return false
	}
	for n := range r.state.Nodes().All() {
		for _, s := range n.Subnets {
			if s.Prefix.Contains(a) {
				return s.Gateway != a
			}
		}
	}
	return false
}

// RoutedBy is the routed gateway of this node that a packet leaves by, if the actions in a table
// give the packet the MAC of its address.
func RoutedBy(in Input, table int, actions []string) (intent.GatewayAddress, bool) {
	if table != int(externalSource.ID) {
		return intent.GatewayAddress{}, false
	}
	for g := range in.State.GatewayAddressesAt(in.State.Local().Node) {
		set := openflow.SetField(openflow.EthSrc(externalMAC(g.Address))).String()
		if g.Routed && slices.Contains(actions, set) {
			return g, true
		}
	}
	return intent.GatewayAddress{}, false
}

// InboundOfEgress is how packets from the wire come in for an address while this node is active for
// it. The error says why this node cannot answer for it.
func InboundOfEgress(in Input, a intent.EgressAddress) (Inbound, error) {
	r := askFor(in)
	if !slices.Contains(a.Nodes, r.local.Node) {
		return Inbound{}, errors.New("this node is not one of those that may be active for it")
	}
	e, _, ok := r.egressHere(a)
	if !ok {
		return Inbound{}, r.unanswered("its Router is not known")
	}
	return e.inboundWay(), nil
}

// ActiveFor is the node that this one takes for active for an address; empty: none.
func ActiveFor(in Input, a intent.EgressAddress) string {
	return in.Numbers.egressState(ExternalKey{a.Network, a.Address}).Active
}

func (e externalAddress) inboundWay() Inbound {
	return Inbound{e.uplink, e.external.VLAN, intent.MAC(e.mac)}
}

// unanswered is the problems that were found, else otherwise.
func (r *rules) unanswered(otherwise string) error {
	return errors.New(cmp.Or(strings.Join(r.problems, "; "), otherwise))
}

// Hop is the next station on an external Network.
type Hop struct {
	Address netip.Addr
	// Gateway says that it is the gateway of the source's subnet, and not the destination itself.
	Gateway bool
	MAC     intent.MAC // zero: unknown
}

// NextHop is the one of packets that leave by an external Network with source as an address there;
// not valid if there is none.
func NextHop(in Input, network string, source, destination netip.Addr) Hop {
	n, _ := in.State.Networks().Get(network)
	hop := Hop{}
	for _, s := range n.Subnets {
		switch {
		case s.Prefix.Contains(destination):
			hop.Address, hop.Gateway = destination, false
		case s.Prefix.Contains(source) && !hop.Address.IsValid():
			hop.Address, hop.Gateway = s.Gateway, true
		}
	}
	hop.MAC, _ = in.Numbers.neighbour(NeighbourKey{network, hop.Address})
	return hop
}
