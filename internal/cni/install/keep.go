// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"

	"coelan.io/coelan/internal/retry"
)

// The pause between attempts to install.
const (
	minBackoff = 500 * time.Millisecond
	maxBackoff = 30 * time.Second
)

// Keep installs, and puts the files back when another program removes or changes them, until ctx
// ends. It calls outcome after each attempt. When it ends the files stay.
func Keep(ctx context.Context, p Paths, outcome func(warnings []string, err error)) error {
	changes, err := watchFiles(p)
	if err != nil {
		return err
	}
	defer func() { _ = changes.Close() }()
	backoff := retry.New(minBackoff, maxBackoff)
	for {
		warnings, err := Install(p)
		outcome(warnings, err)
		if !awaitChange(ctx, changes, backoff.After(err)) {
			return nil
		}
	}
}

// watchFiles watches the directories of what is installed, and makes them if they are not there.
func watchFiles(p Paths) (*fsnotify.Watcher, error) {
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
func awaitChange(ctx context.Context, w *fsnotify.Watcher, again <-chan time.Time) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-again:
			return true
		case _, ok := <-w.Errors:
			// Events were lost.
			return ok
		case e := <-w.Events:
			if name := filepath.Base(e.Name); name == BinaryName || name == ConflistName ||
				slices.Contains(links(), name) {
				return true
			}
		}
	}
}
