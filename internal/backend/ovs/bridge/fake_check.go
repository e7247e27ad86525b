// SPDX-License-Identifier: Apache-2.0

package bridge

import (
	"errors"
	"fmt"

	"coelan.io/coelan/openflow"
)

// maxTable is the last table; Open vSwitch keeps 254 for itself.
const maxTable = 253

// checkAlone checks what depends on no other rule.
func (f *Fake) checkAlone(flow *openflow.Flow) error {
	if err := f.checkTable(flow.Table); err != nil {
		return err
	}
	if err := flow.Validate(); err != nil {
		return err
	}
	if flow.Goto == 0 {
		return nil
	}
	if flow.Goto <= flow.Table {
		return fmt.Errorf("goto_table:%d does not lead forward from table %d", flow.Goto, flow.Table)
	}
	return f.checkTable(flow.Goto)
}

// checkReferences finds actions that refer to what is not there.
func (f *Fake) checkReferences(r fakeRules, flow *openflow.Flow) error {
	for a := range actionsOf(flow) {
		if err := f.checkAction(r, a); err != nil {
			return err
		}
	}
	return nil
}

func (r fakeRules) checkOverlap(flow *openflow.Flow) error {
	if flow.Flags&openflow.FlowCheckOverlap == 0 {
		return nil
	}
	for _, have := range r.flows {
		if have.Table == flow.Table && have.Priority == flow.Priority &&
			have.Match != flow.Match && overlap(have.Match, flow.Match) {
			return fmt.Errorf("overlaps %s", &have)
		}
	}
	return nil
}

func (f *Fake) checkTable(t uint8) error {
	if t > maxTable || f.tables != nil && !f.tables[t] {
		return fmt.Errorf("table %d does not exist", t)
	}
	return nil
}

func (f *Fake) checkAction(r fakeRules, a openflow.Action) error {
	switch a := a.(type) {
	case openflow.GroupAction:
		if _, ok := r.groups[a.Group]; !ok {
			return fmt.Errorf("group %d does not exist", a.Group)
		}
	case openflow.MeterAction:
		return r.checkMeter(a.Meter)
	case openflow.Controller:
		if a.Meter != 0 {
			return r.checkMeter(a.Meter)
		}
	case openflow.ResubmitAction:
		if a.Table != 255 {
			return f.checkTable(a.Table)
		}
	case openflow.CT:
		if a.Table != nil {
			return f.checkTable(*a.Table)
		}
	case openflow.Learn:
		return f.checkTable(a.Table)
	}
	return nil
}

func (r fakeRules) checkMeter(id uint32) error {
	if _, ok := r.meters[id]; !ok {
		return fmt.Errorf("meter %d does not exist", id)
	}
	return nil
}

func (f *Fake) checkGroup(r fakeRules, g *openflow.Group) error {
	if err := g.Validate(); err != nil {
		return err
	}
	if g.Type == openflow.GroupIndirect && len(g.Buckets) != 1 {
		return fmt.Errorf("indirect group %d has %d buckets", g.ID, len(g.Buckets))
	}
	for i, b := range g.Buckets {
		if err := f.checkBucket(r, g, b); err != nil {
			return fmt.Errorf("group %d: bucket %d: %w", g.ID, i, err)
		}
	}
	return nil
}

// checkBucket knows that a bucket is an action set: of the actions that end the
// packet's way, only one runs.
func (f *Fake) checkBucket(r fakeRules, g *openflow.Group, b openflow.Bucket) error {
	if b.Weight != 0 && g.Type != openflow.GroupSelect {
		return errors.New("only buckets of select groups have weights")
	}
	watches := b.WatchPort != 0 || b.WatchGroup != 0
	if failover := g.Type == openflow.GroupFastFailover; watches != failover &&
		(failover || g.Type != openflow.GroupSelect) {
		return errors.New("a bucket watches a port or a group if it is of fast failover")
	}
	ends := 0
	for a := range nested(b.Actions) {
		if to, ok := a.(openflow.GroupAction); ok && to.Group == g.ID {
			return errors.New("the group refers to itself")
		}
		if err := f.checkAction(r, a); err != nil {
			return err
		}
	}
	for _, a := range unpacked(b.Actions) {
		switch a.(type) {
		case openflow.GroupAction, openflow.OutputAction, openflow.ResubmitAction, openflow.CT:
			ends++
		}
	}
	if ends > 1 {
		return errors.New("only one of its ct, resubmit, output and group actions would run")
	}
	return nil
}
