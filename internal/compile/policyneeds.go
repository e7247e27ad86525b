// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"slices"

	"coelan.io/coelan/internal/intent"
)

// Policies have units that are no objects: a flow for each value that packets are compared with, in which all the rules that ask
// for it come together. Units of a class, of a block and of a port are compiled when the first rule or peer asks for the value, and
// again when one that asks for it comes, goes or takes another shape; not when another peer has the same class.

// compileForPolicies emits the flows of a unit of policies; false if nothing asks for it any more.
func (r *rules) compileForPolicies(key unitKey) (owner string, ok bool) {
	switch key.kind {
	case kindRule:
		if o, ok := r.state.Rules().Get(key.key); ok {
			r.owner = "rule/" + key.key
			r.compileRule(o)
			return r.owner, true
		}
	case kindPeer:
		if o, ok := r.state.Peers().Get(key.key); ok {
			r.owner = "peer/" + o.Space + "/" + o.Address.String()
			r.compilePeer(o)
			return r.owner, true
		}
	case kindClass:
		r.owner = "peers/" + key.key
		r.begin(policyPeerFeature)
		return r.owner, r.compileClass(key.key)
	case kindPrefix:
		r.owner = "policy-block/" + key.key
		r.begin(policyPeerFeature)
		return r.owner, r.compilePrefix(key.key)
	case kindPortMatch:
		r.owner = "policy-port/" + key.key
		r.begin(policyPeerFeature)
		return r.owner, r.compilePortMatch(key.key)
	}
	return "", false
}

// ruleChange is a rule that differs between two States; nil: it is not there.
type ruleChange struct{ from, to *intent.Rule }

// ruleChanges are those of delta, and rules that share a Slot with one that came or went, and may have another place there.
func ruleChanges(from, to *intent.State, delta intent.Delta) map[string]ruleChange {
	changes := map[string]ruleChange{}
	at := func(s *intent.State, id string) *intent.Rule {
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
		for o := range to.RulesIn((intent.Rule{ID: id}).Slot()) {
			if changes[o.ID].to == nil {
				changes[o.ID] = ruleChange{at(from, o.ID), &o}
			}
		}
	}
	return changes
}

// policies adds the units of policies that differ between the State before and the last one, and the questions about them that
// have another answer.
func (c *Compiler) policies(before *intent.State, delta intent.Delta, dirty, changed map[unitKey]bool) {
	if c.last.Local().PolicyMode != intent.EnforcedPolicies {
		return
	}
	if before == nil {
		before = intent.NewStore().State()
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
			for needer := range c.needers[key] {
				if needer.kind == kindClass {
					changed[unitKey{kindUse, needer.key}] = true
				}
			}
		}
	}
	for _, key := range delta.Peers {
		dirty[unitKey{kindPeer, key}] = true
		for _, s := range []*intent.State{before, c.last} {
			if p, ok := s.Peers().Get(key); ok {
				if class := p.Class(); hasClass(before, class) != hasClass(c.last, class) {
					dirty[unitKey{kindClass, classText(class)}] = true
				}
			}
		}
	}
}

func hasClass(s *intent.State, class uint64) bool {
	for range s.PeersOf(class) {
		return true
	}
	return false
}

// moved says whether the rule is judged under another number in the last State than in the one before.
func (c *Compiler) moved(before *intent.State, id string) bool {
	from, was := before.Rules().Get(id)
	to, is := c.last.Rules().Get(id)
	if !was || !is {
		return true
	}
	a, problemA := judge(before, from)
	b, problemB := judge(c.last, to)
	return a.id != b.id || problemA != problemB
}

// note adds what asks for the rule: all that it asks for itself if its shape is another one, else what only one of the two
// asks for.
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
	for _, m := range differing(from.PortMatches(), to.PortMatches(), reshaped) {
		dirty[unitKey{kindPortMatch, m.String()}] = true
	}
}

// sameShape says whether two rules differ at most in whom and what they ask for, and not in how they do.
func sameShape(a, b intent.Rule) bool {
	return a.Policy == b.Policy && a.Number == b.Number && a.Direction == b.Direction && a.Tier == b.Tier && a.Priority == b.Priority &&
		a.Action == b.Action && a.AnyPeer == b.AnyPeer && (len(a.Ports) == 0) == (len(b.Ports) == 0) &&
		(len(a.Groups) == 0) == (len(b.Groups) == 0) && nobody(a) == nobody(b)
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
