// SPDX-License-Identifier: Apache-2.0

package openflow

import "net/netip"

// CT passes the packet through conntrack.
type CT struct {
	Commit   bool
	Force    bool     // commit in this direction even if the connection exists in the other
	Zone     uint16   // used if ZoneFrom is zero
	ZoneFrom Subfield // 16 bits that hold the zone
	// Table is where a tracked copy of the packet goes on; nil: nowhere, and ct fields stay as they are.
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

// NAT translates addresses within CT. The zero NAT applies what the connection was
// committed with.
type NAT struct {
	SNAT, DNAT bool
	// AddrMin and AddrMax are the range of addresses; AddrMax may stay zero for one
	// address; both zero: addresses stay.
	AddrMin, AddrMax netip.Addr
	// PortMin and PortMax are the range of ports; PortMax may stay 0 for one port; both 0: any port.
	PortMin, PortMax uint16
	Persistent       bool
	Hash             bool
	Random           bool
}
