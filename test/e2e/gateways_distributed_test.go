// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"coelan.io/coelan/api/v1alpha1"
)

// leavers are pods of two tenants, which leave by gateways of which each node has addresses.
type leavers struct {
	red, blue           *gateway
	red1, web1, web2    place // of red, the last one on worker2
	shop1, shop2, plain place // of blue on each worker, and of no tenant on worker1
	fabric              place
}

// testDistributedGateways has each node translate what its own Ports send.
func testDistributedGateways(t *testing.T) {
	ctx := within(t, 10*time.Minute)
	w := &leavers{
		red1: world.tenant(ctx, t, "red/client1"), web1: world.tenant(ctx, t, "red/web1"), web2: world.tenant(ctx, t, "red/web2"),
		shop1: world.tenant(ctx, t, "blue/shop1"), shop2: world.tenant(ctx, t, "blue/shop2"), plain: world.pod(ctx, t, "client1"),
		fabric: world.machine(ctx, t, "fabric"),
	}
	w.red, w.blue = openGateway(ctx, t, "red", `"network": "office"`), openGateway(ctx, t, "blue", `"network": "office"`)
	w.red.onNodes(ctx, t, worker1, worker2)
	w.blue.onNodes(ctx, t, worker1, worker2)
	inOrder(t, []step{
		{"out", w.out},
		{"virtual machine", w.virtualMachine},
		{"in the cluster", w.inCluster},
		{"floating IPs", w.floatingIPs},
		{"policies", w.policies},
		{"selected nodes", w.selectedNodes},
		{"drained", w.drained},
		{"restarts", w.restarts},
		{"Open vSwitch", w.openVSwitch},
		{"removed", w.removed},
	})
}

// out has pods of each tenant on each node leave by the node's own address, one of the tenant's.
func (w *leavers) out(t *testing.T) {
	ctx := within(t, 2*time.Minute)
	heard := officeWire(t)
	for _, pod := range []struct {
		from place
		by   *gateway
		node string
	}{
		{w.red1, w.red, worker1}, {w.web1, w.red, worker1}, {w.web2, w.red, worker2},
		{w.shop1, w.blue, worker1}, {w.shop2, w.blue, worker2},
	} {
		leaves(ctx, t, pod.from, pod.by.addresses[pod.node])
	}
	leaves(ctx, t, w.plain, ofNode(ctx, t, worker1))
	all := slices.SortedFunc(slices.Values(slices.Concat(w.red.all(), w.blue.all())), netip.Addr.Compare)
	if len(slices.Compact(slices.Clone(all))) != len(all) {
		t.Errorf("an address is of two gateways: %v", all)
	}
	onlyKnown(t, heard, all...)
}

// virtualMachine boots one on a Network of red's Router, on worker2. It has no address in the
// cluster, so no node could masquerade it: only a gateway on its node lets it out.
func (w *leavers) virtualMachine(t *testing.T) {
	ctx := within(t, 3*time.Minute)
	apply(ctx, t, guests)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		remove(ctx, t, "-n", "red", "ports.coelan.io", "guest")
		remove(ctx, t, "vnet", "guests")
	})
	port := named(&v1alpha1.Port{}, "red/guest")
	if err := wait(ctx, port, portIn(v1alpha1.PortReady)); err != nil {
		t.Fatal(err)
	}
	m := bootGuest(ctx, t, worker2, port, guestAddresses, guestGateways...)
	if err := wait(ctx, port, portIn(v1alpha1.PortBound)); err != nil {
		t.Fatal(err)
	}
	seen := func(f family) (netip.Addr, error) {
		out, err := m.Run(ctx, fmt.Sprintf("timeout 1 wget -q -O - http://%s/clientip", netip.AddrPortFrom(outside(f), 80)))
		if err != nil {
			return netip.Addr{}, fmt.Errorf("%w: %s", err, out)
		}
		at, err := netip.ParseAddrPort(strings.TrimSpace(out))
		return at.Addr().Unmap(), err
	}
	leavesBy := func() {
		for _, f := range families {
			want := w.red.addresses[worker2][f]
			if err := eventually(ctx, func() error {
				got, err := seen(f)
				if err == nil && got != want {
					err = fmt.Errorf("as %s, want %s", got, want)
				}
				return err
			}); err != nil {
				t.Errorf("the outside sees the guest: %v", err)
			}
		}
	}
	leavesBy()
	w.red.change(ctx, t, onlyWorker1)
	w.red.onNodes(ctx, t, worker1)
	for _, f := range families {
		if err := eventually(ctx, func() error {
			if got, err := seen(f); err == nil {
				return fmt.Errorf("the guest leaves as %s, want not at all", got)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
	w.red.change(ctx, t, allNodes)
	w.red.onNodes(ctx, t, worker1, worker2)
	leavesBy()
}

// inCluster has pods and nodes see a tenant's pods as without a gateway, and clients of Services
// get their answers.
func (w *leavers) inCluster(t *testing.T) {
	ctx := within(t, time.Minute)
	door := of(dualService("door", "web"), nodePort)
	door.Namespace = "red"
	door = makeService(ctx, t, door)
	host, cluster := world.pod(ctx, t, "host1"), world.pod(ctx, t, "red/client1")
	for _, f := range families {
		service := func(key string) netip.AddrPort { return netip.AddrPortFrom(world.serviceAddress(ctx, t, key, f), 80) }
		for _, c := range []way{
			{name: "own pod on another node", from: w.red1, server: netip.AddrPortFrom(w.web2.address(f), webPort), seen: w.red1.address(f)},
			{name: "own node", from: w.red1, server: netip.AddrPortFrom(host.address(f), 8082), seen: cluster.address(f)},
			{name: "own Service", from: w.red1, server: service("red/web"), seen: cluster.address(f), service: true},
			{name: "Service of all, same node", from: w.red1, server: service("web1"), service: true},
			{name: "Service of all, other node", from: w.red1, server: service("web2"), service: true},
			{name: "node port from outside", from: w.fabric, service: true,
				server: netip.AddrPortFrom(world.nodeAddress(ctx, t, worker1, f), uint16(door.Spec.Ports[0].NodePort))},
		} {
			t.Run(string(f)+" "+c.name, func(t *testing.T) { c.check(ctx, t) })
		}
	}
}

// floatingIPs come first; and others' are reached from the gateway's address.
func (w *leavers) floatingIPs(t *testing.T) {
	ctx := within(t, time.Minute)
	t.Run("own", func(t *testing.T) {
		own := floatingPair(ctx, t, "red/own", "web1.eth0")
		leaves(ctx, t, w.web1, own.addresses)
		leaves(ctx, t, w.red1, w.red.addresses[worker1])
		for _, f := range families {
			own.answers(ctx, t, f, "web1")
			way{from: w.red1, server: netip.AddrPortFrom(own.addresses[f], webPort), seen: w.red.addresses[worker1][f]}.check(ctx, t)
			way{from: w.shop2, server: netip.AddrPortFrom(own.addresses[f], webPort), seen: w.blue.addresses[worker2][f]}.check(ctx, t)
		}
	})
	leaves(ctx, t, w.web1, w.red.addresses[worker1])
}

// policies judge what leaves as the pod wrote it; and those of what has a floating IP, by the
// gateway's address.
func (w *leavers) policies(t *testing.T) {
	ctx := within(t, time.Minute)
	web := floatingPair(ctx, t, "web", "web2.eth0")
	blocks := func(addresses func(family) netip.Addr) string {
		return fmt.Sprintf("[{ipBlock: {cidr: %s/32}}, {ipBlock: {cidr: '%s/128'}}]", addresses(ipv4), addresses(ipv6))
	}
	// In red's Network only client1 has no label.
	policyIn(ctx, t, "red", "leaver", "podSelector: {matchExpressions: [{key: app, operator: DoesNotExist}]}, policyTypes: [Egress], egress: "+
		"[{to: "+blocks(outside)+"}, {to: "+blocks(func(f family) netip.Addr { return web.addresses[f] })+"}]")
	policyIn(ctx, t, namespace, "floating", "podSelector: {matchLabels: {server: web2}}, policyTypes: [Ingress], ingress: "+
		"[{from: "+blocks(func(f family) netip.Addr { return w.red.addresses[worker1][f] })+"}]")
	judge(ctx, t, func(f family) []try {
		beyond := question{corev1.ProtocolTCP, netip.AddrPortFrom(outside(f), 80)}
		segment := question{corev1.ProtocolTCP, netip.AddrPortFrom(officeGateway[f].Addr(), 80)}
		floating := question{corev1.ProtocolTCP, netip.AddrPortFrom(web.addresses[f], webPort)}
		return []try{
			{w.red1, beyond, true}, {w.red1, segment, false}, {w.web1, segment, true},
			{w.red1, floating, true}, {w.shop1, floating, false}, {w.fabric, floating, false},
		}
	})
}

// Values of the gateway's nodes.
const (
	onlyWorker1 = `"nodes": {"matchLabels": {"kubernetes.io/hostname": "` + worker1 + `"}}`
	allNodes    = `"nodes": null`
)

// selectedNodes leaves a node without addresses: its Ports leave as without a gateway.
func (w *leavers) selectedNodes(t *testing.T) {
	ctx := within(t, time.Minute)
	before := w.red.addresses[worker1]
	w.red.change(ctx, t, onlyWorker1)
	w.red.onNodes(ctx, t, worker1)
	leaves(ctx, t, w.web2, ofNode(ctx, t, worker2))
	leaves(ctx, t, w.red1, before)
	w.red.change(ctx, t, allNodes)
	w.red.onNodes(ctx, t, worker1, worker2)
	leaves(ctx, t, w.web2, w.red.addresses[worker2])
}

// moving is a pod of red that starts anew elsewhere when its node is drained.
const moving = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: moving, namespace: red}
spec:
  selector: {matchLabels: {app: moving}}
  template:
    metadata: {labels: {app: moving}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: agnhost, image: "registry.k8s.io/e2e-test-images/agnhost:2.56", args: [pause]}]
`

// drained has a pod leave a node that is drained. What stays on that node, and its gateway's
// addresses, nothing happens to.
func (w *leavers) drained(t *testing.T) {
	ctx := within(t, 2*time.Minute)
	kubectl := func(ctx context.Context, args ...string) {
		t.Helper()
		if _, err := world.Kubectl(ctx, args...); err != nil {
			t.Error(err)
		}
	}
	pod := func(node string) place {
		t.Helper()
		kubectl(ctx, "-n", "red", "rollout", "status", "deployment/moving", "--timeout=60s")
		out, err := world.Kubectl(ctx, "-n", "red", "get", "pods", "-l", "app=moving", "-o",
			"jsonpath={.items[?(@.spec.nodeName=='"+node+"')].metadata.name}")
		if err != nil || len(out) == 0 {
			t.Fatalf("no pod of the Deployment is on %s: %v", node, err)
		}
		return world.tenant(ctx, t, "red/"+string(out))
	}
	for _, node := range []string{worker1, worker2} {
		t.Cleanup(func() { kubectl(context.WithoutCancel(ctx), "uncordon", node) })
	}
	kubectl(ctx, "cordon", worker1)
	apply(ctx, t, moving)
	t.Cleanup(func() { remove(context.WithoutCancel(ctx), t, "-n", "red", "deployment", "moving") })
	leaves(ctx, t, pod(worker2), w.red.addresses[worker2])
	kubectl(ctx, "uncordon", worker1)

	before := w.red.addresses
	tr := startTraffic(ctx, t, route{way: "stays", from: w.web2, to: w.fabric})
	kubectl(ctx, "drain", worker2, "--pod-selector=app=moving", "--ignore-daemonsets", "--timeout=60s")
	leaves(ctx, t, pod(worker1), w.red.addresses[worker1])
	tr.settle(ctx, t)
	allow(t, tr.stop(t), 0)
	w.red.onNodes(ctx, t, worker1, worker2)
	for node := range before {
		for _, f := range families {
			if now := w.red.addresses[node][f]; now != before[node][f] {
				t.Errorf("%s has %s, and had %s", node, now, before[node][f])
			}
		}
	}
}

// stays is what goes by gateways while something restarts, and the sources that the outside may see
// meanwhile.
func (w *leavers) stays(ctx context.Context, t *testing.T) (tr *traffic, known []netip.Addr) {
	t.Helper()
	web, pod := floatingPair(ctx, t, "steady", "web1.eth0"), world.pod(ctx, t, "web1")
	known = slices.Concat(w.red.all(), w.blue.all(), []netip.Addr{web.addresses[ipv4], web.addresses[ipv6]})
	return startTraffic(ctx, t,
		route{way: "red, worker1", from: w.red1, to: w.fabric},
		route{way: "red, worker2", from: w.web2, to: w.fabric},
		route{way: "blue, worker1", from: w.shop1, to: w.fabric},
		route{way: "red to a floating IP", from: w.web1, to: pod, at: web.addresses},
		route{way: "outside to a floating IP", from: w.fabric, to: pod, at: web.addresses},
		route{way: "from a floating IP to outside", from: pod, to: w.fabric},
	), known
}

// restarts ends the API server, an agent meanwhile, and then all controllers and agents.
// Connections go on, and new ones begin; addresses stay.
func (w *leavers) restarts(t *testing.T) {
	ctx := within(t, 4*time.Minute)
	before := slices.SortedFunc(slices.Values(w.red.all()), netip.Addr.Compare)
	agent, err := world.AgentPod(ctx, worker1)
	if err != nil {
		t.Fatal(err)
	}
	heard := officeWire(t)
	tr, known := w.stays(ctx, t)
	if err := world.Stop(ctx, control, "kube-apiserver", syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, err := world.Exec(ctx, worker1, "ctr", "tasks", "kill", "--signal", strconv.Itoa(int(syscall.SIGKILL)),
		strings.TrimPrefix(containerID(agent), "containerd://")); err != nil {
		t.Error(err)
	}
	leaves(ctx, t, w.red1, w.red.addresses[worker1])
	leaves(ctx, t, w.shop1, w.blue.addresses[worker1])
	replaceCoelan(ctx, t)
	tr.settle(ctx, t)
	allow(t, tr.stop(t), 0)
	w.red.onNodes(ctx, t, worker1, worker2)
	if now := slices.SortedFunc(slices.Values(w.red.all()), netip.Addr.Compare); !slices.Equal(now, before) {
		t.Errorf("addresses %v, were %v", now, before)
	}
	onlyKnown(t, heard, known...)
	world.healthy(ctx, t)
}

// openVSwitch ends with all connections that the userspace datapath remembers. New ones begin at
// once, and what goes on leaves by the gateway again.
func (w *leavers) openVSwitch(t *testing.T) {
	ctx := within(t, 2*time.Minute)
	heard := officeWire(t)
	tr, known := w.stays(ctx, t)
	if err := world.Restart(ctx, worker1, "ovs-vswitchd", syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	leaves(ctx, t, w.red1, w.red.addresses[worker1])
	leaves(ctx, t, w.shop1, w.blue.addresses[worker1])
	tr.settle(ctx, t)
	outcomes := tr.stop(t)
	for way, o := range outcomes {
		if strings.HasPrefix(way, "red, worker2") && (len(o.udp.Lost) > 0 || o.tcp.Err != nil) {
			t.Errorf("%s, where nothing restarts: %s, %s", way, o.udp, o.tcp)
		}
	}
	onlyKnown(t, heard, known...)
	world.healthy(ctx, t)
}

// removed has Ports leave as before, and addresses given back. Another Router's connections go on.
func (w *leavers) removed(t *testing.T) {
	ctx := within(t, time.Minute)
	tr := startTraffic(ctx, t, route{way: "blue", from: w.shop1, to: w.fabric})
	w.red.close(ctx, t)
	leaves(ctx, t, w.red1, ofNode(ctx, t, worker1))
	leaves(ctx, t, w.web2, ofNode(ctx, t, worker2))
	tr.settle(ctx, t)
	allow(t, tr.stop(t), 0)
}
