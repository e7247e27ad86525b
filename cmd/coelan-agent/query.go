// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"coelan.io/coelan/internal/agent/installation"
	"coelan.io/coelan/internal/backend/ovs"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/localapi"
	"coelan.io/coelan/internal/statefile"
)

// queryCommand asks the running agent. The coelan command reaches it by exec in the agent's pod.
func queryCommand(path *string) *cobra.Command {
	return &cobra.Command{
		Use:     "query PATH [JSON]",
		Short:   "Ask the running agent, for example /v1/status; with JSON, or - for standard input, it is posted",
		Example: "  coelan-agent query /v1/check",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			socket, err := agentSocket(cmd, *path)
			if err != nil {
				return err
			}
			var body io.Reader
			if len(args) == 2 {
				body = strings.NewReader(args[1])
				if args[1] == "-" {
					body = os.Stdin
				}
			}
			return localapi.Query(cmd.Context(), "agent", socket, args[0], body, cmd.OutOrStdout())
		},
	}
}

// agentSocket is the configured one. Without the default file, as on a node outside of the pod, it
// is the default.
func agentSocket(cmd *cobra.Command, path string) (string, error) {
	if _, err := os.Stat(path); os.IsNotExist(err) && !cmd.Flags().Changed("config") {
		return config.Default().AgentSocket, nil
	}
	cfg, err := config.Load(path)
	if err != nil {
		return "", err
	}
	return cfg.AgentSocket, nil
}

// uninstallCommand removes what the agent has put on the node.
func uninstallCommand(path *string) *cobra.Command {
	var force, stay, keep bool
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove Coelan's bridge, interfaces, routes, rules and CNI files from this node",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Load(*path)
			if err != nil {
				return err
			}
			foreign, err := ovs.ForeignAttached(cmd.Context(), cfg)
			if err != nil && !force {
				return err
			}
			removals := backends[cfg.Backend.Type].removals(cmd.Context(), cfg)
			done, err := installation.Uninstall(cfg, force, foreign, removals)
			for _, line := range done {
				fmt.Fprintln(cmd.OutOrStdout(), line)
			}
			if err == nil && stay {
				<-cmd.Context().Done()
			}
			if !keep {
				err = errors.Join(err, statefile.Remove(cfg.StateFile(apiServersFile)))
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "also while pods are attached: they lose their network")
	cmd.Flags().BoolVar(&stay, "stay", false, "stay until stopped, as the pods of a DaemonSet have to")
	cmd.Flags().BoolVar(&keep, "keep-api-servers", false,
		"keep what is known of the API servers, which a controller's removal on this node needs")
	return cmd
}
