// SPDX-License-Identifier: Apache-2.0

package artifact

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// Tool is a program that a sandbox runs and does not build, with its Debian package.
type Tool struct{ Program, Debian string }

// tools are those of every sandbox.
var tools = []Tool{
	{"containerd", "containerd"},
	{"ctr", "containerd"},
	{"runc", "runc"},
	{"ovsdb-server", "openvswitch-switch"},
	{"ovsdb-tool", "openvswitch-common"},
	{"ovs-vswitchd", "openvswitch-switch"},
	{"ovs-vsctl", "openvswitch-switch"},
	{"iptables", "iptables"},
	{"nft", "nftables"},
	{"nsenter", "util-linux"},
	{"mount", "mount"},
	{"cp", "coreutils"},
	{"mmdebstrap", "mmdebstrap"},
}

// CheckTools returns an error that names the missing programs of every sandbox and of more, the
// Debian packages that have them, and the target of Coelan's Makefile that installs all of these.
func CheckTools(target string, more ...Tool) error {
	if os.Geteuid() != 0 {
		return errors.New("a sandbox needs root: it makes namespaces, mounts and network interfaces")
	}
	return findTools(target, slices.Concat(tools, more))
}

func findTools(target string, tools []Tool) error {
	var missing, packages []string
	add := func(program, debian string) {
		missing = append(missing, program)
		if !slices.Contains(packages, debian) {
			packages = append(packages, debian)
		}
	}
	for _, t := range tools {
		if _, err := exec.LookPath(t.Program); err != nil {
			add(t.Program, t.Debian)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("missing programs: %s\ninstall them with `make %s`, or apt-get install --no-install-recommends %s",
			strings.Join(missing, ", "), target, strings.Join(packages, " "))
	}
	return nil
}
