// SPDX-License-Identifier: Apache-2.0

package artifact

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
)

// What the cache calls itself by must be what the modules pin.
func TestVersions(t *testing.T) {
	for name, want := range map[string]struct{ module, version string }{
		"kubernetes": {"k8s.io/kubernetes", KubernetesVersion},
		"etcd":       {"go.etcd.io/etcd/server/v3", EtcdVersion},
		"coredns":    {"github.com/coredns/coredns", CoreDNSVersion},
		"multus":     {multusModule, MultusVersion},
		"plugins":    {pluginsModule, PluginsVersion},
		"netpolapi":  {policiesModule, PoliciesVersion},
		"kwok":       {kwokModule, KwokVersion},
	} {
		data, err := os.ReadFile(filepath.Join("../../../build", name, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		pinned := regexp.MustCompile(`(?m)^\s*(?:require )?` + regexp.QuoteMeta(want.module) + ` (\S+)`).FindSubmatch(data)
		if pinned == nil || string(pinned[1]) != want.version {
			t.Errorf("build/%s pins %s, the sandbox expects %s", name, pinned, want.version)
		}
	}
}

func TestMissingTools(t *testing.T) {
	err := findTools("deps-neutron", []Tool{{"sh", "dash"}, {"no-such-server", "neutron-server"}, {"no-such-tool", "neutron-server"}})
	if err == nil {
		t.Fatal("nothing is missing")
	}
	const want = "missing programs: no-such-server, no-such-tool\n" +
		"install them with `make deps-neutron`, or apt-get install --no-install-recommends neutron-server"
	if err.Error() != want {
		t.Errorf("%v, want\n%s", err, want)
	}
}

func testCache(t *testing.T) Cache {
	return Cache{Dir: t.TempDir(), Step: func(_ string, run func() error) error { return run() }}
}

func TestMake(t *testing.T) {
	c := testCache(t)
	fill := func(content string, err error) func(string) error {
		return func(dir string) error {
			return errors.Join(os.WriteFile(filepath.Join(dir, "f"), []byte(content), 0o644), err)
		}
	}
	failure := errors.New("failure")
	if err := c.make("a", "", fill("half", failure)); !errors.Is(err, failure) {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(filepath.Join(c.Dir, "a")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a failed artifact is there: %v", err)
	}
	for _, content := range []string{"whole", "another"} {
		if err := c.make("a", "", fill(content, nil)); err != nil {
			t.Fatal(err)
		}
	}
	if data, _ := os.ReadFile(filepath.Join(c.Dir, "a/f")); string(data) != "whole" {
		t.Errorf("content %q, want that of the first complete one", data)
	}
}

// Nodes share the images' files, but each has databases of its own.
func TestOwnDatabases(t *testing.T) {
	store, node := filepath.Join(t.TempDir(), "store"), filepath.Join(t.TempDir(), "node")
	files := []string{"meta/meta.db", "overlay/metadata.db", "overlay/snapshots/1/fs/app.db", "content/blobs/sha256/x"}
	for _, f := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(store, f)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(store, f), []byte(f), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := Run(t.Context(), "/", nil, "cp", "-al", store, node); err != nil {
		t.Fatal(err)
	}
	if err := ownDatabases(store, node); err != nil {
		t.Fatal(err)
	}
	for i, f := range files {
		data, err := os.ReadFile(filepath.Join(node, f))
		if err != nil || string(data) != f {
			t.Errorf("%s: %q, %v", f, data, err)
		}
		info, err := os.Stat(filepath.Join(node, f))
		if err != nil {
			t.Fatal(err)
		}
		if shared := info.Sys().(*syscall.Stat_t).Nlink > 1; shared != (i >= 2) {
			t.Errorf("%s: shared %t", f, shared)
		}
	}
}

func TestFindSource(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	if got := FindSource(); got != root {
		t.Errorf("FindSource() = %q, want %q", got, root)
	}
	t.Setenv("COELAN_SOURCE", filepath.Join(root, "build"))
	if got := FindSource(); got != root {
		t.Errorf("with COELAN_SOURCE FindSource() = %q, want %q", got, root)
	}
}

func TestBinary(t *testing.T) {
	c := Cache{Dir: "/c"}
	for name, dir := range map[string]string{
		"kubelet": versioned("kubernetes", KubernetesVersion), "etcd": versioned("etcd", EtcdVersion),
		"coredns": versioned("coredns", CoreDNSVersion), "agnhost": versioned("kubernetes", KubernetesVersion),
	} {
		if got, want := c.Binary(name), filepath.Join("/c", dir, name); got != want {
			t.Errorf("Binary(%s) = %s, want %s", name, got, want)
		}
	}
}
