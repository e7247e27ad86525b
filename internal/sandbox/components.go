// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"fmt"
	"strings"

	"coelan.io/coelan/internal/sandbox/machine"
)

// The components whose names others use.
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
			Forward:   s.apiEndpoint(),
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
	if s.Datapath == userland {
		c.Uplink.Bridge = ovsBridge
	}
	if s.CNI == Bridge {
		c.Rules = s.masqueradeRules()
	}
	c.Components = ovsComponents(node)
	c.Components = append(c.Components, machine.Component{
		Name: containerd, Command: []string{"containerd", "-c", containerdFile},
		Ready: machine.Probe{Socket: containerdSock},
	})
	if node == ControlPlaneName {
		c.Components = append(c.Components, s.controlPlane()...)
	}
	c.Components = append(c.Components, s.nodeAgents(node)...)
	return c
}

// ovsComponents are Open vSwitch as its Debian unit files run it.
func ovsComponents(node string) []machine.Component {
	create := fmt.Sprintf("test -s %[1]s || { mkdir -p %[3]s && ovsdb-tool create %[1]s %[2]s; }",
		ovsDatabase, ovsSchema, "/etc/openvswitch")
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
			Name: ovsVswitchd,
			Command: []string{
				"ovs-vswitchd", "unix:" + ovsSocket,
				"--pidfile=/run/openvswitch/ovs-vswitchd.pid", "-vconsole:info", "-vsyslog:off", "-vfile:off",
			},
			After: []string{ovsdbServer},
			Before: [][]string{{
				"ovs-vsctl", "--timeout=10", "--no-wait", "init", "--", "set", "Open_vSwitch", ".",
				"external_ids:system-id=" + node, "external_ids:hostname=" + node,
			}},
			Ready:  machine.Probe{Socket: "/run/openvswitch/ovs-vswitchd.%d.ctl"},
			Uplink: true,
		},
	}
}

// controlPlane are the components that only the first node has.
func (s *Sandbox) controlPlane() []machine.Component {
	return []machine.Component{
		{
			Name: etcd,
			Command: []string{
				s.cache.Binary("etcd"), "--name=" + ControlPlaneName, "--data-dir=/var/lib/etcd",
				"--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379",
				"--listen-peer-urls=http://127.0.0.1:2380", "--initial-advertise-peer-urls=http://127.0.0.1:2380",
				"--initial-cluster=" + ControlPlaneName + "=http://127.0.0.1:2380",
				// A node's power cut is the end of its processes; what they wrote stays in the kernel.
				"--unsafe-no-fsync", "--log-level=warn",
			},
			Ready: machine.Probe{URL: "http://127.0.0.1:2379/health"},
		},
		{
			Name: apiServer, Command: s.apiServerCommand(), After: []string{etcd, ovsVswitchd},
			Ready: machine.Probe{URL: "https://127.0.0.1:6443/readyz"},
		},
		{
			Name: controllerManager, Command: s.controllerManagerCommand(), After: []string{apiServer},
			Ready: machine.Probe{URL: "https://127.0.0.1:10257/healthz"},
		},
		{
			Name: scheduler, After: []string{apiServer},
			Command: []string{
				s.cache.Binary(scheduler), "--kubeconfig=" + kubeDir + "/scheduler.conf",
				"--authentication-kubeconfig=" + kubeDir + "/scheduler.conf",
				"--authorization-kubeconfig=" + kubeDir + "/scheduler.conf",
				"--bind-address=127.0.0.1", "--leader-elect=false", "--kube-api-qps=500", "--kube-api-burst=1000",
			},
			Ready: machine.Probe{URL: "https://127.0.0.1:10259/healthz"},
		},
	}
}

func (s *Sandbox) apiServerCommand() []string {
	any := "0.0.0.0"
	if s.Family != IPv4 {
		any = "::"
	}
	return []string{
		s.cache.Binary(apiServer),
		"--advertise-address=" + s.apiEndpoint().Addr().String(), "--bind-address=" + any,
		fmt.Sprintf("--secure-port=%d", apiPort),
		"--etcd-servers=http://127.0.0.1:2379",
		"--service-cluster-ip-range=" + joined(of(s.Family, serviceNets)),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
		"--client-ca-file=" + pkiDir + "/ca.crt",
		"--tls-cert-file=" + pkiDir + "/apiserver.crt", "--tls-private-key-file=" + pkiDir + "/apiserver.key",
		"--kubelet-certificate-authority=" + pkiDir + "/ca.crt",
		"--kubelet-client-certificate=" + pkiDir + "/apiserver-kubelet-client.crt",
		"--kubelet-client-key=" + pkiDir + "/apiserver-kubelet-client.key",
		"--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + pkiDir + "/sa.pub", "--service-account-signing-key-file=" + pkiDir + "/sa.key",
		"--requestheader-client-ca-file=" + pkiDir + "/front-proxy-ca.crt",
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-username-headers=X-Remote-User",
		"--proxy-client-cert-file=" + pkiDir + "/front-proxy-client.crt",
		"--proxy-client-key-file=" + pkiDir + "/front-proxy-client.key",
		"--profiling=false",
	}
}

func (s *Sandbox) controllerManagerCommand() []string {
	conf := kubeDir + "/controller-manager.conf"
	args := []string{
		s.cache.Binary(controllerManager),
		"--kubeconfig=" + conf, "--authentication-kubeconfig=" + conf, "--authorization-kubeconfig=" + conf,
		"--bind-address=127.0.0.1", "--leader-elect=false", "--use-service-account-credentials=true",
		"--root-ca-file=" + pkiDir + "/ca.crt", "--service-account-private-key-file=" + pkiDir + "/sa.key",
		"--cluster-signing-cert-file=" + pkiDir + "/ca.crt", "--cluster-signing-key-file=" + pkiDir + "/ca.key",
		"--allocate-node-cidrs=true", "--cluster-cidr=" + joined(of(s.Family, podNets)),
		"--service-cluster-ip-range=" + joined(of(s.Family, serviceNets)),
		"--kube-api-qps=500", "--kube-api-burst=1000", "--concurrent-replicaset-syncs=20",
		// With the usual 50 s, an API server that is away for 30 s makes nodes NotReady, and Services lose their endpoints: kubelets
		// renew leases every 10 s, and watches wait for up to a minute before they try again.
		"--node-monitor-grace-period=2m",
	}
	switch s.Family {
	case IPv4:
		return append(args, "--node-cidr-mask-size=24")
	case IPv6:
		return append(args, "--node-cidr-mask-size=64")
	}
	return append(args, "--node-cidr-mask-size-ipv4=24", "--node-cidr-mask-size-ipv6=64")
}

// nodeAgents are Kubernetes on every node. They start when the API server can be reached: their own retries would
// take up to half a minute to notice.
func (s *Sandbox) nodeAgents(node string) []machine.Component {
	api := s.apiEndpoint().String()
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
