// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/diagnose"
)

func newGetServicesCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "services [[NAMESPACE/]NAME]", Aliases: []string{"service", "svc"}, Args: cobra.MaximumNArgs(1),
		Short: "List what each node does for Services: addresses, endpoints, problems",
	}
	flags := addClusterFlags(c)
	flags.addNodeFlag(c)
	c.Flags().Lookup("namespace").Usage = "only Services of this namespace"
	c.RunE = func(cmd *cobra.Command, args []string) error {
		ask := func(ctx context.Context, agents diagnose.Agents, node string) ([]agentapi.ServiceInfo, error) {
			list, err := diagnose.Services(ctx, agents, node)
			return slices.DeleteFunc(list, func(s agentapi.ServiceInfo) bool {
				return !isMeant(s.Namespace, s.Name, flags.overrides.Context.Namespace, args)
			}), err
		}
		rows := func(all []ofNode[agentapi.ServiceInfo]) [][]any {
			rows := [][]any{}
			for _, s := range all {
				rows = append(rows, serviceRows(s.node, s.info)...)
			}
			return rows
		}
		return printLists(cmd, flags, ask, rows, "NODE", "SERVICE", "ROUTER", "PORT", "ADDRESSES", "NODE PORT",
			"ENDPOINTS", "PROBLEMS")
	}
	return c
}

// isMeant says whether an object is of the namespace that was asked for, if one was, and has the
// name, if one was asked for: with its namespace, or without.
func isMeant(namespace, name, asked string, args []string) bool {
	if len(args) > 0 && namespace+"/"+name == args[0] {
		return true
	}
	return (asked == "" || namespace == asked) && (len(args) == 0 || name == args[0])
}

// serviceRows are one row for each port in each family. A Service that is not in effect has one row
// that says why.
func serviceRows(node string, s agentapi.ServiceInfo) [][]any {
	name, problems := s.Namespace+"/"+s.Name, orDash(strings.Join(s.Problems, "; "))
	if len(s.Ports) == 0 {
		return [][]any{{node, name, orDash(s.Router), "-", "-", "-", "-", problems}}
	}
	var rows [][]any
	for _, p := range s.Ports {
		addresses := slices.Concat(p.ExternalIPs, p.LoadBalancerIPs)
		if p.ClusterIP.IsValid() {
			addresses = append([]netip.Addr{p.ClusterIP}, addresses...)
		}
		nodePort := "-"
		if p.NodePort != 0 {
			nodePort = fmt.Sprint(p.NodePort)
		}
		rows = append(rows, []any{
			node, name, s.Router, fmt.Sprintf("%d/%s", p.Port, p.Protocol), orDash(join(addresses)), nodePort,
			endpoints(p), problems,
		})
		problems = "-"
	}
	return rows
}

// shown is how many endpoints a row has room for.
const shown = 3

func endpoints(p agentapi.ServicePortInfo) string {
	switch n := len(p.Endpoints); {
	case p.Refused:
		return "none: clients are refused"
	case n == 0:
		return "none for this node"
	case n > shown:
		return fmt.Sprintf("%s and %d more", join(p.Endpoints[:shown]), n-shown)
	}
	return join(p.Endpoints)
}
