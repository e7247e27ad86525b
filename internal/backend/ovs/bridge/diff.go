// SPDX-License-Identifier: Apache-2.0

package bridge

import (
	"maps"
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

// changed are the owners of rules that may differ from those of the last Sync: of the same Desired,
// those that changed since; all of them, if that cannot be told.
func (b *Bridge) changed(d *Desired) map[string]bool {
	if b.synced == nil {
		return nil // they have to be compared one by one
	}
	if b.of == d {
		if owners, ok := d.since(b.change); ok {
			return owners
		}
	}
	return ownersOf(d.owners, b.synced)
}

// remember records that the switch is in the state d. The owners are those of rules
// that may have changed.
func (b *Bridge) remember(d *Desired, owners map[string]bool, conflicts bool) {
	if conflicts {
		b.synced, b.of = nil, nil // the losers may win next time
		return
	}
	if b.synced == nil {
		b.synced, owners = make(map[string]*Rules, len(d.owners)), nil
		maps.Copy(b.synced, d.owners)
	}
	for owner := range owners {
		if r := d.owners[owner]; r != nil {
			b.synced[owner] = r
		} else {
			delete(b.synced, owner)
		}
	}
	b.of, b.change = d, d.now()
}

// incremental is diff for these owners, at the cost of those only. ok is false if it
// cannot tell: then everything has to be compared.
func (b *Bridge) incremental(d *Desired, owners map[string]bool) (p *plan, ok bool) {
	if b.synced == nil {
		return nil, false
	}
	old, now := newState(0, 0, 0), newState(0, 0, 0)
	for owner := range owners {
		was, is := b.synced[owner], d.owners[owner]
		if was == is {
			continue
		}
		if was != nil {
			old.add(owner, was)
		}
		if is != nil && len(now.add(owner, is)) > 0 {
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
