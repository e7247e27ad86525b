// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"iter"
	"net/netip"
	"slices"
	"time"
)

// EgressAddress is an address of an external Network that Ports of several nodes are seen as
// outside of the cluster. Of the nodes that may have it one is active at a time: it translates, and
// answers for the address.
type EgressAddress struct {
	Network string // name of the external Network
	Address netip.Addr
	// Router is the name of the Router that connections are translated in the zone of: the one with
	// the gateway that has the address, and for an Egress the default one.
	Router string
	// Egress is the name of the Egress that has the address; empty: the Router's gateway has it,
	// for all of the Router's Ports.
	Egress string
	// Nodes may be active, alive or not, sorted: they are connected to the Network.
	Nodes []string
	// Leaving are those of Nodes, sorted, that are about to leave the cluster or keep load
	// balancers away: others are active if they can.
	Leaving []string
	// Active is the node that last reported that it is active; it need not be among Nodes.
	Active string
	// Failback has the address return to the node that it has first of all while all are alive.
	Failback bool
}

// User is what has the address: "router/" or "egress/" and a name.
func (e EgressAddress) User() string {
	if e.Egress != "" {
		return EgressUser(e.Egress)
	}
	return RouterUser(e.Router)
}

// RouterUser is the user of the addresses of a Router's gateway.
func RouterUser(router string) string { return "router/" + router }

// EgressUser is the user of the addresses of an Egress.
func EgressUser(egress string) string { return "egress/" + egress }

// EgressAddresses are all of the cluster, by Network and address.
func (s *State) EgressAddresses() Table[EgressAddress] { return s.egressAddresses }

// EgressAddress is the one with that address of a Network.
func (s *State) EgressAddress(network string, a netip.Addr) (EgressAddress, bool) {
	return s.egressAddresses.Get(egressAddressKey(network, a))
}

// EgressAddressesOf are those of a user.
func (s *State) EgressAddressesOf(user string) iter.Seq[EgressAddress] {
	return s.egressAddresses.by(egressAddressesByUser, user)
}

// AnswersElsewhere says whether a private Router sends what is for the outside by a gateway or a
// route of its own. A bridge that does not know which way a connection came would send answers of
// the Router's Services that way, too.
func (s *State) AnswersElsewhere(router string) bool {
	r, ok := s.Routers().Get(router)
	if !ok || !r.Private() {
		return false
	}
	for range s.EgressAddressesOf(RouterUser(router)) {
		return true
	}
	return slices.ContainsFunc(r.Routes, func(route Route) bool { return route.Destination.Bits() == 0 })
}

// EgressAddressesAt are those that a node may be active for.
func (s *State) EgressAddressesAt(node string) iter.Seq[EgressAddress] {
	return s.egressAddresses.by(egressAddressesByNode, node)
}

// SetEgressAddress adds or replaces an EgressAddress.
func (tx *Tx) SetEgressAddress(e EgressAddress) { tx.egressAddresses = tx.egressAddresses.set(e) }

// DeleteEgressAddress removes the EgressAddress with that address of a Network.
func (tx *Tx) DeleteEgressAddress(network string, a netip.Addr) {
	tx.egressAddresses = tx.egressAddresses.delete(egressAddressKey(network, a))
}

func egressAddressKey(network string, a netip.Addr) string { return network + " " + a.String() }

func (e EgressAddress) key() string { return egressAddressKey(e.Network, e.Address) }

func (e EgressAddress) equal(o EgressAddress) bool {
	return e.Network == o.Network && e.Address == o.Address && e.Router == o.Router && e.Egress == o.Egress &&
		e.Active == o.Active && e.Failback == o.Failback && slices.Equal(e.Nodes, o.Nodes) &&
		slices.Equal(e.Leaving, o.Leaving)
}

func (e EgressAddress) clone() EgressAddress {
	e.Nodes, e.Leaving = slices.Clone(e.Nodes), slices.Clone(e.Leaving)
	return e
}

// EgressPath is what an Egress says of the way: the Ports that it selects name it, see Port.Egress,
// and leave the cluster by its EgressAddresses.
type EgressPath struct {
	Name    string // the key: that of the Egress
	Network string // name of the external Network
	// Destinations are those that it is for, sorted; none: all outside of the cluster.
	Destinations []netip.Prefix
	// NextHops are hosts of the Network, sorted, to one of which everything is sent with the Ports'
	// own addresses; none: it leaves as the EgressAddresses, by the Network's gateway.
	NextHops []netip.Addr
	// Check is how the active node finds out which of NextHops work.
	Check NextHopCheck
}

// NextHopCheck is how a node finds out whether a next hop works. The zero value asks for its MAC
// alone.
type NextHopCheck struct {
	Protocol NextHopProtocol
	Interval time.Duration // between two packets of the node
	Failures int           // after so many intervals without an answer it does not work
}

// NextHopProtocol is what a next hop answers.
type NextHopProtocol string

const (
	// CheckICMP are echo requests of RFC 792 and RFC 4443.
	CheckICMP NextHopProtocol = "ICMP"
	// CheckBFD is a session of RFC 5881.
	CheckBFD NextHopProtocol = "BFD"
)

// EgressPaths are all of the cluster that take effect, by name.
func (s *State) EgressPaths() Table[EgressPath] { return s.egressPaths }

// SetEgressPath adds or replaces an EgressPath.
func (tx *Tx) SetEgressPath(e EgressPath) { tx.egressPaths = tx.egressPaths.set(e) }

// DeleteEgressPath removes the EgressPath of that name.
func (tx *Tx) DeleteEgressPath(name string) { tx.egressPaths = tx.egressPaths.delete(name) }

func (e EgressPath) key() string { return e.Name }

func (e EgressPath) equal(o EgressPath) bool {
	return e.Name == o.Name && e.Network == o.Network && e.Check == o.Check &&
		slices.Equal(e.Destinations, o.Destinations) && slices.Equal(e.NextHops, o.NextHops)
}

func (e EgressPath) clone() EgressPath {
	e.Destinations, e.NextHops = slices.Clone(e.Destinations), slices.Clone(e.NextHops)
	return e
}
