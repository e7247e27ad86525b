// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"coelan.io/coelan/internal/reserved"
)

// serviceAddress reads an address of a Service or of an endpoint. Those that mean something on one
// host or link only are refused, as the API server and kube-proxy refuse them.
func serviceAddress(text string) (netip.Addr, error) {
	ip, err := netip.ParseAddr(text)
	if err != nil {
		ip, err = netip.ParseAddr(withoutZeros(text))
	}
	switch {
	case err != nil:
		return netip.Addr{}, errors.New("is not an IP address")
	case ip.Is4In6():
		return netip.Addr{}, fmt.Errorf("is an IPv4 address in the form of an IPv6 one; write %s", ip.Unmap())
	case ip.IsUnspecified():
		return netip.Addr{}, errors.New("is the unspecified address, at which nobody can be reached")
	case ip.IsLoopback():
		return netip.Addr{}, errors.New("is a loopback address, which every host has for itself; choose one that all nodes can reach")
	case ip.IsLinkLocalUnicast() || ip.Zone() != "":
		return netip.Addr{}, errors.New("is a link-local address, which other links cannot reach; choose one that all nodes can reach")
	case ip.IsMulticast():
		return netip.Addr{}, errors.New("is a multicast address; Services are unicast")
	case ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return netip.Addr{}, errors.New("is the broadcast address; Services are unicast")
	case reserved.IsNodeLocal(ip):
		return netip.Addr{}, errors.New("is an address that Coelan uses inside of every node; choose another")
	}
	return ip, nil
}

// withoutZeros takes leading zeros off the numbers of an IPv4 address, and off the length of a
// prefix: the API server has long let them in, and Kubernetes reads them as decimals.
func withoutZeros(text string) string {
	address, length, isPrefix := strings.Cut(text, "/")
	if !strings.Contains(address, ":") {
		parts := strings.Split(address, ".")
		for i, p := range parts {
			parts[i] = withoutZero(p)
		}
		address = strings.Join(parts, ".")
	}
	if !isPrefix {
		return address
	}
	return address + "/" + withoutZero(length)
}

func withoutZero(number string) string {
	if trimmed := strings.TrimLeft(number, "0"); trimmed != "" || number == "" {
		return trimmed
	}
	return "0"
}

// family is an index: 0 for IPv4, 1 for IPv6.
type family uint8

const (
	ipv4 family = iota
	ipv6
	families
)

func familyOf(ip netip.Addr) family {
	if ip.Is4() {
		return ipv4
	}
	return ipv6
}

func (f family) String() string { return [...]string{"IPv4", "IPv6"}[f] }
