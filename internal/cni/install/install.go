// SPDX-License-Identifier: Apache-2.0

// Package install puts the CNI plugin and the network's configuration where the container
// runtime looks for them, and takes them away.
package install

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"coelan.io/coelan/internal/cni/wire"
	"coelan.io/coelan/internal/statefile"
)

// Names of what is installed.
const (
	BinaryName   = "coelan-cni"
	ConflistName = "10-coelan.conflist"
	NetworkName  = "coelan"
)

// pluginPath is the main package of the plugin, by which a binary is known to be ours.
const pluginPath = "coelan.io/coelan/cmd/coelan-cni"

// Paths says where things are.
type Paths struct {
	Source  string // the plugin's binary, to be copied
	BinDir  string // of the runtime, such as /opt/cni/bin
	ConfDir string // of the runtime, such as /etc/cni/net.d
	Socket  string // of the agent
}

// ForeignError says that a file of our name is there and was not put there by us.
type ForeignError struct{ Path string }

func (e *ForeignError) Error() string {
	return fmt.Sprintf("%s is there and is not Coelan's: move it away", e.Path)
}

// Install copies the plugin, links its other names to it, and then writes the configuration list,
// which tells the runtime that the node is ready for pods. Each file appears whole or not at all,
// also after a power loss; a file that is right already is not touched. Warnings name other
// configurations that the runtime would take first, and plugins that have one of the other names.
// A *ForeignError is returned before anything is written.
func Install(p Paths) (warnings []string, err error) {
	binary, err := os.ReadFile(p.Source)
	if err != nil {
		return nil, fmt.Errorf("CNI plugin to install: %w", err)
	}
	conflist, err := Conflist(p.Socket)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(foreign(p.binary(), isOurBinary), foreign(p.conflist(), isOurConflist)); err != nil {
		return nil, err
	}
	if err := replace(p.binary(), binary, 0o755); err != nil {
		return nil, fmt.Errorf("install the CNI plugin: %w", err)
	}
	warnings, err = p.link()
	if err != nil {
		return nil, fmt.Errorf("install the CNI plugin: %w", err)
	}
	if err := replace(p.conflist(), conflist, 0o644); err != nil {
		return nil, fmt.Errorf("install the CNI configuration: %w", err)
	}
	return append(warnings, p.shadows()...), nil
}

// Uninstall removes the configuration list, so that the runtime starts no more pods with it, and
// then the plugin under all of its names. What is not there, or is not ours, stays as it is; the
// latter is a *ForeignError, unless it is another name of the plugin.
func Uninstall(p Paths) error {
	return errors.Join(remove(p.conflist(), isOurConflist), p.unlink(), remove(p.binary(), isOurBinary))
}

// Conflist is the configuration list. Its version is the latest that runtimes of these
// years know; newer ones take the latest of cniVersions.
func Conflist(socket string) ([]byte, error) {
	plugin := map[string]any{"type": BinaryName, "capabilities": map[string]bool{"portMappings": true}}
	if socket != wire.DefaultSocket {
		plugin["socket"] = socket
	}
	text, err := json.MarshalIndent(struct {
		CNIVersion  string           `json:"cniVersion"`
		CNIVersions []string         `json:"cniVersions"`
		Name        string           `json:"name"`
		Plugins     []map[string]any `json:"plugins"`
	}{
		"1.0.0", []string{"0.4.0", "1.0.0", wire.LatestVersion}, NetworkName, []map[string]any{plugin},
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("CNI configuration: %w", err)
	}
	return append(text, '\n'), nil
}

func (p Paths) binary() string   { return filepath.Join(p.BinDir, BinaryName) }
func (p Paths) conflist() string { return filepath.Join(p.ConfDir, ConflistName) }

// shadows names the configurations that come before ours: runtimes take the first by
// name.
func (p Paths) shadows() []string {
	entries, err := os.ReadDir(p.ConfDir)
	if err != nil {
		return nil
	}
	var warnings []string
	for _, e := range entries {
		switch ext := filepath.Ext(e.Name()); {
		case e.Name() >= ConflistName, ext != ".conf" && ext != ".conflist" && ext != ".json":
		default:
			warnings = append(warnings,
				fmt.Sprintf("the container runtime takes %s before %s: pods will not be on Coelan's network",
					filepath.Join(p.ConfDir, e.Name()), ConflistName))
		}
	}
	return warnings
}

// foreign returns a *ForeignError if there is a file that is not ours.
func foreign(path string, ours func(string) (bool, error)) error {
	ok, err := ours(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w", path, err)
	case !ok:
		return &ForeignError{Path: path}
	}
	return nil
}

func remove(path string, ours func(string) (bool, error)) error {
	if err := foreign(path, ours); err != nil {
		return err
	}
	return statefile.Remove(path)
}

// isOurBinary reads what the Go linker writes into every binary.
func isOurBinary(path string) (bool, error) {
	if _, err := os.Stat(path); err != nil {
		return false, err
	}
	info, err := buildinfo.ReadFile(path)
	return err == nil && info.Path == pluginPath, nil
}

func isOurConflist(path string) (bool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return false, err
	}
	var list struct {
		Plugins []struct{ Type string }
	}
	err = json.Unmarshal(text, &list)
	return err == nil && len(list.Plugins) > 0 && list.Plugins[0].Type == BinaryName, nil
}

// replace makes a file have a content and mode. The name that the new file has for a moment ends
// such that no runtime takes it for a configuration.
func replace(path string, content []byte, mode os.FileMode) error {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, content) {
		if info, err := os.Stat(path); err == nil && info.Mode().Perm() == mode {
			return nil
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return statefile.WriteBytes(path, mode, content)
}
