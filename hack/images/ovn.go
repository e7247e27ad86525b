// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"coelan.io/coelan/internal/image"
)

// ovnPackages of Debian have OVN's programs, and those of Open vSwitch that ask them.
const ovnPackages = "ovn-central,ovn-host"

// debianRelease is that of the packages.
const debianRelease = "bookworm"

// ovnEntry runs OVN's programs as the chart has them.
//
//go:embed coelan-ovn.sh
var ovnEntry string

// writeOVN makes a root file system of Debian's packages (root, mmdebstrap), and of it the image.
func writeOVN(ctx context.Context, tag, out string) error {
	dir, err := os.MkdirTemp("", "ovn-image")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	root := filepath.Join(dir, "root.tar")
	cmd := exec.CommandContext(ctx, "mmdebstrap", "--quiet", "--variant=essential", "--include="+ovnPackages,
		"--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/doc/*",
		"--dpkgopt=path-exclude=/usr/share/locale/*", debianRelease, root)
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("root file system of %s: %w", tag, err)
	}
	return image.Image{
		Tag: tag, Base: root, Entrypoint: []string{"/usr/bin/coelan-ovn"},
		Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"},
		Labels: map[string]string{
			"org.opencontainers.image.title": "OVN of Debian " + debianRelease + ", for Coelan",
		},
		Files: []image.File{{Path: "/usr/bin/coelan-ovn", Content: ovnEntry, Mode: 0o755}},
	}.Write(out)
}
