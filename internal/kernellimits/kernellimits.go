// SPDX-License-Identifier: Apache-2.0

// Package kernellimits raises limits of the kernel of the whole machine.
package kernellimits

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Raise raises a limit that is lower, and reports whether it has.
func Raise(file string, least int) (raised bool, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return false, fmt.Errorf("kernel setting: %w", err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return false, fmt.Errorf("kernel setting %s: %w", file, err)
	}
	if n >= least {
		return false, nil
	}
	if err := os.WriteFile(file, []byte(strconv.Itoa(least)), 0o644); err != nil {
		return false, fmt.Errorf("kernel setting: cannot write %d: %w", least, err)
	}
	return true, nil
}

// neighbors are how many entries a table of neighbors may have, and from how many on it drops those
// not in use: the 110 pods of a node that all talk to one another have 11,990. An entry takes about
// 0.5 KiB.
var neighbors = []struct {
	name  string
	least int
}{{"gc_thresh3", 65536}, {"gc_thresh2", 32768}}

// RaiseNeighbors raises the limits of the tables of neighbors of these families, "ipv4" or "ipv6".
// The kernel has one for each that all network namespaces share, pods' too, with room for 1024
// entries by default (net.ipv4.neigh.default.gc_thresh3, Documentation/networking/ip-sysctl.rst of
// Linux). A pod has an entry for each other pod of its node that it talks to: 33 of them that all
// talk to one another would use it up, and then packets of any program on the node are lost.
//
// dir is usually /proc/sys. It returns how many it has written. Another network namespace than the
// machine's first one does not have the settings: there it does nothing.
func RaiseNeighbors(dir string, families ...string) (written int, err error) {
	for _, family := range families {
		for _, l := range neighbors {
			raised, err := Raise(filepath.Join(dir, "net", family, "neigh", "default", l.name), l.least)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return written, err
			}
			if raised {
				written++
			}
		}
	}
	return written, nil
}
