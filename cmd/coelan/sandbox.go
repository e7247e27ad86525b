// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"coelan.io/coelan/internal/sandbox"
)

func newSandboxCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "sandbox",
		Short: "Run a real Kubernetes cluster on this machine",
		Long: "Run a real Kubernetes cluster on this machine: each node is a set of namespaces with its own containerd,\n" +
			"kubelet and Open vSwitch. The machines are cp (the control plane; cp2, cp3), worker1, worker2 and so on,\n" +
			"vm1 and so on, which are machines of OpenStack on the workers, and fabric, the network that joins them. Needs root.",
	}
	name := c.PersistentFlags().String("name", sandbox.DefaultName, "the sandbox's name; several can run side by side")
	c.AddCommand(
		newUpCommand(name), newDownCommand(name), newPrepareCommand(),
		newKubectlCommand(name), newExecCommand(name), newKubeconfigCommand(name),
		newLoadCommand(name), newStatusCommand(name), newLogsCommand(name), newMultusCommand(name),
		newPoliciesCommand(name),
	)
	c.AddCommand(newLifecycleCommands(name)...)
	return c
}

func newUpCommand(name *string) *cobra.Command {
	var spec sandbox.Spec
	var install sandbox.Install
	var prepareOnly bool
	var family, cni, backend, services, proxyMode string
	c := &cobra.Command{
		Use:   "up",
		Short: "Bring a sandbox up, or what of it does not run",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := cmd.ErrOrStderr()
			if prepareOnly {
				return sandbox.Prepare(cmd.Context(), out)
			}
			spec.Name, spec.Family, spec.CNI = *name, sandbox.Family(family), sandbox.CNI(cni)
			spec.Backend = sandbox.Backend(backend)
			spec.Services, spec.ProxyMode = sandbox.Services(services), sandbox.ProxyMode(proxyMode)
			began := time.Now()
			s, err := sandbox.Up(cmd.Context(), spec, install, out)
			if err != nil {
				return err
			}
			fmt.Fprintf(out, "sandbox %s is up after %.1f s: export KUBECONFIG=%s\n",
				s.Name, time.Since(began).Seconds(), s.Kubeconfig())
			return nil
		},
	}
	f := c.Flags()
	f.IntVar(&spec.ControlPlanes, "control-planes", 0,
		"number of nodes with an API server and an etcd member: 1 or 3 (default 1)")
	f.IntVar(&spec.Workers, "workers", 0, "number of nodes besides the control plane's (default 2)")
	f.IntVar(&spec.VMs, "vms", 0,
		"number of further nodes that are machines of OpenStack on the workers, with the backend neutron (default none)")
	f.StringVar(&family, "ip-family", "", "dual, ipv4 or ipv6 (default dual)")
	f.StringVar(&cni, "cni", "", "pod network: coelan, bridge (the reference plugins) or none (default coelan)")
	f.StringVar(&backend, "backend", "",
		"what brings about Coelan's objects: ovs (each node's Open vSwitch alone), ovn (with OVN's databases) or neutron "+
			"(with OpenStack's Neutron on OVN) (default ovs)")
	f.StringVar(&spec.Datapath, "ovs-datapath", "",
		"Open vSwitch's datapath: system (the kernel's), netdev (userspace) or auto (default auto)")
	f.StringVar(&services, "services", "",
		"who balances Services: native (Coelan, without kube-proxy) or kube-proxy; a sandbox that is up changes over")
	f.StringVar(&proxyMode, "kube-proxy-mode", "",
		"what kube-proxy balances with: iptables or nftables (default iptables)")
	f.IntVar(&spec.Zones, "zones", 0, "number of zones that the nodes are spread over by their labels (default none)")
	f.StringVar(&install.Manifest, "manifest", "", "what installs Coelan (default deploy/coelan.yaml of the source)")
	f.StringArrayVar(&install.Archives, "image", nil,
		"image archive that the manifest needs, may be repeated (default bin/images/coelan.tar of the source)")
	f.BoolVar(&prepareOnly, "prepare-only", false, "only make what is cached: binaries and images")
	return c
}

func newPrepareCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "prepare",
		Short: "Check the needed programs and make what is cached: binaries and images",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return sandbox.Prepare(cmd.Context(), cmd.ErrOrStderr())
		},
	}
}

func newDownCommand(name *string) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "End a sandbox and remove all of it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return sandbox.Down(cmd.Context(), *name, cmd.ErrOrStderr())
		},
	}
}

func newKubectlCommand(name *string) *cobra.Command {
	c := &cobra.Command{
		Use:   "kubectl [--] ARGS…",
		Short: "Run kubectl with the administrator's rights",
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := sandbox.Open(*name)
			if err != nil {
				return err
			}
			return attach(s.KubectlCommand(context.WithoutCancel(cmd.Context()), args...))
		},
	}
	c.Flags().SetInterspersed(false)
	return c
}

func newExecCommand(name *string) *cobra.Command {
	c := &cobra.Command{
		Use:   "exec MACHINE [--] COMMAND…",
		Short: "Run a command on a node or on the fabric",
		Args:  cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := sandbox.Open(*name)
			if err != nil {
				return err
			}
			line := args[1:]
			if line[0] == "--" { // the flags of this command ended before the machine's name
				line = line[1:]
			}
			if len(line) == 0 {
				return errors.New("exec: no command is given")
			}
			command, err := s.Command(context.WithoutCancel(cmd.Context()), args[0], line...)
			if err != nil {
				return err
			}
			return attach(command)
		},
	}
	c.Flags().SetInterspersed(false)
	return c
}

// attach runs a command in the place of this one. The terminal sends it the signals that it sends
// this one, so that it ends by itself.
func attach(cmd *exec.Cmd) error {
	cmd.SysProcAttr, cmd.Cancel = nil, nil
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}

func newKubeconfigCommand(name *string) *cobra.Command {
	return &cobra.Command{
		Use:   "kubeconfig",
		Short: "Print the path of a kubeconfig file with the administrator's rights",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := sandbox.Open(*name)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), s.Kubeconfig())
			return err
		},
	}
}

func newLoadCommand(name *string) *cobra.Command {
	return &cobra.Command{
		Use:   "load ARCHIVE…",
		Short: "Import image archives into every node",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := sandbox.Open(*name)
			if err != nil {
				return err
			}
			for i, a := range args {
				if args[i], err = filepath.Abs(a); err != nil {
					return err
				}
			}
			return s.Load(cmd.Context(), args...)
		},
	}
}
