// SPDX-License-Identifier: Apache-2.0

// Command coelan-controller writes what has to be decided once for the whole cluster: the numbers of Networks and
// Routers, the Networks of namespaces, the addresses of users' Ports and of load balancers, and the removal of what nobody
// uses any more; and tells agents what policies mean for the pods of their nodes.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"coelan.io/coelan/internal/controller"
	"coelan.io/coelan/internal/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "coelan-controller:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	options := controller.DefaultOptions()
	var kubeconfig, vnis string
	level := slog.LevelInfo
	cmd := &cobra.Command{
		Use:           "coelan-controller",
		Short:         "Decide what is decided once for all nodes",
		Version:       version.String(),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if options.VNIs, err = controller.ParseRange(vnis); err != nil {
				return fmt.Errorf("--vni-range: %w", err)
			}
			options.Log = slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
			return run(cmd.Context(), options, kubeconfig)
		},
	}
	flags := cmd.Flags()
	flags.TextVar(&options.Mapping, "mapping", options.Mapping,
		"which Network a pod joins that no Network selects: flat (the default one), or namespace (one of its namespace and node)")
	flags.StringVar(&options.MetricsBindAddress, "metrics-bind-address", options.MetricsBindAddress,
		"serves /healthz, /readyz and /metrics; 0: nothing")
	flags.BoolVar(&options.LeaderElect, "leader-elect", options.LeaderElect, "take part in the election of one leader by a Lease")
	flags.StringVar(&options.LeaderElectionNamespace, "leader-election-namespace", "", "namespace of the Lease (default the pod's own)")
	flags.StringVar(&vnis, "vni-range", options.VNIs.String(), "VNIs to allocate from, first-last")
	flags.StringVar(&options.PolicyBindAddress, "policy-bind-address", options.PolicyBindAddress,
		"serves agents what they need to know of policies; 0: nobody")
	flags.StringVar(&options.PolicyTokenFile, "policy-token-file", options.PolicyTokenFile,
		"the token that this replica shows the others, to learn where policies are in effect; empty: it does not ask them")
	flags.StringVar(&options.Socket, "socket", options.Socket, "unix socket of the diagnostics; empty: none")
	flags.TextVar(&level, "log-level", level, "debug, info, warn or error")
	flags.StringVar(&kubeconfig, "kubeconfig", "", "file with the API server's address (default the pod's service account)")
	cmd.AddCommand(uninstallCommand(), queryCommand())
	return cmd
}

func run(ctx context.Context, options controller.Options, kubeconfig string) (err error) {
	if options.REST, err = restConfig(kubeconfig); err != nil {
		return err
	}
	controller.LogTo(options.Log)
	options.Log.Info("coelan-controller starts", "version", version.String(), "mapping", options.Mapping)
	if err := controller.Run(ctx, options); err != nil {
		return err
	}
	options.Log.Info("coelan-controller ends")
	return nil
}

func restConfig(path string) (*rest.Config, error) {
	if path != "" {
		config, err := clientcmd.BuildConfigFromFlags("", path)
		if err != nil {
			return nil, fmt.Errorf("--kubeconfig: %w", err)
		}
		return config, nil
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig is not set, and %w", err)
	}
	return config, nil
}
