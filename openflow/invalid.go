// SPDX-License-Identifier: Apache-2.0

package openflow

import "fmt"

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
