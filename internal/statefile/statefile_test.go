// SPDX-License-Identifier: Apache-2.0

package statefile

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func text(s string) func(*os.File) error {
	return func(f *os.File) error {
		_, err := f.WriteString(s)
		return err
	}
}

// holds compares the directory with what should be in it.
func holds(t *testing.T, dir string, want map[string]string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if want[e.Name()] != string(data) {
			t.Errorf("%s is %q, want %q", e.Name(), data, want[e.Name()])
		}
	}
	if len(entries) != len(want) {
		t.Errorf("%d files, want %d", len(entries), len(want))
	}
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	// What a crash has left is no hindrance.
	if err := os.WriteFile(path+suffix, []byte("half of something longer"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"one", "2"} {
		if err := Write(path, text(s)); err != nil {
			t.Fatal(err)
		}
		holds(t, dir, map[string]string{"a": s})
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	broken := errors.New("broken")
	err = Write(path, func(f *os.File) error { return errors.Join(text("half")(f), broken) })
	if !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	holds(t, dir, map[string]string{"a": "2"})
	if err := Write(filepath.Join(dir, "none", "a"), text("")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
}

func TestRemove(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "a" + suffix, "b", "ab"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := Remove(filepath.Join(dir, "a")); err != nil {
			t.Error(err)
		}
		holds(t, dir, map[string]string{"b": "", "ab": ""})
	}
}
