// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"cmp"
	"slices"
	"strings"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/translate"
)

// lastPort is the last of all.
const lastPort = 1<<16 - 1

// allPorts are those of a protocol.
func allPorts(protocol uint8) intent.PortRange {
	return intent.PortRange{Protocol: protocol, Last: lastPort}
}

// sortPorts puts ports into an order that does not depend on that of the policy, each once.
func sortPorts(ports []policy.Port) []policy.Port {
	slices.SortFunc(ports, func(a, b policy.Port) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.Protocol, b.Protocol),
			cmp.Compare(a.First, b.First), cmp.Compare(a.Last, b.Last), -translate.TrueFirst(a.ICMP, b.ICMP))
	})
	return slices.Compact(ports)
}
