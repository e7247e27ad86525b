// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"fmt"
	"net/netip"
	"slices"

	"coelan.io/coelan/internal/sandbox/machine"
)

// The address plan. Sandboxes may all use the same: their fabrics are not connected.
const (
	fabricHost  = 1  // 192.168.33.1, fd00:192:168:33::1
	controlHost = 11 // 192.168.33.11, fd00:192:168:33::11; the workers follow
	// moreControlHosts is before the further control planes': cp2 is 192.168.33.102, cp3 .103.
	moreControlHosts = 100
	// vmHosts is before those of machines of OpenStack: vm1 is 192.168.33.111.
	vmHosts = 110
	dnsHost = 10 // 10.96.0.10, fd00:10:96::a

	apiPort = 6443
)

// families is a value of each family, as far as a cluster has them.
type families[T any] struct{ v4, v6 T }

var (
	nodeNets = families[netip.Prefix]{netip.MustParsePrefix("192.168.33.0/24"),
		netip.MustParsePrefix("fd00:192:168:33::/64")}
	podNets = families[netip.Prefix]{netip.MustParsePrefix("10.244.0.0/16"),
		netip.MustParsePrefix("fd00:10:244::/56")}
	serviceNets = families[netip.Prefix]{netip.MustParsePrefix("10.96.0.0/16"),
		netip.MustParsePrefix("fd00:10:96::/112")}
	// balancerNets are addresses of the nodes' networks for load balancers, which any node may
	// answer for.
	balancerNets = families[netip.Prefix]{netip.MustParsePrefix("192.168.33.192/26"),
		netip.MustParsePrefix("fd00:192:168:33::200/119")}
	// octaviaNets are the addresses of Octavia's load balancers, a subnet on the pods' router.
	octaviaNets = families[netip.Prefix]{netip.MustParsePrefix("10.97.0.0/24"),
		netip.MustParsePrefix("fd00:10:97::/64")}
	dnsServices = families[netip.Addr]{netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("fd00:10:96::a")}
	firstServes = families[netip.Addr]{netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("fd00:10:96::1")}
	// outside is beyond the gateway: addresses of documentation networks, where a web server and a
	// name server answer.
	outside = families[netip.Addr]{netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("2001:db8:cafe::1")}
)

// outsideName resolves to the outside addresses.
const outsideName = "outside.test"

// of lists the values of the families that the cluster has; the first is the primary family's.
func of[T any](f Family, values families[T]) []T {
	switch f {
	case IPv4:
		return []T{values.v4}
	case IPv6:
		return []T{values.v6}
	}
	return []T{values.v4, values.v6}
}

// host is the n-th address of the nodes' networks. The decimal digits of n are its last IPv6 group,
// so that the two addresses of a node look alike.
func host(n int) families[netip.Addr] {
	v4 := nodeNets.v4.Addr().As4()
	v4[3] = byte(n)
	return families[netip.Addr]{netip.AddrFrom4(v4), netip.MustParseAddr(fmt.Sprintf("%s%d", nodeNets.v6.Addr(), n))}
}

// hostPrefixes are the n-th addresses with the length of their network.
func hostPrefixes(f Family, n int) []netip.Prefix {
	a := host(n)
	return of(f, families[netip.Prefix]{
		netip.PrefixFrom(a.v4, nodeNets.v4.Bits()), netip.PrefixFrom(a.v6, nodeNets.v6.Bits()),
	})
}

// hostMAC is locally administered and tells its host's number.
func hostMAC(n int) machine.HardwareAddr {
	return machine.HardwareAddr{0x02, 0xc0, 0xe1, 0, 0, byte(n)}
}

// The names of the machines that every sandbox has.
const (
	FabricName       = "fabric"
	ControlPlaneName = "cp"
)

// Nodes are the machines that are nodes of the cluster, the control plane's first.
func (s Spec) Nodes() []string { return append(s.fabricNodes(), s.VMNames()...) }

// fabricNodes are the nodes that are plugged into the fabric, not into another node.
func (s Spec) fabricNodes() []string { return append(s.ControlPlaneNames(), s.WorkerNames()...) }

// ControlPlaneNames are the nodes that have an API server: cp, and cp2 and cp3 if there are three.
func (s Spec) ControlPlaneNames() []string {
	list := []string{ControlPlaneName}
	for i := 2; i <= s.ControlPlanes; i++ {
		list = append(list, fmt.Sprintf("%s%d", ControlPlaneName, i))
	}
	return list
}

// isControlPlane says whether a machine is one of ControlPlaneNames.
func (s Spec) isControlPlane(machine string) bool {
	return slices.Contains(s.ControlPlaneNames(), machine)
}

// WorkerNames are the nodes but for the control plane's: worker1, worker2 and so on.
func (s Spec) WorkerNames() []string {
	var list []string
	for i := range s.Workers {
		list = append(list, fmt.Sprintf("worker%d", i+1))
	}
	return list
}

// VMNames are the nodes that are machines of OpenStack: vm1, vm2 and so on.
func (s Spec) VMNames() []string {
	var list []string
	for i := range s.VMs {
		list = append(list, fmt.Sprintf("vm%d", i+1))
	}
	return list
}

// isVM says whether a machine is one of VMNames.
func (s Spec) isVM(machine string) bool { return slices.Contains(s.VMNames(), machine) }

// hypervisor is the worker that a machine of OpenStack runs on: they take turns.
func (s Spec) hypervisor(vm string) string {
	return s.WorkerNames()[slices.Index(s.VMNames(), vm)%s.Workers]
}

// vmsOn are the machines of OpenStack that run on any of the nodes.
func (s Spec) vmsOn(nodes ...string) []string {
	return slices.DeleteFunc(s.VMNames(), func(vm string) bool { return !slices.Contains(nodes, s.hypervisor(vm)) })
}

// Machines are the fabric and the nodes.
func (s Spec) Machines() []string { return append([]string{FabricName}, s.Nodes()...) }

// hostNumber is the place of a node in the nodes' networks. Workers have the same ones however many
// control planes there are.
func (s Spec) hostNumber(node string) int {
	if i := slices.Index(s.VMNames(), node); i >= 0 {
		return vmHosts + i + 1
	}
	if i := slices.Index(s.ControlPlaneNames(), node); i > 0 {
		return moreControlHosts + i + 1
	}
	return controlHost + 1 + slices.Index(s.WorkerNames(), node)
}

// apiEndpoint is where the API server of a control plane's node serves.
func (s Spec) apiEndpoint(node string) netip.AddrPort {
	return netip.AddrPortFrom(s.addresses(node)[0], apiPort)
}

// apiEndpoints are those of all.
func (s Spec) apiEndpoints() []netip.AddrPort {
	var list []netip.AddrPort
	for _, node := range s.ControlPlaneNames() {
		list = append(list, s.apiEndpoint(node))
	}
	return list
}

// balancerName is that of the load balancer before several API servers, which the fabric is, as
// clusters have one that are meant to outlive a control plane's node.
const balancerName = "api.test"

// balancers are the addresses of the load balancer; none if there is only one API server.
func (s Spec) balancers() []netip.AddrPort {
	if s.ControlPlanes < maxControlPlanes {
		return nil
	}
	var list []netip.AddrPort
	for _, a := range of(s.Family, host(fabricHost)) {
		list = append(list, netip.AddrPortFrom(a, apiPort))
	}
	return list
}

// apiServer is the address, HOST:PORT, by which nodes reach an API server.
func (s Spec) apiServer() string {
	if s.balancers() == nil {
		return s.apiEndpoint(ControlPlaneName).String()
	}
	return fmt.Sprintf("%s:%d", balancerName, apiPort)
}

// zone is the node's, zone1 and so on, if there are zones: the workers in turn, and the control
// planes. A machine of OpenStack is in that of its hypervisor.
func (s Spec) zone(node string) string {
	if s.Zones == 0 {
		return ""
	}
	if s.isVM(node) {
		node = s.hypervisor(node)
	}
	i := slices.Index(s.WorkerNames(), node)
	if i < 0 {
		i = slices.Index(s.ControlPlaneNames(), node)
	}
	return fmt.Sprintf("zone%d", i%s.Zones+1)
}

// addresses are a node's, the primary family's first.
func (s Spec) addresses(node string) []netip.Addr { return of(s.Family, host(s.hostNumber(node))) }
