// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"errors"
	"fmt"
	"slices"
)

// Match selects packets. It is a value: two matches that select by the same fields,
// values and masks are equal with ==, so a Match can be part of a map's key.
// The zero Match selects every packet.
type Match struct {
	// oxm is the canonical OXM encoding, without header and padding.
	oxm string
}

// NewMatch returns the match of all the given fields. Bits of one field can be given
// in several values (registers, for instance). Prerequisites that follow without
// choice are added: IPDst adds the eth_type, ICMPv6Type the protocol and eth_type; but a
// TCP port without an IP version stays incomplete, which Validate reports. Values that
// make no sense do not get lost: Validate reports them and a switch refuses them.
func NewMatch(fields ...FieldValue) Match {
	b := matchBuilders.Get().(*matchBuilder)
	defer matchBuilders.Put(b)
	b.fields, b.others = b.buf[:0], nil
	for i := range fields {
		b.add(&fields[i])
	}
	b.addImplied()
	return b.match()
}

// With returns the match of m and further fields.
func (m Match) With(fields ...FieldValue) Match {
	var b matchBuilder
	b.addMatch(m)
	for i := range fields {
		b.add(&fields[i])
	}
	b.addImplied()
	return b.match()
}

// Without returns m without what it says about the given fields.
func (m Match) Without(fields ...Field) Match {
	var b matchBuilder
	for v := range m.all {
		if v.field == fieldNone || !slices.Contains(fields, v.field) {
			b.addParsed(&v)
		}
	}
	return b.match()
}

// Fields returns the fields in the order in which they are encoded. Registers come as
// FieldXReg0 to FieldXReg7, each of which holds two.
func (m Match) Fields() []FieldValue {
	var fields []FieldValue
	for v := range m.all {
		if v.field != fieldNone {
			fields = append(fields, v)
		}
	}
	return fields
}

// Get returns what m says about the bits of s: their value, and a mask of those that m
// matches. Bits above the 64th are left out.
func (m Match) Get(s Subfield) (value, mask uint64) {
	whole, shift := s.Field, uint(s.Ofs)
	switch f := s.Field; {
	case f >= FieldReg0 && f <= FieldReg15:
		whole = FieldXReg0 + (f-FieldReg0)/2
		shift += 32 * uint(1-(f-FieldReg0)%2)
	case f >= FieldXXReg0 && f <= FieldXXReg3:
		n := FieldXReg0 + (f-FieldXXReg0)*2
		if s.Ofs < 64 {
			whole = n + 1
		} else {
			whole, shift = n, shift-64
		}
	}
	for v := range m.all {
		if v.field == whole && v.long == "" {
			bits := ones(min(uint(s.N), 64))
			return v.value.shr(shift).and(bits).lo, v.fullMask().shr(shift).and(bits).lo
		}
	}
	return 0, 0
}

// all yields the fields of m in order; what has no field comes as fieldNone with the
// whole OXM as long.
func (m Match) all(yield func(FieldValue) bool) {
	for rest := m.oxm; rest != ""; {
		v, tail, err := parseOXM(rest)
		if err != nil || !yield(v) {
			return
		}
		rest = tail
	}
}

// Validate reports what a switch would refuse: a missing prerequisite, two values for
// the same bits, a value that is too large, a mask on a field that takes none.
func (m Match) Validate() error {
	if err := m.validate(); err != nil {
		return fmt.Errorf("match %s: %w", m, err)
	}
	return nil
}

func (m Match) validate() error {
	var fields []FieldValue
	for v := range m.all {
		if v.field == fieldNone {
			return errors.New(explainOXM(v.long))
		}
		fields = append(fields, v)
	}
	for i := range fields {
		v := &fields[i]
		info := v.field.info()
		if v.masked && !info.maskable {
			return fmt.Errorf("%s takes no mask", v.field)
		}
		if i > 0 && fields[i-1].field == v.field {
			return fmt.Errorf("%s is given twice", v.field)
		}
		if info.prereq == needNothing || find(fields, FieldPacketType) != nil {
			continue
		}
		if err := info.prereq.check(fields); err != nil {
			return fmt.Errorf("%s %w", v.field, err)
		}
	}
	return nil
}
