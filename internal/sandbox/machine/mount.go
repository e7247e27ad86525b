// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// tunables are the kernel settings that kubelet writes unless it finds them so. They belong to the
// whole computer, so the machine sees files with these values in their place.
var tunables = map[string]string{
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/keys/root_maxbytes": "25000000",
}

// mountAll turns the inherited view of the root file system into the machine's: its own /proc,
// /sys, cgroups and /run, and its disk from dir.
func mountAll(dir, cgroup string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	hierarchies, err := cgroupHierarchies("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	if err := enterCgroup(hierarchies, cgroup); err != nil {
		return err
	}
	hidden, err := hiddenMounts("/proc/self/mountinfo", dir)
	if err != nil {
		return err
	}
	steps := []func() error{
		func() error { return detach(hidden) },
		func() error { return mount("proc", "/proc", "proc", "") },
		func() error { return mount("sysfs", "/sys", "sysfs", "") },
		func() error { return mountCgroups(hierarchies) },
		mountRun,
		func() error { return mountTunables(filepath.Join(dir, kernelDir)) },
		func() error { return mountDisk(dir) },
		// As on a machine that systemd booted: what a pod mounts below a shared
		// directory appears in others.
		func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "") },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// hiddenMounts lists the mounts of this computer below what the machine replaces, the last one
// first. Kept, they would keep alive what others unmount meanwhile: network namespaces, container
// file systems. Those that dir itself lies on must stay.
func hiddenMounts(mountinfo, dir string) ([]string, error) {
	data, err := os.ReadFile(mountinfo)
	if err != nil {
		return nil, err
	}
	var list []string
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		point := fields[4]
		for _, replaced := range append([]string{"proc", "sys", "run"}, disk...) {
			if below(point, "/"+replaced) && !below(dir, point) {
				list = append(list, point)
			}
		}
	}
	slices.Reverse(list)
	return list, nil
}

// below reports whether the path is dir or in it.
func below(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

func detach(mounts []string) error {
	for _, m := range mounts {
		if err := unix.Unmount(m, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", m, err)
		}
	}
	return nil
}

func mount(source, target, kind, options string) error {
	if err := unix.Mount(source, target, kind, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, options); err != nil {
		return fmt.Errorf("mount %s on %s: %w", kind, target, err)
	}
	return nil
}

func bind(source, target string) error {
	if err := unix.Mount(source, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s on %s: %w", source, target, err)
	}
	return nil
}

func mountRun() error {
	if err := unix.Mount("tmpfs", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		return fmt.Errorf("mount /run: %w", err)
	}
	for _, d := range []string{"/run/lock", "/run/netns", "/run/openvswitch"} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	return nil
}

func mountTunables(dir string) error {
	values := map[string]string{"kernel/random/boot_id": newBootID()}
	for name, value := range tunables {
		values[name] = value
	}
	for name, value := range values {
		file := filepath.Join(dir, filepath.Base(name))
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			return err
		}
		if err := bind(file, filepath.Join("/proc/sys", name)); err != nil {
			return err
		}
	}
	return nil
}

// newBootID is a random UUID: kubelet tells a reboot by it.
func newBootID() string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// LastBoot is what the kernel calls the last boot of the machine in dir, as kubelet reports it in
// its Node, and when it was.
func LastBoot(dir string) (id string, at time.Time, err error) {
	file := filepath.Join(dir, kernelDir, "boot_id")
	data, err := os.ReadFile(file)
	if err != nil {
		return "", at, err
	}
	info, err := os.Stat(file)
	if err != nil {
		return "", at, err
	}
	return strings.TrimSpace(string(data)), info.ModTime(), nil
}

// mountDisk comes last but one: it hides dir itself, which lies below /var/lib.
func mountDisk(dir string) error {
	root, err := unix.Open(dir, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", dir, err)
	}
	defer unix.Close(root)
	for _, d := range disk {
		if err := bind(fmt.Sprintf("/proc/self/fd/%d/%s", root, d), "/"+d); err != nil {
			return err
		}
	}
	return nil
}
