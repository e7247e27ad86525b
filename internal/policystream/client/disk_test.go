// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/policystream/client"
	"coelan.io/coelan/internal/policystream/streamtest"
)

func written(t *testing.T) (path string, data []byte) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "policies.db")
	if err := client.Save(path, items(good)); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return path, data
}

func TestDamagedFiles(t *testing.T) {
	_, data := written(t)
	flipped := bytes.Clone(data)
	flipped[len(flipped)/2] ^= 1
	dangling := filepath.Join(t.TempDir(), "dangling")
	if err := client.Save(dangling, items(policy.View{Subjects: good.Subjects})); err != nil {
		t.Fatal(err)
	}
	withoutRule, err := os.ReadFile(dangling)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{
		"empty": nil, "garbage": []byte("garbage"), "half": data[:len(data)/2], "no end": data[:len(data)-1], "more": append(bytes.Clone(data), 0),
		"a bit": flipped, "of a later release": bytes.Replace(data, []byte(" 1\n"), []byte(" 2\n"), 1), "a rule is missing": withoutRule,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "policies.db")
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
			logged := make(chan string, 1)
			a := streamtest.NewAgent(client.Options{File: path, Log: slog.New(handler{logged})})
			if s := a.Status(); s.Version != 0 || len(a.View()) > 0 {
				t.Errorf("status %+v, view %v", s, a.View())
			}
			select {
			case <-logged:
			default:
				t.Error("nothing is logged")
			}
		})
	}
}

// A file that is of no use does not stay, even if nothing is known that could be in it.
func TestDamagedFileOfANodeWithoutPods(t *testing.T) {
	c := streamtest.Start(t)
	o := c.ClientOptions("a")
	o.File, o.Log = filepath.Join(t.TempDir(), "policies.db"), slog.New(slog.DiscardHandler)
	if err := os.WriteFile(o.File, []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	a := streamtest.NewAgent(o)
	stop := run(t, a)
	a.Await(t, "a stream", func() bool { return a.Status().Complete })
	stop()
	data, err := os.ReadFile(o.File)
	if _, bad := client.Parse(data); err != nil || bad != nil {
		t.Errorf("%v, %v", err, bad)
	}
}

func TestFileOfEveryLength(t *testing.T) {
	path, data := written(t)
	for n := range data {
		if err := os.WriteFile(path, data[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		a := streamtest.NewAgent(client.Options{File: path, Log: slog.New(slog.DiscardHandler)})
		if len(a.View()) > 0 {
			t.Fatalf("%d of %d bytes are taken for a file", n, len(data))
		}
	}
}

func TestNoFile(t *testing.T) {
	c := client.New(client.Options{File: filepath.Join(t.TempDir(), "none")})
	if change := c.Load(); !change.Empty() {
		t.Errorf("change %+v", change)
	}
}

// The agent works on when its disk is full, and writes when it is not any more.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a small file system; TestWritingFails does without")
	}
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	path := filepath.Join(dir, "policies.db")
	if err := client.Save(path, items(good)); err != nil {
		t.Fatal(err)
	}
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 1<<20), 0o600); err == nil {
		t.Fatal("the disk is not full")
	}
	err := client.Save(path, items(policy.View{}))
	if err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Fatalf("a full disk is no error: %v", err)
	}
	remembers(t, path, good)
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if err := client.Save(path, items(policy.View{})); err != nil {
		t.Fatal(err)
	}
	remembers(t, path, policy.View{})
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("%v, %v; want the file alone", left, err)
	}
}

func remembers(t *testing.T, path string, v policy.View) {
	t.Helper()
	a := streamtest.NewAgent(client.Options{File: path, Log: slog.New(slog.DiscardHandler)})
	if diff := cmp.Diff(streamtest.ViewOf(v), a.View(), compareAddresses); diff != "" {
		t.Errorf("remembered (-want +got):\n%s", diff)
	}
}

func TestWritingFails(t *testing.T) {
	c := streamtest.Start(t)
	c.Set("a", good)
	o := c.ClientOptions("a")
	o.File = filepath.Join(t.TempDir(), "policies.db")
	if err := client.Save(o.File, items(policy.View{Subjects: []intent.Subject{{Key: pod.Key}}})); err != nil {
		t.Fatal(err)
	}
	logged := make(chan string, 10)
	o.Log = slog.New(handler{logged})
	a := streamtest.NewAgent(o)
	full := true
	client.SetSave(a.Client, func(path string, items [][]byte) error {
		if full {
			return &os.PathError{Op: "write", Path: path, Err: syscall.ENOSPC}
		}
		return client.Save(path, items)
	})
	stop := run(t, a)
	a.Await(t, "its view", func() bool { return a.Status().Complete })
	select {
	case text := <-logged:
		if !strings.Contains(text, "no space left on device") {
			t.Errorf("logged %q", text)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("nothing is logged")
	}
	// It follows all the same.
	c.Set("a", policy.View{Rules: good.Rules, Subjects: good.Subjects})
	a.Await(t, "a change", func() bool { return a.Status().Peers == 0 })
	if s := a.Status(); !s.Connected || s.SaveFailures == 0 || s.SaveError == "" {
		t.Errorf("status %+v", s)
	}
	stop()
	// The pod was open when the file was written.
	remembers(t, o.File, policy.View{})
	full = false
	stop = run(t, a)
	a.Await(t, "a stream", func() bool { return a.Status().Streams == 2 })
	stop()
	remembers(t, o.File, policy.View{Rules: good.Rules, Subjects: good.Subjects})
	if s := a.Status(); s.SaveError != "" {
		t.Errorf("status %+v", s)
	}
}
