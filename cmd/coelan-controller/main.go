// SPDX-License-Identifier: Apache-2.0

// Command coelan-controller makes the decisions that must be the same for the whole cluster and
// writes them into the API: numbers of Networks and Routers, Networks of namespaces, addresses of
// users' Ports and of load balancers, and the removal of unused objects. It also computes policies
// and streams to each agent what its node needs of them.
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

	"coelan.io/coelan/internal/allocate"
	"coelan.io/coelan/internal/apiaccess"
	"coelan.io/coelan/internal/controller"
	"coelan.io/coelan/internal/metricsaccess"
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
	var kubeconfig, apiServers, vnis, externalIPs, namespaceSubnets string
	ovn, neutron := ovnFlags{}, neutronFlags{}
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
			if options.ExternalIPs, err = controller.ParsePrefixes(externalIPs); err != nil {
				return fmt.Errorf("--external-ips: %w", err)
			}
			if a := options.MetricsAccess; a != metricsaccess.Authorized && a != metricsaccess.Open {
				return fmt.Errorf("--metrics-access: is %q, not %s or %s", a, metricsaccess.Authorized,
					metricsaccess.Open)
			}
			if options.OVN, err = ovn.options(); err != nil {
				return err
			}
			if options.Neutron, err = neutron.options(&ovn); err != nil {
				return err
			}
			if options.NamespaceSubnets, err = allocate.ParseSubnetPools(namespaceSubnets); err == nil {
				err = options.CheckNamespaceSubnets()
			}
			if err != nil {
				return fmt.Errorf("--namespace-subnets: %w", err)
			}
			options.Log = slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
			return run(cmd.Context(), options, kubeconfig, apiServers)
		},
	}
	flags := cmd.Flags()
	flags.Var(&options.Mapping, "mapping",
		"which Network a pod joins that no Network selects: flat (the default one), or namespace (one of its namespace and node)")
	flags.StringVar(&namespaceSubnets, "namespace-subnets", "",
		"with --mapping namespace: pools of which each namespace has a subnet, with commas between them, at most one of each family: "+
			"each a CIDR and the prefix length of subnets, such as 10.128.0.0/14/24; none: pods have addresses of their nodes' podCIDRs")
	flags.StringVar(&options.MetricsBindAddress, "metrics-bind-address", options.MetricsBindAddress,
		"serves /healthz, /readyz and /metrics; 0: nothing")
	flags.StringVar((*string)(&options.MetricsAccess), "metrics-access", string(options.MetricsAccess),
		"which clients may read /metrics: authorized (those that the Kubernetes API authorizes, by HTTPS), or open (all, by HTTP)")
	flags.BoolVar(&options.LeaderElect, "leader-elect", options.LeaderElect,
		"take part in the election of one leader by a Lease")
	flags.StringVar(&options.LeaderElectionNamespace, "leader-election-namespace", "",
		"namespace of the Lease (default the pod's own)")
	flags.StringVar(&vnis, "vni-range", options.VNIs.String(), "VNIs to allocate from, first-last")
	flags.StringVar(&externalIPs, "external-ips", "",
		"CIDRs of the only external IPs that Services have, with commas between them; none: any, but none of private Routers")
	flags.StringVar(&options.PolicyBindAddress, "policy-bind-address", options.PolicyBindAddress,
		"serves agents what they need to know of policies; 0: nobody")
	flags.StringVar(&options.PolicyTokenFile, "policy-token-file", options.PolicyTokenFile,
		"the token that this replica shows the others, to learn where policies are in effect; empty: it does not ask them")
	flags.StringVar(&options.RESTCONFBindAddress, "restconf-bind-address", options.RESTCONFBindAddress,
		"serves RESTCONF by HTTPS, with the namespace of --leader-election-namespace; 0: nothing")
	flags.StringVar(&options.Socket, "socket", options.Socket, "unix socket of the diagnostics; empty: none")
	flags.TextVar(&level, "log-level", level, "debug, info, warn or error")
	flags.StringVar(&kubeconfig, "kubeconfig", "",
		"file with the API server's address (default the pod's service account)")
	flags.StringVar(&apiServers, "api-servers", "",
		"file in which the node's agent remembers where the API servers are; empty: none")
	ovn.add(flags)
	neutron.add(flags)
	cmd.AddCommand(uninstallCommand(), queryCommand())
	return cmd
}

func run(ctx context.Context, options controller.Options, kubeconfig, apiServers string) (err error) {
	if options.REST, err = restConfig(kubeconfig); err != nil {
		return err
	}
	if options.Access, err = apiAccess(options.Log, kubeconfig, apiServers); err != nil {
		return err
	}
	controller.LogTo(options.Log)
	options.Log.Info("coelan-controller starting", "version", version.String(), "mapping", options.Mapping)
	if err := controller.Run(ctx, options); err != nil {
		return err
	}
	options.Log.Info("coelan-controller stopped")
	return nil
}

// apiAccess dials the API server by what the node's agent knows of it.
func apiAccess(log *slog.Logger, kubeconfig, apiServers string) (*apiaccess.Access, error) {
	if err := apiaccess.DetectDeadServers(); err != nil {
		return nil, err
	}
	return apiaccess.New(apiaccess.Options{
		Log: log, SharedFile: apiServers, Explicit: kubeconfig != "" || apiaccess.ExplicitInPod(),
		WaitForReads: true,
	}), nil
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
