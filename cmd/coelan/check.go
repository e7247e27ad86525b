// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/diagnose"
)

func newCheckCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "check",
		Short: "Compare pods, ports, interfaces, addresses and flows of every node, and OVN's databases, and report what is " +
			"left over or missing",
		Args: cobra.NoArgs,
	}
	flags := addClusterFlags(c)
	flags.addNodeFlag(c)
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		out := cmd.OutOrStdout()
		found, withOVN, checks := 0, false, map[string]agentapi.Check{}
		err := flags.eachNode(cmd, func(agents diagnose.Agents, node string) error {
			result, err := diagnose.Check(cmd.Context(), agents, node)
			if err != nil {
				return err
			}
			found += len(result.Findings)
			checks[node] = result
			withOVN = withOVN || result.Backend == string(config.OVNBackend)
			if flags.json {
				return printJSON(out, result)
			}
			printCheck(out, node, result)
			return nil
		})
		if f, differ := diagnose.CompareMTUs(checks); differ && !flags.json {
			found++
			fmt.Fprintln(out, "all nodes")
			printFindings(out, f)
		}
		if withOVN && flags.node == "" {
			n, failure := flags.checkOVN(cmd)
			found += n
			err = errors.Join(err, failure)
		}
		if err == nil && found > 0 {
			return fmt.Errorf("%d findings", found)
		}
		return err
	}
	return c
}

// printCheck prints the answer of a node's agent.
func printCheck(out io.Writer, node string, c agentapi.Check) {
	by := ""
	if c.Configuration != "" {
		by = ", configured by nodenetworkconfig " + c.Configuration
	}
	fmt.Fprintf(out, "%s: %d pod interfaces, %d ports, %d findings%s\n",
		node, c.Interfaces, c.Ports, len(c.Findings), by)
	printFindings(out, c.Findings...)
	for _, what := range c.NotCompared {
		fmt.Fprintf(out, "  not compared: %s\n", what)
	}
}

func printFindings(out io.Writer, list ...agentapi.Finding) {
	for _, f := range list {
		fmt.Fprintf(out, "  %s %s %s\n", f.Kind, f.Object, f.Problem)
	}
}

// checkOVN prints what of OVN's northbound database is not as wanted, and returns how much that is.
func (f *clusterFlags) checkOVN(cmd *cobra.Command) (found int, err error) {
	cluster, _, err := f.connect()
	if err != nil {
		return 0, err
	}
	c, err := cluster.OVNCheck(cmd.Context())
	if err != nil {
		return 0, fmt.Errorf("OVN's northbound database: %w", err)
	}
	if c == nil {
		return 0, errors.New("OVN's northbound database: the controllers' backend is not ovn, and so nothing writes it: give " +
			"them the agents' backend")
	}
	if f.json {
		return len(c.Findings) + c.More, printJSON(cmd.OutOrStdout(), c)
	}
	printOVNCheck(cmd.OutOrStdout(), *c)
	return len(c.Findings) + c.More, nil
}

// printOVNCheck prints the answer of the leading controller.
func printOVNCheck(out io.Writer, c agentapi.OVNCheck) {
	fmt.Fprintf(out, "OVN: %d rows, %d findings\n", c.Rows, len(c.Findings)+c.More)
	printFindings(out, c.Findings...)
	if c.More > 0 {
		fmt.Fprintf(out, "  and %d more\n", c.More)
	}
}
