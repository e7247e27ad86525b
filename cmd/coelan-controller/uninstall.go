// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/controller/removal"
)

// removalTimeout is for some thousand objects.
const removalTimeout = 5 * time.Minute

// uninstallCommand is what the manifests run in the controller's place when Coelan is removed.
func uninstallCommand() *cobra.Command {
	var kubeconfig, apiServers, namespace string
	var stay bool
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Delete what Coelan has made by itself in the API, and let users' objects be deleted",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if stay {
				<-cmd.Context().Done()
				return nil
			}
			return uninstall(cmd.Context(), kubeconfig, apiServers, namespace)
		},
	}
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "",
		"file with the API server's address (default the pod's service account)")
	cmd.Flags().StringVar(&apiServers, "api-servers", "",
		"file in which an agent of the node remembers where the API servers are")
	cmd.Flags().StringVar(&namespace, "namespace", os.Getenv("NAMESPACE"),
		"the namespace of the controllers, whose certificate is there")
	cmd.Flags().BoolVar(&stay, "stay", false, "remove nothing, and wait for the end: what a pod does when it is done")
	return cmd
}

func uninstall(ctx context.Context, kubeconfig, apiServers, namespace string) error {
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	config, err := restConfig(kubeconfig)
	if err != nil {
		return err
	}
	access, err := apiAccess(log, kubeconfig, apiServers)
	if err != nil {
		return err
	}
	if err := access.Configure(config); err != nil {
		return fmt.Errorf("uninstall: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		return err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("uninstall: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, removalTimeout)
	defer cancel()
	err = removal.Run(ctx, c, log)
	if namespace != "" {
		err = errors.Join(err, removal.Certificates(ctx, c, namespace))
	}
	return err
}
