// SPDX-License-Identifier: Apache-2.0

package artifact

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"coelan.io/coelan/internal/child"
)

// The store is a containerd root directory that holds the images unpacked. Each node starts with a
// copy made of links: content and layers are never written to. Importing 250 MB into every node
// would take most of a minute.

const storeTimeout = 3 * time.Minute

func (c Cache) storeName() (string, error) {
	out, err := exec.Command("containerd", "--version").Output()
	if err != nil {
		return "", fmt.Errorf("containerd --version: %w", err)
	}
	return "containerd-" + key(c.imagesDir(), string(out)), nil
}

func (c Cache) store(ctx context.Context) error {
	name, err := c.storeName()
	if err != nil {
		return err
	}
	return c.make(name, "unpack images", func(dir string) error {
		ctx, cancel := context.WithTimeout(ctx, storeTimeout)
		defer cancel()
		return c.fillStore(ctx, dir)
	})
}

// fillStore imports the archives by means of a containerd that runs only for this.
func (c Cache) fillStore(ctx context.Context, dir string) error {
	state, err := os.MkdirTemp("", "coelan-store-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(state)
	socket, config, log := filepath.Join(state, "c.sock"), filepath.Join(state, "config.toml"),
		filepath.Join(state, "log")
	text := fmt.Sprintf("version = 2\nroot = %q\nstate = %q\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n"+
		"[grpc]\n  address = %q\n", dir, filepath.Join(state, "run"), socket)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	output, err := os.Create(log)
	if err != nil {
		return err
	}
	defer output.Close()
	cmd := exec.Command("containerd", "-c", config)
	cmd.Stdout, cmd.Stderr = output, output
	// Its mounts stay its own.
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	if err := child.Start(cmd); err != nil {
		return err
	}
	err = c.importAll(ctx, socket)
	_ = cmd.Process.Signal(syscall.SIGTERM)
	if waitErr := cmd.Wait(); err == nil && waitErr != nil {
		err = fmt.Errorf("containerd: %w", waitErr)
	}
	if err != nil {
		text, _ := os.ReadFile(log)
		return fmt.Errorf("%w\ncontainerd's log ends:\n%s", err, tail(text))
	}
	return nil
}

func (c Cache) importAll(ctx context.Context, socket string) error {
	if err := waitSocket(ctx, socket); err != nil {
		return err
	}
	ctr := func(args ...string) error {
		return Run(ctx, "/", nil, append([]string{"ctr", "-a", socket, "-n", "k8s.io", "images"}, args...)...)
	}
	for _, archive := range c.Archives() {
		if err := ctr("import", archive); err != nil {
			return err
		}
	}
	for name, more := range aliases {
		if err := ctr(append([]string{"tag", name}, more...)...); err != nil {
			return err
		}
	}
	return nil
}

func waitSocket(ctx context.Context, socket string) error {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		if conn, err := net.Dial("unix", socket); err == nil {
			return conn.Close()
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("nothing answers on %s: %w", socket, ctx.Err())
		}
	}
}

// PlantStore makes dir a containerd root directory of a new node, with all images in it. One that
// is there stays.
func (c Cache) PlantStore(ctx context.Context, dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	name, err := c.storeName()
	if err != nil {
		return err
	}
	tmp := dir + ".new"
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	store := filepath.Join(c.Dir, name)
	if err := Run(ctx, "/", nil, "cp", "-al", store, tmp); err != nil {
		// Another file system than the cache's.
		if err := os.RemoveAll(tmp); err != nil {
			return err
		}
		if err := Run(ctx, "/", nil, "cp", "-a", "--reflink=auto", store, tmp); err != nil {
			return err
		}
	}
	if err := ownDatabases(store, tmp); err != nil {
		return err
	}
	return os.Rename(tmp, dir) //nolint:forbidigo // a directory, which is recreated if it is not there
}

// ownDatabases replaces the links to the files that containerd does write to.
func ownDatabases(store, dir string) error {
	return filepath.WalkDir(store, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && d.Name() == "snapshots" || d.IsDir() && d.Name() == "blobs" {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, ".db") {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		own := filepath.Join(dir, strings.TrimPrefix(path, store))
		return errors.Join(os.Remove(own), os.WriteFile(own, data, 0o644))
	})
}
