// SPDX-License-Identifier: Apache-2.0

package bridge

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"coelan.io/coelan/openflow"
)

func (f *Fake) flowMod(r fakeRules, m *openflow.FlowMod) error {
	flow := m.Flow
	if m.Command == openflow.FlowAdd {
		if err := errors.Join(f.checkAlone(&flow), f.checkReferences(r, &flow), r.checkOverlap(&flow)); err != nil {
			return err
		}
		was, replaced := r.flows[flow.Key()]
		r.flows[flow.Key()] = flow
		if replaced {
			r.forget(&was)
		}
		return nil
	}
	if err := flow.Match.Validate(); err != nil {
		return err
	}
	modify := m.Command == openflow.FlowModify || m.Command == openflow.FlowModifyStrict
	if modify {
		if err := f.checkAlone(&flow); err != nil { // even if there is none to modify
			return err
		}
	}
	if m.OutPort != 0 || m.OutGroup != 0 {
		return errors.New("deletion by output is not known here")
	}
	for key, have := range r.flows {
		if !selects(m, &have) {
			continue
		}
		if !modify {
			delete(r.flows, key)
			r.forget(&have)
			continue
		}
		changed := have
		changed.Actions, changed.WriteActions, changed.ClearActions = flow.Actions, flow.WriteActions, flow.ClearActions
		changed.Metadata, changed.MetadataMask, changed.Goto = flow.Metadata, flow.MetadataMask, flow.Goto
		if err := f.checkReferences(r, &changed); err != nil {
			return err
		}
		r.flows[key] = changed
		r.forget(&have)
	}
	return nil
}

func (f *Fake) meterMod(r fakeRules, m *openflow.MeterMod) error {
	_, exists := r.meters[m.Meter.ID]
	switch {
	case m.Command == openflow.MeterDelete:
		delete(r.meters, m.Meter.ID)
		r.deleteUsers(openflow.MeterAction{Meter: m.Meter.ID})
		return nil
	case m.Command == openflow.MeterAdd && exists:
		return fmt.Errorf("meter %d exists", m.Meter.ID)
	case m.Command == openflow.MeterModify && !exists:
		return fmt.Errorf("meter %d does not exist", m.Meter.ID)
	case len(m.Meter.Bands) == 0:
		return fmt.Errorf("meter %d has no band", m.Meter.ID)
	}
	r.meters[m.Meter.ID] = m.Meter
	return nil
}

// deleteUsers deletes the flows that use a group or meter that goes, as Open
// vSwitch does.
func (r fakeRules) deleteUsers(of openflow.Action) {
	for key, flow := range r.flows {
		for a := range actionsOf(&flow) {
			if a == of {
				delete(r.flows, key)
			}
		}
	}
}

// selects reports whether m, which is no add, changes or deletes f.
func selects(m *openflow.FlowMod, f *openflow.Flow) bool {
	if m.Flow.Table != openflow.TableAll && m.Flow.Table != f.Table || (m.Flow.Cookie^f.Cookie)&m.CookieMask != 0 {
		return false
	}
	if m.Command == openflow.FlowDeleteStrict || m.Command == openflow.FlowModifyStrict {
		return m.Flow.Priority == f.Priority && m.Flow.Match == f.Match
	}
	return f.Match.With(m.Flow.Match.Fields()...) == f.Match
}

// overlap reports whether a packet can match both.
func overlap(a, b openflow.Match) bool { return a.With(b.Fields()...).Validate() == nil }

// sameEffect reports whether two flows of a table do the same.
func sameEffect(a, b *openflow.Flow) bool {
	c := *b
	c.Match, c.Cookie = a.Match, a.Cookie
	return a.Equal(&c)
}

func conjunctive(f *openflow.Flow) bool {
	for a := range actionsOf(f) {
		if _, ok := a.(openflow.ConjunctionAction); ok {
			return true
		}
	}
	return false
}

func compareFlows(a, b openflow.Flow) int {
	return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(b.Priority, a.Priority),
		strings.Compare(a.Match.String(), b.Match.String()))
}
