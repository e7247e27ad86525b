// SPDX-License-Identifier: Apache-2.0

package reconnect

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"coelan.io/coelan/internal/retry"
)

func listen(t *testing.T, path string) net.Listener {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func watch(t *testing.T, s *socket) {
	t.Helper()
	if err := s.watch(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
}

func hours() *retry.Backoff { return retry.New(time.Hour, 2*time.Hour) }

// A server that starts is connected to at once, however long the pause is that has begun.
func TestAPauseEndsWhenTheSocketIsMade(t *testing.T) {
	for name, start := range map[string]func(t *testing.T, s *socket){
		"the first time": func(t *testing.T, s *socket) {
			watch(t, s)
			listen(t, s.path)
		},
		"again": func(t *testing.T, s *socket) {
			listen(t, s.path).(*net.UnixListener).SetUnlinkOnClose(false) // as a kill leaves it
			watch(t, s)
			if err := os.Remove(s.path); err != nil {
				t.Fatal(err)
			}
			listen(t, s.path)
		},
		"in a new directory": func(t *testing.T, s *socket) {
			watch(t, s)
			dir := filepath.Dir(s.path)
			if err := os.Remove(dir); err != nil {
				t.Fatal(err)
			}
			if err := s.watch(); err == nil {
				t.Error("a directory that is not there can be watched")
			}
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			watch(t, s)
			listen(t, s.path)
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			s, pauses := newSocket(t.TempDir()+"//socket"), hours()
			start(t, s)
			if err := s.wait(ctx, pauses); err != nil || ctx.Err() != nil {
				t.Fatalf("the pause did not end: %v", err)
			}
			if next := pauses.Next(); next >= 2*time.Hour {
				t.Errorf("the next pause is %v, want the first one again", next)
			}
		})
	}
}

func TestAPauseLastsWhileTheSocketIsNotMade(t *testing.T) {
	s := newSocket(filepath.Join(t.TempDir(), "socket"))
	watch(t, s)
	listen(t, s.path+".of.another")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := s.wait(ctx, hours()); err != nil || ctx.Err() == nil {
		t.Errorf("the pause ended for another socket: %v", err)
	}
	if err := s.wait(t.Context(), retry.New(time.Millisecond, time.Millisecond)); err != nil {
		t.Error(err)
	}
}
