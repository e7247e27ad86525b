// SPDX-License-Identifier: Apache-2.0

// Package artifact makes what a sandbox is built from, once: the binaries of Kubernetes, etcd,
// CoreDNS, Multus and the reference CNI plugins from the Go module proxy, the container images that
// the cluster and its tests run, and a containerd store that holds them.
package artifact

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"coelan.io/coelan/internal/child"
)

// The versions that the modules in build/ pin.
const (
	KubernetesVersion = "v1.34.4"
	EtcdVersion       = "v3.6.5"
	CoreDNSVersion    = "v1.12.4"
	MultusVersion     = "v4.2.3"
	PluginsVersion    = "v1.9.1"
	PoliciesVersion   = "v0.2.0"
	KwokVersion       = "v0.8.0"
)

// Step runs a piece of work that may take long and reports it under the name.
type Step func(name string, run func() error) error

// Cache is a directory of artifacts. Each is named by what it was made from, and complete
// once it is there.
type Cache struct {
	Dir string
	// Source is the root of Coelan's source; it is needed only to build what is missing.
	Source string
	Step   Step
}

// DefaultDir is $COELAN_CACHE, $XDG_CACHE_HOME/coelan or /var/cache/coelan.
func DefaultDir() string {
	if d := os.Getenv("COELAN_CACHE"); d != "" {
		return d
	}
	if d := os.Getenv("XDG_CACHE_HOME"); d != "" {
		return filepath.Join(d, "coelan")
	}
	return "/var/cache/coelan"
}

// FindSource looks for the root of Coelan's source in $COELAN_SOURCE, and around the working
// directory and the running program. It returns "" if there is none.
func FindSource() string {
	starts := []string{os.Getenv("COELAN_SOURCE")}
	if wd, err := os.Getwd(); err == nil {
		starts = append(starts, wd)
	}
	if exe, err := os.Executable(); err == nil {
		starts = append(starts, filepath.Dir(exe))
	}
	for _, d := range starts {
		for d != "" {
			data, err := os.ReadFile(filepath.Join(d, "go.mod"))
			if err == nil && strings.HasPrefix(string(data), "module coelan.io/coelan\n") {
				return d
			}
			if d == filepath.Dir(d) {
				break
			}
			d = filepath.Dir(d)
		}
	}
	return ""
}

// Extra is what only some sandboxes need.
type Extra string

// The extras. Definitions are CustomResourceDefinitions of other projects.
const (
	KubeProxy   Extra = "kube-proxy"
	Multus      Extra = "multus"
	Definitions Extra = "definitions"
)

// Extras are all there are.
var Extras = []Extra{KubeProxy, Multus, Definitions}

// Prepare makes what is missing of that which every sandbox needs, and of the extras.
func (c Cache) Prepare(ctx context.Context, extras ...Extra) error {
	unlock, err := c.lock()
	if err != nil {
		return err
	}
	defer unlock()
	for _, m := range modules {
		if m.extra != "" && !slices.Contains(extras, m.extra) {
			continue
		}
		if err := c.build(ctx, m); err != nil {
			return err
		}
	}
	steps := []func(context.Context) error{c.images, c.store}
	if slices.Contains(extras, Multus) {
		steps = append(steps, c.multus)
	}
	if slices.Contains(extras, Definitions) {
		steps = append(steps, c.definitions)
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// lock keeps two processes from making the same artifact. The kernel frees it if the process dies.
func (c Cache) lock() (unlock func(), err error) {
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(c.Dir, "sandbox.lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return func() { f.Close() }, nil
}

// make fills the directory name of the cache if it is not there, by way of a temporary one.
func (c Cache) make(name, step string, fill func(dir string) error) error {
	final := filepath.Join(c.Dir, name)
	if _, err := os.Stat(final); err == nil {
		return nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	tmp := final + ".new"
	return c.Step(step, func() error {
		if err := os.RemoveAll(tmp); err != nil {
			return err
		}
		if err := os.MkdirAll(tmp, 0o755); err != nil {
			return err
		}
		if err := fill(tmp); err != nil {
			return err
		}
		return os.Rename(tmp, final) //nolint:forbidigo // a directory, which is recreated if it is not there
	})
}

func (c Cache) source() (string, error) {
	if c.Source == "" {
		return "", errors.New("the cache lacks something, and there is no source of Coelan to build it from: " +
			"run this in a clone of it, or set COELAN_SOURCE")
	}
	return c.Source, nil
}

// CopyTree copies a folder, with owners and modes, to a path that is not there.
func CopyTree(ctx context.Context, from, to string) error {
	return Run(ctx, "/", nil, "cp", "-a", "--reflink=auto", from, to)
}

// Run runs a command and shows its output only if it fails. It does not outlive this process: a
// later one may want to do the same work.
func Run(ctx context.Context, dir string, env []string, args ...string) error {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := child.Run(cmd); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, tail(out.Bytes()))
	}
	return nil
}

func tail(out []byte) string {
	const most = 4000
	return string(out[max(0, len(out)-most):])
}

// key is a short name for whatever v says, as JSON.
func key(v ...any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // only of values that no caller has
	}
	return fmt.Sprintf("%x", sha256.Sum256(data))[:12]
}

func versioned(name, version string) string {
	return fmt.Sprintf("%s-%s-%s", name, version, runtime.GOARCH)
}
