// SPDX-License-Identifier: Apache-2.0

package vm

import (
	_ "embed"
	"fmt"
	"os"
	"strings"

	"coelan.io/coelan/test/debian"
)

var (
	//go:embed init.sh
	initScript []byte
	//go:embed serve.sh
	serveScript []byte
	//go:embed clientip.sh
	clientIPScript []byte
)

// busybox is Debian's static build, of the package busybox-static.
const busybox = "/bin/busybox"

// initramfs is the machine's file system.
func (c Config) initramfs() ([]byte, error) {
	program, err := os.ReadFile(busybox)
	if err != nil {
		return nil, fmt.Errorf("%w: install the package busybox-static", err)
	}
	var a debian.Archive
	a.Dirs("bin", "dev", "proc", "sys", "tmp", "modules", "www", "www/cgi-bin")
	a.File("bin/busybox", 0o755, program)
	a.File("init", 0o755, initScript)
	a.File("serve.sh", 0o644, serveScript)
	a.File("www/cgi-bin/clientip", 0o755, clientIPScript)
	a.File("config", 0o644, []byte(c.config()))
	if err := a.Modules(c.Kernel, "virtio_pci", "virtio_net", "virtio_rng", "virtio_console"); err != nil {
		return nil, err
	}
	return a.Bytes(), nil
}

// config is what init.sh reads, in the order in which it is to be done.
func (c Config) config() string {
	var b strings.Builder
	fmt.Fprintf(&b, "name %s\n", c.Name)
	if c.MTU != 0 {
		fmt.Fprintf(&b, "mtu %d\n", c.MTU)
	}
	b.WriteString("up\n")
	for _, a := range c.Addresses {
		fmt.Fprintf(&b, "address %s\n", a)
	}
	for _, g := range c.Gateways {
		fmt.Fprintf(&b, "gateway %s\n", g)
	}
	return b.String()
}
