// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"cmp"
	"maps"
	"slices"

	"coelan.io/coelan/internal/backend/ovs/bridge"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// Compiler compiles one State after another and does only what changed. It is
// not safe for concurrent use; the zero value is not usable.
type Compiler struct {
	last          *snapshot
	numbers       *Numbers // those that last was compiled with
	neighbourRate uint32   // that last was compiled with
	desired       *bridge.Desired
	units         map[unitKey]*unit
	dependents    map[unitKey]map[unitKey]bool // the units that looked an object up
	meanings      map[uint64]*counted

	defaultRoutes bool // any private router has one
	outside       bool // see anyAnswering
	narrow        bool // see anyNarrow
	// uses are the directions in which Rules of the State ask for classes, as far
	// as has been asked.
	uses map[uint64]directions
}

// unit is what was compiled for one object.
type unit struct {
	owner        string // in bridge.Desired
	dependencies []unitKey
	meanings     []meant
	problems     []Problem
}

// unitKey names an object.
type unitKey struct {
	kind kind
	key  string
}

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

// Desired compiles from nothing.
func Desired(in Input) *bridge.Desired { return New().Compile(in) }

func (c *Compiler) reset() {
	*c = Compiler{
		desired:    bridge.NewDesired(),
		units:      map[unitKey]*unit{},
		dependents: map[unitKey]map[unitKey]bool{},
		meanings:   map[uint64]*counted{},
	}
}

// Compile brings what is desired from the Input before to in, and returns it.
// The next Compile changes it in place; the rules that it holds never change.
func (c *Compiler) Compile(in Input) *bridge.Desired {
	before, known := c.last, c.last
	if known == nil {
		known = emptySnapshot()
	}
	state, delta := known.at(in.State), intent.Diff(known.State, in.State)
	if before == nil || delta.Local || c.neighbourRate != in.NeighbourRate || !c.numbers.sameUplinks(in.Numbers) {
		c.reset()
		before, delta = nil, intent.Diff(nil, in.State)
		delta.Local = true
	}
	if renumbered := c.numbers.differing(in.Numbers); before != nil && len(renumbered) > 0 {
		for _, id := range delta.Ports {
			renumbered[id] = true
		}
		delta.Ports = slices.Sorted(maps.Keys(renumbered))
	}
	renewed := c.numbers.differingUnits(in.Numbers)
	c.last, c.numbers, c.neighbourRate, c.uses = state, in.Numbers, in.NeighbourRate, map[uint64]directions{}
	if before == nil || narrowMay(before, state, delta) {
		c.narrow = anyNarrow(state)
	}
	if before == nil || len(answeringMay(before, state, delta)) > 0 {
		c.outside = anyAnswering(state)
	}
	dirty := c.affected(before, delta)
	for _, unit := range renewed {
		if unit.kind < kindObjects { // the others have no flows of their own
			dirty[unit] = true
		}
		maps.Copy(dirty, c.dependents[unit])
	}
	had := c.defaultRoutes
	if len(delta.Routers)+len(delta.GatewayAddresses) > 0 {
		c.defaultRoutes = anyDefaultRoute(state)
	}
	if c.defaultRoutes != had || c.defaultRoutes && len(delta.ServiceRanges) > 0 {
		for v := range state.NodeServices().All() {
			// Of which those in ranges need not be told apart.
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
func (c *Compiler) affected(before *snapshot, delta intent.Delta) map[unitKey]bool {
	dirty := map[unitKey]bool{}
	if delta.Local {
		dirty[unitKey{kind: kindLocal}] = true
	}
	for k, of := range unitKinds {
		if of.changed == nil {
			continue
		}
		for _, key := range of.changed(delta) {
			dirty[unitKey{kind(k), key}] = true
		}
	}
	changed := map[unitKey]bool{}
	if before != nil {
		changed = answered(before, c.last, delta)
	}
	c.policies(before, delta, dirty, changed)
	maps.Copy(changed, dirty)
	for key := range changed {
		for dependent := range c.dependents[key] {
			dirty[dependent] = true
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
	r := &rules{
		state: c.last, numbers: c.numbers, neighbourRate: c.neighbourRate, local: c.last.Local(),
		defaultRoutes: c.defaultRoutes, narrow: c.narrow, outside: c.outside, uses: c.uses,
		flows: make([]openflow.Flow, 0, unitKinds[key.kind].flows),
	}
	owner, ok := unitKinds[key.kind].compile(r, key.key)
	if !ok {
		return
	}
	u := &unit{owner: owner, dependencies: r.dependencies, meanings: r.meanings}
	for _, text := range r.problems {
		u.problems = append(u.problems, Problem{r.owner, text})
	}
	c.units[key] = u
	c.desired.Set(owner, &bridge.Rules{Flows: r.flows, Groups: r.groups, Meters: r.meters})
	for _, dependency := range u.dependencies {
		if dependency != key {
			if c.dependents[dependency] == nil {
				c.dependents[dependency] = map[unitKey]bool{}
			}
			c.dependents[dependency][key] = true
		}
	}
	for _, m := range u.meanings {
		if c.meanings[m.cookie] == nil {
			c.meanings[m.cookie] = &counted{meaning: m.meaning}
		}
		c.meanings[m.cookie].units++
	}
}

// forget drops what an object came to.
func (c *Compiler) forget(key unitKey) {
	u := c.units[key]
	if u == nil {
		return
	}
	delete(c.units, key)
	c.desired.Remove(u.owner)
	for _, dependency := range u.dependencies {
		if delete(c.dependents[dependency], key); len(c.dependents[dependency]) == 0 {
			delete(c.dependents, dependency)
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
