// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"coelan.io/coelan/internal/sandbox/machine"
)

const kubeProxyFile = kubeDir + "/kube-proxy.yaml"

// startKubeProxy starts kube-proxy on the nodes where it does not run, and anew where it
// runs in another mode.
func (s *Sandbox) startKubeProxy(ctx context.Context) error {
	return each(ctx, s.Nodes(), func(ctx context.Context, node string) error {
		marker := filepath.Join(s.machineDir(node), "kube-proxy-mode")
		before, err := os.ReadFile(marker)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if len(before) > 0 && string(before) != string(s.ProxyMode) {
			if err := s.removeKubeProxy(ctx, node); err != nil {
				return err
			}
		}
		if err := os.WriteFile(marker, []byte(s.ProxyMode), 0o644); err != nil {
			return err
		}
		return s.startComponent(ctx, node, kubeProxy)
	})
}

// stopKubeProxy ends kube-proxy on the nodes where it runs.
func (s *Sandbox) stopKubeProxy(ctx context.Context) error {
	return each(ctx, s.Nodes(), s.removeKubeProxy)
}

// removeKubeProxy ends a node's kube-proxy, if it runs, and takes its rules away.
func (s *Sandbox) removeKubeProxy(ctx context.Context, node string) error {
	components, err := s.client(node).Status(ctx)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(components, func(c machine.Status) bool { return c.Name == kubeProxy }) {
		return nil
	}
	if err := s.stopComponent(ctx, node, kubeProxy, syscall.SIGTERM); err != nil {
		return err
	}
	if _, err := s.Exec(ctx, node, s.cache.Binary(kubeProxy), "--cleanup", "--config="+kubeProxyFile); err != nil {
		return fmt.Errorf("remove kube-proxy's rules: %w", err)
	}
	return nil
}
