// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// mount is one mount(2), made after its directory.
type mount struct {
	source, target, fstype string
	flags                  uintptr
	data                   string
}

func mountAll(mounts []mount) error {
	for _, m := range mounts {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.source, m.target, m.fstype, m.flags, m.data); err != nil {
			return fmt.Errorf("mount %s on %s: %w", m.source, m.target, err)
		}
	}
	return nil
}

func mountKernelFiles(guestSpec) error {
	return mountAll([]mount{
		{source: "proc", target: "/proc", fstype: "proc"},
		{source: "sys", target: "/sys", fstype: "sysfs"},
		{source: "dev", target: "/dev", fstype: "devtmpfs"},
	})
}

// mountRoot puts together /root: the machine's root below, memory above.
func mountRoot(guestSpec) error {
	err := mountAll([]mount{
		// cache=loose: nothing else is expected to change what the guest reads
		{rootTag, "/lower", "9p", unix.MS_RDONLY, "trans=virtio,version=9p2000.L,msize=512000,cache=loose"},
		{source: "upper", target: "/upper", fstype: "tmpfs"},
	})
	if err != nil {
		return err
	}
	for _, d := range []string{"/upper/data", "/upper/work"} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return err
		}
	}
	return mountAll([]mount{{"overlay", "/root", "overlay", 0,
		"lowerdir=/lower,upperdir=/upper/data,workdir=/upper/work"}})
}

// enterRoot makes /root the root of process 1. The kernel's own threads share
// it, so from here on the kernel finds modprobe there as well.
func enterRoot(guestSpec) error {
	for _, d := range []string{"/proc", "/sys", "/dev"} {
		if err := unix.Mount(d, filepath.Join("/root", d), "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("move %s to the new root: %w", d, err)
		}
	}
	if err := os.Chdir("/root"); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move the new root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return err
	}
	return os.Chdir("/")
}

// prepareRoot mounts what programs expect of a running system.
func prepareRoot(spec guestSpec) error {
	err := mountAll([]mount{
		{source: "devpts", target: "/dev/pts", fstype: "devpts"},
		{source: "shm", target: "/dev/shm", fstype: "tmpfs"},
		{source: "run", target: "/run", fstype: "tmpfs"},
		{outTag, outDir, "9p", 0, "trans=virtio,version=9p2000.L,msize=512000,cache=none"},
		{source: spec.ModulesDir, target: filepath.Join("/lib/modules", spec.Release), flags: unix.MS_BIND},
	})
	if err != nil {
		return err
	}
	// The root mount is a private one: namespaces made later must not share it.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte("coelan-kernel")); err != nil {
		return err
	}
	return loopbackUp()
}

// loopbackUp does `ip link set lo up`.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req)
}
