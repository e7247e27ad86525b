// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"fmt"
	"net/netip"
	"strings"

	"coelan.io/coelan/internal/sandbox/artifact"
	"coelan.io/coelan/internal/sandbox/machine"
)

// Backend says what brings about what Coelan's objects ask for.
type Backend string

// The backends: each node's agent alone, by Open vSwitch; OVN, of which the control plane's first
// node has the databases; or OpenStack's Neutron on OVN, which is on the same node.
const (
	OVSBackend     Backend = "ovs"
	OVNBackend     Backend = "ovn"
	NeutronBackend Backend = "neutron"
)

// onOVN reports that OVN forwards the packets.
func (b Backend) onOVN() bool { return b == OVNBackend || b == NeutronBackend }

// The components of OVN that others refer to by name.
const (
	ovnNorthbound = "ovn-nb"
	ovnSouthbound = "ovn-sb"
	ovnNorthd     = "ovn-northd"
	ovnController = "ovn-controller"
)

const (
	ovnRunDir  = "/run/ovn"
	ovnDir     = "/etc/ovn"
	ovnSchemas = "/usr/share/ovn"
)

// The ports that OVN's databases have in OVN's own documentation.
const (
	northboundPort = 6641
	southboundPort = 6642
)

// ovnTools are the programs of OVN that a sandbox runs, with their Debian packages.
var ovnTools = []artifact.Tool{
	{Program: ovnNorthd, Debian: "ovn-central"}, {Program: ovnController, Debian: "ovn-host"},
}

// ovnRemote is where the nodes reach a database of OVN.
func (s Spec) ovnRemote(port uint16) string {
	return "tcp:" + netip.AddrPortFrom(s.addresses(ControlPlaneName)[0], port).String()
}

// ovnCentral are OVN's databases and ovn-northd.
func (s Spec) ovnCentral() []machine.Component {
	return []machine.Component{
		s.ovnDatabase(ovnNorthbound, "OVN_Northbound", "NB_Global", northboundPort),
		s.ovnDatabase(ovnSouthbound, "OVN_Southbound", "SB_Global", southboundPort),
		{
			Name: ovnNorthd, After: []string{ovnNorthbound, ovnSouthbound},
			Command: []string{
				ovnNorthd, "--ovnnb-db=unix:" + ovnSocket(ovnNorthbound), "--ovnsb-db=unix:" + ovnSocket(ovnSouthbound),
				"--pidfile=" + ovnRunDir + "/ovn-northd.pid", "-vconsole:info", "-vsyslog:off", "-vfile:off",
			},
			Ready: machine.Probe{Socket: ovnRunDir + "/ovn-northd.%d.ctl"},
		},
	}
}

// ovnDatabase is one of OVN's databases, as OVN's own start script runs it. The first one to write
// makes the one row of the global table, which clients wait for.
func (s Spec) ovnDatabase(name, schema, global string, port uint16) machine.Component {
	file := fmt.Sprintf("%s/%s_db.db", ovnDir, strings.ReplaceAll(name, "-", ""))
	create := fmt.Sprintf("test -s %[1]s || { mkdir -p %[2]s && ovsdb-tool create %[1]s %[3]s/%[4]s.ovsschema && "+
		`ovsdb-tool transact %[1]s '["%[5]s",{"op":"insert","table":"%[6]s","row":{}}]'; }`,
		file, ovnDir, ovnSchemas, name, schema, global)
	listen := netip.AddrPortFrom(s.addresses(ControlPlaneName)[0], port)
	return machine.Component{
		Name: name,
		Command: []string{
			"ovsdb-server", file, "--remote=punix:" + ovnSocket(name),
			fmt.Sprintf("--remote=ptcp:%d:%s", port, strings.TrimSuffix(listen.String(), fmt.Sprintf(":%d", port))),
			fmt.Sprintf("--pidfile=%s/%s.pid", ovnRunDir, name), fmt.Sprintf("--unixctl=%s/%s.ctl", ovnRunDir, name),
			"-vconsole:info", "-vsyslog:off", "-vfile:off",
		},
		// On the userspace datapath the node's address is Open vSwitch's to carry.
		After:  []string{ovsVswitchd},
		Before: [][]string{{"sh", "-c", "mkdir -p " + ovnRunDir}, {"sh", "-c", create}},
		Ready:  machine.Probe{Socket: ovnSocket(name)},
	}
}

func ovnSocket(name string) string {
	return ovnRunDir + "/" + strings.ReplaceAll(name, "-", "") + "_db.sock"
}

// ovnNode is ovn-controller, as its Debian unit file runs it.
func ovnNode() machine.Component {
	return machine.Component{
		Name: ovnController, After: []string{ovsVswitchd},
		Command: []string{
			ovnController, "unix:" + ovsSocket, "--pidfile=" + ovnRunDir + "/ovn-controller.pid",
			"-vconsole:info", "-vsyslog:off", "-vfile:off",
		},
		Before: [][]string{{"sh", "-c", "mkdir -p " + ovnRunDir}},
		Ready:  machine.Probe{Socket: ovnRunDir + "/ovn-controller.%d.ctl"},
	}
}

// tunnelMTU is how large packets of pods may be: those on the wires have 1500 bytes, of which OVN's
// Geneve takes 58, or 78 over IPv6.
func (s Spec) tunnelMTU() int {
	if s.Family == IPv6 {
		return 1500 - 78
	}
	return 1500 - 58
}

// chassis are the settings of a node that its ovn-controller reads.
func (s Spec) chassis(node string) []string {
	if !s.Backend.onOVN() || s.isVM(node) {
		return nil
	}
	settings := []string{
		"external_ids:ovn-remote=" + `"` + s.ovnRemote(southboundPort) + `"`,
		"external_ids:ovn-encap-type=geneve",
		"external_ids:ovn-encap-ip=" + `"` + s.addresses(node)[0].String() + `"`,
		"external_ids:ovn-bridge-datapath-type=" + s.Datapath,
		// Else an ovn-controller that starts deletes the flows that are there before it has others.
		"external_ids:ovn-ofctrl-wait-before-clear=3000",
	}
	if s.Backend == NeutronBackend && s.Datapath == userland {
		settings = append(settings, "external_ids:ovn-bridge-mappings="+bridgeMappings)
	}
	return settings
}
