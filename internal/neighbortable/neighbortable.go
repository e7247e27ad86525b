// SPDX-License-Identifier: Apache-2.0

// Package neighbortable makes room in the kernel's tables of neighbors. The kernel has one for IPv4
// and one for IPv6 that all network namespaces share, pods' too, with room for 1024 entries by
// default (net.ipv4.neigh.default.gc_thresh3, Documentation/networking/ip-sysctl.rst of Linux). A
// pod has an entry for each other pod of its node that it talks to: 33 of them that all talk to one
// another would use it up, and then packets of any program on the node are lost.
package neighbortable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// limits are how many entries a table may have, and from how many on it drops those not in use: the
// 110 pods of a node that all talk to one another have 11,990. An entry takes about 0.5 KiB.
var limits = []struct {
	name  string
	least int
}{{"gc_thresh3", 65536}, {"gc_thresh2", 32768}}

// Raise raises the limits of the tables of these families, "ipv4" or "ipv6", that are lower. dir is
// usually /proc/sys. It returns how many it has written. The settings are the whole machine's, and
// another network namespace than its first one does not have them: there it does nothing.
func Raise(dir string, families ...string) (written int, err error) {
	for _, family := range families {
		for _, l := range limits {
			file := filepath.Join(dir, "net", family, "neigh", "default", l.name)
			text, err := os.ReadFile(file)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return written, fmt.Errorf("kernel setting: %w", err)
			}
			n, err := strconv.Atoi(strings.TrimSpace(string(text)))
			if err != nil {
				return written, fmt.Errorf("kernel setting %s: %w", file, err)
			}
			if n >= l.least {
				continue
			}
			if err := os.WriteFile(file, []byte(strconv.Itoa(l.least)), 0o644); err != nil {
				return written, fmt.Errorf("kernel setting: cannot write %d: %w", l.least, err)
			}
			written++
		}
	}
	return written, nil
}
