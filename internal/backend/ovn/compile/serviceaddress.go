// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"net/netip"
	"slices"
	"strings"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/reserved"
)

// hairpinAddresses are what a pod that reaches itself by a Service is seen as.
var hairpinAddresses = reserved.NodeLocalIPv4[0].String() + " " + reserved.NodeLocalIPv6[0].String()

// nodePortAddress is where a node's kernel sends what comes to its node ports.
func nodePortAddress(ipv6 bool) netip.Addr {
	if ipv6 {
		return reserved.NodeLocalIPv6[1]
	}
	return reserved.NodeLocalIPv4[1]
}

func joinHostPort(a netip.Addr, port uint16) string { return netip.AddrPortFrom(a, port).String() }

// backends are endpoints as a Load_Balancer has them.
func backends(endpoints []intent.Endpoint) string {
	texts := make([]string, len(endpoints))
	for i, e := range endpoints {
		texts[i] = joinHostPort(e.Address, e.Port)
	}
	return strings.Join(texts, ",")
}

// openTo reports whether source ranges leave a family open to all.
func openTo(ranges []netip.Prefix, ipv6 bool) bool {
	return len(ranges) == 0 || slices.ContainsFunc(ranges, func(p netip.Prefix) bool {
		return p.Bits() == 0 && p.Addr().Is6() == ipv6
	})
}
