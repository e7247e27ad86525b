// SPDX-License-Identifier: Apache-2.0

package debian

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
)

const (
	modeDir  = 0o040000
	modeFile = 0o100000
	modeLink = 0o120000
)

// Archive is a cpio archive in the "newc" form (kernel documentation,
// driver-api/early-userspace/buffer-format), which the kernel unpacks as its
// first root. Directories come before what is in them.
type Archive struct {
	buf   bytes.Buffer
	inode int
}

// Dirs adds directories.
func (a *Archive) Dirs(names ...string) {
	for _, name := range names {
		a.add(name, modeDir|0o755, nil)
	}
}

// File adds a file.
func (a *Archive) File(name string, permissions int, data []byte) {
	a.add(name, modeFile|permissions, data)
}

// Link adds a symbolic link.
func (a *Archive) Link(name, target string) { a.add(name, modeLink|0o777, []byte(target)) }

// Modules adds the named modules of the kernel and all that they need, in
// modules/, numbered in the order of loading.
func (a *Archive) Modules(k Kernel, names ...string) error {
	files, err := k.Modules(names...)
	if err != nil {
		return err
	}
	for i, f := range files {
		data, err := os.ReadFile(filepath.Join(k.ModulesDir(), f))
		if err != nil {
			return err
		}
		a.File(fmt.Sprintf("modules/%02d-%s", i, filepath.Base(f)), 0o644, data)
	}
	return nil
}

// Bytes ends the archive.
func (a *Archive) Bytes() []byte {
	a.add("TRAILER!!!", 0, nil)
	return a.buf.Bytes()
}

func (a *Archive) add(name string, mode int, data []byte) {
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

func (a *Archive) pad() {
	for a.buf.Len()%4 != 0 {
		a.buf.WriteByte(0)
	}
}
