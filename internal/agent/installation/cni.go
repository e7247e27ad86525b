// SPDX-License-Identifier: Apache-2.0

// Package installation puts the CNI configuration and the plugin on a node, and takes everything
// off it again that an agent has put there.
package installation

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"coelan.io/coelan/internal/cni/install"
	"coelan.io/coelan/internal/config"
)

// KeepCNI tells the container runtime about the network, and puts the files back when another
// program removes or changes them, until ctx ends. Then they stay: the plugin tells the runtime to
// try again. It calls report after each look, with other configurations that have precedence, and
// with what failed.
func KeepCNI(ctx context.Context, c config.Config, report func(warnings []string, err error)) error {
	paths, err := cniPaths(c)
	if err != nil {
		return err
	}
	return install.Keep(ctx, paths, report)
}

// cniPaths says what is installed where; the plugin is beside the agent unless it is configured.
func cniPaths(c config.Config) (install.Paths, error) {
	source := c.CNI.Binary
	if source == "" {
		self, err := os.Executable()
		if err != nil {
			return install.Paths{}, fmt.Errorf("cni.binary: not set, and the agent's own path is not known: %w", err)
		}
		source = filepath.Join(filepath.Dir(self), install.BinaryName)
	}
	return install.Paths{Source: source, BinDir: c.CNI.BinDir, ConfDir: c.CNI.ConfDir, Socket: c.CNI.Socket}, nil
}

func uninstallCNI(c config.Config) error {
	paths, err := cniPaths(c)
	if err != nil {
		return err
	}
	return install.Uninstall(paths)
}
