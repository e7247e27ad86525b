// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"fmt"
	"hash/fnv"
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

// PhysicalZone is the conntrack zone of physical networks, which have no Router. No Router has its number.
const PhysicalZone RouterID = 0xfffe

// OpenFlow port numbers on the integration bridge. They are chosen here and not
// by Open vSwitch, so that flows can be compiled before a port exists and stay
// the same after every restart.
const (
	TunnelPort      uint32 = 1
	GatewayPort     uint32 = 2
	FirstUplinkPort uint32 = 3
	LastUplinkPort  uint32 = 15
	FirstPodPort    uint32 = 16
	LastPodPort     uint32 = 65279 // 0xfeff: the last number that ofport_request accepts
)

// MAC is an Ethernet address. Unlike net.HardwareAddr it can be compared and be
// a map's key.
type MAC [6]byte

var (
	// RouterMAC is the virtual router's address, on every node: what pods and
	// the host resolve a gateway address to.
	RouterMAC = MAC{0x0a, 0xc0, 0xe1, 0x00, 0x00, 0x01}
	// GatewayMAC is the address of the gateway interface, on every node.
	GatewayMAC = MAC{0x0a, 0xc0, 0xe1, 0x00, 0x00, 0x02}
)

// PodMAC is the address of a pod's interface, made from its primary address:
// 0a:ce and the four bytes of the IPv4 address, or of the FNV-1a hash of the
// IPv6 address.
func PodMAC(primary netip.Addr) MAC {
	mac := MAC{0x0a, 0xce}
	if primary = primary.Unmap(); primary.Is4() {
		b := primary.As4()
		copy(mac[2:], b[:])
		return mac
	}
	h := fnv.New32a()
	b := primary.As16()
	h.Write(b[:])
	h.Sum(mac[2:2])
	return mac
}

// OfPods says that m is of the range of PodMAC. Whoever chose one of it would get frames of the pod that has, or will have,
// the address it is made of.
func (m MAC) OfPods() bool { return m[0] == 0x0a && m[1] == 0xce }

// OfRouter says that m is of the range that RouterMAC and GatewayMAC are of.
func (m MAC) OfRouter() bool { return [3]byte(m[:3]) == [3]byte(RouterMAC[:3]) }

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
