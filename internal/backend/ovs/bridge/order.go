// SPDX-License-Identifier: Apache-2.0

package bridge

import (
	"cmp"
	"slices"

	"coelan.io/coelan/openflow"
)

// op is one message and the rule it is about.
type op struct {
	msg   openflow.Message
	owner string
	sign  string // "+", "-" or "~"
	text  func() string
}

// messages orders the plan so that what a rule refers to is there before the
// rule comes and after it has gone: meters, groups, flows, and back.
func (p *plan) messages() (before, bundle, after []op) {
	meter := func(sign string, cmd openflow.MeterModCommand, rules []rule[openflow.Meter]) []op {
		return ops(sign, rules, (*openflow.Meter).String, func(m *openflow.Meter) openflow.Message {
			return &openflow.MeterMod{Command: cmd, Meter: *m}
		})
	}
	group := func(
		sign string, mods func(rule[openflow.Group]) []*openflow.GroupMod, rules []rule[openflow.Group],
	) (out []op) {
		out = make([]op, 0, len(rules))
		for _, r := range rules {
			for _, m := range mods(r) {
				out = append(out, op{m, r.owner, sign, func() string { return groupText(r.spec) }})
			}
		}
		return out
	}
	add := func(r rule[openflow.Group]) []*openflow.GroupMod {
		return []*openflow.GroupMod{openflow.AddGroup(*r.spec)}
	}
	change := func(r rule[openflow.Group]) []*openflow.GroupMod { return changeGroup(r.was, r.spec) }
	remove := func(r rule[openflow.Group]) []*openflow.GroupMod {
		return []*openflow.GroupMod{openflow.DeleteGroup(r.spec.ID)}
	}
	flow := func(sign string, mod func(openflow.Flow) *openflow.FlowMod, rules []rule[openflow.Flow]) []op {
		return ops(sign, rules, (*openflow.Flow).String, func(f *openflow.Flow) openflow.Message { return mod(*f) })
	}
	before = slices.Concat(
		meter("+", openflow.MeterAdd, p.meters.added),
		meter("~", openflow.MeterModify, p.meters.changed))
	// A changed group may need a new one, but no new group needs that change.
	gone := inOrder(p.groups.gone)
	slices.Reverse(gone)
	bundle = slices.Concat(
		group("+", add, inOrder(p.groups.added)),
		group("~", change, inOrder(p.groups.changed)),
		flow("-", openflow.DeleteFlow, p.flows.gone),
		flow("~", openflow.AddFlow, p.flows.changed),
		flow("+", openflow.AddFlow, p.flows.added),
		group("-", remove, gone))
	return before, bundle, meter("-", openflow.MeterDelete, p.meters.gone)
}

func ops[T any](sign string, rules []rule[T], text func(*T) string, msg func(*T) openflow.Message) []op {
	out := make([]op, len(rules))
	for i, r := range rules {
		out[i] = op{msg(r.spec), r.owner, sign, func() string { return text(r.spec) }}
	}
	return out
}

// inOrder sorts groups by number, but each after the groups that its buckets
// hand packets to. Groups in a circle, which a switch refuses, stay as they are.
func inOrder(groups []rule[openflow.Group]) []rule[openflow.Group] {
	groups = slices.Clone(groups)
	slices.SortFunc(groups, func(a, b rule[openflow.Group]) int { return cmp.Compare(a.spec.ID, b.spec.ID) })
	todo := make(map[uint32]rule[openflow.Group], len(groups))
	for _, g := range groups {
		todo[g.spec.ID] = g
	}
	sorted := make([]rule[openflow.Group], 0, len(groups))
	var visit func(id uint32)
	visit = func(id uint32) {
		g, ok := todo[id]
		if !ok {
			return
		}
		delete(todo, id)
		for _, next := range refersTo(g.spec) {
			visit(next)
		}
		sorted = append(sorted, g)
	}
	for _, g := range groups {
		visit(g.spec.ID)
	}
	return sorted
}

// refersTo lists the groups that the buckets of g hand packets to.
func refersTo(g *openflow.Group) (ids []uint32) {
	for r := range bucketReferences(g) {
		if r.kind == groupRef {
			ids = append(ids, r.id)
		}
	}
	return ids
}
