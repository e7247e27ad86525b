// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/spf13/cobra"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/diagnose"
)

func newGetNetworksCommand() *cobra.Command {
	return newListCommand("networks", "network", "List the Networks that are in effect on each node", diagnose.Networks,
		func(n agentapi.NetworkInfo) []any {
			return []any{
				n.Name, n.ID, n.VNI, orDash(n.Router), join(n.Subnets), join(n.Blocks), n.Ports, orDash(n.Neutron),
			}
		}, "NETWORK", "ID", "VNI", "ROUTER", "SUBNETS", "BLOCKS", "PORTS", neutronColumn)
}

func newGetRoutersCommand() *cobra.Command {
	return newListCommand("routers", "router", "List the Routers that are in effect on each node", diagnose.Routers,
		func(r agentapi.RouterInfo) []any {
			routes := make([]string, len(r.Routes))
			for i, route := range r.Routes {
				routes[i] = route.Destination.String() + ">" + route.NextHop.String()
			}
			return []any{r.Name, r.ID, r.VNI, r.Shared, join(r.Networks), join(r.Imports), join(routes),
				orDash(r.Neutron)}
		}, "ROUTER", "ID", "VNI", "SHARED", "NETWORKS", "IMPORTS", "ROUTES", neutronColumn)
}

// newListCommand makes a command that asks each agent for a list and prints a row for each element,
// with the node.
func newListCommand[T any](use, alias, short string, ask func(context.Context, diagnose.Agents, string) ([]T, error),
	row func(T) []any, head ...string,
) *cobra.Command {
	c := &cobra.Command{Use: use, Aliases: []string{alias}, Short: short, Args: cobra.NoArgs}
	flags := addClusterFlags(c)
	flags.addNodeFlag(c)
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		rows := func(all []ofNode[T]) [][]any {
			rows := [][]any{}
			for _, v := range all {
				rows = append(rows, append([]any{v.node}, row(v.info)...))
			}
			return rows
		}
		return printLists(cmd, flags, ask, rows, append([]string{"NODE"}, head...)...)
	}
	return c
}

// ofNode is an element of a node's answer.
type ofNode[T any] struct {
	node string
	info T
}

// printLists asks each agent for a list, and prints rows of all of them together.
func printLists[T any](cmd *cobra.Command, flags *clusterFlags,
	ask func(context.Context, diagnose.Agents, string) ([]T, error), rows func([]ofNode[T]) [][]any, head ...string,
) error {
	byNode, all := map[string][]T{}, []ofNode[T]{}
	err := flags.eachNode(cmd, func(agents diagnose.Agents, node string) error {
		list, err := ask(cmd.Context(), agents, node)
		byNode[node] = list
		for _, info := range list {
			all = append(all, ofNode[T]{node, info})
		}
		return err
	})
	if flags.json {
		if printed := printJSON(cmd.OutOrStdout(), byNode); printed != nil {
			return printed
		}
		return err
	}
	printRows(cmd.OutOrStdout(), rows(all), head...)
	return err
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
