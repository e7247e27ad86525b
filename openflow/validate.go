// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"errors"
	"fmt"
)

// Validate reports what a switch would refuse: a match that is incomplete, an action that
// does not fit the packets that the match selects or that has impossible arguments. The
// error names the flow. What only the switch knows (whether a group exists) stays open.
func (f *Flow) Validate() error {
	if err := f.Match.validate(); err != nil {
		return fmt.Errorf("flow %s: %w", f, err)
	}
	if err := f.validate(); err != nil {
		return fmt.Errorf("flow %s: %w", f, err)
	}
	return nil
}

// tableMax is the greatest number of a table; 254 is the switch's own.
const tableMax = 253

func (f *Flow) validate() error {
	c := checker{match: f.Match.Fields()}
	switch {
	case f.Table > tableMax:
		return fmt.Errorf("table %d: the last one is %d", f.Table, tableMax)
	case f.Goto != 0 && f.Goto <= f.Table:
		return fmt.Errorf("goto_table:%d does not lead forward", f.Goto)
	case find(c.match, FieldDPHash) != nil || find(c.match, FieldRecircID) != nil:
		return errors.New("dp_hash and recirc_id are for the switch's own flows")
	}
	if err := c.actions(f.Actions); err != nil {
		return err
	}
	if len(f.Actions) > 0 && (f.Goto != 0 || len(f.WriteActions) > 0 || f.ClearActions || f.MetadataMask != 0) {
		if _, ok := f.Actions[0].(ConjunctionAction); ok {
			return errors.New("a conjunction stands with other instructions")
		}
	}
	return c.actions(f.WriteActions)
}

// maxGroupLen is the length of the longest group that can be dumped, and added in a bundle:
// the parts of a multipart answer cannot share one. Open vSwitch (3.1 to 4.0) accepts more by
// insertions, but then garbles its answer to a GroupDescRequest, or aborts (assertion in
// ofpmp_postappend).
const maxGroupLen = MaxMessageLen - bundleAddHeader - groupModLen

// Validate reports what a switch would refuse in a group or its buckets, and a group that is
// too long to be dumped. About 1,360 buckets fit that set a register and resubmit.
func (g *Group) Validate() error {
	if g.ID > GroupMax {
		return fmt.Errorf("group %d: the greatest number is %d", g.ID, GroupMax)
	}
	if err := g.validateSelection(); err != nil {
		return fmt.Errorf("group %d: %w", g.ID, err)
	}
	if n := g.wireLen() - 4; n > maxGroupLen {
		return fmt.Errorf("group %d: its %d buckets are %d bytes, a switch can dump %d", g.ID, len(g.Buckets), n,
			maxGroupLen)
	}
	seen := make(map[uint32]bool, len(g.Buckets))
	for i, b := range g.Numbered() {
		// Buckets do not know what packets come, so that prerequisites stay open.
		c := checker{anyPacket: true}
		err := c.actions(b.Actions)
		switch {
		case b.ID > BucketMax:
			err = fmt.Errorf("its number is %d, the greatest is %d", b.ID, BucketMax)
		case seen[b.ID]:
			err = fmt.Errorf("its number %d is given twice", b.ID)
		}
		if err != nil {
			return fmt.Errorf("group %d: bucket %d: %w", g.ID, i, err)
		}
		seen[b.ID] = true
	}
	return nil
}

func (g *Group) validateSelection() error {
	switch {
	case g.SelectionMethod == "":
		return nil
	case g.Type != GroupSelect:
		return errors.New("only select groups have a selection method")
	case g.SelectionMethod != "hash" && g.SelectionMethod != "dp_hash":
		return fmt.Errorf("selection method %q is neither hash nor dp_hash", g.SelectionMethod)
	case g.SelectionMethod == "dp_hash" && len(g.SelectionFields) > 0:
		return errors.New("dp_hash takes no fields")
	}
	return nil
}

// checker checks actions against the packets that a match selects.
type checker struct {
	match     []FieldValue
	anyPacket bool // the match is not known
	inCT      bool
}

func (c *checker) actions(actions []Action) error {
	conjunctions, others := 0, 0
	for _, a := range actions {
		switch a.(type) {
		case ConjunctionAction:
			conjunctions++
		case NoteAction:
		default:
			others++
		}
		if err := c.action(a); err != nil {
			return fmt.Errorf("%s: %w", a, err)
		}
	}
	if conjunctions > 0 && others > 0 {
		return errors.New("a conjunction stands with other actions")
	}
	return nil
}

func (c *checker) action(a Action) error {
	switch a := a.(type) {
	case OutputAction:
		return checkPort(a.Port)
	case OutputTruncAction:
		if a.MaxLen < 14 {
			return errors.New("max_len is less than an Ethernet header")
		}
		return checkPort(a.Port)
	case OutputFieldAction:
		return c.readable(a.Source, 64)
	case GroupAction:
		if a.Group > GroupMax {
			return fmt.Errorf("the greatest group is %d", GroupMax)
		}
	case MeterAction:
		if a.Meter == 0 {
			return errors.New("meters count from 1")
		}
	case SetFieldAction:
		return c.setField(a.FieldValue)
	case MoveAction:
		if a.From.N != a.To.N {
			return fmt.Errorf("%d bits into %d", a.From.N, a.To.N)
		}
		return errors.Join(c.readable(a.From, 1024), c.writable(a.To))
	case PushAction:
		return c.readable(a.Source, 1024)
	case PopAction:
		return c.writable(a.Dest)
	case CheckPktLargerAction:
		return c.bits(a.Dest, 1)
	case MultipathAction:
		if a.Links == 0 || a.Dest.N < 16 && int(a.Links) > 1<<a.Dest.N {
			return fmt.Errorf("%d links do not fit into %d bits", a.Links, a.Dest.N)
		}
		return c.writable(a.Dest)
	case ResubmitAction:
		return c.resubmit(a)
	case CloneAction:
		return c.actions(a.Actions)
	case PackedActions:
		if c.anyPacket && a.packed.sound {
			return nil
		}
		return c.actions(a.Actions())
	case simpleAction:
		return c.simple(a)
	case PushVLANAction:
		c.set(FieldVLANVID, vlanPresent)
	case PushMPLSAction:
		c.set(FieldEthType, uint64(a.EtherType))
	case PopMPLSAction:
		if err := c.prereq(needMPLS); err != nil {
			return err
		}
		c.set(FieldEthType, uint64(a.EtherType))
	case ConjunctionAction:
		return a.validate()
	case CT:
		return c.ct(&a)
	case Learn:
		return c.learn(&a)
	}
	return nil
}

// checkPort reports whether packets can be sent to port.
func checkPort(port uint32) error {
	switch {
	case port >= PortInPort && port <= PortLocal:
		return nil
	case port >= 0xff00 || port == 0:
		return fmt.Errorf("port %d: Open vSwitch has ports 1 to %d", port, 0xfeff)
	}
	return nil
}

// prereq reports whether the packets are such that p holds.
func (c *checker) prereq(p prereq) error {
	if c.anyPacket || find(c.match, FieldPacketType) != nil {
		return nil
	}
	return p.check(c.match)
}

// set notes that an action gave a field a value, on which prerequisites of later ones depend.
func (c *checker) set(f Field, v uint64) {
	match := make([]FieldValue, 0, len(c.match)+1)
	for _, m := range c.match {
		if m.field != f {
			match = append(match, m)
		}
	}
	c.match = append(match, f.Value(v))
}

func (c *checker) readable(s Subfield, most int) error {
	if !s.Field.valid() {
		return errors.New("no field")
	}
	if s.N == 0 || int(s.N) > most || int(s.Ofs)+int(s.N) > s.Field.Width() {
		return fmt.Errorf("%s: not bits of a field of %d", s, s.Field.Width())
	}
	if err := c.prereq(s.Field.info().prereq); err != nil {
		return fmt.Errorf("%s %w", s.Field, err)
	}
	return nil
}

func (c *checker) writable(s Subfield) error {
	if err := c.readable(s, 1024); err != nil {
		return err
	}
	if !s.Field.Writable() {
		return fmt.Errorf("%s cannot be changed", s.Field)
	}
	if isCT := s.Field == FieldCTMark || s.Field == FieldCTLabel; isCT != c.inCT {
		if isCT {
			return fmt.Errorf("%s can only be changed within ct", s.Field)
		}
		return fmt.Errorf("%s cannot be changed within ct", s.Field)
	}
	return nil
}

// bits checks a writable subfield of n bits.
func (c *checker) bits(s Subfield, n uint16) error {
	if s.N != n {
		return fmt.Errorf("%d bits, not %d", s.N, n)
	}
	return c.writable(s)
}

func (c *checker) setField(v FieldValue) error {
	if p := v.problem(); p != "" {
		return errors.New(p)
	}
	if v.masked && !v.field.Maskable() {
		return fmt.Errorf("%s takes no mask", v.field)
	}
	return c.writable(v.field.All())
}

func (c *checker) resubmit(a ResubmitAction) error {
	if a.CT {
		return errors.Join(c.prereq(needIP), c.prereq(needCT))
	}
	return nil
}

func (c *checker) simple(a simpleAction) error {
	switch a {
	case actDecTTL:
		return c.prereq(needIP)
	case actDecMPLSTTL:
		return c.prereq(needMPLS)
	case actPopVLAN:
		if err := c.prereq(needVLAN); err != nil {
			return err
		}
		c.set(FieldVLANVID, 0)
	}
	return nil
}

func (a ConjunctionAction) validate() error {
	if a.NClauses < 2 || a.NClauses > 64 || a.Clause < 1 || a.Clause > a.NClauses {
		return errors.New("a conjunction has 2 to 64 clauses, counted from 1")
	}
	return nil
}
