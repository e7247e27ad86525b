// SPDX-License-Identifier: Apache-2.0

package bridge

import (
	"slices"
	"strings"

	"coelan.io/coelan/openflow"
)

// plan is what has to be done on a switch.
type plan struct {
	flows  changes[openflow.Flow]
	groups changes[openflow.Group]
	meters changes[openflow.Meter]
}

// changes are rules by what happens to them. A changed one replaces the rule of
// the same key.
type changes[T any] struct{ added, changed, gone, same []rule[T] }

// diff returns what makes actual into want.
func diff(actual, want *state) *plan {
	return &plan{
		flows:  compare(actual.flows, want.flows, (*openflow.Flow).Equal),
		groups: compare(actual.groups, want.groups, (*openflow.Group).Equal),
		meters: compare(actual.meters, want.meters, (*openflow.Meter).Equal),
	}
}

func compare[K comparable, T any](actual, want map[K]rule[T], equal func(a, b *T) bool) (c changes[T]) {
	if len(actual) == 0 {
		c.added = make([]rule[T], 0, len(want))
	}
	for key, r := range want {
		have, exists := actual[key]
		switch {
		case !exists:
			c.added = append(c.added, r)
		case equal(r.spec, have.spec):
			c.same = append(c.same, r)
		default:
			r.was = have.spec
			c.changed = append(c.changed, r)
		}
	}
	for key, r := range actual {
		if _, wanted := want[key]; !wanted {
			c.gone = append(c.gone, r)
		}
	}
	return c
}

func (p *plan) counts() (added, changed, deleted int) {
	return len(p.flows.added) + len(p.groups.added) + len(p.meters.added),
		len(p.flows.changed) + len(p.groups.changed) + len(p.meters.changed),
		len(p.flows.gone) + len(p.groups.gone) + len(p.meters.gone)
}

// incremental is diff for the owners whose rules changed since the last Sync,
// at the cost of those only. ok is false if it cannot tell: then everything has
// to be compared.
func (b *Bridge) incremental(d *Desired) (p *plan, ok bool) {
	if b.synced == nil {
		return nil, false
	}
	old, now := newState(0, 0, 0), newState(0, 0, 0)
	for owner, r := range b.synced {
		if d.owners[owner] != r {
			old.add(owner, r)
		}
	}
	for owner, r := range d.owners {
		if b.synced[owner] != r && len(now.add(owner, r)) > 0 {
			return nil, false
		}
	}
	p = diff(old, now)
	return p, !taken(p.flows, b.actual.flows, flowKey) &&
		!taken(p.groups, b.actual.groups, groupKey) && !taken(p.meters, b.actual.meters, meterKey)
}

// taken reports whether a rule to add is one that an unchanged owner has.
func taken[K comparable, T any](c changes[T], actual map[K]rule[T], key func(*T) K) bool {
	return slices.ContainsFunc(c.added, func(r rule[T]) bool {
		_, exists := actual[key(r.spec)]
		return exists
	})
}

// lines prints the plan for people, sorted.
func (p *plan) lines() []string {
	var out []string
	before, bundle, after := p.messages()
	for _, o := range slices.Concat(before, bundle, after) {
		out = append(out, o.sign+" "+strings.TrimSpace(o.text()))
	}
	slices.Sort(out)
	return slices.Compact(out) // a group may take several messages
}
