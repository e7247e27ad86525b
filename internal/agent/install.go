// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"coelan.io/coelan/internal/cni/install"
	"coelan.io/coelan/internal/config"
)

// installCNI tells the container runtime about the network when pods can be attached, and puts the
// files back when another program removes or changes them. When the agent ends they stay: the
// plugin tells the runtime to try again.
func (a *Agent) installCNI(ctx context.Context) error {
	if a.health.conditions.Await(ctx) != nil {
		return nil
	}
	paths, err := cniPaths(a.Config)
	if err != nil {
		return err
	}
	return install.Keep(ctx, paths, func(warnings []string, err error) {
		a.health.conditions.Set(condCNI, err)
		for _, w := range warnings {
			a.Log.Warn("another CNI configuration has precedence over Coelan's", "problem", w)
		}
	})
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
