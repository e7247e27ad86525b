// SPDX-License-Identifier: Apache-2.0

// Package intenttest makes intent for tests of backends.
package intenttest

import (
	"fmt"
	"net/netip"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/reserved"
)

// Subnet is one of a Network. Its first address is the gateway.
func Subnet(prefix string) intent.NetworkSubnet {
	p := netip.MustParsePrefix(prefix)
	return intent.NetworkSubnet{Prefix: p, Gateway: p.Addr().Next()}
}

// Subnets are several.
func Subnets(prefixes ...string) (list []intent.NetworkSubnet) {
	for _, p := range prefixes {
		list = append(list, Subnet(p))
	}
	return list
}

// Node has the number n, below 100, in its addresses: 10.244.n.0/24 and fd00:10:244:n::/64 for pods
// of the Network default.
func Node(name string, n int) intent.Node {
	node := intent.Node{
		Name: name, Addresses: []netip.Addr{netip.MustParseAddr(fmt.Sprintf("192.168.33.%d", 10+n))}, MTU: 1400,
	}
	for _, format := range []string{"10.244.%d.0/24", "fd00:10:244:%d::/64"} {
		s := Subnet(fmt.Sprintf(format, n))
		node.Subnets = append(node.Subnets, intent.Subnet{Network: "default", Prefix: s.Prefix, Gateway: s.Gateway})
	}
	return node
}

// Port is a pod's. Its MAC follows from its first address.
func Port(namespace, name, network, node string, addresses ...string) intent.Port {
	p := intent.Port{
		ID: namespace + "/" + name, Namespace: namespace, Pod: name, Interface: "eth0", Object: name,
		UID: "uid-" + name, Network: network, Node: node,
	}
	for _, a := range addresses {
		p.Addresses = append(p.Addresses, netip.MustParseAddr(a))
	}
	p.MAC = reserved.PodMAC(p.Addresses[0])
	return p
}

// State has these objects.
func State(o intent.Objects) *intent.State {
	s, _ := intent.NewStore().Update(func(tx *intent.Tx) error { tx.Replace(o); return nil })
	return s
}
