// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/diagnose"
)

func newGetFloatingIPsCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "floatingips [[NAMESPACE/]NAME]", Aliases: []string{"floatingip", "fip"}, Args: cobra.MaximumNArgs(1),
		Short: "List the floating IPs that nodes have, and whether they are in effect",
	}
	flags := addClusterFlags(c)
	flags.addNodeFlag(c)
	c.Flags().Lookup("namespace").Usage = "only FloatingIPs of this namespace"
	c.RunE = func(cmd *cobra.Command, args []string) error {
		ask := func(ctx context.Context, agents diagnose.Agents, node string) ([]agentapi.FloatingIPInfo, error) {
			list, err := diagnose.FloatingIPs(ctx, agents, node)
			return slices.DeleteFunc(list, func(f agentapi.FloatingIPInfo) bool {
				return !isMeant(f.Namespace, f.Name, flags.overrides.Context.Namespace, args)
			}), err
		}
		return printLists(cmd, flags, ask, floatingIPRows,
			"FLOATINGIP", "NETWORK", "ADDRESS", "STANDS FOR", "NODE", "MAC", "STATE")
	}
	return c
}

func newGetGatewaysCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "gateways", Aliases: []string{"gateway"}, Args: cobra.NoArgs,
		Short: "List the addresses that nodes have as gateways of Routers, and how much is translated",
	}
	flags := addClusterFlags(c)
	flags.addNodeFlag(c)
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		return printLists(cmd, flags, diagnose.Gateways, gatewayRows,
			"ROUTER", "NETWORK", "ADDRESS", "NODE", "MAC", "STATE", "TRANSLATIONS", "LEFT")
	}
	return c
}

func newGetEgressCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "egress", Aliases: []string{"egresses"}, Args: cobra.NoArgs,
		Short: "List the addresses that Ports of several nodes are seen as, and the node that is active for each",
	}
	flags := addClusterFlags(c)
	flags.addNodeFlag(c)
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		return printLists(cmd, flags, diagnose.Egress, egressRows,
			"EGRESS/ROUTER", "NETWORK", "ADDRESS", "NODES", "ACTIVE", "IN EFFECT ON")
	}
	return c
}

func newGetNextHopsCommand() *cobra.Command {
	return newListCommand("nexthops", "nexthop", "List the stations on external Networks that nodes send to",
		diagnose.NextHops, func(n agentapi.NextHop) []any {
			kind := "host"
			if n.Gateway {
				kind = "gateway"
			}
			return []any{n.Network, n.Address, kind, orDash(n.MAC), nextHopState(n)}
		}, "NETWORK", "ADDRESS", "KIND", "MAC", "STATE")
}

// floatingIPRows are sorted by name.
func floatingIPRows(all []ofNode[agentapi.FloatingIPInfo]) [][]any {
	slices.SortFunc(all, func(a, b ofNode[agentapi.FloatingIPInfo]) int {
		return cmp.Or(cmp.Compare(a.info.Namespace, b.info.Namespace), cmp.Compare(a.info.Name, b.info.Name),
			cmp.Compare(a.node, b.node))
	})
	rows := [][]any{}
	for _, f := range all {
		rows = append(rows, []any{
			f.info.Namespace + "/" + f.info.Name, f.info.Network, f.info.Address, standsFor(f.info), f.node,
			orDash(f.info.MAC), addressState(f.info.ExternalAddress),
		})
	}
	return rows
}

// standsFor is the Port of a FloatingIP, or its Service.
func standsFor(f agentapi.FloatingIPInfo) string {
	if f.Service != "" {
		return "Service " + f.Service
	}
	return f.Port
}

// gatewayRows are sorted by Router and node.
func gatewayRows(all []ofNode[agentapi.GatewayInfo]) [][]any {
	slices.SortFunc(all, func(a, b ofNode[agentapi.GatewayInfo]) int {
		return cmp.Or(cmp.Compare(a.info.Router, b.info.Router), cmp.Compare(a.node, b.node),
			cmp.Compare(a.info.Network, b.info.Network), a.info.Address.Compare(b.info.Address))
	})
	rows := [][]any{}
	for _, g := range all {
		translations, left := "-", "-"
		switch t := g.info.Translations; {
		case g.info.Routed:
			translations = "none"
		case t == nil:
		default:
			translations = fmt.Sprint(t.Count)
			if t.Limit > 0 {
				left = fmt.Sprint(max(0, t.Limit-t.Count))
			}
		}
		rows = append(rows, []any{
			g.info.Router, g.info.Network, g.info.Address, g.node, orDash(g.info.MAC),
			addressState(g.info.ExternalAddress), translations, left,
		})
	}
	return rows
}

// egressRows are one for each address, sorted by what has it. All nodes know all addresses.
func egressRows(all []ofNode[agentapi.EgressInfo]) [][]any {
	type key struct{ user, network, address string }
	views := map[key][]ofNode[agentapi.EgressInfo]{}
	keys := []key{}
	slices.SortStableFunc(all, func(a, b ofNode[agentapi.EgressInfo]) int {
		return cmp.Or(cmp.Compare(egressUser(a.info), egressUser(b.info)), cmp.Compare(a.info.Network, b.info.Network),
			a.info.Address.Compare(b.info.Address), cmp.Compare(a.node, b.node))
	})
	for _, e := range all {
		k := key{egressUser(e.info), e.info.Network, e.info.Address.String()}
		if views[k] == nil {
			keys = append(keys, k)
		}
		views[k] = append(views[k], e)
	}
	rows := [][]any{}
	for _, k := range keys {
		var having []string
		for _, e := range views[k] {
			if e.info.InEffect {
				having = append(having, e.node)
			}
		}
		rows = append(rows, []any{
			k.user, k.network, k.address, asSeen(views[k], func(e agentapi.EgressInfo) string { return join(e.Nodes) }),
			asSeen(views[k], func(e agentapi.EgressInfo) string { return orDash(e.Active) }), join(having),
		})
	}
	return rows
}

func egressUser(e agentapi.EgressInfo) string {
	if e.Egress != "" {
		return "egress/" + e.Egress
	}
	return "router/" + e.Router
}

// asSeen is what nodes say, if all say the same; else what each says.
func asSeen[T any](views []ofNode[T], says func(T) string) string {
	by, texts := map[string][]string{}, []string{}
	for _, v := range views {
		text := says(v.info)
		if by[text] == nil {
			texts = append(texts, text)
		}
		by[text] = append(by[text], v.node)
	}
	if len(texts) == 1 {
		return texts[0]
	}
	for i, text := range texts {
		texts[i] = text + " (as seen by " + join(by[text]) + ")"
	}
	return strings.Join(texts, ", ")
}

// addressState says whether an address is in effect, and what is missing for packets to pass.
func addressState(a agentapi.ExternalAddress) string {
	switch hop := a.NextHop; {
	case !a.InEffect:
		return "not in effect: " + a.Problem
	case hop != nil && nextHopState(*hop) != hopKnown:
		return fmt.Sprintf("in effect, gateway %s %s", hop.Address, nextHopState(*hop))
	}
	return "in effect"
}

// hopKnown is the state of a next hop that has a MAC and answers.
const hopKnown = "known"

func nextHopState(n agentapi.NextHop) string {
	switch {
	case n.Down:
		return "fails its health check"
	case n.Silent:
		return "does not answer"
	case n.MAC == "":
		return "is asked for"
	}
	return hopKnown
}
