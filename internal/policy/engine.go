// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"coelan.io/coelan/internal/intent"
)

// Engine holds all Namespaces, Nodes, Endpoints and Policies, and computes from these the
// View of each node.
//
// Objects may come in any order, more than once, and refer to others that are not there yet: the
// Views depend only on what is there now. What is given to the Engine must not be changed
// afterward. One goroutine at a time may use it.
//
// The cost of a change depends on what it affects, not on the size of the cluster. Endpoints that
// no selector can tell apart are one identity, equal selectors are one selector, and each of the
// two knows those of the other that it has to do with. A node that is attached counts how many of
// its identities need a rule, and how many of its rules need a group. All that is computed when it
// is asked for, so many changes at once cost less than one by one.
type Engine struct {
	namespaces map[string]*namespace
	nodes      map[string]*node
	// everywhere is what AllNodes names. It has watchers only.
	everywhere *node
	endpoints  map[string]*endpoint
	policies   map[intent.PolicyRef]*policy

	selectors map[string]*selector // by canonical text
	// Those of namespaces that are selected by labels, by canonical text.
	scopes  map[string]*scope
	groups  map[string]*group // by ID
	naming  map[string]*multiset[*identity]
	holders map[location]*multiset[holder]

	scopeSelectors labelIndex[*scope]
	nodeSelectors  labelIndex[*selector]

	// unplaced are those on a node of which no labels tell an address yet; deniers the policies
	// that have denies.
	unplaced map[*endpoint]struct{}
	deniers  map[*policy]struct{}

	stalePolicies map[intent.PolicyRef]*Policy // what they are to be; nil: nothing
	attached      map[*watcher]struct{}
	touched       map[*watcher]struct{} // for which something may have changed
	// Of what is not used any more, to be called when all that is used is.
	releases []func()
	drops    []func() // of what nothing refers to any more, thereafter

	mostPorts int // see maxNamedPorts

	key   []byte // both of identityKey
	names []string
}

type namespace struct {
	Name       string
	known      bool
	labels     labels.Set
	own        scope
	scopes     []*scope // others that it is in
	identities map[string]*identity
}

type node struct {
	name      string
	known     bool
	labels    labels.Set
	places    []Place
	endpoints multiset[*endpoint]
	selectors []*selector
	watchers  []*watcher // nearly always one at most
}

type endpoint struct {
	key      string
	identity *identity
	node     *node // or nil
	places   []Place
	closed   bool // for it is nowhere yet, as its node has been told
}

// NewEngine returns one that knows nothing.
func NewEngine() *Engine {
	return &Engine{
		namespaces:    map[string]*namespace{},
		nodes:         map[string]*node{},
		everywhere:    &node{name: AllNodes},
		endpoints:     map[string]*endpoint{},
		policies:      map[intent.PolicyRef]*policy{},
		selectors:     map[string]*selector{},
		scopes:        map[string]*scope{},
		groups:        map[string]*group{},
		naming:        map[string]*multiset[*identity]{},
		holders:       map[location]*multiset[holder]{},
		unplaced:      map[*endpoint]struct{}{},
		deniers:       map[*policy]struct{}{},
		stalePolicies: map[intent.PolicyRef]*Policy{},
		attached:      map[*watcher]struct{}{},
		touched:       map[*watcher]struct{}{},
		mostPorts:     maxNamedPorts,
	}
}

// SetNamespace adds a Namespace or replaces the one of its name. Until a Namespace is known no
// selector of namespaces selects it, and Endpoints in it are closed.
func (e *Engine) SetNamespace(n Namespace) {
	ns := e.namespace(n.Name)
	e.relabel(ns, true, n.Labels)
}

// DeleteNamespace removes a Namespace.
func (e *Engine) DeleteNamespace(name string) {
	if n := e.namespaces[name]; n != nil {
		e.relabel(n, false, nil)
		e.tidyNamespace(n)
	}
}

// namespace returns the one of that name, which may not be known. If nothing comes to refer to it,
// tidyNamespace has to be called.
func (e *Engine) namespace(name string) *namespace {
	n := e.namespaces[name]
	if n == nil {
		n = &namespace{Name: name, identities: map[string]*identity{}}
		n.own.members.add(n)
		e.namespaces[name] = n
	}
	return n
}

func (e *Engine) tidyNamespace(n *namespace) {
	if !n.known && len(n.identities) == 0 && n.own.count == 0 {
		delete(e.namespaces, n.Name)
	}
}

// relabel makes a namespace known with these labels, or unknown.
func (e *Engine) relabel(n *namespace, known bool, l labels.Set) {
	was := n.known
	if was == known && maps.Equal(n.labels, l) {
		return
	}
	n.known, n.labels = known, l
	if was != known {
		for _, c := range n.identities {
			e.stale(c)
		}
	}
	var scopes []*scope
	if known {
		for s := range e.scopeSelectors.candidates(l) {
			if s.labels.Matches(l) {
				scopes = append(scopes, s)
			}
		}
	}
	before := n.scopes
	n.scopes = scopes
	for _, s := range before {
		if !slices.Contains(scopes, s) {
			s.members.remove(n)
			for _, c := range n.identities {
				e.leaveScope(s, c)
			}
		}
	}
	for _, s := range scopes {
		if !slices.Contains(before, s) {
			s.members.add(n)
			for _, c := range n.identities {
				e.joinScope(s, c)
			}
		}
	}
}

// SetNode adds a Node or replaces the one of its name.
func (e *Engine) SetNode(n Node) { e.remake(e.node(n.Name), true, n) }

// DeleteNode removes a Node. Endpoints on it stay.
func (e *Engine) DeleteNode(name string) {
	if n := e.nodes[name]; n != nil {
		e.remake(n, false, Node{})
		e.tidyNode(n)
	}
}

// AllNodes in place of a node's name stands for all of them: its View is what the Views of all
// nodes have together, and the Rules of Policies that are for no Endpoint at present. So those of a
// Policy stay when its only Endpoint is replaced.
const AllNodes = ""

// node returns the one of that name, as namespace does.
func (e *Engine) node(name string) *node {
	if name == AllNodes {
		return e.everywhere
	}
	n := e.nodes[name]
	if n == nil {
		n = &node{name: name}
		e.nodes[name] = n
	}
	return n
}

func (e *Engine) tidyNode(n *node) {
	if n != e.everywhere && !n.known && n.endpoints.len() == 0 && len(n.watchers) == 0 {
		delete(e.nodes, n.name)
	}
}

// remake gives a node its labels and places.
func (e *Engine) remake(n *node, known bool, to Node) {
	places := to.places()
	if n.known == known && maps.Equal(n.labels, to.Labels) && slices.Equal(n.places, places) {
		return
	}
	from := e.presence(nil, n, n.places)
	for _, s := range n.selectors {
		s.nodes.remove(n)
	}
	n.known, n.labels, n.places, n.selectors = known, to.Labels, places, nil
	if known {
		for s := range e.nodeSelectors.candidates(to.Labels) {
			if s.Nodes.Matches(to.Labels) {
				s.nodes.add(n)
				n.selectors = append(n.selectors, s)
			}
		}
	}
	e.moved(from, e.presence(nil, n, places))
}

// SetEndpoint adds an Endpoint or replaces the one of its Key.
func (e *Engine) SetEndpoint(to Endpoint) {
	if to.HostNetwork {
		e.DeleteEndpoint(to.Key)
		return
	}
	places := unique(to.Places)
	var on *node
	if to.Node != "" {
		on = e.node(to.Node)
	}
	c := e.identity(to)
	p := e.endpoints[to.Key]
	if p == nil {
		p = &endpoint{key: to.Key}
		e.endpoints[p.key] = p
	}
	if p.identity == c && p.node == on && slices.Equal(p.places, places) {
		return
	}
	was := *p
	from, is := e.presence(was.identity, nil, was.places), e.presence(c, nil, places)
	if p.identity != c || p.node != on {
		e.withdraw(p)
		p.identity, p.node = c, on
		c.endpoints.add(p)
		if on != nil {
			on.endpoints.add(p)
			for w := range e.watchersOf(on) {
				w.add(e, p)
			}
		}
	}
	p.places = places
	if on != nil && !slices.ContainsFunc(places, Place.isPrimary) {
		e.unplaced[p] = struct{}{}
	} else {
		delete(e.unplaced, p)
		e.close(p, false)
	}
	e.moved(from, is)
	e.tidyEndpoint(was)
}

// DeleteEndpoint removes an Endpoint.
func (e *Engine) DeleteEndpoint(key string) {
	p := e.endpoints[key]
	if p == nil {
		return
	}
	from := e.presence(p.identity, nil, p.places)
	e.withdraw(p)
	delete(e.endpoints, key)
	delete(e.unplaced, p)
	e.moved(from, presence{})
	e.tidyEndpoint(*p)
}

// withdraw takes an Endpoint from its identity and its node.
func (e *Engine) withdraw(p *endpoint) {
	if p.identity == nil {
		return
	}
	p.identity.endpoints.remove(p)
	if p.node != nil {
		p.node.endpoints.remove(p)
		for w := range e.watchersOf(p.node) {
			w.remove(e, p)
		}
	}
}

// close has an Endpoint be closed for it is nowhere yet, or not.
func (e *Engine) close(p *endpoint, closed bool) {
	if p.closed == closed {
		return
	}
	p.closed = closed
	if p.node != nil {
		for w := range e.watchersOf(p.node) {
			w.subject(e, p.key, nil)
		}
	}
}

// closeUnplaced blocks endpoints without an address that a deny rule selects: other nodes cannot
// match them until the address is known.
func (e *Engine) closeUnplaced() {
	for p := range e.unplaced {
		e.close(p, e.denied(p.identity))
	}
}

func (e *Engine) denied(c *identity) bool {
	for p := range e.deniers {
		if slices.ContainsFunc(p.denies, func(s *selector) bool { return slices.Contains(c.selectors, s) }) {
			return true
		}
	}
	return false
}

// tidyEndpoint removes what only the Endpoint that was has referred to.
func (e *Engine) tidyEndpoint(was endpoint) {
	if was.identity != nil {
		e.tidyIdentity(was.identity)
	}
	if was.node != nil {
		e.tidyNode(was.node)
	}
}

// SetPolicy adds a Policy or replaces the one of its Ref.
func (e *Engine) SetPolicy(p Policy) { e.stalePolicies[p.Ref] = &p }

// DeletePolicy removes a Policy.
func (e *Engine) DeletePolicy(ref intent.PolicyRef) { e.stalePolicies[ref] = nil }

// View returns what the node of that name has to know, whether or not there is such a Node; of
// AllNodes what all nodes have to know together.
func (e *Engine) View(node string) View {
	w := e.newWatcher(node)
	e.settle()
	d := w.delta(e)
	w.close(e)
	return d.View
}

// Attach returns the node's View and has Deltas tell what changes from now on. It may be called
// again for the same node.
func (e *Engine) Attach(node string) View {
	if n := e.attachable(node); n != nil && len(n.watchers) > 0 {
		v := e.View(node)
		for key := range n.watchers[0].subjects {
			// The caller has no earlier state of them.
			n.watchers[0].subjects[key] = nil
		}
		return v
	}
	w := e.newWatcher(node)
	e.settle()
	return w.delta(e).View
}

// Detach ends what Attach began.
func (e *Engine) Detach(node string) {
	if n := e.attachable(node); n != nil && len(n.watchers) > 0 {
		n.watchers[0].close(e)
	}
}

// attachable is the node of that name, or everywhere; nil if there is none.
func (e *Engine) attachable(name string) *node {
	if name == AllNodes {
		return e.everywhere
	}
	return e.nodes[name]
}

// Deltas returns what has changed since the last call, by name of the attached nodes
// for which something has.
func (e *Engine) Deltas() map[string]Delta {
	e.settle()
	deltas := map[string]Delta{}
	for w := range e.touched {
		if d := w.delta(e); !d.Empty() {
			deltas[w.node.name] = d
		}
	}
	if len(e.touched) > 0 {
		e.touched = map[*watcher]struct{}{} // not cleared: the next one may be much smaller
	}
	return deltas
}

// NodesOf returns the names of the nodes that have Endpoints that the Policy makes a difference
// to, sorted: it has rules for them, or isolates them, or is a SecurityGroup. Other nodes get
// no change from it.
func (e *Engine) NodesOf(ref intent.PolicyRef) []string {
	e.settle()
	p := e.policies[ref]
	if p == nil {
		return nil
	}
	var names []string
	for n := range e.nodesOf(p) {
		names = append(names, n.name)
	}
	slices.Sort(names)
	return names
}

// nodesOf looks no further when there can be no more: of a policy that is for all of a large
// cluster, at a few Endpoints for each node.
func (e *Engine) nodesOf(p *policy) map[*node]bool {
	nodes, seen, most := map[*node]bool{}, 0, -1
	for _, s := range p.governs {
		for c := range s.identities.all() {
			if !p.concerns(c) {
				continue
			}
			for ep := range c.endpoints.all() {
				if ep.node == nil {
					continue
				}
				nodes[ep.node] = true
				if seen++; seen == len(e.nodes) {
					most = e.populated() // it pays from here on
				}
				if len(nodes) == most {
					return nodes
				}
			}
		}
	}
	return nodes
}

// populated is how many nodes have Endpoints.
func (e *Engine) populated() int {
	count := 0
	for _, n := range e.nodes {
		if n.endpoints.len() > 0 {
			count++
		}
	}
	return count
}
