// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"fmt"
	"strings"

	"coelan.io/coelan/internal/sandbox/machine"
)

// The components that others refer to by name.
const (
	etcd              = "etcd"
	apiServer         = "kube-apiserver"
	controllerManager = "kube-controller-manager"
	scheduler         = "kube-scheduler"
	kubelet           = "kubelet"
	kubeProxy         = "kube-proxy"
	containerd        = "containerd"
	ovsdbServer       = "ovsdb-server"
	ovsVswitchd       = "ovs-vswitchd"
	dnsServer         = "dns"
	webServer         = "web"
)

// Where a node's files are, inside the node.
const (
	kubeDir         = "/etc/kubernetes"
	pkiDir          = kubeDir + "/pki"
	containerdFile  = "/etc/containerd/config.toml"
	containerdSock  = "/run/containerd/containerd.sock"
	ovsDatabase     = "/etc/openvswitch/conf.db"
	ovsSocket       = "/run/openvswitch/db.sock"
	ovsSchema       = "/usr/share/openvswitch/vswitch.ovsschema"
	ovsBridge       = "br-phy"
	corefile        = "/etc/coredns/Corefile"
	adminKubeconfig = kubeDir + "/admin.conf"
)

// fabricMachine is the network between and outside the nodes.
func (s *Sandbox) fabricMachine() machine.Config {
	return machine.Config{
		Name:   FabricName,
		Cgroup: s.cgroup(FabricName),
		Fabric: &machine.Fabric{
			Addresses: hostPrefixes(s.Family, fabricHost),
			Outside:   of(s.Family, outside),
			Servers:   s.apiEndpoints(),
			Balancers: s.balancers(),
		},
		Components: []machine.Component{
			{Name: dnsServer, Command: []string{s.cache.Binary("coredns"), "-conf", corefile}},
			{Name: webServer, Command: []string{
				s.cache.Binary("agnhost"), "netexec", "--http-port=80", "--udp-port=80",
				// Else its answers would come from the address next to the client.
				"--udp-listen-addresses=" + joined(of(s.Family, outside)),
			}},
		},
	}
}

// nodeMachine is a node: its switch, its container runtime, and its part of Kubernetes.
func (s *Sandbox) nodeMachine(node string) machine.Config {
	n := s.hostNumber(node)
	c := machine.Config{
		Name:   node,
		Cgroup: s.cgroup(node),
		Uplink: &machine.Uplink{
			MAC:       hostMAC(n),
			Addresses: hostPrefixes(s.Family, n),
			Gateways:  of(s.Family, host(fabricHost)),
		},
	}
	switch {
	case s.isVM(node):
		c.Uplink.Virtual = true
	case s.Datapath == userland:
		c.Uplink.Bridge = ovsBridge
		c.Uplink.Tunnels = s.Backend.onOVN() // else the agent does it
	}
	if s.CNI == Bridge {
		c.Rules = s.masqueradeRules()
	}
	c.Components = s.ovsComponents(node)
	if s.Backend.onOVN() {
		if node == ControlPlaneName {
			c.Components = append(c.Components, s.ovnCentral()...)
			if s.Backend == NeutronBackend {
				c.Components = append(c.Components, s.neutronComponents()...)
				c.Components = append(c.Components, s.octaviaComponents()...)
			}
		}
		if !s.isVM(node) {
			c.Components = append(c.Components, ovnNode())
		}
	}
	c.Components = append(c.Components, machine.Component{
		Name: containerd, Command: []string{"containerd", "-c", containerdFile},
		Ready: machine.Probe{Socket: containerdSock},
	})
	if s.isControlPlane(node) {
		c.Components = append(c.Components, s.controlPlane(node)...)
	}
	c.Components = append(c.Components, s.nodeAgents(node)...)
	return c
}

// ovsComponents are Open vSwitch as its Debian unit files run it.
func (s Spec) ovsComponents(node string) []machine.Component {
	create := fmt.Sprintf("test -s %[1]s || { mkdir -p %[3]s && ovsdb-tool create %[1]s %[2]s; }",
		ovsDatabase, ovsSchema, "/etc/openvswitch")
	vswitchd := []string{
		ovsVswitchd, "unix:" + ovsSocket,
		"--pidfile=/run/openvswitch/ovs-vswitchd.pid", "-vconsole:info", "-vsyslog:off", "-vfile:off",
		// As docs/operate/install.md and backends.md say: with each change of a route of the node,
		// tunnels of the userspace datapath would lose packets.
		"--disable-system-route",
	}
	init := []string{
		"ovs-vsctl", "--timeout=10", "--no-wait", "init", "--", "set", "Open_vSwitch", ".",
		"external_ids:system-id=" + node, "external_ids:hostname=" + node,
	}
	return []machine.Component{
		{
			Name: ovsdbServer,
			Command: []string{
				"ovsdb-server", ovsDatabase, "--remote=punix:" + ovsSocket,
				"--remote=db:Open_vSwitch,Open_vSwitch,manager_options",
				"--pidfile=/run/openvswitch/ovsdb-server.pid", "-vconsole:info", "-vsyslog:off", "-vfile:off",
			},
			Before: [][]string{{"sh", "-c", create}},
			Ready:  machine.Probe{Socket: ovsSocket},
		},
		{
			Name: ovsVswitchd, Command: vswitchd, After: []string{ovsdbServer},
			Before: [][]string{append(init, s.chassis(node)...)},
			Ready:  machine.Probe{Socket: "/run/openvswitch/ovs-vswitchd.%d.ctl"},
			Uplink: true,
		},
	}
}

// nodeAgents are Kubernetes on every node. They start when the API server can be reached: their own
// retries would take up to half a minute to notice.
func (s *Sandbox) nodeAgents(node string) []machine.Component {
	api := s.apiServer()
	return []machine.Component{
		{
			Name: kubelet, After: []string{containerd, ovsVswitchd}, Reach: api,
			Command: []string{
				s.cache.Binary(kubelet), "--config=" + kubeDir + "/kubelet.yaml",
				"--kubeconfig=" + kubeDir + "/kubelet.conf", "--hostname-override=" + node,
				"--node-ip=" + joined(s.addresses(node)),
			},
			Ready: machine.Probe{URL: "http://127.0.0.1:10248/healthz"},
		},
		{
			Name: kubeProxy, After: []string{ovsVswitchd}, Reach: api, Off: s.Services == NativeServices,
			Command: []string{s.cache.Binary(kubeProxy), "--config=" + kubeDir + "/kube-proxy.yaml"},
			Ready:   machine.Probe{URL: "http://127.0.0.1:10256/healthz"},
		},
	}
}

func joined[T fmt.Stringer](list []T) string { return strings.Join(texts(list), ",") }
