// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"encoding/json"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"coelan.io/coelan/internal/sandbox/machine"
	"coelan.io/coelan/internal/sandbox/pki"
)

func sandboxOf(family Family) *Sandbox {
	return newSandbox(Spec{Name: "t", Workers: 2, Family: family, CNI: Bridge, Datapath: userland}, io.Discard)
}

func TestAddresses(t *testing.T) {
	for family, want := range map[Family][]string{
		Dual: {"192.168.33.13", "fd00:192:168:33::13"},
		IPv4: {"192.168.33.13"},
		IPv6: {"fd00:192:168:33::13"},
	} {
		s := sandboxOf(family)
		if diff := cmp.Diff(want, texts(s.addresses("worker2"))); diff != "" {
			t.Errorf("%s: %s", family, diff)
		}
	}
	if got := sandboxOf(IPv6).apiServer(); got != "[fd00:192:168:33::11]:6443" {
		t.Errorf("endpoint %s", got)
	}
}

// Every value of a flag that differs between the families.
func TestComponentFlags(t *testing.T) {
	flags := func(c []machine.Component) map[string]string {
		values := map[string]string{}
		for _, component := range c {
			for _, arg := range component.Command {
				if name, value, ok := strings.Cut(strings.TrimPrefix(arg, "--"), "="); ok {
					values[component.Name+" "+name] = value
				}
			}
		}
		return values
	}
	for family, want := range map[Family]map[string]string{
		Dual: {
			"kube-apiserver bind-address":                      "::",
			"kube-apiserver advertise-address":                 "192.168.33.11",
			"kube-apiserver service-cluster-ip-range":          "10.96.0.0/16,fd00:10:96::/112",
			"kube-controller-manager cluster-cidr":             "10.244.0.0/16,fd00:10:244::/56",
			"kube-controller-manager node-cidr-mask-size":      "",
			"kube-controller-manager node-cidr-mask-size-ipv6": "64",
			"kubelet node-ip":                                  "192.168.33.11,fd00:192:168:33::11",
		},
		IPv4: {
			"kube-apiserver bind-address":                      "0.0.0.0",
			"kube-apiserver advertise-address":                 "192.168.33.11",
			"kube-apiserver service-cluster-ip-range":          "10.96.0.0/16",
			"kube-controller-manager cluster-cidr":             "10.244.0.0/16",
			"kube-controller-manager node-cidr-mask-size":      "24",
			"kube-controller-manager node-cidr-mask-size-ipv6": "",
			"kubelet node-ip":                                  "192.168.33.11",
		},
		IPv6: {
			"kube-apiserver bind-address":                      "::",
			"kube-apiserver advertise-address":                 "fd00:192:168:33::11",
			"kube-apiserver service-cluster-ip-range":          "fd00:10:96::/112",
			"kube-controller-manager cluster-cidr":             "fd00:10:244::/56",
			"kube-controller-manager node-cidr-mask-size":      "64",
			"kube-controller-manager node-cidr-mask-size-ipv6": "",
			"kubelet node-ip":                                  "fd00:192:168:33::11",
		},
	} {
		got := flags(sandboxOf(family).nodeMachine(ControlPlaneName).Components)
		for name, value := range want {
			if got[name] != value {
				t.Errorf("%s: %s is %q, want %q", family, name, got[name], value)
			}
		}
	}
}

// A component that waits for one that does not exist would wait forever.
func TestComponentsWaitForOthersOfTheirMachine(t *testing.T) {
	s, neutron := sandboxOf(Dual), sandboxOf(Dual)
	neutron.Backend, neutron.VMs = NeutronBackend, 1
	for _, c := range []machine.Config{
		s.fabricMachine(), s.nodeMachine("cp"), s.nodeMachine("worker1"), neutron.nodeMachine("cp"), neutron.nodeMachine("worker1"),
		neutron.nodeMachine("vm1"),
	} {
		var names []string
		for _, component := range c.Components {
			names = append(names, component.Name)
		}
		for _, component := range c.Components {
			for _, after := range component.After {
				if !slices.Contains(names, after) {
					t.Errorf("%s: %s waits for %s, which is not there", c.Name, component.Name, after)
				}
			}
		}
	}
}

func TestUplinkBridgeOnlyInUserspace(t *testing.T) {
	s := sandboxOf(Dual)
	if got := s.nodeMachine("cp").Uplink.Bridge; got != ovsBridge {
		t.Errorf("netdev: bridge %q", got)
	}
	// Tunnels of OVN have no agent that leads them.
	if s.nodeMachine("cp").Uplink.Tunnels {
		t.Error("the sandbox leads tunnels of the agent")
	}
	s.Backend = OVNBackend
	if !s.nodeMachine("cp").Uplink.Tunnels {
		t.Error("tunnels of OVN have no way")
	}
	s.Datapath = system
	if got := s.nodeMachine("cp").Uplink.Bridge; got != "" {
		t.Errorf("system: bridge %q", got)
	}
	if s.nodeMachine("cp").Uplink.Tunnels {
		t.Error("system: tunnels are the kernel's")
	}
}

// The manifest must hold objects that the API server would take, for each family.
func TestCoreDNSManifest(t *testing.T) {
	for family, ips := range map[Family][]string{
		Dual: {"10.96.0.10", "fd00:10:96::a"}, IPv4: {"10.96.0.10"}, IPv6: {"fd00:10:96::a"},
	} {
		text, err := sandboxOf(family).render("coredns.yaml", ControlPlaneName)
		if err != nil {
			t.Fatal(err)
		}
		for part := range strings.SplitSeq(text, "\n---\n") {
			object, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(part), nil, nil)
			if err != nil {
				t.Fatalf("%s: %v in\n%s", family, err, part)
			}
			if service, ok := object.(*corev1.Service); ok {
				if diff := cmp.Diff(ips, service.Spec.ClusterIPs); diff != "" {
					t.Errorf("%s: %s", family, diff)
				}
			}
		}
	}
}

func TestKubeletConfiguration(t *testing.T) {
	for node, tainted := range map[string]bool{"cp": true, "worker1": false} {
		text, err := sandboxOf(Dual).render("kubelet.yaml", node)
		if err != nil {
			t.Fatal(err)
		}
		var config struct {
			ClusterDNS         []string
			RegisterWithTaints []corev1.Taint
		}
		if err := yaml.Unmarshal([]byte(text), &config); err != nil {
			t.Fatal(err)
		}
		if got := len(config.RegisterWithTaints) > 0; got != tainted {
			t.Errorf("%s: tainted %t", node, got)
		}
		if diff := cmp.Diff([]string{"10.96.0.10"}, config.ClusterDNS); diff != "" {
			t.Error(diff)
		}
	}
}

func TestKubeconfig(t *testing.T) {
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(kubeconfig("https://192.0.2.1:6443", "x", []byte("ca"),
		pki.Pair{Cert: []byte("cert"), Key: []byte("key")})))
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != "https://192.0.2.1:6443" || string(config.CAData) != "ca" || string(config.KeyData) != "key" {
		t.Errorf("%+v", config)
	}
}

func TestBridgeConflist(t *testing.T) {
	text, err := bridgeConflist([]string{"10.244.1.0/24", "fd00:10:244:1::/64"})
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Plugins []struct {
			Type string
			IPAM struct {
				Ranges [][]struct{ Subnet string }
				Routes []struct{ Dst string }
			}
		}
	}
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	bridge := got.Plugins[0]
	var list []string
	for i := range bridge.IPAM.Ranges {
		list = append(list, bridge.IPAM.Ranges[i][0].Subnet, bridge.IPAM.Routes[i].Dst)
	}
	if diff := cmp.Diff([]string{"10.244.1.0/24", "0.0.0.0/0", "fd00:10:244:1::/64", "::/0"}, list); diff != "" {
		t.Error(diff)
	}
}

func TestPodRoutes(t *testing.T) {
	s := sandboxOf(Dual)
	nodes := map[string]*corev1.Node{}
	for i, name := range s.Nodes() {
		nodes[name] = &corev1.Node{Spec: corev1.NodeSpec{PodCIDRs: []string{
			netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(i), 0}), 24).String(),
		}}}
	}
	got, err := s.podRoutes("worker1", nodes)
	if err != nil {
		t.Fatal(err)
	}
	want := []machine.Route{
		{To: netip.MustParsePrefix("10.244.0.0/24"), Via: netip.MustParseAddr("192.168.33.11")},
		{To: netip.MustParsePrefix("10.244.2.0/24"), Via: netip.MustParseAddr("192.168.33.13")},
	}
	if !slices.Equal(want, got) {
		t.Errorf("routes %v, want %v", got, want)
	}
}

func TestControlPlanes(t *testing.T) {
	s := sandboxOf(Dual)
	s.ControlPlanes = 3
	if diff := cmp.Diff([]string{"cp", "cp2", "cp3", "worker1", "worker2"}, s.Nodes()); diff != "" {
		t.Errorf("nodes: %s", diff)
	}
	// Workers have the addresses that they have in every sandbox.
	for node, want := range map[string]string{
		"cp": "192.168.33.11", "cp2": "192.168.33.102", "cp3": "192.168.33.103", "worker1": "192.168.33.12",
	} {
		if got := s.addresses(node)[0].String(); got != want {
			t.Errorf("%s is %s, want %s", node, got, want)
		}
	}
	const members = "--initial-cluster=cp=https://192.168.33.11:2380,cp2=https://192.168.33.102:2380," +
		"cp3=https://192.168.33.103:2380"
	for _, node := range s.ControlPlaneNames() {
		args := map[string][]string{}
		for _, c := range s.nodeMachine(node).Components {
			args[c.Name] = c.Command
		}
		for component, want := range map[string]string{
			etcd: members, apiServer: "--advertise-address=" + s.addresses(node)[0].String(),
			controllerManager: "--leader-elect=true", scheduler: "--leader-elect=true",
		} {
			if !slices.Contains(args[component], want) {
				t.Errorf("%s: %s without %s: %v", node, component, want, args[component])
			}
		}
	}
	fabric := s.fabricMachine().Fabric
	want := []string{"192.168.33.11:6443", "192.168.33.102:6443", "192.168.33.103:6443"}
	if diff := cmp.Diff(want, texts(fabric.Servers)); diff != "" {
		t.Errorf("servers of the load balancer: %s", diff)
	}
	if diff := cmp.Diff([]string{"192.168.33.1:6443", "[fd00:192:168:33::1]:6443"}, texts(fabric.Balancers)); diff != "" {
		t.Errorf("addresses of the load balancer: %s", diff)
	}
	for name, one := range map[string]*Sandbox{"one control plane": sandboxOf(Dual)} {
		if got := one.fabricMachine().Fabric.Balancers; got != nil {
			t.Errorf("%s: a load balancer at %v", name, got)
		}
		if got := one.apiServer(); got != "192.168.33.11:6443" {
			t.Errorf("%s: nodes reach it at %s", name, got)
		}
	}
	if got := s.apiServer(); got != "api.test:6443" {
		t.Errorf("nodes reach API servers at %s", got)
	}
}

func TestVMs(t *testing.T) {
	s := sandboxOf(Dual)
	s.Backend, s.VMs, s.Zones = NeutronBackend, 3, 2
	if diff := cmp.Diff([]string{"cp", "worker1", "worker2", "vm1", "vm2", "vm3"}, s.Nodes()); diff != "" {
		t.Errorf("nodes: %s", diff)
	}
	for vm, want := range map[string][]string{
		"vm1": {"192.168.33.111", "fd00:192:168:33::111", "worker1", "zone1"},
		"vm2": {"192.168.33.112", "fd00:192:168:33::112", "worker2", "zone2"},
		"vm3": {"192.168.33.113", "fd00:192:168:33::113", "worker1", "zone1"},
	} {
		if diff := cmp.Diff(want, append(texts(s.addresses(vm)), s.hypervisor(vm), s.zone(vm))); diff != "" {
			t.Errorf("%s: %s", vm, diff)
		}
	}
	if diff := cmp.Diff([]string{"worker1", "cp", "vm2", "vm1", "vm3"}, s.withVMs([]string{"worker1", "cp", "vm2"})); diff != "" {
		t.Errorf("what goes off and on: %s", diff)
	}
}

// A machine of OpenStack has nothing of OVN: the agent makes its bridge, and OVN is below it.
func TestVMMachine(t *testing.T) {
	s := sandboxOf(Dual)
	s.Backend, s.VMs = NeutronBackend, 1
	const mappings = "external_ids:ovn-bridge-mappings=fabric:br-phy"
	for node, virtual := range map[string]bool{"cp": false, "worker1": false, "vm1": true} {
		c := s.nodeMachine(node)
		var words []string
		for _, component := range c.Components {
			words = append(words, component.Name)
			for _, command := range component.Before {
				words = append(words, command...)
			}
		}
		if c.Uplink.Virtual != virtual || (c.Uplink.Bridge == "") != virtual {
			t.Errorf("%s: uplink %+v", node, c.Uplink)
		}
		if slices.Contains(words, ovnController) == virtual || slices.Contains(words, mappings) == virtual {
			t.Errorf("%s: components %v", node, words)
		}
	}
}

// Neutron gives away no addresses of the nodes' networks but those of machines of OpenStack.
func TestSubnetOfVMs(t *testing.T) {
	var got []string
	for _, cidr := range of(Dual, nodeNets) {
		text, err := json.Marshal(subnetOfVMs(cidr))
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(text))
	}
	want := []string{
		`{"allocation_pools":[{"end":"192.168.33.120","start":"192.168.33.111"}],"enable_dhcp":false,` +
			`"gateway_ip":"192.168.33.1","ip_version":4}`,
		`{"allocation_pools":[{"end":"fd00:192:168:33::120","start":"fd00:192:168:33::111"}],"enable_dhcp":false,` +
			`"gateway_ip":"fd00:192:168:33::1","ip_version":6}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
