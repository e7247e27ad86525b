// SPDX-License-Identifier: Apache-2.0

package openflow

import "math/bits"

// FieldValue is a field with a value and, when only some bits count, a mask. It is
// what a Match is made of and what SetField assigns.
type FieldValue struct {
	field       Field
	masked      bool
	value, mask uint128
	// long holds value and mask, each half of it, of a tunnel option longer than 16 bytes.
	long string
	// size is the length in bytes of a tunnel option's value; other fields have a fixed one.
	size uint8
}

// Value returns the whole field f with value v, which must fit into the field. Of a
// tunnel option it makes 4 bytes, or 8 if v needs them; for other lengths see Bytes.
func (f Field) Value(v uint64) FieldValue {
	return FieldValue{field: f, value: uint128{0, v}}.sized(bits.Len64(v))
}

// Masked returns the bits of f that are set in mask, with their value taken from v.
func (f Field) Masked(v, mask uint64) FieldValue {
	return FieldValue{field: f, value: uint128{0, v & mask}, mask: uint128{0, mask},
		masked: true}.sized(bits.Len64(mask))
}

// Value128 returns the whole field f with the 128-bit value hi·2⁶⁴+lo.
func (f Field) Value128(hi, lo uint64) FieldValue {
	return FieldValue{field: f, value: uint128{hi, lo}}.sized(128)
}

// Masked128 returns the bits of f that are set in mask, with their value taken from v.
// Each number is given as its upper and lower half.
func (f Field) Masked128(v, mask [2]uint64) FieldValue {
	m := uint128{mask[0], mask[1]}
	return FieldValue{field: f, value: uint128{v[0], v[1]}.and(m), mask: m, masked: true}.sized(128)
}

// Bytes returns field f, a tunnel option, with a value and, unless it is nil, a mask of the same
// length, at most 124 bytes. With a nil value it stands for "the option is present".
func (f Field) Bytes(value, mask []byte) FieldValue {
	v := FieldValue{field: f, size: uint8(len(value)), masked: mask != nil || value == nil}
	if !f.isTunMetadata() || len(value) > maxTunMetadata || mask != nil && len(mask) != len(value) {
		return FieldValue{}
	}
	if len(value) > 16 {
		v.long = string(value) + string(mask)
		return v
	}
	v.value, v.mask = uintOf(value), uintOf(mask)
	return v
}

// sized returns v with its size set if it is a tunnel option: what n bits need, in
// words of 4 bytes.
func (v FieldValue) sized(n int) FieldValue {
	if v.field.isTunMetadata() {
		v.size = uint8(min(max((n+31)/32*4, 4), 16))
	}
	return v
}

// normal returns v without a mask that covers the whole field; a tunnel option with a mask of
// no bits as "the option is present".
func (v FieldValue) normal() FieldValue {
	switch {
	case !v.masked || v.long != "":
	case v.field.isTunMetadata():
		// Only the switch knows how long the option is, and so whether the mask covers it.
		if v.mask.isZero() {
			return v.field.Bytes(nil, nil)
		}
	case v.mask == ones(v.width()):
		v.masked, v.mask = false, uint128{}
	}
	return v
}

// trimmed returns v as SetField sends it: normal, and a tunnel option without leading zeros.
func (v FieldValue) trimmed() FieldValue {
	v = v.normal()
	switch {
	case !v.field.isTunMetadata():
	case v.long == "":
		v.size = uint8((v.value.or(v.mask).len() + 7) / 8)
	default:
		value, mask := []byte(v.long[:v.size]), []byte(v.long[v.size:])
		for len(value) > 0 && value[0] == 0 && (len(mask) == 0 || mask[0] == 0) {
			value, mask = value[1:], mask[min(1, len(mask)):]
		}
		if !v.masked {
			mask = nil
		}
		return v.field.Bytes(value, mask)
	}
	return v
}

// Num returns the value and the mask, which is all ones of the field's width if there is none, cut
// to 64 bits.
func (v FieldValue) Num() (value, mask uint64) { return v.value.lo, v.fullMask().lo }

// Field returns the field.
func (v FieldValue) Field() Field { return v.field }
