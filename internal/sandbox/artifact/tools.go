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

// tools are the programs that a sandbox runs and does not build, with the Debian package of each.
var tools = []struct{ program, debian string }{
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

// CheckTools returns an error that names the missing programs and the Debian
// packages that have them.
func CheckTools() error {
	if os.Geteuid() != 0 {
		return errors.New("a sandbox needs root: it makes namespaces, mounts and network interfaces")
	}
	var missing, packages []string
	add := func(program, debian string) {
		missing = append(missing, program)
		if !slices.Contains(packages, debian) {
			packages = append(packages, debian)
		}
	}
	for _, t := range tools {
		if _, err := exec.LookPath(t.program); err != nil {
			add(t.program, t.debian)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("missing programs: %s\ninstall them with: apt-get install %s",
			strings.Join(missing, ", "), strings.Join(packages, " "))
	}
	return nil
}
