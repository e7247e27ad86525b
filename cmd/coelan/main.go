// SPDX-License-Identifier: Apache-2.0

// Coelan is the command line of Coelan: it shows what the agents do, and runs sandbox clusters.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"coelan.io/coelan/internal/version"
)

// commands are the subcommands, in the order of the help text.
var commands = []func() *cobra.Command{
	newClusterStatusCommand,
	newGetCommand,
	newTraceCommand,
	newCheckCommand,
	newCNICommand,
	newSandboxCommand,
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newRootCommand().ExecuteContext(ctx); err != nil {
		os.Exit(report(err))
	}
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "coelan",
		Short:         "Networks for Kubernetes pods on Open vSwitch",
		Version:       version.String(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	cobra.EnableCommandSorting = false
	for _, newCommand := range commands {
		root.AddCommand(newCommand())
	}
	return root
}

// report tells the user about the error and returns the exit status: a command that ran on the
// user's behalf has reported its own failure, and its status is passed on.
func report(err error) int {
	var failed *exec.ExitError
	if errors.As(err, &failed) && failed.ExitCode() > 0 {
		return failed.ExitCode()
	}
	var refused *refusedError
	if errors.As(err, &refused) {
		fmt.Fprintln(os.Stderr, "Error:", err)
		return exitRefused
	}
	fmt.Fprintln(os.Stderr, "Error:", err)
	return 1
}
