// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"iter"
	"net/netip"
	"slices"
)

// State is one snapshot of all that is known. It never changes.
type State struct {
	revision uint64
	replaced chan struct{}
	tables
}

func newState() *State {
	s := &State{replaced: make(chan struct{})}
	for _, k := range kinds {
		k.setUp(&s.tables)
	}
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

// NodeServices are all Services as this node serves them, by namespace/name.
func (s *State) NodeServices() Table[NodeService] { return s.nodeServices }

// Listeners are the ports that processes of this node's host have, of those that are node ports.
func (s *State) Listeners() Table[Listener] { return s.listeners }

// Tenants are the namespaces and their projects, by name.
func (s *State) Tenants() Table[Tenant] { return s.tenants }

// ServiceRanges are the prefixes that ClusterIPs are from.
func (s *State) ServiceRanges() Table[ServiceRange] { return s.ranges }

// Rules are the rules that Subjects have, by ID.
func (s *State) Rules() Table[Rule] { return s.rules }

// Subjects are how this node's Ports are governed, by key.
func (s *State) Subjects() Table[Subject] { return s.subjects }

// Peers are the addresses in the groups of Rules, by space and address.
func (s *State) Peers() Table[Peer] { return s.peers }

// RulesOf yields the rules that have the group, by ID.
func (s *State) RulesOf(group string) iter.Seq[Rule] { return s.rules.by(rulesByGroup, group) }

// RulesWith yields the rules that have the block, by ID.
func (s *State) RulesWith(block netip.Prefix) iter.Seq[Rule] {
	return s.rules.by(rulesByBlock, block.String())
}

// SubjectsOf yields the subjects that have the rule of that ID, by key.
func (s *State) SubjectsOf(rule string) iter.Seq[Subject] { return s.subjects.by(subjectsByRule, rule) }

// LocalNode is the Node of this node; false before it is known.
func (s *State) LocalNode() (Node, bool) { return s.nodes.Get(s.local.Node) }

// PortsAt returns the Ports of a node.
func (s *State) PortsAt(node string) iter.Seq[Port] {
	return func(yield func(Port) bool) {
		for p := range s.ports.All() {
			if p.Node == node && !yield(p) {
				return
			}
		}
	}
}

// PortsOf yields the ports on the network of that name, by id.
func (s *State) PortsOf(network string) iter.Seq[Port] { return s.ports.by(portsByNetwork, network) }

// PortsWith yields the ports that have the address, in any network, by id.
func (s *State) PortsWith(address netip.Addr) iter.Seq[Port] {
	return s.ports.by(portsByAddress, address.String())
}

// PortsNamed yields the ports with the Port object of that namespace/name, by id.
func (s *State) PortsNamed(object string) iter.Seq[Port] { return s.ports.by(portsByObject, object) }

// Importers yields the routers that import the routes of the router of that name, by name.
func (s *State) Importers(router string) iter.Seq[Router] {
	return s.routers.by(routersByImport, router)
}

// PrivateRouters yields the routers that are not shared, by name.
func (s *State) PrivateRouters() iter.Seq[Router] { return s.routers.by(routersPrivate, "") }

// NetworksOf yields the networks that join the router of that name, by name.
func (s *State) NetworksOf(router string) iter.Seq[Network] {
	return s.networks.by(networksByRouter, router)
}

// BlocksOf yields the blocks of the network of that name.
func (s *State) BlocksOf(network string) iter.Seq[Block] {
	return s.blocks.by(blocksByNetwork, network)
}

// Empty says whether nothing differs.
func (d Delta) Empty() bool {
	return !d.Local && !slices.ContainsFunc(kinds, func(k kind) bool { return k.differs(&d) })
}

// Diff compares two States of one Store. A nil State has no objects.
func Diff(from, to *State) Delta {
	if from == nil {
		from = newState()
	}
	if to == nil {
		to = newState()
	}
	d := Delta{Local: from.local != to.local}
	for _, k := range kinds {
		k.diff(&from.tables, &to.tables, &d)
	}
	return d
}
