// SPDX-License-Identifier: Apache-2.0

//go:build integration

package attachment

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// tinyDisk mounts a file system of the given size.
func tinyDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("coelan-test", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Fatalf("mount a tmpfs (root is needed): %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func fill(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "others")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	block := make([]byte, 4096)
	for err == nil {
		_, err = f.Write(block)
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	return path
}

// On a full disk an Allocate fails and changes nothing; when there is room again, all
// goes on, and a restart finds what was acknowledged.
func TestFullDisk(t *testing.T) {
	dir := tinyDisk(t, "256k")
	path := filepath.Join(dir, "state.db")
	s, err := open(path, 8<<10)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { s.Close() }()
	first := mustAllocate(t, s, "first")
	others := fill(t, dir)

	// What was set aside is used up first: pods come and go for a while.
	var allocated []Attachment
	for i := 0; err == nil; i++ {
		var a Attachment
		if a, err = s.Allocate(request(fmt.Sprintf("c%d", i))); err == nil {
			allocated = append(allocated, a)
		}
		if i > 1000 {
			t.Fatal("the disk is not full")
		}
	}
	var werr *WriteError
	if !errors.As(err, &werr) || !errors.Is(err, unix.ENOSPC) || werr.Path != path {
		t.Fatalf("Allocate on a full disk: %v, want a *WriteError of ENOSPC with the path", err)
	}
	if len(allocated) < 5 {
		t.Errorf("%d attachments fitted in what was set aside, want at least 5", len(allocated))
	}
	want := append([]Attachment{first}, allocated...)
	if got := s.List(); len(got) != len(want) || len(s.ports) != len(want) || len(s.addresses) != 2*len(want) {
		t.Errorf("%d attachments, %d ports, %d addresses held, want %d", len(got), len(s.ports), len(s.addresses), len(want))
	}

	// An agent can start on the full disk too.
	listed := s.List()
	s.Close()
	if s, err = open(path, 8<<10); err != nil {
		t.Fatalf("Open on a full disk: %v", err)
	}
	if diff := cmp.Diff(listed, s.List(), addresses); diff != "" {
		t.Errorf("after a restart (-want +got):\n%s", diff)
	}
	if err := os.Remove(others); err != nil {
		t.Fatal(err)
	}
	a := mustAllocate(t, s, "later")
	if _, err := s.Release(first.Key); err != nil {
		t.Error(err)
	}
	s.Close()
	if s, err = open(path, 8<<10); err != nil {
		t.Fatal(err)
	}
	if _, ok := s.Get(a.Key); !ok || len(s.List()) != len(listed) {
		t.Errorf("after room was made: %d attachments, want %d", len(s.List()), len(listed))
	}
}

func TestFullDiskBeforeTheFirstStart(t *testing.T) {
	dir := tinyDisk(t, "64k")
	fill(t, dir)
	path := filepath.Join(dir, "state.db")
	s, err := Open(path)
	if err == nil {
		s.Close()
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Errorf("Open: %v, want ENOSPC", err)
	}
}

func TestReadOnlyDisk(t *testing.T) {
	dir := tinyDisk(t, "64k")
	path := filepath.Join(dir, "state.db")
	s := openTest(t, path)
	mustAllocate(t, s, "c1")
	s.Close()
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	s, err := Open(path)
	if err == nil {
		s.Close()
	}
	if !errors.Is(err, unix.EROFS) {
		t.Errorf("Open: %v, want EROFS", err)
	}
}
