// SPDX-License-Identifier: Apache-2.0

package openflow

import "net/netip"

// Address is what the constructors of IP address fields take: one address or a prefix.
type Address interface{ netip.Addr | netip.Prefix }

// ipValue returns the address in field v4 or v6, as its family asks.
func ipValue[A Address](v4, v6 Field, a A) FieldValue {
	addr, n, whole := netip.Addr{}, 0, false
	switch a := any(a).(type) {
	case netip.Addr:
		addr, whole = a.Unmap(), true
	case netip.Prefix:
		addr, n = a.Addr(), a.Bits()
		whole = n == addr.BitLen()
	}
	if !addr.IsValid() {
		return FieldValue{}
	}
	fv := FieldValue{field: v4}
	width := uint(32)
	if addr.Is4() {
		b := addr.As4()
		fv.value.lo = uint64(be.Uint32(b[:]))
	} else {
		b := addr.As16()
		fv.field, width = v6, 128
		fv.value = uint128{be.Uint64(b[:]), be.Uint64(b[8:])}
	}
	if !whole {
		fv.masked = true
		fv.mask = ones(uint(n)).shl(width - uint(n))
		fv.value = fv.value.and(fv.mask)
	}
	return fv
}
