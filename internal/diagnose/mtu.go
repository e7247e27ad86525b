// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"coelan.io/coelan/internal/agentapi"
)

// CompareMTUs finds that nodes give pods different MTUs, by each node's answer to Check. What a pod
// of a node with the greater one sends to one with the smaller may not fit: TCP agrees on what fits
// both, other protocols have to learn it from ICMP.
func CompareMTUs(checks map[string]agentapi.Check) (agentapi.Finding, bool) {
	nodes := map[int][]string{}
	for _, node := range slices.Sorted(maps.Keys(checks)) {
		if mtu := checks[node].MTU; mtu != 0 { // 0: it is not known yet
			nodes[mtu] = append(nodes[mtu], node)
		}
	}
	if len(nodes) < 2 {
		return agentapi.Finding{}, false
	}
	sizes := slices.SortedFunc(maps.Keys(nodes), func(a, b int) int { return cmp.Compare(b, a) })
	parts := make([]string, len(sizes))
	for i, mtu := range sizes {
		parts[i] = fmt.Sprintf("%d on %s", mtu, someOf(nodes[mtu]))
	}
	return agentapi.Finding{
		Kind: "mtu", Object: "of pods differs:",
		Problem: fmt.Sprintf("%s: packets of more than %d bytes between them are answered with ICMP, or cut, at most 50 a"+
			" second of each port; give the nodes' interfaces the same MTU, or set mtu: %d in the configuration, and make pods anew", strings.Join(parts, ", "),
			sizes[len(sizes)-1], sizes[len(sizes)-1]),
	}, true
}

// someOf lists names, of many the first only.
func someOf(names []string) string {
	const shown = 5
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
}
