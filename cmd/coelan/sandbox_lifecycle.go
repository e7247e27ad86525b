// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"coelan.io/coelan/internal/sandbox"
)

const componentHelp = "The component is one that `status` lists, or ovs (Open vSwitch's two), agent (Coelan's agent) or node\n" +
	"(the machine itself, which is the default). The machine `all` means every node.\n" +
	"Stopping a node is a power cut: every process of it dies at once, and only its disk stays."

// newLifecycleCommands are start, stop and restart.
func newLifecycleCommands(name *string) []*cobra.Command {
	type action func(context.Context, *sandbox.Sandbox, string, string, syscall.Signal) error
	create := func(verb, short string, act action, signals bool) *cobra.Command {
		var kill bool
		c := &cobra.Command{
			Use:   verb + " MACHINE [COMPONENT]",
			Short: short,
			Long:  short + ".\n\n" + componentHelp,
			Args:  cobra.RangeArgs(1, 2),
			RunE: func(cmd *cobra.Command, args []string) error {
				s, err := sandbox.Open(*name)
				if err != nil {
					return err
				}
				args = append(args, sandbox.Node)
				signal := syscall.SIGTERM
				if kill {
					signal = syscall.SIGKILL
				}
				began := time.Now()
				if err := act(cmd.Context(), s, args[0], args[1], signal); err != nil {
					return err
				}
				fmt.Fprintf(cmd.ErrOrStderr(), "%s %s %s: %.1f s\n", verb, args[0], args[1],
					time.Since(began).Seconds())
				return nil
			},
		}
		if signals {
			c.Flags().BoolVar(&kill, "kill", false, "end a component with SIGKILL, without notice")
		}
		return c
	}
	return []*cobra.Command{
		create("stop", "Stop a component or switch off a node",
			func(ctx context.Context, s *sandbox.Sandbox, m, c string, signal syscall.Signal) error {
				return s.Stop(ctx, m, c, signal)
			}, true),
		create("start", "Start a component or boot a node, and wait until it is ready",
			func(ctx context.Context, s *sandbox.Sandbox, m, c string, _ syscall.Signal) error {
				return s.Start(ctx, m, c)
			}, false),
		create("restart", "Restart a component or reboot a node, and wait until it is ready",
			func(ctx context.Context, s *sandbox.Sandbox, m, c string, signal syscall.Signal) error {
				return s.Restart(ctx, m, c, signal)
			}, true),
	}
}

func newStatusCommand(name *string) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the machines and what runs on them; exit status 1 unless all is ready",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := sandbox.Open(*name)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			fmt.Fprintf(out, "sandbox %s: %s, pod network %s, backend %s, Services by %s, Open vSwitch datapath %s\n\n",
				s.Name, s.Family, s.CNI, s.Backend, s.Balancer(), s.Datapath)
			list := s.Status(cmd.Context())
			if err := printStatus(out, list); err != nil {
				return err
			}
			for _, m := range list {
				if !m.Healthy(s.CNI) {
					return errors.New("not everything is ready")
				}
			}
			return nil
		},
	}
}

func printStatus(out io.Writer, list []sandbox.MachineStatus) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "MACHINE\tCOMPONENT\tSTATE\tPID\tFOR\tRESTARTS\tLAST ERROR")
	for _, m := range list {
		state := "running"
		switch {
		case m.PID == 0:
			state = "off"
		case m.Err != nil:
			state = "not answering"
		case m.NodeReady == "True":
			state = "node Ready"
		case m.NodeReady != "":
			state = "node not Ready"
		}
		fmt.Fprintf(w, "%s\t\t%s\t%d\t\t\t\n", m.Name, state, m.PID)
		for _, c := range m.Components {
			fmt.Fprintf(w, "\t%s\t%s\t%d\t%s\t%d\t%s\n",
				c.Name, c.State, c.PID, time.Since(c.Since).Round(time.Second), c.Restarts, c.Error)
		}
	}
	return w.Flush()
}

func newLogsCommand(name *string) *cobra.Command {
	var followed bool
	c := &cobra.Command{
		Use:   "logs MACHINE COMPONENT",
		Short: "Print a component's log; the component machine is the machine itself",
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := sandbox.Open(*name)
			if err != nil {
				return err
			}
			ctx := context.WithoutCancel(cmd.Context())
			command, err := logCommand(ctx, s, args[0], args[1], followed)
			if err != nil {
				return err
			}
			return attach(command)
		},
	}
	c.Flags().BoolVarP(&followed, "follow", "f", false, "print what is added, too")
	return c
}

func logCommand(ctx context.Context, s *sandbox.Sandbox, machine, component string, followed bool) (*exec.Cmd, error) {
	if component != sandbox.Agent {
		logs, err := s.Logs(machine, component)
		if err != nil {
			return nil, err
		}
		args := append([]string{"-q", "-n", "+1"}, logs...)
		if followed {
			args = append([]string{"-F"}, args...)
		}
		return exec.CommandContext(ctx, "tail", args...), nil
	}
	pod, err := s.AgentPod(ctx, machine)
	if err != nil {
		return nil, err
	}
	return s.KubectlCommand(ctx, strings.Fields(
		fmt.Sprintf("-n %s logs --follow=%t %s", pod.Namespace, followed, pod.Name))...), nil
}
