// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"errors"
	"net/netip"
	"strings"

	"coelan.io/coelan/internal/intent"
)

// WritesSource reports whether flows of a table write a floating IP over the source address.
func WritesSource(table int) bool { return table == int(externalSource.ID) }

// WritesDestination reports whether flows of a table write the Port's address over a floating IP.
func WritesDestination(table int) bool { return table == int(floatingPort.ID) }

// FindsNextHop reports whether flows of a table find a next hop on an external Network, or give the
// agent the packet if they do not know its MAC.
func FindsNextHop(table int) bool { return table == int(nextHop.ID) || table == int(nextHopMAC.ID) }

// Inbound is what leads a packet from the wire to a floating IP of this node.
type Inbound struct {
	Uplink uint32 // the OpenFlow port
	VLAN   uint16 // 0: untagged
	MAC    intent.MAC
}

// InboundOf is how packets from the wire come in for a floating IP. The error says why this node
// does not answer for it.
func InboundOf(in Input, f intent.FloatingIP) (Inbound, error) {
	r := askFor(in)
	t, ok := r.translation(f)
	if ok {
		return Inbound{t.uplink, t.external.VLAN, intent.MAC(t.mac)}, nil
	}
	if len(r.problems) > 0 {
		return Inbound{}, errors.New(strings.Join(r.problems, "; "))
	}
	return Inbound{}, errors.New("the Port is not on this node")
}

// Hop is the next station on an external Network.
type Hop struct {
	Address netip.Addr
	// Gateway says that it is the gateway of the source's subnet, and not the destination itself.
	Gateway bool
	MAC     intent.MAC // zero: unknown
}

// NextHop is the one of packets that leave by an external Network with a floating IP as source; not
// valid if there is none.
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
