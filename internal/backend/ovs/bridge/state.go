// SPDX-License-Identifier: Apache-2.0

package bridge

import (
	"context"
	"sort"

	"coelan.io/coelan/openflow"
)

// rule is a flow, a group or a meter with its owner, which is empty if it was
// dumped.
type rule[T any] struct {
	owner string
	spec  *T
	was   *T // in changes.changed: what is there
}

// state is the rules of a switch by what identifies them there.
type state struct {
	flows  map[openflow.FlowKey]rule[openflow.Flow]
	groups map[uint32]rule[openflow.Group]
	meters map[uint32]rule[openflow.Meter]
	uses   uses
}

func newState(flows, groups, meters int) *state {
	return &state{
		flows:  make(map[openflow.FlowKey]rule[openflow.Flow], flows),
		groups: make(map[uint32]rule[openflow.Group], groups),
		meters: make(map[uint32]rule[openflow.Meter], meters),
		uses:   uses{},
	}
}

// What identifies a rule.
func flowKey(f *openflow.Flow) openflow.FlowKey { return f.Key() }
func groupKey(g *openflow.Group) uint32         { return g.ID }
func meterKey(m *openflow.Meter) uint32         { return m.ID }

// dump reads the switch, but for the flows of learned tables.
func dump(ctx context.Context, sw Switch, learned func(table uint8) bool) (*state, error) {
	flows, err := sw.Flows(ctx)
	if err != nil {
		return nil, err
	}
	groups, err := sw.Groups(ctx)
	if err != nil {
		return nil, err
	}
	meters, err := sw.Meters(ctx)
	if err != nil {
		return nil, err
	}
	s := newState(len(flows), len(groups), len(meters))
	for i := range flows {
		f := new(openflow.Flow) // what is told beside it can be let go
		if *f = flows[i].Flow; learned == nil || !learned(f.Table) {
			s.flows[f.Key()] = rule[openflow.Flow]{spec: f}
			s.uses.add(references(f), 1)
		}
	}
	for i := range groups {
		s.groups[groups[i].ID] = rule[openflow.Group]{spec: &groups[i]}
		s.uses.add(bucketReferences(&groups[i]), 1)
	}
	for i := range meters {
		s.meters[meters[i].ID] = rule[openflow.Meter]{spec: &meters[i]}
	}
	return s, nil
}

// state is d by rule. It depends on d's content only, not on its history.
func (d *Desired) state() (*state, []Conflict) {
	owners := make([]string, 0, len(d.owners))
	var flows, groups, meters int
	for owner, r := range d.owners {
		owners = append(owners, owner)
		flows, groups, meters = flows+len(r.Flows), groups+len(r.Groups), meters+len(r.Meters)
	}
	sort.Strings(owners)
	s := newState(flows, groups, meters)
	var conflicts []Conflict
	for _, owner := range owners {
		conflicts = append(conflicts, s.add(owner, d.owners[owner])...)
	}
	return s, conflicts
}

// add inserts the rules of an owner, except those that conflict with present ones.
func (s *state) add(owner string, r *Rules) []Conflict {
	conflicts := addAll(s.flows, owner, r.Flows, flowKey, (*openflow.Flow).String)
	conflicts = append(conflicts, addAll(s.groups, owner, r.Groups, groupKey, groupText)...)
	return append(conflicts, addAll(s.meters, owner, r.Meters, meterKey, (*openflow.Meter).String)...)
}

func addAll[K comparable, T any](to map[K]rule[T], owner string, specs []T, key func(*T) K,
	text func(*T) string,
) (conflicts []Conflict) {
	for i := range specs {
		spec := &specs[i]
		k := key(spec)
		if have, taken := to[k]; taken {
			conflicts = append(conflicts, Conflict{have.owner, owner, text(spec)})
			continue
		}
		to[k] = rule[T]{owner: owner, spec: spec}
	}
	return conflicts
}

// update makes s what it is after p; change is usesAfter(p).
func (s *state) update(p *plan, change uses) {
	for r, n := range change {
		if s.uses[r] += n; s.uses[r] == 0 {
			delete(s.uses, r)
		}
	}
	s.flows = update(s.flows, p.flows, flowKey)
	s.groups = update(s.groups, p.groups, groupKey)
	s.meters = update(s.meters, p.meters, meterKey)
}

func update[K comparable, T any](m map[K]rule[T], c changes[T], key func(*T) K) map[K]rule[T] {
	if len(m) == 0 {
		m = make(map[K]rule[T], len(c.added))
	}
	for _, r := range c.gone {
		delete(m, key(r.spec))
	}
	// Also those that are equal to what was there, which can be let go then.
	for _, rules := range [][]rule[T]{c.added, c.changed, c.same} {
		for _, r := range rules {
			m[key(r.spec)] = rule[T]{owner: r.owner, spec: r.spec}
		}
	}
	return m
}
