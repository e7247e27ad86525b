// SPDX-License-Identifier: Apache-2.0

package install

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/cni/wire"
)

// plugin builds the real one: what tells it from others is in the binary.
func plugin(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "built")
	cmd := exec.Command("go", "build", "-ldflags", "-s -w", "-o", path, "coelan.io/coelan/cmd/coelan-cni")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the plugin: %v: %s", err, out)
	}
	return path
}

// tree lists the files below the runtime's directories with their modes.
func tree(t *testing.T, p Paths) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, dir := range []string{p.BinDir, p.ConfDir} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		for _, e := range entries {
			info, err := e.Info()
			if err != nil {
				t.Fatal(err)
			}
			files[filepath.Base(dir)+"/"+e.Name()] = info.Mode().String()
		}
	}
	return files
}

func paths(t *testing.T, source string) Paths {
	t.Helper()
	dir := t.TempDir()
	return Paths{Source: source, BinDir: dir + "/opt/cni/bin", ConfDir: dir + "/etc/cni/net.d", Socket: wire.DefaultSocket}
}

func TestInstallAndUninstall(t *testing.T) {
	source := plugin(t)
	p := paths(t, source)
	installed := map[string]string{"bin/coelan-cni": "-rwxr-xr-x", "net.d/10-coelan.conflist": "-rw-r--r--",
		"bin/odlovs-cni": "Lrwxrwxrwx", "bin/odlcoe": "Lrwxrwxrwx", "bin/ovs-odl": "Lrwxrwxrwx", "bin/ipam-odl": "Lrwxrwxrwx"}
	if warnings, err := Install(p); err != nil || len(warnings) != 0 {
		t.Fatal(warnings, err)
	}
	if diff := cmp.Diff(installed, tree(t, p)); diff != "" {
		t.Errorf("installed (-want +got):\n%s", diff)
	}
	want, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(p.binary()); err != nil || string(got) != string(want) {
		t.Errorf("the installed plugin differs from the source, %v", err)
	}

	// Again: runtimes watch the directory, so what is right is not written.
	before, err := os.Stat(p.conflist())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Install(p); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(p.conflist()); err != nil || !os.SameFile(before, after) || before.ModTime() != after.ModTime() {
		t.Errorf("the configuration was written again (%v)", err)
	}

	// A file that was damaged or left half written is restored.
	if err := errors.Join(os.Chmod(p.binary(), 0o600),
		os.WriteFile(filepath.Join(p.BinDir, "coelan-cni.new"), []byte("half"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := Install(p); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(installed, tree(t, p)); diff != "" {
		t.Errorf("repaired (-want +got):\n%s", diff)
	}

	for range 2 {
		if err := Uninstall(p); err != nil {
			t.Fatal(err)
		}
		if got := tree(t, p); len(got) != 0 {
			t.Errorf("left after Uninstall: %v", got)
		}
	}
}

// Each name is the plugin, unless another plugin or a link has it: that stays, and is a warning.
func TestOtherNames(t *testing.T) {
	p := paths(t, plugin(t))
	if err := os.MkdirAll(p.BinDir, 0o755); err != nil {
		t.Fatal(err)
	}
	theirs, dangling, ours := filepath.Join(p.BinDir, "odlovs-cni"), filepath.Join(p.BinDir, "odlcoe"), filepath.Join(p.BinDir, "ovs-odl")
	if err := errors.Join(os.WriteFile(theirs, []byte("#!/bin/sh\n"), 0o755), os.Symlink("/nowhere", dangling), os.Symlink(p.binary(), ours)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		warnings, err := Install(p)
		if err != nil || len(warnings) != 2 || !strings.Contains(warnings[0], theirs+" is another plugin's") || !strings.Contains(warnings[1], dangling) {
			t.Errorf("Install = %q, %v", warnings, err)
		}
	}
	out, err := exec.Command(filepath.Join(p.BinDir, "ipam-odl")).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "a CNI plugin, to be run by a container runtime") {
		t.Errorf("ipam-odl: %s, %v", out, err)
	}
	if err := Uninstall(p); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{theirs, dangling} {
		if _, err := os.Lstat(path); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Lstat(filepath.Join(p.BinDir, "ipam-odl")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("ipam-odl is left, %v", err)
	}
}

// The runtimes' library reads the list as it is meant.
func TestConflistForTheRuntime(t *testing.T) {
	text, err := Conflist("/run/other.sock")
	if err != nil {
		t.Fatal(err)
	}
	list, err := libcni.ConfListFromBytes(text)
	if err != nil {
		t.Fatal(err)
	}
	if list.Name != "coelan" || list.CNIVersion != "1.1.0" || len(list.Plugins) != 1 {
		t.Errorf("network %s, version %s, %d plugins", list.Name, list.CNIVersion, len(list.Plugins))
	}
	if first := list.Plugins[0]; first.Network.Type != "coelan-cni" || !strings.Contains(string(first.Bytes), `"socket":"/run/other.sock"`) {
		t.Errorf("first plugin: %s", first.Bytes)
	}
	if !list.Plugins[0].Network.Capabilities["portMappings"] {
		t.Errorf("the runtime keeps host ports to itself: %s", list.Plugins[0].Bytes)
	}
	text, err = Conflist(wire.DefaultSocket)
	if err != nil || strings.Contains(string(text), "socket") {
		t.Errorf("the default socket is in %s, %v", text, err)
	}
}

func TestForeignFilesStay(t *testing.T) {
	source := plugin(t)
	for _, tt := range []struct {
		name    string
		path    func(Paths) string
		content string
	}{
		{"plugin is a script", Paths.binary, "#!/bin/sh\n"},
		{"plugin is empty", Paths.binary, ""},
		{"configuration of another plugin", Paths.conflist, `{"cniVersion":"1.0.0","name":"coelan","plugins":[{"type":"bridge"}]}`},
		{"configuration is not JSON", Paths.conflist, "{"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := paths(t, source)
			if _, err := Install(p); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(Uninstall(p), os.WriteFile(tt.path(p), []byte(tt.content), 0o644)); err != nil {
				t.Fatal(err)
			}
			before := tree(t, p)
			_, err := Install(p)
			for what, err := range map[string]error{"Install": err, "Uninstall": Uninstall(p)} {
				var foreign *ForeignError
				if !errors.As(err, &foreign) || foreign.Path != tt.path(p) {
					t.Errorf("%s: %v, want a *ForeignError of %s", what, err, tt.path(p))
				}
			}
			if diff := cmp.Diff(before, tree(t, p)); diff != "" {
				t.Errorf("changed:\n%s", diff)
			}
		})
	}
}

func TestInstallWarnsOfConfigurationsThatComeFirst(t *testing.T) {
	p := paths(t, plugin(t))
	if err := os.MkdirAll(p.ConfDir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"05-flannel.conflist", "00-readme.txt", "20-other.conf"} {
		if err := os.WriteFile(filepath.Join(p.ConfDir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	warnings, err := Install(p)
	if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], "05-flannel.conflist before 10-coelan.conflist") {
		t.Errorf("Install = %q, %v", warnings, err)
	}
}

func TestInstallWithoutASource(t *testing.T) {
	p := paths(t, "/nonexistent/coelan-cni")
	if _, err := Install(p); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "/nonexistent/coelan-cni") {
		t.Errorf("Install: %v", err)
	}
	if got := tree(t, p); len(got) != 0 {
		t.Errorf("written: %v", got)
	}
}
