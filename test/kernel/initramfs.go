// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"

	"coelan.io/coelan/test/debian"
)

// bootModules are what the guest needs to reach its root file system, its
// standard output and entropy. The root's modprobe loads the rest on demand.
var bootModules = []string{"virtio_pci", "virtio_console", "virtio_rng", "9p", "9pnet_virtio", "overlay"}

// initramfs builds the archive that the kernel unpacks as its first root:
// this program as /init, the specification and the boot modules, numbered in
// the order of loading.
func initramfs(k debian.Kernel, spec guestSpec) ([]byte, error) {
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
	var a debian.Archive
	a.Dirs("dev", "proc", "sys", "modules", "lower", "upper", "root")
	a.File("init", 0o755, program)
	a.File("spec.json", 0o644, config)
	if err := a.Modules(k, bootModules...); err != nil {
		return nil, err
	}
	return a.Bytes(), nil
}
