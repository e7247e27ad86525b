// SPDX-License-Identifier: Apache-2.0

package openflow

import "math/bits"

// uint128 is an unsigned number of 128 bits.
type uint128 struct{ hi, lo uint64 }

func (a uint128) shl(n uint) uint128 {
	switch {
	case n == 0:
		return a
	case n >= 128:
		return uint128{}
	case n >= 64:
		return uint128{a.lo << (n - 64), 0}
	}
	return uint128{a.hi<<n | a.lo>>(64-n), a.lo << n}
}

func (a uint128) shr(n uint) uint128 {
	switch {
	case n == 0:
		return a
	case n >= 128:
		return uint128{}
	case n >= 64:
		return uint128{0, a.hi >> (n - 64)}
	}
	return uint128{a.hi >> n, a.lo>>n | a.hi<<(64-n)}
}

func (a uint128) and(b uint128) uint128 { return uint128{a.hi & b.hi, a.lo & b.lo} }
func (a uint128) or(b uint128) uint128  { return uint128{a.hi | b.hi, a.lo | b.lo} }
func (a uint128) not() uint128          { return uint128{^a.hi, ^a.lo} }
func (a uint128) isZero() bool          { return a.hi|a.lo == 0 }

// len is the number of bits that a needs.
func (a uint128) len() int {
	if a.hi != 0 {
		return 64 + bits.Len64(a.hi)
	}
	return bits.Len64(a.lo)
}

// ones returns the number with its n lowest bits set.
func ones(n uint) uint128 {
	if n == 0 {
		return uint128{}
	}
	return uint128{^uint64(0), ^uint64(0)}.shr(128 - n)
}
