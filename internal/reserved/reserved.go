// SPDX-License-Identifier: Apache-2.0

// Package reserved names what Coelan reserves for itself: the Ethernet addresses of pods and of
// virtual routers, the IP addresses that nodes use within themselves, and the group of its
// interfaces. Validation refuses these addresses where users ask for one, with every backend.
package reserved

import (
	"hash/fnv"
	"net/netip"
	"slices"

	"coelan.io/coelan/internal/intent"
)

// The first bytes of the ranges of Ethernet addresses.
var (
	podMACs    = [2]byte{0x0a, 0xce}
	probeMACs  = [2]byte{0x0a, 0xcd}
	routerMACs = [3]byte{0x0a, 0xc0, 0xe1}
)

// LinkGroup marks the host's ends of pods' interfaces (`ip link show group 49377`), so that they
// are found again without a list of them, and rules of nftables can name them all.
const LinkGroup = 0xc0e1

// ForwardedDSCP marks packets that a node's kernel leads to Services and has not sent itself: a
// codepoint for local use (xxxx11 of RFC 2474).
const ForwardedDSCP = 59

// TunnelMark is the mark (fwmark) of the packets that the kernel's Open vSwitch sends into tunnels.
// No packet of a pod, or of another host, has it: marks end with the network namespace and the
// host. kube-proxy's bits, 0x4000 and 0x8000, are not in it.
const TunnelMark = 0x2000

// WireMark is the mark (fwmark), and that of conntrack, of what a node's kernel answers to clients
// on the wires of physical networks, where OVN leads these to it. The other bits are other
// programs'.
const WireMark = 0x1000

// ForwardedTTL is the most that such a packet has as its TTL, or hop limit, where OVN has to tell
// it from the node's own, which begin with more: OVN 23.03 compares neither DSCP nor ECN, and says
// nothing of it.
const ForwardedTTL = 32

// PodMAC is the address of a pod's interface, made from its primary address: 0a:ce and the four
// bytes of the IPv4 address, or of the FNV-1a hash of the IPv6 address.
func PodMAC(primary netip.Addr) intent.MAC {
	mac := intent.MAC{podMACs[0], podMACs[1]}
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

// IsPodMAC reports whether m is of the range of PodMAC. An interface that chose one of it would get
// frames of the pod that has, or will have, the address that it is made of.
func IsPodMAC(m intent.MAC) bool { return [2]byte(m[:2]) == podMACs }

// ProbeMAC is the address by which a node asks on an external Network whether another node answers
// for an address: 0a:cd and four bytes of the FNV-1a hash of its name.
func ProbeMAC(node string) intent.MAC {
	mac := intent.MAC{probeMACs[0], probeMACs[1]}
	h := fnv.New32a()
	h.Write([]byte(node))
	h.Sum(mac[2:2])
	return mac
}

// ProbeMACs are the first bytes of all ProbeMACs.
func ProbeMACs() [2]byte { return probeMACs }

// RouterMAC is the n-th address that virtual routers and gateways may have.
func RouterMAC(n byte) intent.MAC {
	return intent.MAC{routerMACs[0], routerMACs[1], routerMACs[2], 0, 0, n}
}

// IsRouterMAC reports whether m is of the range of RouterMAC, or of that of ProbeMAC: a node's own.
func IsRouterMAC(m intent.MAC) bool {
	return [3]byte(m[:3]) == routerMACs || [2]byte(m[:2]) == probeMACs
}

// NodeLocalIPv4 and NodeLocalIPv6 are the addresses that every node uses within itself,
// between the pods' network and its own kernel. They are the same on all nodes; what each is
// for is up to the backend.
var (
	NodeLocalIPv4 = [2]netip.Addr{netip.MustParseAddr("169.254.64.1"), netip.MustParseAddr("169.254.64.2")}
	NodeLocalIPv6 = [2]netip.Addr{netip.MustParseAddr("fd69:c0e1::1"), netip.MustParseAddr("fd69:c0e1::2")}
)

// IsNodeLocal reports whether a is one of NodeLocalIPv4 and NodeLocalIPv6.
func IsNodeLocal(a netip.Addr) bool {
	return slices.Contains(NodeLocalIPv4[:], a) || slices.Contains(NodeLocalIPv6[:], a)
}

// NeutronSpare is how many ports the backend neutron has ready on each node, unless the controller
// is told otherwise. Agents hand addresses out in slots of this number, see package ipam.
const NeutronSpare = 8

// NeutronSpareOfNetwork is how many more it has on each Network that it has blocks of: nodes times
// Networks may be many.
const NeutronSpareOfNetwork = 2

// NeutronKept is how many free slots, after those that have a port, keep the one that they had: as
// many as kubelet lets a node have pods. When all pods of a node go and come again, that takes no
// call.
const NeutronKept = 110
