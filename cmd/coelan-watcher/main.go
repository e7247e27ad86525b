// SPDX-License-Identifier: Apache-2.0

// Command coelan-watcher keeps a RESTCONF controller outside of the cluster as the cluster is, by
// COE's YANG models: pods, nodes, Services and endpoints.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"coelan.io/coelan/internal/localapi"
	"coelan.io/coelan/internal/version"
	"coelan.io/coelan/internal/watcher"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "coelan-watcher:", err)
		os.Exit(1)
	}
}

// settings are what all commands have.
type settings struct{ file string }

func command() *cobra.Command {
	s := &settings{}
	root := &cobra.Command{
		Use: "coelan-watcher", Short: "Keep a RESTCONF controller as the cluster is", Version: version.String(),
		SilenceUsage: true, SilenceErrors: true,
	}
	flags := root.PersistentFlags()
	flags.StringVar(&s.file, "config", "", "configuration file (default the first coe.yaml in ., $HOME and /etc/coe)")
	root.AddCommand(odlCommand(s), stdCommand(s), statusCommand(s))
	return root
}

func odlCommand(s *settings) *cobra.Command {
	cmd := &cobra.Command{
		Use: "odl", Short: "Write to a RESTCONF controller with COE's models, such as OpenDaylight", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, log, api, err := s.read()
			if err != nil {
				return err
			}
			for flag, value := range map[string]*string{
				"host": &c.ODL.Host, "username": &c.ODL.User, "password": &c.ODL.Password,
			} {
				if f := cmd.Flags().Lookup(flag); f.Changed {
					*value = f.Value.String()
				}
			}
			return watcher.RunODL(cmd.Context(), log, api, c)
		},
	}
	cmd.Flags().String("host", "", "the controller's URL (default odl.host, http://127.0.0.1:8181)")
	cmd.Flags().String("username", "", "user at the controller (default odl.user, admin)")
	cmd.Flags().String("password", "",
		"password at the controller, which all users of this machine can see: odl.passwordFile is better (default admin)")
	return cmd
}

func stdCommand(s *settings) *cobra.Command {
	return &cobra.Command{
		Use: "std", Short: "Print what odl would write, a line of JSON for each edit", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, log, api, err := s.read()
			if err != nil {
				return err
			}
			return watcher.RunStd(cmd.Context(), log, api, c, cmd.OutOrStdout())
		},
	}
}

func statusCommand(s *settings) *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show how far the controller is as it should be", Args: cobra.NoArgs,
		Example: "  kubectl -n coelan-system exec deploy/coelan-watcher -- coelan-watcher status",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := watcher.ReadConfig(s.file)
			if err != nil {
				return err
			}
			return status(cmd.Context(), c.Socket, cmd.OutOrStdout())
		},
	}
}

func status(ctx context.Context, socket string, out io.Writer) error {
	if socket == "" {
		return fmt.Errorf("the configuration has an empty socket: no watcher answers")
	}
	return localapi.Query(ctx, "watcher", socket, watcher.StatusPath, nil, out)
}

// read has the configuration, a logger and the way to the API server.
func (s *settings) read() (watcher.Config, *slog.Logger, *rest.Config, error) {
	c, err := watcher.ReadConfig(s.file)
	if err != nil {
		return c, nil, nil, err
	}
	if err := c.Validate(); err != nil {
		return c, nil, nil, fmt.Errorf("configuration: %w", err)
	}
	log := slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: c.LogLevel}))
	ctrl.SetLogger(logr.FromSlogHandler(log.Handler()))
	klog.SetSlogLogger(log)
	api, err := clientcmd.BuildConfigFromFlags("", c.Kube.Config)
	if err != nil {
		return c, nil, nil, fmt.Errorf("kube.config: %w", err)
	}
	return c, log, api, nil
}
