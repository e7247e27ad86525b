// SPDX-License-Identifier: Apache-2.0

package kernellimits

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// settings makes a directory of kernel settings.
func settings(t *testing.T, values map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, value := range values {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(value+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Limits that are lower are raised, others stay, of the families that are asked for.
func TestRaiseNeighbors(t *testing.T) {
	const v4, v6 = "net/ipv4/neigh/default/", "net/ipv6/neigh/default/"
	for _, c := range []struct {
		name     string
		families []string
		has      map[string]string
		written  int
		want     map[string]string
	}{
		{"the kernel's own", []string{"ipv4", "ipv6"},
			map[string]string{v4 + "gc_thresh2": "512", v4 + "gc_thresh3": "1024", v6 + "gc_thresh2": "512", v6 + "gc_thresh3": "1024"}, 4,
			map[string]string{v4 + "gc_thresh2": "32768", v4 + "gc_thresh3": "65536", v6 + "gc_thresh2": "32768", v6 + "gc_thresh3": "65536"}},
		{"one family", []string{"ipv6"},
			map[string]string{v4 + "gc_thresh3": "1024", v6 + "gc_thresh2": "512", v6 + "gc_thresh3": "1024"}, 2,
			map[string]string{v4 + "gc_thresh3": "1024", v6 + "gc_thresh2": "32768", v6 + "gc_thresh3": "65536"}},
		{"an administrator's", []string{"ipv4"},
			map[string]string{v4 + "gc_thresh2": "200000", v4 + "gc_thresh3": "400000"}, 0,
			map[string]string{v4 + "gc_thresh2": "200000", v4 + "gc_thresh3": "400000"}},
		{"another namespace", []string{"ipv4", "ipv6"}, nil, 0, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := settings(t, c.has)
			if n, err := RaiseNeighbors(dir, c.families...); n != c.written || err != nil {
				t.Errorf("%d writes, %v; want %d", n, err, c.written)
			}
			if n, err := RaiseNeighbors(dir, c.families...); n != 0 || err != nil {
				t.Errorf("again: %d writes, %v", n, err)
			}
			got := map[string]string{}
			for name := range c.want {
				text, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
				if err != nil {
					t.Fatal(err)
				}
				got[name] = strings.TrimSpace(string(text))
			}
			if !maps.Equal(got, c.want) && len(c.want) > 0 {
				t.Errorf("the settings are %v, want %v", got, c.want)
			}
		})
	}
	dir := settings(t, map[string]string{v4 + "gc_thresh3": "many"})
	if _, err := RaiseNeighbors(dir, "ipv4"); err == nil || !strings.Contains(err.Error(), "gc_thresh3") {
		t.Errorf("no number: %v", err)
	}
}
