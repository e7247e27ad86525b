// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"net"
	"net/netip"
)

// Noise makes the frames of a pod that takes what it can of its node.
type Noise struct {
	MAC, Router net.HardwareAddr
	// Address is the pod's own, Peer that of a pod that it reaches.
	Address, Peer netip.Addr
	// Subnet is that of the pod.
	Subnet netip.Prefix
}

func (v Noise) routed(packet []byte) Frame {
	etherType := uint16(EtherIPv4)
	if v.Address.Is6() {
		etherType = EtherIPv6
	}
	return Ethernet(v.MAC, v.Router, etherType, packet)
}

// Connections begins a connection of UDP or TCP with each frame, from all ports to some.
func (v Noise) Connections(n int) Frame {
	src := netip.AddrPortFrom(v.Address, uint16(1024+n%64_000))
	dst := netip.AddrPortFrom(v.Peer, uint16(1+n/64_000))
	if n%2 == 0 {
		return v.routed(UDP(src, dst, nil))
	}
	return v.routed(TCPSegment(src, dst, 2, nil)) // SYN
}

// Scan asks for all ports and addresses of the subnet, TCP and UDP in turn.
func (v Noise) Scan(n int) Frame {
	src := netip.AddrPortFrom(v.Address, uint16(1024+n%64_000))
	dst := netip.AddrPortFrom(v.address(n), uint16(1+n*7919%65_535))
	if n%2 == 0 {
		return v.routed(UDP(src, dst, nil))
	}
	return v.routed(TCPSegment(src, dst, 2, nil))
}

// Questions asks for the MAC of one address of the subnet after the other, by ARP or ND.
func (v Noise) Questions(n int) Frame {
	asked := v.address(n)
	if v.Address.Is4() {
		return Ethernet(v.MAC, Broadcast, EtherARP,
			ARP(ARPRequest, v.MAC, v.Address, make(net.HardwareAddr, 6), asked))
	}
	a := asked.As16()
	group := [16]byte{0: 0xff, 1: 2, 11: 1, 12: 0xff, 13: a[13], 14: a[14], 15: a[15]}
	dst := net.HardwareAddr{0x33, 0x33, 0xff, a[13], a[14], a[15]}
	return Ethernet(v.MAC, dst, EtherIPv6,
		Neighbour(NeighbourSolicitation, v.Address, netip.AddrFrom16(group), asked, v.MAC))
}

// address is the nth of the subnet, counted in its last 16 bits, without the first and the last.
func (v Noise) address(n int) netip.Addr {
	b := v.Subnet.Masked().Addr().AsSlice()
	hosts := min(16, 8*len(b)-v.Subnet.Bits())
	n = 1 + n%(1<<hosts-2)
	b[len(b)-2] |= byte(n >> 8)
	b[len(b)-1] |= byte(n)
	a, _ := netip.AddrFromSlice(b)
	return a
}
