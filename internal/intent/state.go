// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"iter"
	"net/netip"
)

// State is one snapshot of all that is known. It never changes.
type State struct {
	revision uint64
	replaced chan struct{}
	tables
}

// tables are the parts of a State that Tx may change.
type tables struct {
	local    Local
	routers  Table[Router]
	networks Table[Network]
	nodes    Table[Node]
	ports    Table[Port]
	blocks   Table[Block]
	services Table[Service]
	ranges   Table[ServiceRange]
	rules    Table[Rule]
	subjects Table[Subject]
	peers    Table[Peer]
}

// The indexes of the ports, by position.
const (
	portsByNetwork = iota
	portsByAddress
)

// The indexes of the routers, by position.
const (
	routersByImport = iota
	routersPrivate
)

// The indexes of the rules, by position.
const (
	rulesBySlot = iota
	rulesByGroup
	rulesByBlock
	rulesByMatch
)

// The index of the subjects.
const subjectsByRule = 0

// The index of the peers.
const peersByClass = 0

func newState() *State {
	s := &State{replaced: make(chan struct{})}
	s.ports.indexes = []index[Port]{
		portsByNetwork: {values: func(p Port) []string { return []string{p.Network} }},
		portsByAddress: {values: func(p Port) []string {
			values := make([]string, len(p.Addresses))
			for i, a := range p.Addresses {
				values[i] = a.String()
			}
			return values
		}},
	}
	s.routers.indexes = []index[Router]{
		routersByImport: {values: func(r Router) []string { return r.Imports }},
		routersPrivate: {values: func(r Router) []string {
			if r.Private() {
				return []string{""}
			}
			return nil
		}},
	}
	s.networks.indexes = []index[Network]{{values: func(n Network) []string { return []string{n.Router} }}}
	s.blocks.indexes = []index[Block]{{values: func(b Block) []string { return []string{b.Network} }}}
	s.services.indexes = []index[Service]{{values: func(v Service) []string { return []string{slotKey(v.Slot())} }}}
	s.rules.indexes = []index[Rule]{
		rulesBySlot:  {values: func(r Rule) []string { return []string{ruleSlotKey(r.Slot())} }},
		rulesByGroup: {values: func(r Rule) []string { return r.Groups }},
		rulesByBlock: {values: Rule.blockKeys},
		rulesByMatch: {values: Rule.matchKeys},
	}
	s.subjects.indexes = []index[Subject]{subjectsByRule: {values: func(v Subject) []string { return v.Rules }}}
	s.peers.indexes = []index[Peer]{peersByClass: {values: func(p Peer) []string { return []string{classKey(p.Class())} }}}
	return s
}

// Revision grows with every change of a Store. It starts at 0 and means nothing
// outside the process.
func (s *State) Revision() uint64 { return s.revision }

// Replaced is closed as soon as the Store holds a newer State.
func (s *State) Replaced() <-chan struct{} { return s.replaced }

// Local is the node that the agent runs on.
func (s *State) Local() Local { return s.local }

// Routers are all routers by name.
func (s *State) Routers() Table[Router] { return s.routers }

// Networks are all networks by name.
func (s *State) Networks() Table[Network] { return s.networks }

// Nodes are all nodes by name, this one among them.
func (s *State) Nodes() Table[Node] { return s.nodes }

// Ports are the known ports by id.
func (s *State) Ports() Table[Port] { return s.ports }

// Blocks are the known blocks of all nodes, by network and prefix.
func (s *State) Blocks() Table[Block] { return s.blocks }

// Services are all Services by namespace/name.
func (s *State) Services() Table[Service] { return s.services }

// ServiceRanges are the prefixes that ClusterIPs are from.
func (s *State) ServiceRanges() Table[ServiceRange] { return s.ranges }

// ServicesIn yields the services of that Slot, by namespace/name.
func (s *State) ServicesIn(slot uint32) iter.Seq[Service] { return s.services.by(0, slotKey(slot)) }

// Rules are the rules that Subjects have, by ID.
func (s *State) Rules() Table[Rule] { return s.rules }

// Subjects are how this node's Ports are governed, by key.
func (s *State) Subjects() Table[Subject] { return s.subjects }

// Peers are the addresses in the groups of Rules, by space and address.
func (s *State) Peers() Table[Peer] { return s.peers }

// RulesIn yields the rules of that Slot, by ID.
func (s *State) RulesIn(slot uint32) iter.Seq[Rule] {
	return s.rules.by(rulesBySlot, ruleSlotKey(slot))
}

// RulesOf yields the rules that have the group, by ID.
func (s *State) RulesOf(group string) iter.Seq[Rule] { return s.rules.by(rulesByGroup, group) }

// RulesWith yields the rules that have the block, by ID.
func (s *State) RulesWith(block netip.Prefix) iter.Seq[Rule] {
	return s.rules.by(rulesByBlock, block.String())
}

// RulesAt yields the rules of which m is one of the PortMatches, by ID.
func (s *State) RulesAt(m PortMatch) iter.Seq[Rule] { return s.rules.by(rulesByMatch, m.String()) }

// SubjectsOf yields the subjects that have the rule of that ID, by key.
func (s *State) SubjectsOf(rule string) iter.Seq[Subject] { return s.subjects.by(subjectsByRule, rule) }

// PeersOf yields the peers of the class, which have the same groups, by space and address.
func (s *State) PeersOf(class uint64) iter.Seq[Peer] {
	return s.peers.by(peersByClass, classKey(class))
}

// LocalNode is the Node of this node; false before it is known.
func (s *State) LocalNode() (Node, bool) { return s.nodes.Get(s.local.Node) }

// PortsOf yields the ports on the network of that name, by id.
func (s *State) PortsOf(network string) iter.Seq[Port] { return s.ports.by(portsByNetwork, network) }

// PortsWith yields the ports that have the address, in any network, by id.
func (s *State) PortsWith(address netip.Addr) iter.Seq[Port] {
	return s.ports.by(portsByAddress, address.String())
}

// Importers yields the routers that import the routes of the router of that name, by name.
func (s *State) Importers(router string) iter.Seq[Router] {
	return s.routers.by(routersByImport, router)
}

// PrivateRouters yields the routers that are not shared, by name.
func (s *State) PrivateRouters() iter.Seq[Router] { return s.routers.by(routersPrivate, "") }

// NetworksOf yields the networks that join the router of that name, by name.
func (s *State) NetworksOf(router string) iter.Seq[Network] { return s.networks.by(0, router) }

// BlocksOf yields the blocks of the network of that name.
func (s *State) BlocksOf(network string) iter.Seq[Block] { return s.blocks.by(0, network) }

// Delta names the objects that were added, changed or removed between two
// States, by key, sorted.
type Delta struct {
	Local    bool // Local is another one
	Routers  []string
	Networks []string
	Nodes    []string
	Ports    []string
	Blocks   []string
	Services []string
	// ServiceRanges are prefixes.
	ServiceRanges []string
	Rules         []string
	Subjects      []string
	Peers         []string
}

// Empty says whether nothing differs.
func (d Delta) Empty() bool {
	return !d.Local && len(d.Routers)+len(d.Networks)+len(d.Nodes)+len(d.Ports)+len(d.Blocks)+len(d.Services)+len(d.ServiceRanges)+
		len(d.Rules)+len(d.Subjects)+len(d.Peers) == 0
}

// Diff compares two States of one Store. A nil State has no objects.
func Diff(from, to *State) Delta {
	if from == nil {
		from = newState()
	}
	if to == nil {
		to = newState()
	}
	return Delta{
		Local:    from.local != to.local,
		Routers:  changes(from.routers, to.routers),
		Networks: changes(from.networks, to.networks),
		Nodes:    changes(from.nodes, to.nodes),
		Ports:    changes(from.ports, to.ports),
		Blocks:   changes(from.blocks, to.blocks),
		Services: changes(from.services, to.services),

		ServiceRanges: changes(from.ranges, to.ranges),
		Rules:         changes(from.rules, to.rules),
		Subjects:      changes(from.subjects, to.subjects),
		Peers:         changes(from.peers, to.peers),
	}
}
