// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// policiesWithoutController has agents start when no controller answers: they enforce what they
// were told last.
func policiesWithoutController(t *testing.T, w *world, b *rulebook) {
	ctx, asked := t.Context(), time.Now()
	b.isolate(w.c, intent.Ingress, intent.Rule{Groups: b.group("b", w.b)})
	b.publish(t)
	at := netip.AddrPortFrom(w.c.Address(lab.IPv4), 8081)
	allowed, err := probe.StartTCP(ctx, w.b, at, probeInterval)
	if err != nil {
		t.Fatal(err)
	}
	defer allowed.Close()
	// What is remembered is written a moment after it came.
	becomes(t, "policies are on disk", func(context.Context) error {
		file := filepath.Join(w.n2.Config().StateDir, "policies.db")
		info, err := os.Stat(file)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(file)
		if err == nil && (info.ModTime().Before(asked) || !bytes.Contains(data, []byte(b.subjects[w.c].Rules[0]))) {
			err = fmt.Errorf("%s of %s has other rules", file, info.ModTime())
		}
		return err
	})
	w.Policies.Stop()
	seen := wire(t, w.c.Host)
	asking, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		for asking.Err() == nil {
			_ = unreached(w.a, at)(asking)
		}
	}()
	for name, end := range map[string]func(){"stopped": w.n2.StopAgent, "killed": w.n2.KillAgent} {
		end()
		if err := w.n2.StartAgent(ctx); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var s agentapi.Status
		if err := w.n2.Query(ctx, "/v1/status", &s); err != nil {
			t.Fatal(err)
		}
		if s.Sync.Added+s.Sync.Changed+s.Sync.Deleted > 0 || s.Policies.Connected || s.Policies.Rules == 0 || len(s.Policies.Closed) > 0 {
			t.Errorf("%s: the agent has written flows, or forgotten policies: %+v, %+v", name, s.Sync, s.Policies)
		}
	}
	if err := w.n2.Reboot(ctx); err != nil {
		t.Fatal(err)
	}
	stop()
	if frames := seen.Frames(from(w.a, lab.IPv4)); len(frames) > 0 {
		t.Errorf("%d packets that are denied have arrived", len(frames))
	}
	allowed.Close()
	if err := w.Policies.Resume(); err != nil {
		t.Fatal(err)
	}
	becomes(t, "a controller is back", func(ctx context.Context) error {
		var s agentapi.Status
		if err := w.n2.Query(ctx, "/v1/status", &s); err != nil || !s.Policies.Connected {
			return fmt.Errorf("%+v, %w", s.Policies, err)
		}
		return nil
	})
}

// policiesOnFullDisk goes on with policies that cannot be remembered.
func policiesOnFullDisk(t *testing.T, w *world, b *rulebook) {
	ctx, dir := t.Context(), w.n1.Config().StateDir
	full := filepath.Join(dir, "full")
	w.n1.StopAgent()
	if err := keepOnTmpfs(t, dir); err != nil {
		t.Fatal(err)
	}
	if err := w.n1.StartAgent(ctx); err != nil {
		t.Fatal(err)
	}
	b.publish(t)
	f, err := os.Create(full)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	b.isolate(w.b, intent.Ingress)
	b.publish(t)
	at := netip.AddrPortFrom(w.b.Address(lab.IPv4), 8080)
	becomes(t, "a policy while the disk is full", unreached(w.a, at))
	becomes(t, "a problem", func(ctx context.Context) error {
		var s agentapi.Status
		if err := w.n1.Query(ctx, "/v1/status", &s); err != nil || s.Policies.SaveError == "" {
			return fmt.Errorf("nothing is told of the disk: %+v, %w", s.Policies, err)
		}
		return nil
	})
	if err := errors.Join(f.Close(), os.Remove(full)); err != nil {
		t.Fatal(err)
	}
	b.open(w.b)
	b.publish(t)
	becomes(t, "open again", reaches(w.a, at))
}

// keepOnTmpfs moves a directory's files to a file system of 4 MB until the test ends.
func keepOnTmpfs(t *testing.T, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	files := map[string][]byte{}
	for _, e := range entries {
		if files[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		return err
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}
