// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"net/netip"
	"strings"
)

// CT passes the packet through conntrack.
type CT struct {
	Commit   bool
	Force    bool     // commit in this direction even if the connection exists in the other
	Zone     uint16   // used if ZoneFrom is zero
	ZoneFrom Subfield // 16 bits that hold the zone
	// Table is where a tracked copy of the packet goes on. If it is nil, no copy is made:
	// the packet goes on with the next action, and its ct fields stay as they are.
	Table *uint8
	ALG   uint16 // port of the application layer gateway: ALGFTP, ALGTFTP, 0 none
	NAT   *NAT
	Exec  []Action // SetField and Move to ct_mark and ct_label, with Commit
}

// Application layer gateways.
const (
	ALGFTP  = 21
	ALGTFTP = 69
)

// Table returns a pointer to n, for CT.Table.
func Table(n uint8) *uint8 { return &n }

// ctNoTable stands on the wire for "no copy".
const ctNoTable = 0xff

// Flags of CT on the wire.
const (
	ctCommit = 1 << iota
	ctForce
)

func (a CT) String() string {
	var s []string
	if a.Commit {
		s = append(s, "commit")
	}
	if a.Force {
		s = append(s, "force")
	}
	if a.Table != nil {
		s = append(s, "table="+utoa(*a.Table))
	}
	switch {
	case a.ZoneFrom.Set():
		s = append(s, "zone="+a.ZoneFrom.String())
	case a.Zone != 0:
		s = append(s, "zone="+utoa(a.Zone))
	}
	if a.NAT != nil {
		s = append(s, a.NAT.String())
	}
	if len(a.Exec) > 0 {
		s = append(s, "exec("+ActionsString(a.Exec)+")")
	}
	switch a.ALG {
	case 0:
	case ALGFTP:
		s = append(s, "alg=ftp")
	case ALGTFTP:
		s = append(s, "alg=tftp")
	default:
		s = append(s, "alg="+utoa(a.ALG))
	}
	return "ct(" + strings.Join(s, ",") + ")"
}

func (a CT) appendTo(b []byte) []byte {
	start := len(b)
	b = nxAction(b, nxCT)
	var flags byte
	if a.Commit {
		flags |= ctCommit
	}
	if a.Force {
		flags |= ctForce
	}
	b = append(b, 0, flags)
	if a.ZoneFrom.Set() {
		b = a.ZoneFrom.appendHeader(b)
		b = be.AppendUint16(b, a.ZoneFrom.ofsBits())
	} else {
		b = append(b, 0, 0, 0, 0)
		b = be.AppendUint16(b, a.Zone)
	}
	table := uint8(ctNoTable)
	if a.Table != nil {
		table = *a.Table
	}
	b = append(b, table, 0, 0, 0)
	b = be.AppendUint16(b, a.ALG)
	if a.NAT != nil {
		b = a.NAT.appendTo(b)
	}
	return endAction(appendActions(b, a.Exec), start)
}

// NAT translates addresses within CT. The zero NAT applies what the connection was
// committed with.
type NAT struct {
	SNAT, DNAT bool
	// AddrMin and AddrMax are the range of addresses; AddrMax may stay zero for one
	// address; both zero: addresses stay.
	AddrMin, AddrMax netip.Addr
	// PortMin and PortMax are the range of ports; PortMax may stay 0 for one port; both
	// 0: any port. Ports need an address.
	PortMin, PortMax uint16
	Persistent       bool
	Hash             bool
	Random           bool
}

// What of NAT's ranges is present on the wire.
const (
	natV4Min = 1 << iota
	natV4Max
	natV6Min
	natV6Max
	natPortMin
	natPortMax
)

// String prints n as ovs-ofctl does within ct.
func (n *NAT) String() string {
	if !n.SNAT && !n.DNAT {
		return "nat"
	}
	var s strings.Builder
	s.WriteString("nat(")
	if n.SNAT {
		s.WriteString("src")
	} else {
		s.WriteString("dst")
	}
	if n.AddrMin.IsValid() {
		s.WriteString("=" + n.addrText(n.AddrMin))
		if n.hasAddrMax() {
			s.WriteString("-" + n.addrText(n.AddrMax))
		}
		if n.PortMin != 0 {
			s.WriteString(":" + utoa(n.PortMin))
			if n.hasPortMax() {
				s.WriteString("-" + utoa(n.PortMax))
			}
		}
		for _, f := range []struct {
			set  bool
			name string
		}{{n.Persistent, ",persistent"}, {n.Hash, ",hash"}, {n.Random, ",random"}} {
			if f.set {
				s.WriteString(f.name)
			}
		}
	}
	s.WriteByte(')')
	return s.String()
}

// addrText prints a; an IPv6 address before a port has brackets.
func (n *NAT) addrText(a netip.Addr) string {
	if a.Is6() && n.PortMin != 0 {
		return "[" + a.String() + "]"
	}
	return a.String()
}

func (n *NAT) hasAddrMax() bool {
	return n.AddrMin.IsValid() && n.AddrMax.IsValid() && n.AddrMax != n.AddrMin
}

func (n *NAT) hasPortMax() bool { return n.PortMin != 0 && n.PortMax != 0 && n.PortMax != n.PortMin }

func (n *NAT) appendTo(b []byte) []byte {
	start := len(b)
	b = append(nxAction(b, nxNAT), 0, 0, 0, n.flags(), 0, 0)
	present := len(b) - 1
	addr := func(a netip.Addr, v4, v6 byte) {
		if a = a.Unmap(); a.Is4() {
			b[present] |= v4
		} else {
			b[present] |= v6
		}
		b = append(b, a.AsSlice()...)
	}
	if n.AddrMin.IsValid() {
		addr(n.AddrMin, natV4Min, natV6Min)
	}
	if n.hasAddrMax() {
		addr(n.AddrMax, natV4Max, natV6Max)
	}
	if n.PortMin != 0 {
		b[present] |= natPortMin
		b = be.AppendUint16(b, n.PortMin)
	}
	if n.hasPortMax() {
		b[present] |= natPortMax
		b = be.AppendUint16(b, n.PortMax)
	}
	return endAction(b, start)
}

// flagFields are n's flags in the order of their bits on the wire.
func (n *NAT) flagFields() [5]*bool {
	return [...]*bool{&n.SNAT, &n.DNAT, &n.Persistent, &n.Hash, &n.Random}
}

// flags returns n's flags on the wire.
func (n *NAT) flags() (f byte) {
	for i, set := range n.flagFields() {
		if *set {
			f |= 1 << i
		}
	}
	return f
}
