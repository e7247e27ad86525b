// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"coelan.io/coelan/internal/controller"
	"coelan.io/coelan/internal/localapi"
)

// queryCommand asks the running controller. The coelan command reaches it by exec
// in the controller's pod.
func queryCommand() *cobra.Command {
	socket := controller.DefaultSocket
	cmd := &cobra.Command{
		Use:     "query PATH",
		Short:   "Ask the running controller, for example /v1/policies",
		Example: "  coelan-controller query /v1/policies",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return localapi.Query(cmd.Context(), "controller", socket, args[0], nil, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&socket, "socket", socket, "the controller's socket")
	return cmd
}
