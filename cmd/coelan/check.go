// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
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
		Short: "Compare pods, ports, interfaces, addresses and flows of every node, OVN's databases, and what " +
			"Neutron has, and report what is left over or missing",
		Args: cobra.NoArgs,
	}
	flags := addClusterFlags(c)
	flags.addNodeFlag(c)
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		out := cmd.OutOrStdout()
		found, backends, checks := 0, map[string]bool{}, map[string]agentapi.Check{}
		err := flags.eachNode(cmd, func(agents diagnose.Agents, node string) error {
			result, err := diagnose.Check(cmd.Context(), agents, node)
			if err != nil {
				return err
			}
			found += len(result.Findings)
			checks[node] = result
			backends[result.Backend] = true
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
		if flags.node == "" {
			n, failure := flags.checkControllers(cmd, backends)
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

// checkControllers prints what the leading controller finds of what is behind the backends of
// nodes, and returns how much that is.
func (f *clusterFlags) checkControllers(cmd *cobra.Command, backends map[string]bool) (found int, err error) {
	var errs []error
	for _, behind := range []struct {
		backend config.BackendType
		check   func(*cobra.Command) (int, error)
	}{{config.OVNBackend, f.checkOVN}, {config.NeutronBackend, f.checkNeutron}} {
		if !backends[string(behind.backend)] {
			continue
		}
		n, err := behind.check(cmd)
		found += n
		errs = append(errs, err)
	}
	return found, errors.Join(errs...)
}

// checkOVN prints what of OVN's northbound database is not as wanted, and returns how much that is.
func (f *clusterFlags) checkOVN(cmd *cobra.Command) (found int, err error) {
	c, err := answer(f, cmd, "OVN's northbound database", config.OVNBackend, (*diagnose.Cluster).OVNCheck)
	if err != nil {
		return 0, err
	}
	found = len(c.Findings) + c.More
	if f.json {
		return found, printJSON(cmd.OutOrStdout(), c)
	}
	printOVNCheck(cmd.OutOrStdout(), *c)
	return found, nil
}

// checkNeutron prints what Neutron does not do of objects, and returns how much that is.
func (f *clusterFlags) checkNeutron(cmd *cobra.Command) (found int, err error) {
	c, err := answer(f, cmd, "Neutron", config.NeutronBackend, (*diagnose.Cluster).NeutronCheck)
	if err != nil {
		return 0, err
	}
	found = len(c.Findings) + c.More
	if c.Northbound != nil {
		found += len(c.Northbound.Findings) + c.Northbound.More
	}
	if f.json {
		return found, printJSON(cmd.OutOrStdout(), c)
	}
	printNeutronCheck(cmd.OutOrStdout(), *c)
	return found, nil
}

// answer is the leading controller's about what is behind a backend that agents have.
func answer[T any](
	f *clusterFlags, cmd *cobra.Command, about string, backend config.BackendType,
	ask func(*diagnose.Cluster, context.Context) (*T, error),
) (*T, error) {
	cluster, _, err := f.connect()
	if err != nil {
		return nil, err
	}
	a, err := ask(cluster, cmd.Context())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", about, err)
	}
	if a == nil {
		return nil, fmt.Errorf("%s: the controllers' backend is not %s, and so nothing writes it: "+
			"give them the agents' backend", about, backend)
	}
	return a, nil
}

// printOVNCheck prints the answer of the leading controller.
func printOVNCheck(out io.Writer, c agentapi.OVNCheck) {
	printAll(out, fmt.Sprintf("OVN: %d rows", c.Rows), c.Findings, c.More)
}

// printNeutronCheck prints the answer of the leading controller.
func printNeutronCheck(out io.Writer, c agentapi.NeutronCheck) {
	printAll(out, fmt.Sprintf("Neutron: %d resources", c.Resources), c.Findings, c.More)
	for _, l := range c.Limits {
		fmt.Fprintf(out, "  not done: %s %s\n", l.Object, l.Problem)
	}
	if c.Northbound != nil {
		printOVNCheck(out, *c.Northbound)
	}
}

// printAll prints findings about what was compared.
func printAll(out io.Writer, compared string, list agentapi.Findings, more int) {
	fmt.Fprintf(out, "%s, %d findings\n", compared, len(list)+more)
	printFindings(out, list...)
	if more > 0 {
		fmt.Fprintf(out, "  and %d more\n", more)
	}
}
