// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"encoding/binary"
	"errors"
)

var be = binary.BigEndian

// errShort says that a message ends within a structure.
var errShort = errors.New("truncated")

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

// appendUint appends the size lowest bytes of v.
func appendUint(b []byte, v uint128, size int) []byte {
	switch size {
	case 1:
		return append(b, byte(v.lo))
	case 2:
		return be.AppendUint16(b, uint16(v.lo))
	case 4:
		return be.AppendUint32(b, uint32(v.lo))
	case 8:
		return be.AppendUint64(b, v.lo)
	case 16:
		return be.AppendUint64(be.AppendUint64(b, v.hi), v.lo)
	}
	for i := size - 1; i >= 0; i-- {
		b = append(b, byte(v.shr(uint(8*i)).lo))
	}
	return b
}

// uintOf returns the number that b, of at most 16 bytes, holds.
func uintOf[T string | []byte](b T) (v uint128) {
	for i := range len(b) {
		v = v.shl(8)
		v.lo |= uint64(b[i])
	}
	return v
}
