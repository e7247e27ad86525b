// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"coelan.io/coelan/internal/sandbox"
)

func newPoliciesCommand(name *string) *cobra.Command {
	return &cobra.Command{
		Use:   "policies standard|experimental",
		Short: "Make ClusterNetworkPolicies known to the cluster",
		Long: "Make ClusterNetworkPolicies known to the cluster from upstream's own definition: standard has what is settled\n" +
			"of them, experimental also what may still change, such as nodes as peers.",
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{string(sandbox.StandardPolicies), string(sandbox.ExperimentalPolicies)},
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := sandbox.Open(*name)
			if err != nil {
				return err
			}
			return s.DefinePolicies(cmd.Context(), sandbox.PolicyChannel(args[0]))
		},
	}
}
