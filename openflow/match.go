// SPDX-License-Identifier: Apache-2.0

package openflow

import (
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
	var b matchBuilder
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

// fullMask returns the mask of v, which is all bits of the field if v has none.
func (v *FieldValue) fullMask() uint128 {
	if v.masked {
		return v.mask
	}
	return ones(v.width())
}

// width is the number of bits of v's field, of a tunnel option that of the value, and of
// vlan_vid 13: a subfield of it has 12, but a match has the bit for "a tag is present" too.
func (v *FieldValue) width() uint {
	switch {
	case v.field.isTunMetadata():
		return 8 * uint(v.size)
	case v.field == FieldVLANVID:
		return 13
	}
	return uint(v.field.info().bits)
}

// matchBuilder collects fields in canonical form and order. Canonical is what Open vSwitch
// itself encodes: registers in pairs as xreg, no mask where all bits count.
type matchBuilder struct {
	fields []FieldValue // sorted by field
	others []string     // OXMs of unknown fields, and those made by invalidOXM
	buf    [12]FieldValue
}

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

// merge adds v, whose mask is given in any case, to what is there of the same field.
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

// Validate reports what a switch would refuse: a missing prerequisite, two values for
// the same bits, a value that is too large, a mask on a field that takes none.
func (m Match) Validate() error {
	var fields []FieldValue
	for v := range m.all {
		if v.field == fieldNone {
			return fmt.Errorf("match %s: %s", m, explainOXM(v.long))
		}
		fields = append(fields, v)
	}
	for i := range fields {
		v := &fields[i]
		info := v.field.info()
		if v.masked && !info.maskable {
			return fmt.Errorf("match %s: %s takes no mask", m, v.field)
		}
		if i > 0 && fields[i-1].field == v.field {
			return fmt.Errorf("match %s: %s is given twice", m, v.field)
		}
		if info.prereq == needNothing || find(fields, FieldPacketType) != nil {
			continue
		}
		if err := info.prereq.check(fields); err != nil {
			return fmt.Errorf("match %s: %s %w", m, v.field, err)
		}
	}
	return nil
}

// decodeMatch reads the OXMs of a match, without its header and padding.
func decodeMatch(b []byte) (Match, error) {
	if isCanonical(b) {
		return Match{string(b)}, nil
	}
	var build matchBuilder
	for len(b) > 0 {
		v, rest, err := parseOXM(b)
		if err != nil {
			return Match{}, fmt.Errorf("match: %w", err)
		}
		build.addParsed(&v)
		b = rest
	}
	return build.match(), nil
}

// isCanonical reports whether b is what matchBuilder would make of it, as is most of what Open
// vSwitch sends. When in doubt it says no.
func isCanonical(b []byte) bool {
	last := fieldNone
	for len(b) > 0 {
		v, rest, err := parseOXM(b)
		if err != nil || v.field <= last || !v.isCanonical() {
			return false
		}
		last, b = v.field, rest
	}
	return true
}

func (v *FieldValue) isCanonical() bool {
	f := v.field
	switch {
	case f >= FieldReg0 && f <= FieldReg15, f >= FieldXXReg0 && f <= FieldXXReg3, f.isTunMetadata(),
		f == FieldInPort16, f == FieldIPTOS, f == FieldVLANTCI, f == FieldPacketType:
		return false
	case v.masked && (v.mask.isZero() || v.mask == ones(v.width())):
		return false
	}
	return v.fits()
}

// pullMatch reads an ofp_match with header and padding at the start of b.
func pullMatch(b []byte) (m Match, rest []byte, err error) {
	if len(b) < 4 {
		return m, nil, fmt.Errorf("match: %w", errShort)
	}
	typ, length := be.Uint16(b), int(be.Uint16(b[2:]))
	if typ != 1 {
		return m, nil, fmt.Errorf("match of type %d, not OXM", typ)
	}
	if length < 4 || len(b) < pad8(length) {
		return m, nil, fmt.Errorf("match: %w", errShort)
	}
	m, err = decodeMatch(b[4:length])
	return m, b[pad8(length):], err
}

// appendTo appends m as an ofp_match with header and padding.
func (m Match) appendTo(b []byte) []byte {
	n := 4 + len(m.oxm)
	b = append(b, 0, 1, byte(n>>8), byte(n))
	b = append(b, m.oxm...)
	return appendZeros(b, pad8(n)-n)
}

// pad8 rounds n up to a multiple of 8.
func pad8(n int) int { return (n + 7) &^ 7 }

// appendZeros appends n zero bytes.
func appendZeros(b []byte, n int) []byte {
	const zeros = "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	for ; n > len(zeros); n -= len(zeros) {
		b = append(b, zeros...)
	}
	return append(b, zeros[:n]...)
}

// fits reports whether v can be encoded.
func (v *FieldValue) fits() bool {
	if !v.field.valid() {
		return false
	}
	if v.long != "" {
		return true
	}
	outside := ones(v.width()).not()
	if v.masked {
		return v.value.and(v.mask.not()) == uint128{} && v.mask.and(outside) == uint128{}
	}
	return v.value.and(outside) == uint128{}
}

// problem says in words why v cannot be encoded, "" if it can.
func (v *FieldValue) problem() string {
	switch {
	case v.fits():
		return ""
	case !v.field.valid():
		return "a value without a field (a port of a protocol that has none, or an address of the wrong family)"
	case v.value.and(ones(v.width()).not()) != uint128{}:
		return fmt.Sprintf("%s does not fit into the %d bits of %s", hexOf(v.value), v.width(), v.field)
	case v.masked && v.mask.and(ones(v.width()).not()) != uint128{}:
		return fmt.Sprintf("mask %s does not fit into the %d bits of %s", hexOf(v.mask), v.width(), v.field)
	case v.masked && v.value.and(v.mask.not()) != uint128{}:
		return fmt.Sprintf("%s/%s of %s has bits outside of its mask", hexOf(v.value), hexOf(v.mask), v.field)
	}
	return ""
}

// classInvalid marks OXMs for values that cannot be encoded, or that contradict others. No
// switch knows it, so none can take such a match for a wider one.
const classInvalid = 0x7fff

// invalidOXM stands for v in a match: field, value and mask in a form that explainOXM reads.
func invalidOXM(v *FieldValue) string {
	b := oxmID{class: classInvalid}.append(nil, false, 34)
	b = append(b, byte(v.field), 0)
	if v.masked || v.mask != (uint128{}) {
		b[len(b)-1] = 1
	}
	return string(appendUint(appendUint(b, v.value, 16), v.mask, 16))
}

// explainOXM says what is wrong with an OXM that has no field.
func explainOXM(oxm string) string {
	h, err := parseOXMHeader(oxm)
	if err != nil || h.id.class != classInvalid || len(oxm) != 38 {
		return fmt.Sprintf("unknown field %x", oxm)
	}
	v := FieldValue{field: Field(oxm[4]), masked: oxm[5] != 0, value: uintOf(oxm[6:22]), mask: uintOf(oxm[22:])}
	v.size = 16
	if p := v.problem(); p != "" {
		return p
	}
	return fmt.Sprintf("%s is given twice, the second time as %s", v.field, v.text())
}

// hexOf prints v in hexadecimal.
func hexOf(v uint128) string {
	if v.hi == 0 {
		return fmt.Sprintf("%#x", v.lo)
	}
	return fmt.Sprintf("0x%x%016x", v.hi, v.lo)
}
