// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// hierarchy is a mounted cgroup hierarchy: version 1 has one for each set of controllers, version 2
// one in all.
type hierarchy struct {
	path    string
	unified bool // version 2
	// What mounts a hierarchy of version 1 again, such as "cpuset" or "none,name=systemd".
	options string
}

// cgroupHierarchies reads those that a mountinfo file (proc(5)) lists.
func cgroupHierarchies(mountinfo string) ([]hierarchy, error) {
	data, err := os.ReadFile(mountinfo)
	if err != nil {
		return nil, err
	}
	var list []hierarchy
	for s := bufio.NewScanner(bytes.NewReader(data)); s.Scan(); {
		// id parent major:minor root mountpoint options [optional…] - type source superoptions
		before, after, ok := strings.Cut(s.Text(), " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !ok || len(left) < 5 || len(right) < 3 || left[3] != "/" {
			continue
		}
		switch right[0] {
		case "cgroup":
			list = append(list, hierarchy{path: left[4], options: controllers(right[2])})
		case "cgroup2":
			list = append(list, hierarchy{path: left[4], unified: true})
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s: no cgroup hierarchy is mounted", mountinfo)
	}
	return list, nil
}

// controllers picks from a version 1 hierarchy's super options those that select it.
func controllers(super string) string {
	var list []string
	for o := range strings.SplitSeq(super, ",") {
		switch {
		case strings.HasPrefix(o, "name="):
			list = append(list, "none", o)
		case slices.Contains([]string{"rw", "ro", "xattr", "clone_children", "noprefix", "relatime"}, o),
			strings.HasPrefix(o, "release_agent="):
		default:
			list = append(list, o)
		}
	}
	return strings.Join(list, ",")
}

// enterCgroup moves this process into the cgroup name of every hierarchy and makes that its root.
func enterCgroup(hierarchies []hierarchy, name string) error {
	for _, h := range hierarchies {
		if err := h.make(name); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(h.path, name, "cgroup.procs"), []byte("0"), 0o644); err != nil {
			return fmt.Errorf("enter cgroup: %w", err)
		}
	}
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("new cgroup namespace: %w", err)
	}
	return nil
}

// make creates the cgroup and its parents, each with the controllers of its parent.
func (h hierarchy) make(name string) error {
	parent := h.path
	for part := range strings.SplitSeq(name, "/") {
		if h.unified {
			delegate(parent)
		}
		child := filepath.Join(parent, part)
		if err := os.Mkdir(child, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make cgroup: %w", err)
		}
		if !h.unified {
			if err := inheritCpuset(parent, child); err != nil {
				return err
			}
		}
		parent = child
	}
	return nil
}

// delegate makes all controllers of a version 2 cgroup available below it. A controller that
// cannot be (a real-time process holds cpu, say) is missing there, which kubelet reports by name
// if it needs it.
func delegate(dir string) {
	available, _ := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	for _, c := range strings.Fields(string(available)) {
		_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+c), 0o644)
	}
}

// inheritCpuset fills the two settings without which no process can enter a version 1 cpuset.
func inheritCpuset(parent, child string) error {
	for _, f := range []string{"cpuset.cpus", "cpuset.mems"} {
		own, err := os.ReadFile(filepath.Join(child, f))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if len(bytes.TrimSpace(own)) > 0 {
			continue
		}
		value, err := os.ReadFile(filepath.Join(parent, f))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(child, f), value, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// mountCgroups mounts the hierarchies again on the machine's own /sys, as its
// cgroup namespace shows them.
func mountCgroups(hierarchies []hierarchy) error {
	for _, h := range hierarchies {
		if h.path != "/sys/fs/cgroup" { // version 1: a directory for each
			if err := mountCgroupTmpfs(); err != nil {
				return err
			}
			break
		}
	}
	for _, h := range hierarchies {
		if err := os.MkdirAll(h.path, 0o755); err != nil {
			return err
		}
		kind := "cgroup"
		if h.unified {
			kind = "cgroup2"
		}
		if err := mount(kind, h.path, kind, h.options); err != nil {
			return err
		}
		if h.unified {
			if err := leaveRoot(h.path); err != nil {
				return err
			}
		}
	}
	return nil
}

func mountCgroupTmpfs() error { return mount("tmpfs", "/sys/fs/cgroup", "tmpfs", "mode=755") }

// leaveRoot moves the machine's own processes into a leaf: a version 2 cgroup that hands on
// controllers, as kubelet's root must, may hold none.
func leaveRoot(root string) error {
	leaf := filepath.Join(root, "machine")
	if err := os.MkdirAll(leaf, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(leaf, "cgroup.procs"), []byte("0"), 0o644); err != nil {
		return fmt.Errorf("enter cgroup: %w", err)
	}
	delegate(root)
	return nil
}

// RemoveCgroups ends whatever runs in the cgroup name and removes it with all below
// it from every hierarchy.
func RemoveCgroups(ctx context.Context, name string) error {
	hierarchies, err := cgroupHierarchies("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for _, h := range hierarchies {
		dir := filepath.Join(h.path, name)
		var last error
		// Busy: a process still lives, or the kernel is still sweeping up after the last one.
		err := retry(ctx, func() error {
			if last = removeTree(dir); errors.Is(last, unix.EBUSY) {
				return last
			}
			return nil
		})
		if err != nil || last != nil {
			return fmt.Errorf("remove cgroup %s: %w", dir, errors.Join(last, err))
		}
	}
	return nil
}

func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	killMembers(dir)
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return unix.Rmdir(dir)
}

// killMembers ends the processes of one cgroup: for instance of a machine with a number that was
// never stored, because the process that booted it died just then.
func killMembers(dir string) {
	data, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	for _, line := range strings.Fields(string(data)) {
		if pid, err := strconv.Atoi(line); err == nil && pid > 1 {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}
