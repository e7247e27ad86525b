// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"crypto/sha256"
	"encoding/binary"
	"hash/fnv"
	"net/netip"
	"strings"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/reserved"
)

// routerMAC is the Ethernet address of a Logical_Router_Port: of the range that Ports never get,
// made of the port's address.
func routerMAC(a netip.Addr) intent.MAC {
	mac := reserved.RouterMAC(0)
	b := a.AsSlice()
	if a.Is6() {
		h := fnv.New32a()
		h.Write(b)
		b = h.Sum(nil)
	}
	copy(mac[3:], b[len(b)-3:])
	return mac
}

// networkMAC is that of a Network's Logical_Router_Port, of which a gateway is the first. Where the
// nodes' own addresses are, it is the one that the nodes' kernels have for the next hop of Services
// (package hostnet), on each node.
func networkMAC(n intent.Network, gateway netip.Addr) intent.MAC {
	if n.FromNodes() {
		return reserved.RouterMAC(1)
	}
	return routerMAC(gateway)
}

// linkAddress is the IPv4 address of a Router on its links with others. Nothing but OVN knows it:
// it is of 240.0.0.0/4, which no host has.
func linkAddress(r intent.RouterID) netip.Addr {
	b := [4]byte{240}
	binary.BigEndian.PutUint16(b[2:], uint16(r))
	return netip.AddrFrom4(b)
}

// linkMAC is the Ethernet address of a Router on its links with others.
func linkMAC(r intent.RouterID) intent.MAC {
	mac := reserved.RouterMAC(0)
	mac[3] = 1
	binary.BigEndian.PutUint16(mac[4:], uint16(r))
	return mac
}

// ownMAC is an Ethernet address made of a key that nothing else has: unicast, and administered
// locally.
func ownMAC(key string) intent.MAC {
	sum := sha256.Sum256([]byte(key))
	return intent.MAC{0x0e, sum[0], sum[1], sum[2], sum[3], sum[4]}
}

// family is ip4 or ip6, as OVN's language of matches calls it.
func family(a netip.Addr) string {
	if a.Is4() {
		return "ip4"
	}
	return "ip6"
}

// addressesOf is a MAC and addresses with spaces between them, as OVN has those of a port.
func addressesOf(mac intent.MAC, addresses []netip.Addr) string {
	return strings.Join(append([]string{mac.String()}, texts(addresses)...), " ")
}

func texts[T interface{ String() string }](list []T) []string {
	all := make([]string, len(list))
	for i, v := range list {
		all[i] = v.String()
	}
	return all
}

// ofFamily are those of addresses that are of a family, as text.
func ofFamily(list []netip.Addr, v6 bool) (of []string) {
	for _, a := range list {
		if a.Is6() == v6 {
			of = append(of, a.String())
		}
	}
	return of
}
