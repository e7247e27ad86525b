// SPDX-License-Identifier: Apache-2.0

package bridge

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"coelan.io/coelan/openflow"
)

// Fake is a switch in memory. It refuses what Open vSwitch would refuse, and
// some of what Open vSwitch accepts although it cannot be meant: a reference to
// a table that does not exist, a bucket with actions that never run. It does
// not process packets. It is safe for concurrent use.
type Fake struct {
	mu     sync.Mutex
	tables map[uint8]bool // nil: all
	rules  fakeRules
	sent   [][]openflow.Message
}

type fakeRules struct {
	flows  map[openflow.FlowKey]openflow.Flow
	groups map[uint32]openflow.Group
	meters map[uint32]openflow.Meter
}

// NewFake returns an empty switch that has the given tables, or all of them if
// none is given.
func NewFake(tables ...uint8) *Fake {
	f := &Fake{rules: fakeRules{
		flows:  map[openflow.FlowKey]openflow.Flow{},
		groups: map[uint32]openflow.Group{},
		meters: map[uint32]openflow.Meter{},
	}}
	if len(tables) > 0 {
		f.tables = map[uint8]bool{}
		for _, t := range tables {
			f.tables[t] = true
		}
	}
	return f
}

// Connect is for Options: a Fake is one connection that is never lost.
func (f *Fake) Connect(context.Context) (Switch, error) { return f, nil }

// Flows dumps all flows, ordered by table, falling priority and match.
func (f *Fake) Flows(context.Context) ([]openflow.FlowDesc, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	flows := slices.SortedFunc(maps.Values(f.rules.flows), compareFlows)
	out := make([]openflow.FlowDesc, len(flows))
	for i := range flows {
		out[i].Flow = flows[i]
	}
	return out, nil
}

// Groups dumps all groups by number.
func (f *Fake) Groups(context.Context) ([]openflow.Group, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return sortedByKey(f.rules.groups), nil
}

// Meters dumps all meters by number.
func (f *Fake) Meters(context.Context) ([]openflow.Meter, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return sortedByKey(f.rules.meters), nil
}

// Bundle applies all messages or none.
func (f *Fake) Bundle(_ context.Context, msgs []openflow.Message) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	rules := fakeRules{maps.Clone(f.rules.flows), maps.Clone(f.rules.groups), maps.Clone(f.rules.meters)}
	for i, m := range msgs {
		if err := errors.Join(rules.bundlable(m), f.apply(rules, m)); err != nil {
			return &openflow.MessageError{Index: i, Message: m, Err: err}
		}
	}
	f.rules = rules
	f.sent = append(f.sent, slices.Clone(msgs))
	return nil
}

// bundlable refuses what must not be in a bundle.
func (r fakeRules) bundlable(m openflow.Message) error {
	switch m := m.(type) {
	case *openflow.MeterMod:
		return errors.New("a meter mod cannot be in a bundle")
	case *openflow.GroupMod:
		if m.Command != openflow.GroupDelete {
			return nil
		}
		for _, flow := range r.flows {
			for ref := range references(&flow) {
				if ref.kind == groupRef && (ref.id == m.Group.ID || m.Group.ID == openflow.GroupAllGroups) {
					return fmt.Errorf("group %d: %w", ref.id, errInUse)
				}
			}
		}
	}
	return nil
}

// Do applies messages one by one.
func (f *Fake) Do(_ context.Context, msgs []openflow.Message) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sent = append(f.sent, slices.Clone(msgs))
	var first error
	for i, m := range msgs {
		if err := f.apply(f.rules, m); err != nil && first == nil {
			first = &openflow.MessageError{Index: i, Message: m, Err: err}
		}
	}
	return first
}

// Sent returns what was applied since the last call of Sent, by bundle or Do.
func (f *Fake) Sent() [][]openflow.Message {
	f.mu.Lock()
	defer f.mu.Unlock()
	sent := f.sent
	f.sent = nil
	return sent
}

// Text prints all rules as ovs-ofctl does, one a line: meters, groups with their
// buckets by number, flows in the order of Flows.
func (f *Fake) Text() []string {
	ctx := context.Background()
	var lines []string
	meters, _ := f.Meters(ctx)
	for i := range meters {
		lines = append(lines, meters[i].String())
	}
	groups, _ := f.Groups(ctx)
	for i := range groups {
		lines = append(lines, groupText(&groups[i]))
	}
	flows, _ := f.Flows(ctx)
	for i := range flows {
		lines = append(lines, flows[i].Flow.String())
	}
	return lines
}

// Overlaps lists pairs of flows of one table and priority that match the same
// packets but do different things: which of them a packet meets is undefined.
// Flows of conjunctions are meant to overlap and are left out.
func (f *Fake) Overlaps() []string {
	flows, _ := f.Flows(context.Background())
	var out []string
	for i := range flows {
		a := &flows[i].Flow
		for j := i + 1; j < len(flows); j++ {
			b := &flows[j].Flow
			if a.Table != b.Table || a.Priority != b.Priority {
				break // they are sorted
			}
			if conjunctive(a) && conjunctive(b) || sameEffect(a, b) || !overlap(a.Match, b.Match) {
				continue
			}
			out = append(out, fmt.Sprintf("%s | %s", a, b))
		}
	}
	return out
}

func (f *Fake) apply(r fakeRules, m openflow.Message) error {
	switch m := m.(type) {
	case *openflow.FlowMod:
		return f.flowMod(r, m)
	case *openflow.GroupMod:
		return f.groupMod(r, m)
	case *openflow.MeterMod:
		return f.meterMod(r, m)
	}
	return fmt.Errorf("a %T is not known here", m)
}

func sortedByKey[T any](m map[uint32]T) []T {
	out := make([]T, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, m[k])
	}
	return out
}
