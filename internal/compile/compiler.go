// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"cmp"
	"maps"
	"slices"

	"coelan.io/coelan/internal/bridge"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// Compiler compiles one State after another and does only what changed. It is
// not safe for concurrent use; the zero value is not usable.
type Compiler struct {
	last     *intent.State
	desired  *bridge.Desired
	units    map[unitKey]*unit
	needers  map[unitKey]map[unitKey]bool // who looked an object up
	meanings map[uint64]*counted

	defaultRoutes bool // any private router has one
	// uses are the directions in which Rules of the State ask for classes, as far as has been asked.
	uses map[uint64]directions
}

// unit is what was compiled for one object.
type unit struct {
	owner    string // in bridge.Desired
	needs    []unitKey
	meanings []meant
	problems []Problem
}

// unitKey names an object.
type unitKey struct {
	kind kind
	key  string
}

type kind uint8

const (
	kindLocal kind = iota
	kindRouter
	kindNetwork
	kindNode
	kindPort
	kindBlock
	kindService
	kindServiceRange
	kindRule
	kindPeer
	kindClass     // all Peers that have the same groups
	kindPrefix    // a block of Rules
	kindPortMatch // what Ports of Rules are compared with
	kindObjects   // how many there are
)

// usual is how many flows an object comes to, about.
var usual = [...]int{kindLocal: 64, kindRouter: 2, kindNetwork: 6, kindNode: 6, kindPort: 20, kindBlock: 1, kindServiceRange: 2, kindPortMatch: 2}

type counted struct {
	meaning Meaning
	units   int
}

// Problem is why something of an object was not compiled. The rest was.
type Problem struct {
	Owner string // such as "node/worker2"
	Text  string
}

func (p Problem) Error() string { return p.Owner + ": " + p.Text }

// New returns a Compiler that has compiled nothing.
func New() *Compiler {
	c := &Compiler{}
	c.reset()
	return c
}

// Desired compiles a State from nothing.
func Desired(state *intent.State) *bridge.Desired { return New().Compile(state) }

func (c *Compiler) reset() {
	*c = Compiler{
		desired:  bridge.NewDesired(),
		units:    map[unitKey]*unit{},
		needers:  map[unitKey]map[unitKey]bool{},
		meanings: map[uint64]*counted{},
	}
}

// Compile brings what is desired from the State before to state, and returns it.
// The next Compile changes it in place; the rules that it holds never change.
func (c *Compiler) Compile(state *intent.State) *bridge.Desired {
	before := c.last
	delta := intent.Diff(before, state)
	if before == nil || delta.Local {
		c.reset()
		before, delta = nil, intent.Diff(nil, state)
		delta.Local = true
	}
	c.last, c.uses = state, map[uint64]directions{}
	dirty := c.affected(before, delta)
	had := c.defaultRoutes
	if len(delta.Routers) > 0 {
		c.defaultRoutes = anyDefaultRoute(state)
	}
	if c.defaultRoutes != had || c.defaultRoutes && len(delta.ServiceRanges) > 0 {
		for v := range state.Services().All() { // of which those in ranges need not be told apart
			dirty[unitKey{kindService, serviceKey(v)}] = true
		}
	}
	for key := range dirty {
		c.compile(key)
	}
	return c.desired
}

// affected are the objects of delta, which differ from the State before, and
// those that looked one of them up or asked what it decides.
func (c *Compiler) affected(before *intent.State, delta intent.Delta) map[unitKey]bool {
	dirty := map[unitKey]bool{}
	if delta.Local {
		dirty[unitKey{kind: kindLocal}] = true
	}
	for k, keys := range map[kind][]string{
		kindRouter: delta.Routers, kindNetwork: delta.Networks, kindNode: delta.Nodes, kindPort: delta.Ports, kindBlock: delta.Blocks,
		kindService: delta.Services, kindServiceRange: delta.ServiceRanges,
	} {
		for _, key := range keys {
			dirty[unitKey{k, key}] = true
		}
	}
	changed := map[unitKey]bool{}
	if before != nil {
		changed = answered(before, c.last, delta)
	}
	c.policies(before, delta, dirty, changed)
	maps.Copy(changed, dirty)
	for key := range changed {
		for needer := range c.needers[key] {
			dirty[needer] = true
		}
	}
	if before == nil {
		return dirty
	}
	for key := range servicesMoved(before, c.last, delta) {
		dirty[unitKey{kindService, key}] = true
	}
	return dirty
}

// compile replaces what an object came to; one that is gone comes to nothing.
func (c *Compiler) compile(key unitKey) {
	c.forget(key)
	r := &rules{state: c.last, local: c.last.Local(), defaultRoutes: c.defaultRoutes, uses: c.uses, flows: make([]openflow.Flow, 0, usual[key.kind])}
	owner, ok := r.compile(key)
	if !ok {
		return
	}
	u := &unit{owner: owner, needs: r.needs, meanings: r.meanings}
	for _, text := range r.problems {
		u.problems = append(u.problems, Problem{r.owner, text})
	}
	c.units[key] = u
	c.desired.Set(owner, &bridge.Rules{Flows: r.flows, Groups: r.groups, Meters: r.meters})
	for _, need := range u.needs {
		if need != key {
			if c.needers[need] == nil {
				c.needers[need] = map[unitKey]bool{}
			}
			c.needers[need][key] = true
		}
	}
	for _, m := range u.meanings {
		if c.meanings[m.cookie] == nil {
			c.meanings[m.cookie] = &counted{meaning: m.meaning}
		}
		c.meanings[m.cookie].units++
	}
}

// compile emits the rules of an object and names it for bridge.Desired, where
// the name has to be unique; false if there is no such object.
func (r *rules) compile(key unitKey) (owner string, ok bool) {
	switch key.kind {
	case kindLocal:
		r.owner = "local"
		r.compileLocal()
		return r.owner, true
	case kindRouter:
		if o, ok := r.state.Routers().Get(key.key); ok {
			r.owner = "router/" + o.Name
			r.compileRouter(o)
			return r.owner, true
		}
	case kindNetwork:
		if o, ok := r.state.Networks().Get(key.key); ok {
			r.owner = "network/" + o.Name
			r.compileNetwork(o)
			return r.owner, true
		}
	case kindNode:
		if o, ok := r.state.Nodes().Get(key.key); ok {
			r.owner = "node/" + o.Name
			r.compileNode(o)
			return r.owner, true
		}
	case kindPort:
		if o, ok := r.state.Ports().Get(key.key); ok {
			r.owner = "port/" + o.Name()
			r.compilePort(o)
			return r.owner + "#" + o.ID, true
		}
	case kindBlock:
		if o, ok := r.state.Blocks().Get(key.key); ok {
			r.owner = "block/" + o.Network + "/" + o.Prefix.String()
			r.compileBlock(o)
			return r.owner, true
		}
	case kindService:
		if o, ok := r.state.Services().Get(key.key); ok {
			r.owner = "service/" + key.key
			r.compileService(o)
			return r.owner, true
		}
	case kindServiceRange:
		if o, ok := r.state.ServiceRanges().Get(key.key); ok {
			r.owner = "service-range/" + key.key
			r.compileServiceRange(o)
			return r.owner, true
		}
	default:
		return r.compileForPolicies(key)
	}
	return "", false
}

// forget drops what an object came to.
func (c *Compiler) forget(key unitKey) {
	u := c.units[key]
	if u == nil {
		return
	}
	delete(c.units, key)
	c.desired.Remove(u.owner)
	for _, need := range u.needs {
		if delete(c.needers[need], key); len(c.needers[need]) == 0 {
			delete(c.needers, need)
		}
	}
	for _, m := range u.meanings {
		if c.meanings[m.cookie].units--; c.meanings[m.cookie].units == 0 {
			delete(c.meanings, m.cookie)
		}
	}
}

// Explain says what the flows with a cookie are for; false if the cookie is none
// of the last State.
func (c *Compiler) Explain(cookie uint64) (Meaning, bool) {
	if m := c.meanings[cookie]; m != nil {
		return m.meaning, true
	}
	return Meaning{}, false
}

// Problems lists what could not be compiled, sorted.
func (c *Compiler) Problems() []Problem {
	var all []Problem
	for _, u := range c.units {
		all = append(all, u.problems...)
	}
	slices.SortFunc(all, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Text, b.Text))
	})
	return all
}
