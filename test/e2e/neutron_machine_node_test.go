// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/internal/sandbox"
)

// machineNode is a node that is a machine of OpenStack on worker1.
const machineNode = "vm1"

// machinePods are on it: two web servers, of which the first has a Service, and one of a tenant.
var machinePods = []string{"machine1", "machine2", "red/machine1"}

const machineService = `
apiVersion: v1
kind: Service
metadata: {name: machine1, namespace: e2e}
spec:
  ipFamilyPolicy: RequireDualStack
  selector: {server: machine1}
  ports: [{port: 80, targetPort: 8080}]
`

// testMachineNode adds a node that is a machine of OpenStack to the cluster. Its pods and it itself
// are like those of other nodes, whatever becomes of agent, machine and hypervisor. The machine
// stays: sandboxes do not have fewer.
func testMachineNode(t *testing.T) {
	ctx := within(t, 15*time.Minute)
	t.Run("added", func(t *testing.T) {
		tr := startTraffic(ctx, t, podRoutes(ctx, t)...)
		var err error
		if world.Sandbox, err = sandbox.Up(ctx, sandbox.Spec{Name: world.Name, VMs: 1}, sandbox.Install{}, os.Stderr); err != nil {
			t.Fatal(err)
		}
		undisturbed(t, tr, ovsGap)
	})
	if t.Failed() {
		return
	}
	apply(ctx, t, machineService)
	for _, key := range machinePods {
		p := webServer(key, machineNode)
		p.Labels["server"] = p.Name
		makePod(ctx, t, p)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		remove(ctx, t, "-n", namespace, "service", "machine1")
		removePods(ctx, t, "machine1", "machine2")
		removePods(ctx, t, "red/machine1")
	})
	if err := world.waitReady(ctx, machinePods...); err != nil {
		t.Fatal(err)
	}
	inOrder(t, []step{
		{"reach", testMachineReach},
		{"kubectl", testMachineKubectl},
		{"trunk", testMachineTrunk},
		{"load balancer", testMachineBalancer},
		{"policy", testMachinePolicy},
		{"agent killed", testMachineAgent},
		{"Open vSwitch of the machine killed", func(t *testing.T) { killSwitch(t, machineNode, ovsGap) }},
		{"Open vSwitch of the hypervisor killed", func(t *testing.T) { killSwitch(t, worker1, hypervisorGap) }},
		{"machine rebooted", func(t *testing.T) { rebootMachine(t, machineNode) }},
		{"hypervisor's power cut", func(t *testing.T) { rebootMachine(t, worker1) }},
	})
}

// machineWays are those to and from the machine and its pods.
func machineWays(ctx context.Context, t *testing.T, f family) []way {
	t.Helper()
	one, two := world.pod(ctx, t, "machine1"), world.pod(ctx, t, "machine2")
	below, other := world.pod(ctx, t, "web1"), world.pod(ctx, t, "web2")
	host1, fabric := world.pod(ctx, t, "host1"), world.machine(ctx, t, "fabric")
	node, worker := world.machine(ctx, t, machineNode), world.machine(ctx, t, worker2)
	tenant, red := world.tenant(ctx, t, "red/machine1"), world.tenant(ctx, t, "red/web2")
	port := func(p place, number uint16) netip.AddrPort { return netip.AddrPortFrom(p.address(f), number) }
	service := func(name string) netip.AddrPort {
		return netip.AddrPortFrom(world.serviceAddress(ctx, t, name, f), 80)
	}
	list := []way{
		{name: "pod to pod, on the machine", from: one, server: port(two, webPort), seen: one.address(f)},
		{name: "pod to pod on the hypervisor", from: one, server: port(below, webPort), seen: one.address(f)},
		{name: "pod to pod on another node", from: one, server: port(other, webPort), seen: one.address(f)},
		{name: "pod of the hypervisor to pod", from: below, server: port(one, webPort), seen: below.address(f)},
		{name: "pod of another node to pod", from: other, server: port(one, webPort), seen: other.address(f)},
		{name: "machine to its pod", from: node, server: port(one, webPort), seen: world.nodeAmongPods(ctx, t, machineNode, f)},
		{name: "machine to pod on another node", from: node, server: port(other, webPort), seen: world.nodeAmongPods(ctx, t, machineNode, f)},
		{name: "another node to pod", from: worker, server: port(one, webPort), seen: world.nodeAmongPods(ctx, t, worker2, f)},
		{name: "pod to another node", from: one, server: port(host1, 8082), seen: node.address(f)},
		{name: "pod to the outside", from: one, server: netip.AddrPortFrom(outside(f), 80), seen: node.address(f)},
		{name: "pod to Service, endpoint on the hypervisor", from: one, server: service("web1"), seen: one.address(f)},
		{name: "pod to Service, endpoint on another node", from: one, server: service("web2"), seen: one.address(f)},
		{name: "pod to Service of its own", from: one, server: service("machine1")},
		{name: "machine to Service", from: node, server: service("web2")},
		{name: "pod of the hypervisor to Service, endpoint on the machine", from: below, server: service("machine1"), seen: below.address(f)},
		{name: "pod of another node to Service, endpoint on the machine", from: other, server: service("machine1"), seen: other.address(f)},
		{name: "another node to Service, endpoint on the machine", from: worker, server: service("machine1")},
		{name: "NodePort of the machine, from another node", from: worker, server: port(node, 30080)},
		{name: "NodePort of the machine, from the outside", from: fabric, server: port(node, 30080)},
		{name: "tenant's pod to pod on another node", from: tenant, server: port(red, webPort), seen: tenant.address(f)},
		{name: "tenant's pod on another node to pod", from: red, server: port(tenant, webPort), seen: red.address(f)},
	}
	for i := range list {
		list[i].service = true // nothing tells when the router leads to the machine
	}
	return list
}

func testMachineReach(t *testing.T) { checkWays(t, machineWays) }

// testMachineKubectl uses what goes from the API server to the machine's kubelet.
func testMachineKubectl(t *testing.T) {
	ctx := within(t, time.Minute)
	out, err := world.Kubectl(ctx, "-n", namespace, "exec", "machine1", "--", "hostname")
	if err != nil || strings.TrimSpace(string(out)) != "machine1" {
		t.Errorf("exec: %q, %v", out, err)
	}
	world.healthy(ctx, t)
}

// testMachineTrunk has all pods' ports be on the trunk.
func testMachineTrunk(t *testing.T) {
	ctx := within(t, time.Minute)
	ports, err := openStackPorts(ctx)
	if err != nil {
		t.Fatal(err)
	}
	owners := map[netip.Addr]string{}
	for _, p := range ports {
		for _, fixed := range p.Listed {
			owners[fixed.Address] = p.Owner
		}
	}
	for _, key := range machinePods {
		for _, a := range world.tenant(ctx, t, key).addresses {
			if owners[a] != "trunk:subport" {
				t.Errorf("the port with %s of pod %s is %q", a, key, owners[a])
			}
		}
	}
}

// testMachineBalancer has the machine be the only node that answers for addresses of load
// balancers.
func testMachineBalancer(t *testing.T) {
	ctx := within(t, 2*time.Minute)
	apply(ctx, t, `
apiVersion: coelan.io/v1alpha1
kind: LoadBalancerPool
metadata: {name: machine}
spec:
  addresses: [192.168.33.220-192.168.33.223, "fd00:192:168:33::220-fd00:192:168:33::223"]
  nodeSelector: {matchLabels: {kubernetes.io/hostname: vm1}}
---
apiVersion: v1
kind: Service
metadata: {name: balanced, namespace: e2e}
spec:
  type: LoadBalancer
  ipFamilyPolicy: RequireDualStack
  selector: {server: web2}
  ports: [{port: 80, targetPort: 8080}]
`)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		remove(ctx, t, "-n", namespace, "service", "balanced")
		remove(ctx, t, "loadbalancerpools.coelan.io", "machine")
	})
	var at []netip.Addr
	if err := eventually(ctx, func() error {
		s, err := world.api.CoreV1().Services(namespace).Get(ctx, "balanced", metav1.GetOptions{})
		if err != nil {
			return err
		}
		at = nil
		for _, ingress := range s.Status.LoadBalancer.Ingress {
			at = append(at, netip.MustParseAddr(ingress.IP))
		}
		if len(at) < len(families) {
			return fmt.Errorf("Service balanced has the addresses %v", at)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, a := range at {
		for _, from := range []place{world.machine(ctx, t, "fabric"), world.machine(ctx, t, control)} {
			way{from: from, server: netip.AddrPortFrom(a, 80), service: true}.check(ctx, t)
		}
	}
}

// testMachinePolicy isolates a pod of the machine, lets one client in, and lets all in again.
func testMachinePolicy(t *testing.T) {
	ctx := within(t, 3*time.Minute)
	reaches := func(client string, open bool) {
		t.Helper()
		if err := eventually(ctx, func() error {
			err := ask(ctx, t, client, "machine1")
			if !open && err == nil {
				return fmt.Errorf("%s reaches machine1", client)
			}
			if !open {
				return nil
			}
			return err
		}); err != nil {
			t.Error(err)
		}
	}
	apply(ctx, t, `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: machine, namespace: e2e}
spec:
  podSelector: {matchLabels: {server: machine1}}
  policyTypes: [Ingress]
  ingress:
    - from: [{podSelector: {matchLabels: {server: client2}}}]
      ports: [{port: 8080}]
`)
	t.Cleanup(func() { remove(context.WithoutCancel(ctx), t, "-n", namespace, "networkpolicy", "machine") })
	for _, client := range []string{"client1", "machine2", "web2"} {
		reaches(client, false)
	}
	reaches("client2", true)
	// Its own node's processes reach it, as kubelet's probes do.
	pod, node := world.pod(ctx, t, "machine1"), world.machine(ctx, t, machineNode)
	for _, f := range families {
		if _, err := get(ctx, node, netip.AddrPortFrom(pod.address(f), webPort), "/hostname"); err != nil {
			t.Errorf("the machine to its own pod: %v", err)
		}
	}
	remove(ctx, t, "-n", namespace, "networkpolicy", "machine")
	for _, client := range []string{"client1", "machine2", "web2"} {
		reaches(client, true)
	}
}

// machineRoutes are ways of traffic from the machine's pods.
func machineRoutes(ctx context.Context, t *testing.T) []route {
	t.Helper()
	one, two := world.pod(ctx, t, "machine1"), world.pod(ctx, t, "machine2")
	return []route{
		{way: sameNode, from: one, to: two},
		{way: otherNode, from: one, to: world.pod(ctx, t, "web2")},
		{way: "to the hypervisor", from: one, to: world.pod(ctx, t, "web1")},
		{way: toService, from: one, to: world.pod(ctx, t, "client2"), service: "probe"},
		{way: toOutside, from: one, to: world.machine(ctx, t, "fabric")},
		{way: "machine to its pod", from: world.machine(ctx, t, machineNode), to: two},
	}
}

// hypervisorGap is the longest interruption by a restart of Open vSwitch on the hypervisor, where
// ovn-controller waits for 3 s before it writes flows (ovn-ofctrl-wait-before-clear).
const hypervisorGap = ovsGap + 3*time.Second

// killSwitch kills Open vSwitch of the machine, or that which its wire ends in.
func killSwitch(t *testing.T, node string, gap time.Duration) {
	ctx := within(t, 3*time.Minute)
	tr := startTraffic(ctx, t, machineRoutes(ctx, t)...)
	if err := world.Restart(ctx, node, sandbox.OVS, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	tr.settle(ctx, t)
	allow(t, tr.stop(t), gap)
	world.healthy(ctx, t)
}

// testMachineAgent kills the machine's agent, which its pods do not notice.
func testMachineAgent(t *testing.T) {
	ctx := within(t, 3*time.Minute)
	tr := startTraffic(ctx, t, machineRoutes(ctx, t)...)
	if err := world.Restart(ctx, machineNode, sandbox.Agent, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	tr.settle(ctx, t)
	allow(t, tr.stop(t), 0)
	world.healthy(ctx, t)
}

// rebootMachine cuts the power of the machine, or of its hypervisor and so of both. Pods of others
// do not notice, and afterwards all is as before.
func rebootMachine(t *testing.T, node string) {
	ctx := within(t, 5*time.Minute)
	keys := machinePods
	if node == worker1 {
		keys = append([]string{"client1", "web1", "host1"}, keys...)
	}
	before := map[string]string{}
	for _, key := range keys {
		before[key] = containerID(world.placed(ctx, t, key))
	}
	tr := startTraffic(ctx, t,
		route{way: sameNode, from: world.pod(ctx, t, "client2"), to: world.pod(ctx, t, "web2")},
		route{way: toOutside, from: world.pod(ctx, t, "client2"), to: world.machine(ctx, t, "fabric")},
	)
	began := time.Now()
	if err := world.Restart(ctx, node, sandbox.Node, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		if _, err := world.waitPod(ctx, key, func(p *corev1.Pod) bool { return ready(p) && containerID(p) != before[key] }); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("all pods are ready %.1f s after the power cut", time.Since(began).Seconds())
	undisturbed(t, tr, ovsGap)
	testMachineReach(t)
	testMachineTrunk(t)
	world.healthy(ctx, t)
}
