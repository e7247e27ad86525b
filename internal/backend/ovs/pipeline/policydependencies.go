// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"slices"

	"coelan.io/coelan/internal/intent"
)

// Policies have units that are no objects: a flow for each value that packets are compared with, in
// which all the rules that ask for it come together. Units of a class, of a block and of a port are
// compiled when the first rule or peer asks for the value, and again when one that asks for it
// comes, goes or takes another shape; not when another peer has the same class.

// ruleChange is a rule that differs between two States; nil: it is not there.
type ruleChange struct{ from, to *intent.Rule }

// ruleChanges are those of delta, and rules that share a Slot with one that came or went, and may
// have another place there.
func ruleChanges(from, to *snapshot, delta intent.Delta) map[string]ruleChange {
	changes := map[string]ruleChange{}
	at := func(s *snapshot, id string) *intent.Rule {
		if rule, ok := s.Rules().Get(id); ok {
			return &rule
		}
		return nil
	}
	for _, id := range delta.Rules {
		c := ruleChange{at(from, id), at(to, id)}
		changes[id] = c
		if c.from != nil && c.to != nil {
			continue
		}
		for o := range to.rulesBySlot.By(slotText(ruleSlot(id))) {
			if changes[o.ID].to == nil {
				changes[o.ID] = ruleChange{at(from, o.ID), &o}
			}
		}
	}
	return changes
}

// policies adds the units of policies that differ between the State before and the last one, and
// the questions about them that have another answer.
func (c *Compiler) policies(before *snapshot, delta intent.Delta, dirty, changed map[unitKey]bool) {
	if c.last.Local().PolicyMode != intent.EnforcedPolicies {
		return
	}
	if before == nil {
		before = emptySnapshot()
	}
	for _, key := range delta.Subjects {
		changed[unitKey{kindSubject, key}] = true
	}
	for id, change := range ruleChanges(before, c.last, delta) {
		dirty[unitKey{kindRule, id}] = true
		change.note(c.moved(before, id), dirty, changed)
	}
	for key := range changed {
		if key.kind == kindGroup && useOfGroup(before, key.key) != useOfGroup(c.last, key.key) {
			for dependent := range c.dependents[key] {
				if dependent.kind == kindClass {
					changed[unitKey{kindUse, dependent.key}] = true
				}
			}
		}
	}
	for _, key := range delta.Peers {
		dirty[unitKey{kindPeer, key}] = true
		for _, s := range []*snapshot{before, c.last} {
			if p, ok := s.Peers().Get(key); ok {
				if class := classOf(p.Groups); hasClass(before, class) != hasClass(c.last, class) {
					dirty[unitKey{kindClass, classText(class)}] = true
				}
			}
		}
	}
}

func hasClass(s *snapshot, class uint64) bool {
	for range s.peersByClass.By(classText(class)) {
		return true
	}
	return false
}

// moved says whether the rule is judged under another number in the last State than
// in the one before.
func (c *Compiler) moved(before *snapshot, id string) bool {
	from, was := before.Rules().Get(id)
	to, is := c.last.Rules().Get(id)
	if !was || !is {
		return true
	}
	a, problemA := judge(before, from)
	b, problemB := judge(c.last, to)
	return a.id != b.id || problemA != problemB
}

// note adds what asks for the rule: all that it asks for itself if its shape is another one, else
// what only one of the two asks for.
func (c ruleChange) note(moved bool, dirty, changed map[unitKey]bool) {
	var from, to intent.Rule
	if c.from != nil {
		from = *c.from
	}
	if c.to != nil {
		to = *c.to
	}
	reshaped := moved || !sameShape(from, to)
	if reshaped {
		changed[unitKey{kindShape, max(from.ID, to.ID)}] = true
	}
	for _, g := range differing(from.Groups, to.Groups, reshaped) {
		changed[unitKey{kindGroup, g}] = true
	}
	for _, b := range differing(from.Blocks, to.Blocks, reshaped) {
		dirty[unitKey{kindPrefix, b.String()}] = true
	}
	for _, m := range differing(portMatches(from), portMatches(to), reshaped) {
		dirty[unitKey{kindPortMatch, m.String()}] = true
	}
}

// sameShape says whether two rules differ at most in their peers and ports, and not in the
// form of their flows.
func sameShape(a, b intent.Rule) bool {
	return a.Policy == b.Policy && a.Number == b.Number && a.Direction == b.Direction && a.Tier == b.Tier &&
		a.Priority == b.Priority &&
		a.Action == b.Action && a.AnyPeer == b.AnyPeer && (len(a.Ports) == 0) == (len(b.Ports) == 0) &&
		(len(a.Groups) == 0) == (len(b.Groups) == 0) && fitsNothing(a) == fitsNothing(b)
}

// differing are the values that only one of the lists has, or all.
func differing[T comparable](a, b []T, all bool) (list []T) {
	if all {
		return slices.Concat(a, b)
	}
	inA, inB := map[T]bool{}, map[T]bool{}
	for _, v := range a {
		inA[v] = true
	}
	for _, v := range b {
		inB[v] = true
		if !inA[v] {
			list = append(list, v)
		}
	}
	for _, v := range a {
		if !inB[v] {
			list = append(list, v)
		}
	}
	return list
}
