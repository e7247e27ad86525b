// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"sync"
	"sync/atomic"
)

// Store holds the newest State. Its methods may be called by many goroutines.
type Store struct {
	writing sync.Mutex // one Update at a time
	current atomic.Pointer[State]
	derive  []Derivation
}

// Derivation makes objects of a State from others, such as a node's view of what is the cluster's.
// It runs at the end of each Update, with the State before and the one that the Update makes, and
// completes the latter. Its cost should follow from what differs.
type Derivation func(before, now *State, tx *Tx)

// NewStore makes a Store with an empty State of revision 0.
func NewStore(derive ...Derivation) *Store {
	s := &Store{derive: derive}
	s.current.Store(newState())
	return s
}

// State is the newest State.
func (s *Store) State() *State { return s.current.Load() }

// Update runs change on the newest State and publishes the outcome as the next
// one. If change leaves everything equal, or returns an error, the State remains.
// It returns the State after the call and the error of change.
func (s *Store) Update(change func(*Tx) error) (*State, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	old := s.current.Load()
	tx := &Tx{tables: old.tables}
	if err := change(tx); err != nil {
		return old, err
	}
	for _, derive := range s.derive {
		derive(old, &State{tables: tx.tables}, tx)
	}
	next := &State{revision: old.revision + 1, replaced: make(chan struct{}), tables: tx.tables}
	if Diff(old, next).Empty() {
		return old, nil
	}
	s.current.Store(next)
	close(old.replaced)
	return next, nil
}

// Tx is a State being changed. It is valid until the function that received it
// returns, and reads its own writes.
type Tx struct{ tables }

// SetLocal replaces what is known of this node.
func (tx *Tx) SetLocal(l Local) { tx.local = l }

// SetPort adds or replaces the port of that ID.
func (tx *Tx) SetPort(p Port) { tx.ports = tx.ports.set(p) }

// DeletePort removes a port; one that is not there is fine.
func (tx *Tx) DeletePort(id string) { tx.ports = tx.ports.delete(id) }

// Replace makes the State hold exactly these objects. Objects that are equal to
// what was there do not count as changed.
func (tx *Tx) Replace(o Objects) {
	tx.local = o.Local
	for _, k := range kinds {
		k.replace(&tx.tables, &o)
	}
}

// ReplaceNetworks makes these the only routers, networks and blocks, and leaves
// everything else.
func (tx *Tx) ReplaceNetworks(routers []Router, networks []Network, blocks []Block) {
	tx.routers = replace(tx.routers, routers)
	tx.networks = replace(tx.networks, networks)
	tx.blocks = replace(tx.blocks, blocks)
}

// ReplaceNodes makes these the only nodes, and leaves everything else.
func (tx *Tx) ReplaceNodes(nodes []Node) { tx.nodes = replace(tx.nodes, nodes) }

// SetRouter adds or replaces the router of that name.
func (tx *Tx) SetRouter(r Router) { tx.routers = tx.routers.set(r) }

// DeleteRouter removes a router; one that is not there is fine.
func (tx *Tx) DeleteRouter(name string) { tx.routers = tx.routers.delete(name) }

// SetNetwork adds or replaces the network of that name.
func (tx *Tx) SetNetwork(n Network) { tx.networks = tx.networks.set(n) }

// DeleteNetwork removes a network; one that is not there is fine.
func (tx *Tx) DeleteNetwork(name string) { tx.networks = tx.networks.delete(name) }

// SetBlock adds or replaces the block of that network and prefix.
func (tx *Tx) SetBlock(b Block) { tx.blocks = tx.blocks.set(b) }

// DeleteBlock removes the block of that network and prefix; one that is not there is fine.
func (tx *Tx) DeleteBlock(b Block) { tx.blocks = tx.blocks.delete(b.key()) }

// SetNode adds or replaces the node of that name.
func (tx *Tx) SetNode(n Node) { tx.nodes = tx.nodes.set(n) }

// DeleteNode removes a node; one that is not there is fine.
func (tx *Tx) DeleteNode(name string) { tx.nodes = tx.nodes.delete(name) }

// SetService adds or replaces the service of that namespace and name.
func (tx *Tx) SetService(v Service) { tx.services = tx.services.set(v) }

// DeleteService removes the service of that key, namespace/name; one that is not there is fine.
func (tx *Tx) DeleteService(key string) { tx.services = tx.services.delete(key) }

// ReplaceServices makes these the only services, and leaves everything else.
func (tx *Tx) ReplaceServices(services []Service) { tx.services = replace(tx.services, services) }

// ReplaceListeners makes these the only ports that processes of the host have,
// and leaves everything else.
func (tx *Tx) ReplaceListeners(listeners []Listener) { tx.listeners = replace(tx.listeners, listeners) }

// SetNodeService adds or replaces what the node serves of the service of that namespace and name.
func (tx *Tx) SetNodeService(v NodeService) { tx.nodeServices = tx.nodeServices.set(v) }

// DeleteNodeService removes what the node serves of a service; one that is not there is fine.
func (tx *Tx) DeleteNodeService(key string) { tx.nodeServices = tx.nodeServices.delete(key) }

// ReplaceNodeServices makes these all that the node serves, and leaves everything else.
func (tx *Tx) ReplaceNodeServices(services []NodeService) {
	tx.nodeServices = replace(tx.nodeServices, services)
}

// SetTenant adds or replaces the tenant of that namespace.
func (tx *Tx) SetTenant(t Tenant) { tx.tenants = tx.tenants.set(t) }

// DeleteTenant removes a tenant; one that is not there is fine.
func (tx *Tx) DeleteTenant(namespace string) { tx.tenants = tx.tenants.delete(namespace) }

// ReplaceServiceRanges makes these the only prefixes of ClusterIPs, and leaves everything else.
func (tx *Tx) ReplaceServiceRanges(ranges []ServiceRange) { tx.ranges = replace(tx.ranges, ranges) }

// ReplacePolicies makes these the only rules, subjects and peers, and leaves everything else.
func (tx *Tx) ReplacePolicies(rules []Rule, subjects []Subject, peers []Peer) {
	tx.rules = replace(tx.rules, rules)
	tx.subjects = replace(tx.subjects, subjects)
	tx.peers = replace(tx.peers, peers)
}

// SetRule adds or replaces the rule of that ID.
func (tx *Tx) SetRule(r Rule) { tx.rules = tx.rules.set(r) }

// DeleteRule removes a rule; one that is not there is fine.
func (tx *Tx) DeleteRule(id string) { tx.rules = tx.rules.delete(id) }

// SetSubject adds or replaces the subject of that key.
func (tx *Tx) SetSubject(s Subject) { tx.subjects = tx.subjects.set(s) }

// DeleteSubject removes a subject; one that is not there is fine.
func (tx *Tx) DeleteSubject(key string) { tx.subjects = tx.subjects.delete(key) }

// SetPeer adds or replaces the peer of that space and address.
func (tx *Tx) SetPeer(p Peer) { tx.peers = tx.peers.set(p) }

// DeletePeer removes the peer of that key (PeerKey); one that is not there is fine.
func (tx *Tx) DeletePeer(key string) { tx.peers = tx.peers.delete(key) }

func replace[T object[T]](t Table[T], with []T) Table[T] {
	keep := make(map[string]bool, len(with))
	for _, obj := range with {
		keep[obj.key()] = true
		t = t.set(obj)
	}
	var gone []string
	for obj := range t.All() {
		if !keep[obj.key()] {
			gone = append(gone, obj.key())
		}
	}
	for _, key := range gone {
		t = t.delete(key)
	}
	return t
}
