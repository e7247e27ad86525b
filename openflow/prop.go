// SPDX-License-Identifier: Apache-2.0

package openflow

import "fmt"

// A property is a type and a length of 16 bits each, a value, and padding to 8 bytes
// that the length leaves out. OpenFlow 1.5 and Nicira's newer messages are made of them.

const propHeaderLen = 4

// appendProp appends a property.
func appendProp(b []byte, typ uint16, value []byte) []byte {
	n := propHeaderLen + len(value)
	b = be.AppendUint16(be.AppendUint16(b, typ), uint16(n))
	b = append(b, value...)
	return appendZeros(b, pad8(n)-n)
}

// appendProp16 appends a property of 16 bits. Its length includes its padding.
func appendProp16(b []byte, typ, value uint16) []byte {
	b = be.AppendUint16(be.AppendUint16(b, typ), 8)
	return append(be.AppendUint16(b, value), 0, 0)
}

// appendProp32 appends a property of 32 bits.
func appendProp32(b []byte, typ uint16, value uint32) []byte {
	return be.AppendUint32(be.AppendUint16(be.AppendUint16(b, typ), 8), value)
}

// beginProp begins a property; the caller appends its value, and endProp completes it.
func beginProp(b []byte, typ uint16) []byte { return append(be.AppendUint16(b, typ), 0, 0) }

// endProp writes the length of the property that began at start and pads it.
func endProp(b []byte, start int) []byte {
	n := len(b) - start
	be.PutUint16(b[start+2:], uint16(n))
	return appendZeros(b, pad8(n)-n)
}

// prop is a parsed property.
type prop struct {
	typ   uint16
	value []byte
}

// pullProp reads the property at the start of b. The last one may lack its padding.
func pullProp(b []byte) (p prop, rest []byte, err error) {
	if len(b) < propHeaderLen {
		return p, nil, fmt.Errorf("property: %w", errShort)
	}
	p.typ = be.Uint16(b)
	n := int(be.Uint16(b[2:]))
	if n < propHeaderLen || n > len(b) {
		return p, nil, fmt.Errorf("property %#x of %d bytes: %w", p.typ, n, errShort)
	}
	p.value = b[propHeaderLen:n]
	return p, b[min(pad8(n), len(b)):], nil
}

func (p prop) uint8() (uint8, error) {
	if len(p.value) < 1 {
		return 0, fmt.Errorf("property %#x: %w", p.typ, errShort)
	}
	return p.value[0], nil
}

func (p prop) uint16() (uint16, error) {
	if len(p.value) < 2 {
		return 0, fmt.Errorf("property %#x: %w", p.typ, errShort)
	}
	return be.Uint16(p.value), nil
}

func (p prop) uint32() (uint32, error) {
	if len(p.value) < 4 {
		return 0, fmt.Errorf("property %#x: %w", p.typ, errShort)
	}
	return be.Uint32(p.value), nil
}
