// SPDX-License-Identifier: Apache-2.0

// Package debian provides what tests boot in virtual machines: Debian's kernel, unpacked from its
// package, and the archive that the kernel takes for its first root file system.
package debian

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// metaPackage depends on Debian's current kernel package. The cloud flavor
// would be smaller, but it is built without 9p.
const metaPackage = "linux-image-amd64"

// Kernel is an unpacked Debian kernel package.
type Kernel struct {
	dir     string // holds boot/ and lib/modules/
	Release string // what uname -r says under it
}

// Image is the path of the kernel itself.
func (k Kernel) Image() string { return filepath.Join(k.dir, "boot", "vmlinuz-"+k.Release) }

// ModulesDir is the directory of its modules and their index.
func (k Kernel) ModulesDir() string { return filepath.Join(k.dir, "lib", "modules", k.Release) }

// FindKernel returns the current kernel from the cache directory, downloading
// and unpacking it first if it is not there. When the package index cannot be
// read, the newest cached kernel serves.
func FindKernel(ctx context.Context, cache string) (Kernel, error) {
	name, err := currentPackage(ctx)
	if err != nil {
		if k, ok := newestCached(cache); ok {
			return k, nil
		}
		return Kernel{}, err
	}
	k := Kernel{dir: filepath.Join(cache, name), Release: strings.TrimPrefix(name, "linux-image-")}
	if _, err := os.Stat(filepath.Join(k.ModulesDir(), "modules.dep.bin")); err == nil {
		return k, nil
	}
	return k, fetchKernel(ctx, cache, name, k)
}

// currentPackage resolves the meta package: linux-image-6.1.0-NN-amd64.
func currentPackage(ctx context.Context) (string, error) {
	out, err := command(ctx, "", "apt-cache", "depends", metaPackage)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(out)) {
		if _, name, ok := strings.Cut(line, "Depends: "); ok && strings.HasPrefix(name, "linux-image-") {
			return strings.TrimSpace(name), nil
		}
	}
	return "", fmt.Errorf("apt-cache depends %s names no kernel package: run apt-get update", metaPackage)
}

func newestCached(cache string) (Kernel, bool) {
	found, _ := filepath.Glob(filepath.Join(cache, "linux-image-*", "lib", "modules", "*", "modules.dep.bin"))
	if len(found) == 0 {
		return Kernel{}, false
	}
	slices.Sort(found)
	modules := filepath.Dir(found[len(found)-1])
	return Kernel{dir: filepath.Clean(filepath.Join(modules, "../../..")), Release: filepath.Base(modules)}, true
}

// fetchKernel unpacks the package beside its place and renames it, so that the cache always has a
// complete copy, also if several processes fetch it at the same time.
func fetchKernel(ctx context.Context, cache, name string, k Kernel) error {
	fmt.Fprintln(os.Stderr, "kernel: fetching", name)
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(cache, ".fetch-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if _, err := command(ctx, tmp, "apt-get", "download", "-q", name); err != nil {
		return err
	}
	debs, err := filepath.Glob(filepath.Join(tmp, "*.deb"))
	if err != nil || len(debs) != 1 {
		return fmt.Errorf("apt-get download %s left %d packages, want 1", name, len(debs))
	}
	root := filepath.Join(tmp, "root")
	if _, err := command(ctx, tmp, "dpkg-deb", "-x", debs[0], root); err != nil {
		return err
	}
	if _, err := command(ctx, tmp, "depmod", "-b", root, k.Release); err != nil {
		return err
	}
	if err := os.Chmod(root, 0o755); err != nil {
		return err
	}
	if err := os.RemoveAll(k.dir); err != nil { // an unpacked package without its index
		return err
	}
	return os.Rename(root, k.dir)
}

// Modules returns the files of the named modules and all that they need, in
// an order in which they can be loaded, relative to ModulesDir.
func (k Kernel) Modules(names ...string) ([]string, error) {
	data, err := os.ReadFile(filepath.Join(k.ModulesDir(), "modules.dep"))
	if err != nil {
		return nil, err
	}
	deps := map[string][]string{} // module name → its file, then those it needs, nearest first
	for sc := bufio.NewScanner(bytes.NewReader(data)); sc.Scan(); {
		file, rest, _ := strings.Cut(sc.Text(), ":")
		name := strings.ReplaceAll(strings.TrimSuffix(filepath.Base(file), ".ko"), "-", "_")
		deps[name] = append([]string{file}, strings.Fields(rest)...)
	}
	var out []string
	for _, n := range names {
		files, ok := deps[n]
		if !ok {
			return nil, fmt.Errorf("kernel %s has no module %s", k.Release, n)
		}
		for _, f := range slices.Backward(files) {
			if !slices.Contains(out, f) {
				out = append(out, f)
			}
		}
	}
	return out, nil
}

// command runs a program in dir and returns its standard output; the error
// holds the end of what it wrote to standard error.
func command(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	var out, errOut bytes.Buffer
	c := exec.CommandContext(ctx, name, args...)
	c.Dir, c.Stdout, c.Stderr = dir, &out, &errOut
	if err := c.Run(); err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(errOut.String()))
	}
	return out.Bytes(), nil
}
