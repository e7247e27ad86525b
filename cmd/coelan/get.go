// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/diagnose"
)

func newGetCommand() *cobra.Command {
	c := &cobra.Command{Use: "get", Short: "List what the agents have, and the controllers"}
	c.AddCommand(newGetPortsCommand(), newGetNetworksCommand(), newGetRoutersCommand(), newGetServicesCommand(),
		newGetFloatingIPsCommand(), newGetGatewaysCommand(), newGetEgressCommand(), newGetNextHopsCommand(),
		newGetPoliciesCommand(), newGetPolicyStatsCommand())
	return c
}

func newGetPortsCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "ports",
		Aliases: []string{"port"},
		Short:   "List the ports of all pods and of users",
		Args:    cobra.NoArgs,
	}
	flags := addClusterFlags(c)
	flags.addNodeFlag(c)
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		all := []agentapi.PortInfo{}
		rows := [][]any{}
		err := flags.eachNode(cmd, func(agents diagnose.Agents, node string) error {
			ports, err := diagnose.Ports(cmd.Context(), agents, node)
			all = append(all, ports...)
			for _, p := range ports {
				rows = append(rows, []any{
					node, portName(p), cmp.Or(p.NetworkName, v1alpha1.DefaultNetwork), join(p.Addresses),
					join(p.NodeAddresses),
					p.MAC, p.OFPort, p.HostInterface, portState(p), orDash(p.Neutron),
				})
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

func portState(p agentapi.PortInfo) string {
	switch {
	case p.Ready:
		return "ready"
	case p.Error != "":
		return p.Error
	}
	return "not ready"
}

func printPorts(w io.Writer, rows [][]any) {
	printRows(w, rows, "NODE", "PORT", "NETWORK", "ADDRESSES", "NODE ADDRESSES", "MAC", "OFPORT", "INTERFACE", "STATE",
		neutronColumn)
}

// portName is namespace/pod/interface, or namespace/name of a user's Port.
func portName(p agentapi.PortInfo) string {
	if p.IsPort() {
		return p.PortKey()
	}
	return p.PodRef()
}

// neutronColumn has UUIDs of Neutron. It is last.
const neutronColumn = "NEUTRON"

// used are rows and their titles without the column of UUIDs, if there is none.
func used(rows [][]any, head []string) ([][]any, []string) {
	last := len(head) - 1
	if head[last] != neutronColumn || slices.ContainsFunc(rows, func(r []any) bool { return r[last] != "-" }) {
		return rows, head
	}
	without := make([][]any, len(rows))
	for i, r := range rows {
		without[i] = r[:last]
	}
	return without, head[:last]
}

func printRows(w io.Writer, rows [][]any, head ...string) {
	rows, head = used(rows, head)
	t := newTable(w, head...)
	for _, r := range rows {
		for i, v := range r {
			if i > 0 {
				fmt.Fprint(t, "\t")
			}
			fmt.Fprint(t, v)
		}
		fmt.Fprintln(t)
	}
	_ = t.Flush()
}
