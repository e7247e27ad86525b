// SPDX-License-Identifier: Apache-2.0

package openflow

import "net/netip"

// ct reads a CT after its subtype.
func (r *reader) ct() Action {
	var a CT
	flags := r.uint16()
	a.Commit, a.Force = flags&ctCommit != 0, flags&ctForce != 0
	if r.left() >= 4 && be.Uint32(r.b) == 0 {
		r.skip(4)
		a.Zone = r.uint16()
	} else {
		f, bits := r.field(), r.uint16()
		if f == fieldNone && r.err == nil {
			return nil
		}
		a.ZoneFrom = subfield(f, bits)
	}
	if table := r.uint8(); table != ctNoTable {
		a.Table = &table
	}
	r.skip(3)
	a.ALG = r.uint16()
	for _, nested := range r.actions() {
		if nat, ok := nested.(natAction); ok && a.NAT == nil {
			a.NAT = nat.NAT
			continue
		}
		a.Exec = append(a.Exec, nested)
	}
	return a
}

// natAction is a NAT among the actions nested in a CT.
type natAction struct{ *NAT }

func (r *reader) nat() Action {
	n := &NAT{}
	r.skip(2)
	flags := r.uint16()
	for i, f := range n.flagFields() {
		*f = flags>>i&1 != 0
	}
	present := r.uint16()
	for _, bad := range [...]struct{ has, hasNot uint16 }{
		{natV4Min | natV6Min, 0}, {natV4Max, natV4Min}, {natV6Max, natV6Min}, {natPortMax, natPortMin},
	} {
		if present&bad.has == bad.has && (bad.hasNot == 0 || present&bad.hasNot == 0) {
			r.fail("nat range %#x", present)
		}
	}
	for _, part := range []struct {
		bit  uint16
		read func()
	}{
		{natV4Min, func() { n.AddrMin = ipv4Of(uintOf(r.next(4))) }},
		{natV4Max, func() { n.AddrMax = ipv4Of(uintOf(r.next(4))) }},
		{natV6Min, func() { n.AddrMin = ipv6Of(uintOf(r.next(16))) }},
		{natV6Max, func() { n.AddrMax = ipv6Of(uintOf(r.next(16))) }},
		{natPortMin, func() { n.PortMin = r.uint16() }},
		{natPortMax, func() { n.PortMax = r.uint16() }},
	} {
		if present&part.bit != 0 {
			part.read()
		}
	}
	if !n.hasAddrMax() {
		n.AddrMax = netip.Addr{}
	}
	if !n.hasPortMax() {
		n.PortMax = 0
	}
	return natAction{n}
}
