// SPDX-License-Identifier: Apache-2.0

package translatetest

import (
	"net/netip"

	"pgregory.net/rapid"
)

// Prefixes generates masked prefixes of both families that are close to each other.
var Prefixes = rapid.Custom(func(t *rapid.T) netip.Prefix {
	if rapid.Bool().Draw(t, "IPv6") {
		var a [16]byte
		copy(a[:], rapid.SliceOfN(rapid.ByteRange(0, 2), 16, 16).Draw(t, "address"))
		return netip.PrefixFrom(netip.AddrFrom16(a), rapid.IntRange(100, 128).Draw(t, "length")).Masked()
	}
	a := [4]byte(rapid.SliceOfN(rapid.ByteRange(0, 2), 4, 4).Draw(t, "address"))
	return netip.PrefixFrom(netip.AddrFrom4(a), rapid.IntRange(20, 32).Draw(t, "length")).Masked()
})
