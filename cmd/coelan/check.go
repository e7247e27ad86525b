// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/diagnose"
)

func newCheckCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "check",
		Short: "Compare pods, ports, interfaces, addresses and flows of every node, and report what is left over or missing",
		Args:  cobra.NoArgs,
	}
	flags := addClusterFlags(c)
	flags.addNodeFlag(c)
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		out := cmd.OutOrStdout()
		found, checks := 0, map[string]agentapi.Check{}
		err := flags.eachNode(cmd, func(agents diagnose.Agents, node string) error {
			result, err := diagnose.Check(cmd.Context(), agents, node)
			if err != nil {
				return err
			}
			found += len(result.Findings)
			checks[node] = result
			if flags.json {
				return printJSON(out, result)
			}
			by := ""
			if result.Configuration != "" {
				by = ", configured by nodenetworkconfig " + result.Configuration
			}
			fmt.Fprintf(out, "%s: %d pod interfaces, %d ports, %d findings%s\n",
				node, result.Interfaces, result.Ports, len(result.Findings), by)
			for _, f := range result.Findings {
				fmt.Fprintf(out, "  %s %s %s\n", f.Kind, f.Object, f.Problem)
			}
			return nil
		})
		if f, differ := diagnose.CompareMTUs(checks); differ && !flags.json {
			found++
			fmt.Fprintf(out, "all nodes\n  %s %s %s\n", f.Kind, f.Object, f.Problem)
		}
		if err == nil && found > 0 {
			return fmt.Errorf("%d findings", found)
		}
		return err
	}
	return c
}
