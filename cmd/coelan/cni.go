// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"coelan.io/coelan/internal/cni/netconf"
	"coelan.io/coelan/internal/config"
)

// exitRefused is the exit status of lint if pods could not be attached by a configuration. What
// cannot be read is 1, as any other failure.
const exitRefused = 2

// maxConfiguration bounds in bytes what lint reads.
const maxConfiguration = 4 << 20

// refusedError says that a configuration is refused, which has been printed.
type refusedError struct {
	file string
	keys int
}

func (e *refusedError) Error() string {
	return fmt.Sprintf("%s: the plugin refuses it, because of %d of its keys", e.file, e.keys)
}

func newCNICommand() *cobra.Command {
	c := &cobra.Command{Use: "cni", Short: "Look at network configurations of the container runtime"}
	var bridge string
	lintCommand := &cobra.Command{
		Use: "lint FILE", Args: cobra.ExactArgs(1),
		Short: "List what each key of a configuration does; - is standard input",
		Long: "List what each key of a network configuration, or of a list of them, does; - is standard input.\n" +
			"Comments and commas too many or too few are corrected, and the corrected text is printed.\n" +
			"Exit status: 0 if the plugin takes the configuration, 2 if it refuses it, 1 if it cannot be read.",
		RunE: func(cmd *cobra.Command, args []string) error { return lint(cmd, args[0], bridge) },
	}
	lintCommand.Flags().StringVar(&bridge, "bridge", config.Default().Bridge,
		"the agent's bridge, as its configuration says")
	c.AddCommand(lintCommand)
	return c
}

func lint(cmd *cobra.Command, file, bridge string) error {
	data, err := readConfiguration(cmd.InOrStdin(), file)
	if err != nil {
		return err
	}
	text, findings, err := netconf.JudgeFile(data, bridge)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	out := cmd.OutOrStdout()
	var rows [][]any
	refused, corrected := 0, ""
	for _, f := range findings {
		if f.State == netconf.Refused {
			refused++
		}
		if f.Key == "" && f.State != netconf.Refused {
			corrected = f.Meaning
			continue
		}
		rows = append(rows, []any{orDash(f.Key), orDash(f.Value), f.State, f.Meaning})
	}
	printRows(out, rows, "KEY", "VALUE", "STATE", "MEANING")
	if corrected != "" {
		var indented bytes.Buffer
		if err := json.Indent(&indented, text, "", "  "); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		fmt.Fprintf(out, "\nWarning: %s. What is meant:\n%s\n", corrected, bytes.TrimSpace(indented.Bytes()))
	}
	if refused > 0 {
		return &refusedError{file, refused}
	}
	return nil
}

func readConfiguration(stdin io.Reader, file string) ([]byte, error) {
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		stdin = f
	}
	data, err := io.ReadAll(io.LimitReader(stdin, maxConfiguration+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", file, err)
	case len(data) > maxConfiguration:
		return nil, fmt.Errorf("%s: larger than %d bytes", file, maxConfiguration)
	}
	return data, nil
}
