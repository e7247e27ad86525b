// SPDX-License-Identifier: Apache-2.0

// Command coelan-agent runs on every node. It translates objects of the Kubernetes API and requests
// of the container runtime into ports and flows of the node's Open vSwitch.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"coelan.io/coelan/internal/agent"
	"coelan.io/coelan/internal/agent/configuration"
	"coelan.io/coelan/internal/agent/kube"
	"coelan.io/coelan/internal/agent/neutronports"
	"coelan.io/coelan/internal/announce/keyring"
	"coelan.io/coelan/internal/apiaccess"
	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/backend/ovn/node"
	"coelan.io/coelan/internal/backend/ovs"
	"coelan.io/coelan/internal/cni/podnet"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/policystream/client"
	"coelan.io/coelan/internal/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "coelan-agent:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var path, node string
	cmd := &cobra.Command{
		Use:           "coelan-agent",
		Short:         "Connect this node's pods",
		Version:       version.String(),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), path, node) },
	}
	cmd.PersistentFlags().StringVar(&path, "config", "/etc/coelan/agent.yaml", "configuration file")
	cmd.Flags().StringVar(&node, "node-name", os.Getenv("NODE_NAME"), "name of this node's Node object")
	cmd.AddCommand(queryCommand(&path), uninstallCommand(&path))
	return cmd
}

// gcPercent is Go's GOGC where the environment has none: most of what the agent holds stays, and
// memory is what a node lacks sooner than time.
const gcPercent = 50

// apiServersFile remembers where the API servers are. Its folder is mounted
// into the controllers' pods.
const apiServersFile = "api-server/endpoints.json"

func run(ctx context.Context, path, name string) error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	cfg, err := config.Load(path)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: cfg.Level()}))
	if err := apiaccess.DetectDeadServers(); err != nil {
		return err
	}
	access := apiaccess.New(apiaccess.Options{
		Log: log, File: cfg.StateFile(apiServersFile), Kubeconfigs: cfg.APIServer.KubeletKubeconfigs,
		Explicit: cfg.Kubeconfig != "" || apiaccess.ExplicitInPod(),
	})
	cluster, err := kube.Connect(log, cfg.Kubeconfig, name, access)
	if err != nil {
		return err
	}
	following, stop := context.WithCancel(ctx)
	followed := make(chan error, 1)
	go func() { followed <- cluster.FollowAPIServers(following, access) }()
	defer func() {
		stop()
		if err := <-followed; err != nil {
			log.Error("following the API servers' endpoints failed", "err", err)
		}
	}()
	events := cluster.NewRecorder(ctx)
	defer events.Close()
	links, err := podnet.New(cfg.SysctlDir)
	if err != nil {
		return err
	}
	defer links.Close()
	namespace := ownNamespace()
	options := agent.Options{
		Backend: backends[cfg.Backend.Type].factory(cluster), Links: links, NodeName: name, Cluster: cluster,
		Events: events,
		Log:    log, Namespace: namespace,
		Controllers: func(ctx context.Context) client.Controllers {
			return client.Watch(ctx, cluster.Kubernetes(), namespace, log)
		},
		MembershipKeys: func(ctx context.Context, update func([][]byte)) {
			keyring.Watch(ctx, cluster.Kubernetes(), namespace, log, update)
		},
	}
	var m *configuration.Manager
	m = configuration.New(configuration.Options{
		Log: log, Base: cfg, File: cfg.StateFile(configuration.File),
		Make: func(c config.Config) (configuration.Agent, error) {
			o := options
			o.Config, o.Configuration = c, m
			return agent.New(o)
		},
	})
	log.Info("coelan-agent starting", "version", version.String(), "node", name)
	if err := m.Run(ctx); err != nil {
		return err
	}
	log.Info("coelan-agent stopped; ports and flows stay in place")
	return nil
}

// backends implement agents' intent.
var backends = map[config.BackendType]struct {
	factory  func(*kube.Client) agent.Factory
	removals func(context.Context, config.Config) []backend.Removal
}{
	config.OVSBackend: {
		func(*kube.Client) agent.Factory {
			return agent.Factory{
				Conditions: ovs.Conditions(),
				New:        func(o backend.Options) (agent.Backend, error) { return ovs.New(o) },
			}
		}, ovs.Removals,
	},
	config.OVNBackend: {
		func(*kube.Client) agent.Factory {
			return agent.Factory{
				Conditions: node.Conditions(), AllPorts: true,
				New: func(o backend.Options) (agent.Backend, error) { return node.New(o) },
			}
		}, node.Removals,
	},
	config.NeutronBackend: {
		func(cluster *kube.Client) agent.Factory {
			return agent.Factory{
				Conditions: node.Conditions(), AllPorts: true,
				New: func(o backend.Options) (agent.Backend, error) {
					return node.NewOfOthers(o, neutronports.New(cluster), neutronports.Patience), nil
				},
			}
		}, node.Removals,
	},
}

// ownNamespace is the one of the agent's pod, or the usual one outside of a pod.
func ownNamespace() string {
	if name := os.Getenv("NAMESPACE"); name != "" {
		return name
	}
	data, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
	if name := strings.TrimSpace(string(data)); err == nil && name != "" {
		return name
	}
	return "coelan-system"
}
