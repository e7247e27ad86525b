// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"maps"
	"net/netip"
	"slices"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
)

// NetworkView is what the intent of Networks depends on beside the objects that they are made of.
type NetworkView struct {
	// Node is the name of this node: Networks of another one mean nothing here, and Ports that this
	// node has bound are known by their attachments.
	Node string
	// Everywhere says that the Networks of all nodes have effect.
	Everywhere bool
	// Connected reports whether this node is connected to a physical network.
	Connected func(physical string) bool
	// SNAT is that of the Router default.
	SNAT intent.SNAT
}

// NetworkSet is all Routers, Networks, AddressBlocks and Ports. A change translates anew what it
// touches: a Router, those that import its routes, and the Networks in it; a Network with its
// blocks and Ports. What comes out depends only on the objects in the set, not on the order in
// which they came. It is for one goroutine.
type NetworkSet struct {
	view     NetworkView
	routers  map[string]*routerEntry
	networks map[string]*networkEntry
	blocks   map[string]*networkEntry // of each AddressBlock, by its name
	ports    map[string]*networkEntry // of each Port, by its namespace/name
	// having are how many Ports say that they have an address, by the name of its block.
	having map[string]int

	results   map[string]intent.Router // those in effect
	shared    map[string]bool          // by Router
	exports   map[string][]string      // names of Routers by route target
	importers map[string]map[*routerEntry]struct{}
	// By the name of the Router that a Network is in.
	attached map[string]map[*networkEntry]struct{}

	touchedRouters  map[*routerEntry]struct{}
	touchedNetworks map[*networkEntry]struct{}
	troubledRouters map[*routerEntry]struct{}
	troubled        map[*networkEntry]struct{}
}

// routerEntry is a Router; the one called default is there without an object.
type routerEntry struct {
	name     string
	object   *v1alpha1.Router
	problems []Problem
}

// networkEntry is a Network, its AddressBlocks and its Ports, of which each may be there without
// the others; the Network called default is there without an object. What follows the objects is
// what Changes has last made of them.
type networkEntry struct {
	name    string
	object  *v1alpha1.Network
	claims  map[string]*v1alpha1.AddressBlock
	objects map[string]*v1alpha1.Port

	network  []intent.Network // one, or none
	blocks   []intent.Block
	ports    []intent.Port
	problems networkProblems
}

// networkProblems are those of a Network, of its blocks and of its Ports.
type networkProblems [3][]Problem

// Change is how the objects of a kind differ from what they were at the call before. Those to set
// may be as they were.
type Change[T any] struct{ Set, Gone []T }

// NetworkChanges are how intent differs from what it was at the call before.
type NetworkChanges struct {
	Routers  Change[intent.Router]
	Networks Change[intent.Network]
	Blocks   Change[intent.Block]
	Ports    Change[intent.Port] // of other nodes
	// Problems says that Problems() may differ, too.
	Problems bool
}

// NewNetworkSet makes a set without objects: it has the default Network and Router.
func NewNetworkSet(view NetworkView) *NetworkSet {
	s := &NetworkSet{
		view: view, routers: map[string]*routerEntry{}, networks: map[string]*networkEntry{},
		blocks: map[string]*networkEntry{}, ports: map[string]*networkEntry{}, having: map[string]int{},
		results: map[string]intent.Router{}, shared: map[string]bool{}, exports: map[string][]string{},
		importers: map[string]map[*routerEntry]struct{}{}, attached: map[string]map[*networkEntry]struct{}{},
		touchedRouters: map[*routerEntry]struct{}{}, touchedNetworks: map[*networkEntry]struct{}{},
		troubledRouters: map[*routerEntry]struct{}{}, troubled: map[*networkEntry]struct{}{},
	}
	s.touchedRouters[s.router(intent.DefaultRouterName)] = struct{}{}
	s.network(intent.DefaultNetworkName)
	return s
}

// SetRouter adds or replaces the Router of a name; nil removes it.
func (s *NetworkSet) SetRouter(name string, o *v1alpha1.Router) {
	e := s.router(name)
	if e.object != nil {
		for _, target := range exportTargets(e.object) {
			names := s.exports[target]
			at := slices.Index(names, name)
			s.exports[target] = slices.Delete(names, at, at+1)
			if len(names) == 1 {
				delete(s.exports, target)
			}
		}
		for _, target := range importTargets(e.object) {
			remove(s.importers, target, e)
		}
		s.touchImporters(e.object)
	}
	e.object = o
	delete(s.shared, name)
	if o != nil {
		s.shared[name] = name == intent.DefaultRouterName ||
			Admitted(o.Status.ID, o.Status.Conditions) && IsShared(o)
		for _, target := range exportTargets(o) {
			s.exports[target] = append(s.exports[target], name)
		}
		for _, target := range importTargets(o) {
			add(s.importers, target, e)
		}
		s.touchImporters(o)
	}
	s.touchedRouters[e] = struct{}{}
}

// touchImporters touches the Routers that import the routes of one.
func (s *NetworkSet) touchImporters(o *v1alpha1.Router) {
	for _, target := range exportTargets(o) {
		maps.Copy(s.touchedRouters, s.importers[target])
	}
}

// SetNetwork adds or replaces the Network of a name; nil removes it.
func (s *NetworkSet) SetNetwork(name string, o *v1alpha1.Network) {
	e := s.network(name)
	if e.object != nil {
		remove(s.attached, assignedRouter(e.object), e)
	}
	if e.object = o; o != nil {
		add(s.attached, assignedRouter(o), e)
	}
}

// SetBlock adds or replaces the AddressBlock of a name; nil removes it.
func (s *NetworkSet) SetBlock(name string, o *v1alpha1.AddressBlock) {
	if e := s.blocks[name]; e != nil {
		s.touchByBlock(e, e.claims[name])
		delete(e.claims, name)
		delete(s.blocks, name)
		if e.object == nil && len(e.claims) == 0 {
			s.touchedNetworks[e] = struct{}{} // it may be of no more use
		}
	}
	if o != nil {
		e := s.entry(o.Spec.Network)
		e.claims[name], s.blocks[name] = o, e
		s.touchByBlock(e, o)
	}
}

// touchByBlock has a Network translated anew because of one of its blocks. Those of one address
// that no Port has, such as a floating IP's, may be very many, and mean nothing to it.
func (s *NetworkSet) touchByBlock(e *networkEntry, o *v1alpha1.AddressBlock) {
	if p, err := parsePrefix(o.Spec.CIDR); err != nil || !p.IsSingleIP() || s.having[o.Name] > 0 {
		s.touchedNetworks[e] = struct{}{}
	}
}

// SetPort adds or replaces the Port of a namespace/name; nil removes it.
func (s *NetworkSet) SetPort(name string, o *v1alpha1.Port) {
	if e := s.ports[name]; e != nil {
		for _, block := range blocksOf(e.objects[name]) {
			if s.having[block]--; s.having[block] == 0 {
				delete(s.having, block)
			}
		}
		delete(e.objects, name)
		delete(s.ports, name)
		s.touchedNetworks[e] = struct{}{}
	}
	if o != nil {
		e := s.network(o.Spec.Network)
		e.objects[name], s.ports[name] = o, e
		for _, block := range blocksOf(o) {
			s.having[block]++
		}
	}
}

// blocksOf are the names of the blocks of the single addresses that a Port says it has.
func blocksOf(o *v1alpha1.Port) (list []string) {
	for _, text := range o.Status.Addresses {
		if a, err := netip.ParseAddr(text); err == nil {
			list = append(list, singleBlock(o.Spec.Network, a))
		}
	}
	return list
}

// Changes is how intent differs from what it was at the last call, or from nothing. It costs as
// much as the Networks and Routers that were touched meanwhile.
func (s *NetworkSet) Changes() NetworkChanges {
	var c NetworkChanges
	for e := range s.touchedRouters {
		s.translateRouter(e, &c)
	}
	for e := range s.touchedNetworks {
		s.translateNetwork(e, &c)
	}
	clear(s.touchedRouters)
	clear(s.touchedNetworks)
	return c
}

// Problems are those of all objects as of the last call of Changes, in the order of Networks,
// Blocks and FixedPorts. Those of Ports are left out without withPorts.
func (s *NetworkSet) Problems(withPorts bool) []Problem {
	var parts networkProblems
	for e := range s.troubledRouters {
		parts[0] = append(parts[0], e.problems...)
	}
	for e := range s.troubled {
		for i, list := range e.problems {
			if i < 2 || withPorts {
				parts[i] = append(parts[i], list...)
			}
		}
	}
	for _, list := range parts {
		sortProblems(list)
	}
	return slices.Concat(parts[:]...)
}

func (s *NetworkSet) translateRouter(e *routerEntry, c *NetworkChanges) {
	var t networkTables
	var now intent.Router
	ok := e.name == intent.DefaultRouterName
	if ok {
		_, now = Default()
	}
	if e.object != nil {
		if now, ok = t.router(e.object); ok {
			now.Imports = imports(e.object, s.exports, s.shared)
		}
	}
	if e.name == intent.DefaultRouterName {
		now.SNAT = s.view.SNAT
	}
	c.Problems = c.Problems || len(e.problems)+len(t.problems) > 0
	e.problems = t.problems
	mark(s.troubledRouters, e, len(e.problems) > 0)
	old, was := s.results[e.name]
	if was != ok { // its Networks take effect, or none does
		maps.Copy(s.touchedNetworks, s.attached[e.name])
	}
	switch {
	case ok:
		s.results[e.name] = now
		c.Routers.Set = append(c.Routers.Set, now)
	case was:
		delete(s.results, e.name)
		c.Routers.Gone = append(c.Routers.Gone, old)
	}
	if e.object == nil && e.name != intent.DefaultRouterName {
		delete(s.routers, e.name)
	}
}

func (s *NetworkSet) translateNetwork(e *networkEntry, c *NetworkChanges) {
	t := &networkTables{routers: s.results, networks: map[string]intent.Network{}}
	var specs []*v1alpha1.Network
	if o := e.object; o != nil && (s.view.Everywhere || onNode(o, s.view.Node)) {
		specs = append(specs, o)
		if e.name != intent.DefaultNetworkName && Admitted(o.Status.ID, o.Status.Conditions) {
			t.addNetwork(o)
		}
	}
	if e.name == intent.DefaultNetworkName {
		n, _ := Default()
		if e.object != nil {
			n.UID = string(e.object.UID)
		}
		t.networks[e.name] = n
	}
	var network []intent.Network
	if n, ok := t.networks[e.name]; ok && (n.Physical == "" || s.view.Connected(n.Physical)) {
		network = append(network, n)
	}
	claims := inOrder(e.claims)
	blocks, ofBlocks := Blocks(claims, network, specs)
	ports, ofPorts := FixedPorts(inOrder(e.objects), claims, network, blocks, s.view.Node)

	difference(&c.Networks, e.network, network, func(n intent.Network) string { return n.Name })
	difference(&c.Blocks, e.blocks, blocks, func(b intent.Block) string { return b.Prefix.String() })
	difference(&c.Ports, e.ports, ports, func(p intent.Port) string { return p.ID })
	e.network, e.blocks, e.ports = network, blocks, ports
	had := e.problems.any()
	e.problems = networkProblems{t.problems, ofBlocks, ofPorts}
	c.Problems = c.Problems || had || e.problems.any()
	mark(s.troubled, e, e.problems.any())
	if e.object == nil && len(e.claims)+len(e.objects) == 0 && e.name != intent.DefaultNetworkName {
		delete(s.networks, e.name)
	}
}

func (p networkProblems) any() bool { return len(p[0])+len(p[1])+len(p[2]) > 0 }

// difference adds what one object of the API came to, and comes to now.
func difference[T any](c *Change[T], old, now []T, key func(T) string) {
	keys := make(map[string]struct{}, len(now))
	for _, o := range now {
		keys[key(o)] = struct{}{}
	}
	for _, o := range old {
		if _, stays := keys[key(o)]; !stays {
			c.Gone = append(c.Gone, o)
		}
	}
	c.Set = append(c.Set, now...)
}

func (s *NetworkSet) router(name string) *routerEntry {
	e := s.routers[name]
	if e == nil {
		e = &routerEntry{name: name}
		s.routers[name] = e
	}
	return e
}

// network returns the entry of a Network, touched.
func (s *NetworkSet) network(name string) *networkEntry {
	e := s.entry(name)
	s.touchedNetworks[e] = struct{}{}
	return e
}

// entry returns the entry of a Network.
func (s *NetworkSet) entry(name string) *networkEntry {
	e := s.networks[name]
	if e == nil {
		e = &networkEntry{
			name: name, claims: map[string]*v1alpha1.AddressBlock{}, objects: map[string]*v1alpha1.Port{},
		}
		s.networks[name] = e
	}
	return e
}

func inOrder[T any](m map[string]*T) []*T {
	list := make([]*T, 0, len(m))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		list = append(list, m[name])
	}
	return list
}

func add[K, T comparable](index map[K]map[T]struct{}, key K, e T) {
	if index[key] == nil {
		index[key] = map[T]struct{}{}
	}
	index[key][e] = struct{}{}
}

func remove[K, T comparable](index map[K]map[T]struct{}, key K, e T) {
	delete(index[key], e)
	if len(index[key]) == 0 {
		delete(index, key)
	}
}

func mark[T comparable](set map[T]struct{}, e T, in bool) {
	if in {
		set[e] = struct{}{}
	} else {
		delete(set, e)
	}
}
