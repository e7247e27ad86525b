// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Inventory is what exists on a node, by kind, each as a sorted list of lines.
type Inventory map[string][]string

// Inventory lists ports, interfaces, flows, routes and rules of the node. Without
// anything changed two are equal.
func (n *Node) Inventory(ctx context.Context) (Inventory, error) {
	out := Inventory{}
	for _, kind := range []struct {
		name string
		list func() (string, error)
	}{
		{"ports", func() (string, error) { return n.OVS.Vsctl(ctx, "list-ports", bridge) }},
		{"flows", func() (string, error) { return n.OVS.Ofctl(ctx, "--no-stats", "dump-flows", bridge) }},
		{"groups", func() (string, error) { return n.OVS.Ofctl(ctx, "dump-groups", bridge) }},
		{"interfaces", func() (string, error) { return n.Run(ctx, "ip", "-brief", "link", "show") }},
		{"addresses", func() (string, error) {
			return n.Run(ctx, "ip", "-brief", "address", "show", "scope", "global")
		}},
		{"IPv4 routes", func() (string, error) { return n.Run(ctx, "ip", "-4", "route", "show") }},
		{"IPv6 routes", func() (string, error) { return n.Run(ctx, "ip", "-6", "route", "show") }},
		{"rules", func() (string, error) { return n.Run(ctx, "nft", "list", "ruleset") }},
	} {
		text, err := kind.list()
		if err != nil {
			return nil, fmt.Errorf("inventory of %s: %s: %w", n.Name, kind.name, err)
		}
		lines := strings.Split(text, "\n")
		slices.Sort(lines)
		out[kind.name] = lines
	}
	return out, nil
}

// bridge is the integration bridge.
const bridge = "br-int"

// Counts is how many there are of each kind.
func (i Inventory) Counts() map[string]int {
	counts := map[string]int{}
	for kind, lines := range i {
		counts[kind] = len(lines)
	}
	return counts
}
