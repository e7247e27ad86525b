// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"fmt"
	"net"
	"net/netip"
)

// NetworkID identifies a Network in registers and on the wire, where it is the
// VNI of VXLAN and Geneve: 24 bits, 0 is not used.
type NetworkID uint32

// RouterID identifies a Router, that is a VRF, in registers and as conntrack
// zone: 16 bits, 0 is not used.
type RouterID uint16

// The network and the router that every pod belongs to unless something else
// is asked for, and their names.
const (
	DefaultNetwork     NetworkID = 1
	DefaultRouter      RouterID  = 1
	DefaultNetworkName           = "default"
	DefaultRouterName            = "default"
)

// MAC is an Ethernet address. Unlike net.HardwareAddr it can be compared and be
// a map's key.
type MAC [6]byte

// ParseMAC reads an address such as 0a:c0:e1:00:00:01.
func ParseMAC(s string) (MAC, error) {
	hw, err := net.ParseMAC(s)
	if err != nil {
		return MAC{}, err
	}
	if len(hw) != 6 {
		return MAC{}, fmt.Errorf("MAC %q has %d bytes, not 6", s, len(hw))
	}
	return MAC(hw), nil
}

// HardwareAddr is the address as package net and netlink want it.
func (m MAC) HardwareAddr() net.HardwareAddr { return append(net.HardwareAddr(nil), m[:]...) }

// String is the address in lower case with colons.
func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

// MarshalText writes the address as String does.
func (m MAC) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads what ParseMAC reads.
func (m *MAC) UnmarshalText(text []byte) (err error) {
	*m, err = ParseMAC(string(text))
	return err
}

// LinkLocal is the IPv6 link-local address that a kernel makes from the address
// by default (modified EUI-64, RFC 4291 appendix A).
func (m MAC) LinkLocal() netip.Addr {
	return netip.AddrFrom16([16]byte{
		0: 0xfe, 1: 0x80,
		8: m[0] ^ 2, 9: m[1], 10: m[2], 11: 0xff,
		12: 0xfe, 13: m[3], 14: m[4], 15: m[5],
	})
}
