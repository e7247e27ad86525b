// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"coelan.io/coelan/internal/agent"
	"coelan.io/coelan/internal/diagnose"
)

func newGetCommand() *cobra.Command {
	c := &cobra.Command{Use: "get", Short: "List what the agents have"}
	c.AddCommand(newGetPortsCommand())
	return c
}

func newGetPortsCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "ports",
		Aliases: []string{"port"},
		Short:   "List the ports of all pods",
		Args:    cobra.NoArgs,
	}
	flags := addClusterFlags(c)
	flags.addNodeFlag(c)
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		all := []agent.PortInfo{}
		rows := [][]any{}
		err := flags.eachNode(cmd, func(agents diagnose.Agents, node string) error {
			ports, err := diagnose.Ports(cmd.Context(), agents, node)
			all = append(all, ports...)
			for _, p := range ports {
				rows = append(rows, []any{node, p.PodRef(), join(p.Addresses), p.MAC, p.OFPort, p.HostInterface, portState(p)})
			}
			return err
		})
		if flags.json {
			if printed := printJSON(cmd.OutOrStdout(), all); printed != nil {
				return printed
			}
			return err
		}
		printPorts(cmd.OutOrStdout(), rows)
		return err
	}
	return c
}

func portState(p agent.PortInfo) string {
	switch {
	case p.Ready:
		return "ready"
	case p.Error != "":
		return p.Error
	}
	return "not ready"
}

func printPorts(w io.Writer, rows [][]any) {
	t := newTable(w, "NODE", "PORT", "ADDRESSES", "MAC", "OFPORT", "INTERFACE", "STATE")
	for _, r := range rows {
		fmt.Fprintf(t, "%v\t%v\t%v\t%v\t%v\t%v\t%v\n", r...)
	}
	_ = t.Flush()
}
