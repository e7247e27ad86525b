// SPDX-License-Identifier: Apache-2.0

// Command coelan-agent runs on every node. It turns what the Kubernetes API and the container runtime ask for into
// ports and flows of the node's Open vSwitch.
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
	"coelan.io/coelan/internal/agent/kube"
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

// gcPercent is Go's GOGC where the environment has none: most of what the agent holds stays, and memory is what a node
// lacks sooner than time.
const gcPercent = 50

func run(ctx context.Context, path, node string) error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	cfg, err := config.Load(path)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: cfg.Level()}))
	cluster, err := kube.Connect(log, cfg.Kubeconfig, node)
	if err != nil {
		return err
	}
	events := cluster.NewRecorder(ctx)
	defer events.Close()
	namespace := ownNamespace()
	a, err := agent.New(agent.Options{
		Config: cfg, NodeName: node, Cluster: cluster, Events: events, Log: log, Namespace: namespace,
		Controllers: func(ctx context.Context) client.Controllers { return cluster.Controllers(ctx, namespace) },
	})
	if err != nil {
		return err
	}
	log.Info("coelan-agent starts", "version", version.String(), "node", node)
	if err := a.Run(ctx); err != nil {
		return err
	}
	log.Info("coelan-agent ends; ports and flows stay")
	return nil
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
