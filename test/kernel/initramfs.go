// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// bootModules are what the guest needs to reach its root file system, its
// standard output and entropy. The root's modprobe loads the rest on demand.
var bootModules = []string{"virtio_pci", "virtio_console", "virtio_rng", "9p", "9pnet_virtio", "overlay"}

// initramfs builds the archive that the kernel unpacks as its first root:
// this program as /init, the specification and the boot modules, numbered in
// the order of loading.
func initramfs(k kernel, spec guestSpec) ([]byte, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	program, err := os.ReadFile(self)
	if err != nil {
		return nil, err
	}
	config, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	var a archive
	for _, d := range []string{"dev", "proc", "sys", "modules", "lower", "upper", "root"} {
		a.add(d, modeDir|0o755, nil)
	}
	a.add("init", modeFile|0o755, program)
	a.add("spec.json", modeFile|0o644, config)
	files, err := k.modules(bootModules...)
	if err != nil {
		return nil, err
	}
	for i, f := range files {
		data, err := os.ReadFile(filepath.Join(k.modulesDir(), f))
		if err != nil {
			return nil, err
		}
		a.add(fmt.Sprintf("modules/%02d-%s", i, filepath.Base(f)), modeFile|0o644, data)
	}
	a.add("TRAILER!!!", 0, nil)
	return a.buf.Bytes(), nil
}

const (
	modeDir  = 0o040000
	modeFile = 0o100000
)

// archive is a cpio archive in the "newc" form (kernel documentation,
// driver-api/early-userspace/buffer-format).
type archive struct {
	buf   bytes.Buffer
	inode int
}

func (a *archive) add(name string, mode int, data []byte) {
	a.inode++
	// magic, ino, mode, uid, gid, nlink, mtime, filesize, four device
	// numbers, namesize with its zero byte, checksum
	fmt.Fprintf(&a.buf, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X",
		a.inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0)
	a.buf.WriteString(name)
	a.buf.WriteByte(0)
	a.pad()
	a.buf.Write(data)
	a.pad()
}

func (a *archive) pad() {
	for a.buf.Len()%4 != 0 {
		a.buf.WriteByte(0)
	}
}
