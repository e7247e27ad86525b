// SPDX-License-Identifier: Apache-2.0

package bridge

import (
	"fmt"
	"iter"
	"maps"
	"slices"

	"coelan.io/coelan/openflow"
)

// reference names a rule that another one uses. A switch that deletes the used
// one deletes the user, too, and says nothing.
type reference struct {
	kind refKind
	id   uint32
}

type refKind string

const (
	groupRef refKind = "group"
	meterRef refKind = "meter"
)

// references yields what a flow uses.
func references(f *openflow.Flow) iter.Seq[reference] {
	return func(yield func(reference) bool) {
		_ = referencesIn(f.Actions, yield) && referencesIn(f.WriteActions, yield)
	}
}

// bucketReferences yields what a group uses.
func bucketReferences(g *openflow.Group) iter.Seq[reference] {
	return func(yield func(reference) bool) {
		for i := range g.Buckets {
			if !referencesIn(g.Buckets[i].Actions, yield) {
				return
			}
		}
	}
}

// referencesIn yields what actions use, until yield says no. It does not unpack what
// uses nothing.
func referencesIn(actions []openflow.Action, yield func(reference) bool) bool {
	for i, a := range actions {
		if p, ok := a.(openflow.PackedActions); ok && !p.Refers() {
			continue
		}
		for n := range nested(actions[i : i+1]) {
			if r, ok := referenceOf(n); ok && !yield(r) {
				return false
			}
		}
	}
	return true
}

func referenceOf(a openflow.Action) (reference, bool) {
	switch a := a.(type) {
	case openflow.GroupAction:
		return reference{groupRef, a.Group}, true
	case openflow.MeterAction:
		return reference{meterRef, a.Meter}, true
	case openflow.Controller:
		return reference{meterRef, a.Meter}, a.Meter != 0
	}
	return reference{}, false
}

// actionsOf yields all actions of a flow, nested ones included.
func actionsOf(f *openflow.Flow) iter.Seq[openflow.Action] {
	return func(yield func(openflow.Action) bool) {
		for _, list := range [][]openflow.Action{f.Actions, f.WriteActions} {
			for a := range nested(list) {
				if !yield(a) {
					return
				}
			}
		}
	}
}

// nested yields actions and those inside of them.
func nested(actions []openflow.Action) iter.Seq[openflow.Action] {
	return func(yield func(openflow.Action) bool) {
		for _, a := range actions {
			if !yield(a) {
				return
			}
			var inner []openflow.Action
			switch a := a.(type) {
			case openflow.CloneAction:
				inner = a.Actions
			case openflow.CT:
				inner = a.Exec
			case openflow.PackedActions:
				inner = a.Actions()
			}
			for i := range nested(inner) {
				if !yield(i) {
					return
				}
			}
		}
	}
}

// uses counts how often each rule is used.
type uses map[reference]int

func (u uses) add(refs iter.Seq[reference], n int) {
	for r := range refs {
		u[r] += n
	}
}

// usesAfter is how the uses of a state change by p.
func usesAfter(p *plan) uses {
	u := uses{}
	count(u, p.flows, references)
	count(u, p.groups, bucketReferences)
	return u
}

func count[T any](u uses, c changes[T], refs func(*T) iter.Seq[reference]) {
	for _, r := range c.gone {
		u.add(refs(r.spec), -1)
	}
	for _, r := range c.changed {
		u.add(refs(r.was), -1)
		u.add(refs(r.spec), 1)
	}
	for _, r := range c.added {
		u.add(refs(r.spec), 1)
	}
}

// dangling finds a rule that uses one that p deletes. change is usesAfter(p).
func (s *state) dangling(p *plan, change uses) error {
	gone := map[reference]bool{}
	note := func(r reference) { gone[r] = s.uses[r]+change[r] > 0 }
	for _, g := range p.groups.gone {
		note(reference{groupRef, g.spec.ID})
	}
	for _, m := range p.meters.gone {
		note(reference{meterRef, m.spec.ID})
	}
	for r, used := range gone {
		if used {
			owner, text := s.user(p, r)
			return &Refused{owner, text, fmt.Errorf("%s %d, which it uses, does not exist any more", r.kind, r.id)}
		}
	}
	return nil
}

// user finds a rule that uses r after p.
func (s *state) user(p *plan, r reference) (owner, text string) {
	flows, groups := maps.Clone(s.flows), maps.Clone(s.groups)
	flows = update(flows, p.flows, flowKey)
	groups = update(groups, p.groups, groupKey)
	for _, f := range flows {
		for ref := range references(f.spec) {
			if ref == r {
				return f.owner, f.spec.String()
			}
		}
	}
	for _, g := range groups {
		for ref := range bucketReferences(g.spec) {
			if ref == r {
				return g.owner, groupText(g.spec)
			}
		}
	}
	return "", ""
}

// unpacked are actions with packed ones replaced by what they stand for.
func unpacked(actions []openflow.Action) []openflow.Action {
	if !slices.ContainsFunc(actions, func(a openflow.Action) bool { _, ok := a.(openflow.PackedActions); return ok }) {
		return actions
	}
	var list []openflow.Action
	for _, a := range actions {
		if p, ok := a.(openflow.PackedActions); ok {
			list = append(list, unpacked(p.Actions())...)
		} else {
			list = append(list, a)
		}
	}
	return list
}
