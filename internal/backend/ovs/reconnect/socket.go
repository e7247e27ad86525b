// SPDX-License-Identifier: Apache-2.0

package reconnect

import (
	"context"
	"path/filepath"

	"github.com/fsnotify/fsnotify"

	"coelan.io/coelan/internal/retry"
)

// socket is where a server listens: it is watched while there is no connection, since a server that
// has started makes its socket anew.
type socket struct {
	path    string // empty: nothing is watched
	watcher *fsnotify.Watcher
}

// newSocket returns the socket at path, or one that is not watched if path is empty.
func newSocket(path string) *socket {
	if path != "" {
		path = filepath.Clean(path)
	}
	return &socket{path: path}
}

// watch begins to watch, before an attempt, so that no socket is missed that is made after it. It
// does so again before each: the directory may be new.
func (s *socket) watch() error {
	if s.path == "" {
		return nil
	}
	if s.watcher == nil {
		w, err := fsnotify.NewWatcher()
		if err != nil {
			return err
		}
		s.watcher = w
	}
	return s.watcher.Add(filepath.Dir(s.path))
}

func (s *socket) close() {
	if s.watcher != nil {
		_ = s.watcher.Close() // it only reads
		s.watcher = nil
	}
}

// wait lasts for the next pause, until the socket is made or until ctx ends. A socket that is made
// begins the pauses anew: it may be made a moment before its server listens. After an error of the
// watch it may have been made.
func (s *socket) wait(ctx context.Context, pauses *retry.Backoff) error {
	if s.watcher == nil {
		pauses.Wait(ctx)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, pauses.Next())
	defer cancel()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-s.watcher.Errors:
			return err
		case e := <-s.watcher.Events:
			if e.Name == s.path && e.Has(fsnotify.Create) {
				pauses.Reset()
				return nil
			}
		}
	}
}
