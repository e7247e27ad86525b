// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"coelan.io/coelan/internal/policy"
)

func newGetPoliciesCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "policies [[NAMESPACE/]NAME]", Aliases: []string{"policy"}, Args: cobra.MaximumNArgs(1),
		Short: "List on how many nodes each policy is in effect, and what is wrong with it",
	}
	flags := addClusterFlags(c)
	c.Flags().Lookup("namespace").Usage = "only policies of this namespace"
	c.Flags().BoolVar(&flags.json, "json", false, "print the controller's own answer as JSON")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		cluster, _, err := flags.connect()
		if err != nil {
			return err
		}
		list, err := cluster.Policies(cmd.Context())
		if err != nil {
			return err
		}
		list = slices.DeleteFunc(list, func(s policy.EnforcementStatus) bool {
			return !isMeant(s.Policy.Namespace, s.Policy.Name, flags.overrides.Context.Namespace, args)
		})
		if flags.json {
			return printJSON(cmd.OutOrStdout(), list)
		}
		printRows(cmd.OutOrStdout(), enforcementRows(list), "POLICY", "NODES", "PROBLEMS")
		return nil
	}
	return c
}

func enforcementRows(list []policy.EnforcementStatus) [][]any {
	rows := make([][]any, len(list))
	for i, s := range list {
		problems := s.Problems
		if more := len(problems) - shown; more > 0 {
			problems = append(slices.Clone(problems[:shown]), fmt.Sprintf("and %d more", more))
		}
		rows[i] = []any{s.Policy, fmt.Sprintf("%d of %d", s.ProgrammedNodes, s.Nodes),
			orDash(strings.Join(problems, ". "))}
	}
	return rows
}
