// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"slices"
	"sync"
)

// matchBuilder collects fields in canonical form and order. Canonical is what Open vSwitch
// itself encodes: registers in pairs as xreg, no mask where all bits count.
type matchBuilder struct {
	fields []FieldValue // sorted by field
	others []string     // OXMs of unknown fields, and those made by invalidOXM
	buf    [12]FieldValue
}

// matchBuilders saves NewMatch from making one for each of very many matches.
var matchBuilders = sync.Pool{New: func() any { return new(matchBuilder) }}

// add puts v into canonical form and adds it.
func (b *matchBuilder) add(v *FieldValue) {
	if b.fields == nil {
		b.fields = b.buf[:0]
	}
	if v.problem() != "" {
		b.others = append(b.others, invalidOXM(v))
		return
	}
	f, m := v.field, v.fullMask()
	switch {
	case f >= FieldReg0 && f <= FieldReg15:
		shift := 32 * uint(1-(f-FieldReg0)%2)
		b.merge(FieldValue{field: FieldXReg0 + (f-FieldReg0)/2, value: v.value.shl(shift), mask: m.shl(shift)})
	case f >= FieldXXReg0 && f <= FieldXXReg3:
		x := FieldXReg0 + (f-FieldXXReg0)*2
		b.merge(FieldValue{field: x, value: uint128{0, v.value.hi}, mask: uint128{0, m.hi}})
		b.merge(FieldValue{field: x + 1, value: uint128{0, v.value.lo}, mask: uint128{0, m.lo}})
	case f == FieldInPort16:
		b.merge(FieldValue{field: FieldInPort, value: port32(v.value), mask: ones(32)})
	case f == FieldIPTOS:
		b.merge(FieldValue{field: FieldIPDSCP, value: v.value.shr(2), mask: ones(6)})
	case f == FieldVLANTCI:
		vid := ones(13)
		b.merge(FieldValue{field: FieldVLANVID, value: v.value.and(vid), mask: m.and(vid)})
		b.merge(FieldValue{field: FieldVLANPCP, value: v.value.shr(13), mask: m.shr(13)})
	case f == FieldPacketType && v.value.isZero():
		// Ethernet, which is implied.
	case f.isTunMetadata():
		b.insert(v.normal())
	default:
		b.merge(FieldValue{field: f, value: v.value, mask: m})
	}
}

// port32 widens a 16-bit port number; the reserved ones are at the upper end.
func port32(p uint128) uint128 {
	if p.lo >= 0xff00 {
		p.lo |= 0xffff0000
	}
	return p
}

// merge adds v, of which the mask is always given, to what is there of the same field.
func (b *matchBuilder) merge(v FieldValue) {
	if v.mask.isZero() {
		return
	}
	if have := find(b.fields, v.field); have != nil {
		mask := have.fullMask()
		if have.value.and(v.mask) != v.value.and(mask) {
			b.others = append(b.others, invalidOXM(&v))
			return
		}
		have.value, have.mask = have.value.or(v.value), mask.or(v.mask)
		have.masked = have.mask != ones(have.width())
		return
	}
	v.masked = v.mask != ones(v.width())
	b.insert(v)
}

// insert adds v at its place.
func (b *matchBuilder) insert(v FieldValue) {
	i := len(b.fields)
	for i > 0 && b.fields[i-1].field > v.field {
		i--
	}
	b.fields = slices.Insert(b.fields, i, v)
}

func (b *matchBuilder) addMatch(m Match) {
	for v := range m.all {
		b.addParsed(&v)
	}
}

// addParsed adds what parseOXM returned.
func (b *matchBuilder) addParsed(v *FieldValue) {
	if v.field == fieldNone {
		b.others = append(b.others, v.long)
		return
	}
	b.add(v)
}

// addImplied adds the prerequisites that leave no choice.
func (b *matchBuilder) addImplied() {
	if find(b.fields, FieldPacketType) != nil {
		return // not an Ethernet packet: eth_type does not come into it
	}
	for i := 0; i < len(b.fields); i++ {
		p := b.fields[i].field.info().prereq
		if p == needNothing {
			continue
		}
		for v := range p.implied {
			if find(b.fields, v.field) == nil {
				b.insert(v)
				i = -1 // what was inserted may come earlier and have needs of its own
			}
		}
	}
}

func (b *matchBuilder) match() Match {
	var stack [192]byte
	oxm := stack[:0]
	for i := range b.fields {
		oxm = appendOXM(oxm, &b.fields[i])
	}
	for _, o := range b.others {
		oxm = append(oxm, o...)
	}
	return Match{string(oxm)}
}
