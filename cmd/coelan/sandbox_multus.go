// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"coelan.io/coelan/internal/sandbox"
)

func newMultusCommand(name *string) *cobra.Command {
	return &cobra.Command{
		Use:   "multus definitions|thin|thick|remove",
		Short: "Run Multus on the nodes, or only define NetworkAttachmentDefinitions",
		Long: "Run Multus on the nodes from upstream's manifest: thin, a plugin that does everything itself, or thick, with a\n" +
			"daemon. It takes the place of the plugin that the nodes use, and calls that one for pods' first interfaces.\n" +
			"definitions only makes NetworkAttachmentDefinitions known to the cluster; remove removes Multus, but for those.",
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{"definitions", "thin", "thick", "remove"},
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := sandbox.Open(*name)
			if err != nil {
				return err
			}
			switch args[0] {
			case "definitions":
				return s.DefineAttachments(cmd.Context())
			case "remove":
				return s.RemoveMultus(cmd.Context())
			}
			if err := s.InstallMultus(cmd.Context(), sandbox.Multus(args[0])); err != nil {
				return fmt.Errorf("multus: %w", err)
			}
			return nil
		},
	}
}
