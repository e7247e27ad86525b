// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"coelan.io/coelan/internal/agent"
	"coelan.io/coelan/internal/diagnose"
	"coelan.io/coelan/internal/intent"
)

func newGetPolicyStatsCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "policystats [[NAMESPACE/]NAME]", Aliases: []string{"policystat", "policies"}, Args: cobra.MaximumNArgs(1),
		Short: "List how many packets and bytes each rule of each policy has allowed or denied",
	}
	flags := addClusterFlags(c)
	flags.addNodeFlag(c)
	var perNode bool
	c.Flags().BoolVar(&perNode, "per-node", false, "each node's own numbers, not their sums")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		byNode, all := map[string][]agent.PolicyStat{}, []nodeStat{}
		err := flags.eachNode(cmd, func(agents diagnose.Agents, node string) error {
			list, err := diagnose.PolicyStats(cmd.Context(), agents, node)
			if len(args) > 0 {
				list = slices.DeleteFunc(list, func(s agent.PolicyStat) bool { return !ofPolicy(s, args[0]) })
			}
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
		rows := [][]any{}
		if perNode {
			head = append([]string{"NODE"}, head...)
			for _, s := range all {
				rows = append(rows, append([]any{s.node}, statRow(s.PolicyStat)...))
			}
		} else {
			for _, s := range sumNodes(all) {
				rows = append(rows, statRow(s))
			}
		}
		printRows(cmd.OutOrStdout(), rows, head...)
		return err
	}
	return c
}

// nodeStat is one of a node.
type nodeStat struct {
	node string
	agent.PolicyStat
}

// ofPolicy says whether a policy of that name, or namespace/name, has decided.
func ofPolicy(s agent.PolicyStat, name string) bool {
	return slices.ContainsFunc(s.Policies, func(p intent.PolicyRef) bool { return p.Name == name || p.Namespace+"/"+p.Name == name })
}

// sumNodes adds up the nodes' numbers.
func sumNodes(list []nodeStat) []agent.PolicyStat {
	stats := make([]agent.PolicyStat, len(list))
	for i, s := range list {
		stats[i] = s.PolicyStat
	}
	return agent.SumPolicyStats(stats)
}

func statRow(s agent.PolicyStat) []any {
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
