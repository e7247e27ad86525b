// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/diagnose"
	"coelan.io/coelan/internal/intent"
)

func newGetPolicyStatsCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "policystats [[NAMESPACE/]NAME]", Aliases: []string{"policystat"}, Args: cobra.MaximumNArgs(1),
		Short: "List how many packets and bytes each rule of each policy has allowed or denied",
	}
	flags := addClusterFlags(c)
	flags.addNodeFlag(c)
	c.Flags().Lookup("namespace").Usage = "only policies of this namespace"
	var perNode bool
	c.Flags().BoolVar(&perNode, "per-node", false, "each node's own numbers, not their sums")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		byNode, all := map[string][]agentapi.PolicyStat{}, []nodeStat{}
		err := flags.eachNode(cmd, func(agents diagnose.Agents, node string) error {
			list, err := diagnose.PolicyStats(cmd.Context(), agents, node)
			list = slices.DeleteFunc(list, func(s agentapi.PolicyStat) bool {
				return !isMeantStat(s, flags.overrides.Context.Namespace, args)
			})
			byNode[node] = list
			for _, s := range list {
				all = append(all, nodeStat{node, s})
			}
			return err
		})
		if flags.json {
			if printed := printJSON(cmd.OutOrStdout(), byNode); printed != nil {
				return printed
			}
			return err
		}
		head := []string{"POLICY", "DIRECTION", "RULE", "DECISION", "PACKETS", "BYTES"}
		if perNode {
			head = append([]string{"NODE"}, head...)
		}
		printRows(cmd.OutOrStdout(), statRows(all, perNode), head...)
		return err
	}
	return c
}

// nodeStat is one of a node.
type nodeStat struct {
	node string
	agentapi.PolicyStat
}

// isMeantStat says whether a policy has decided that isMeant. Ports that are closed are of none.
func isMeantStat(s agentapi.PolicyStat, namespace string, args []string) bool {
	return namespace == "" && len(args) == 0 ||
		slices.ContainsFunc(s.Policies, func(p intent.PolicyRef) bool {
			return isMeant(p.Namespace, p.Name, namespace, args)
		})
}

// statRows are the sums over all nodes, or each node's own. That ports are closed is a row only if
// something was for one.
func statRows(all []nodeStat, perNode bool) [][]any {
	all = slices.DeleteFunc(slices.Clone(all), func(s nodeStat) bool { return len(s.Policies) == 0 && s.Packets == 0 })
	rows := [][]any{}
	if perNode {
		for _, s := range all {
			rows = append(rows, append([]any{s.node}, statRow(s.PolicyStat)...))
		}
		return rows
	}
	for _, s := range sumNodes(all) {
		rows = append(rows, statRow(s))
	}
	return rows
}

// sumNodes adds up the nodes' numbers.
func sumNodes(list []nodeStat) []agentapi.PolicyStat {
	stats := make([]agentapi.PolicyStat, len(list))
	for i, s := range list {
		stats[i] = s.PolicyStat
	}
	return agentapi.SumPolicyStats(stats)
}

func statRow(s agentapi.PolicyStat) []any {
	rule := "-"
	if s.Rule > 0 {
		rule = strconv.Itoa(s.Rule)
	}
	policies := join(s.Policies)
	if len(s.Policies) == 0 {
		policies = "(ports are closed)"
	}
	return []any{policies, s.Direction, rule, s.Decision, s.Packets, s.Bytes}
}
