// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"coelan.io/coelan/internal/cni/install"
	"coelan.io/coelan/internal/config"
)

// The pause between attempts to install.
const (
	minInstallBackoff = 500 * time.Millisecond
	maxInstallBackoff = 30 * time.Second
)

// installCNI tells the container runtime about the network when pods can be attached, and puts the files back when
// somebody removes or changes them. When the agent ends they stay: the plugin tells the runtime to try again.
func (a *Agent) installCNI(ctx context.Context) error {
	if !a.awaitReady(ctx) {
		return nil
	}
	paths, err := cniPaths(a.cfg)
	if err != nil {
		return err
	}
	changes, err := watchFiles(paths)
	if err != nil {
		return err
	}
	defer func() { _ = changes.Close() }()
	backoff := minInstallBackoff
	for {
		warnings, err := install.Install(paths)
		a.conditions.set(condCNI, err)
		for _, w := range warnings {
			a.log.Warn("another network comes first", "problem", w)
		}
		var retry <-chan time.Time
		if err != nil {
			retry = time.After(backoff)
			backoff = min(2*backoff, maxInstallBackoff)
		} else {
			backoff = minInstallBackoff
		}
		if !awaitChange(ctx, changes, retry) {
			return nil
		}
	}
}

// watchFiles watches the directories of what is installed, and makes them if they are not there.
func watchFiles(p install.Paths) (*fsnotify.Watcher, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watch files: %w", err)
	}
	for _, dir := range []string{p.BinDir, p.ConfDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			_ = w.Close()
			return nil, err
		}
		if err := w.Add(dir); err != nil {
			_ = w.Close()
			return nil, fmt.Errorf("watch %s: %w", dir, err)
		}
	}
	return w, nil
}

// awaitChange waits for a change of one of our files; false if ctx ends before.
func awaitChange(ctx context.Context, w *fsnotify.Watcher, retry <-chan time.Time) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-retry:
			return true
		case _, ok := <-w.Errors:
			// Events were lost.
			return ok
		case e := <-w.Events:
			if name := filepath.Base(e.Name); name == install.BinaryName || name == install.ConflistName {
				return true
			}
		}
	}
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
