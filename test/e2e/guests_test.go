// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/sandbox"
	"coelan.io/coelan/internal/sandbox/artifact"
	"coelan.io/coelan/test/debian"
	"coelan.io/coelan/test/vm"
)

// guests are another Network of red's Router, and a Port on it for a virtual machine.
const guests = `
apiVersion: coelan.io/v1alpha1
kind: Network
metadata: {name: guests}
spec:
  router: red
  namespaceSelector: {matchLabels: {tenant: red}}
  subnets: [{cidr: 10.51.0.0/24}, {cidr: "fd00:51::/64"}]
---
apiVersion: coelan.io/v1alpha1
kind: Port
metadata: {name: guest, namespace: red, labels: {app: guest}}
spec: {network: guests, addresses: [10.51.0.77, "fd00:51::77"], mac: "52:54:00:00:51:77"}
`

// guestsAttachment is the name by which pods ask for interfaces on that Network.
const guestsAttachment = `
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: guests, namespace: red}
spec:
  config: '{"cniVersion": "1.0.0", "name": "guests", "type": "coelan-cni", "network": "guests"}'
`

// What the machine has of that Network.
var (
	guestAddresses = []netip.Prefix{netip.MustParsePrefix("10.51.0.77/24"), netip.MustParsePrefix("fd00:51::77/64")}
	guestGateways  = []netip.Addr{netip.MustParseAddr("10.51.0.1"), netip.MustParseAddr("fd00:51::1")}
)

// guestMTU is that of pods, too.
const guestMTU = 1450

// testGuests boots a virtual machine on the second worker, as a Port on a network of pods. They
// talk both ways, in one network and through its Router. Then the Port is bound twice, and its
// Network deleted while it is in use.
func testGuests(t *testing.T) {
	ctx := within(t, 5*time.Minute)
	apply(ctx, t, guests)
	apply(ctx, t, guestsAttachment)
	t.Cleanup(func() { remove(context.WithoutCancel(ctx), t, "-n", "red", "ports.coelan.io", "guest") })
	port := named(&v1alpha1.Port{}, "red/guest")
	if err := wait(ctx, port, portIn(v1alpha1.PortReady)); err != nil {
		t.Fatal(err)
	}
	for i, node := range []string{worker1, worker2} { // on the guests' own network
		makePod(ctx, t, annotated(webServer(fmt.Sprintf("red/g%d", i+1), node), networksAnnotation, "guests"))
	}
	t.Cleanup(func() { removePods(context.WithoutCancel(ctx), t, "red/g1", "red/g2") })
	m := bootGuest(ctx, t, worker2, port, guestAddresses, guestGateways...)
	if err := wait(ctx, port, portIn(v1alpha1.PortBound)); err != nil {
		t.Fatal(err)
	}
	if port.Status.Node != worker2 || port.Status.BoundTime == nil {
		t.Errorf("Port red/guest is bound: %+v", port.Status)
	}
	if err := world.waitReady(ctx, "red/g1", "red/g2"); err != nil {
		t.Fatal(err)
	}
	// On each node: in its network, and through the Router.
	talk(ctx, t, m, port, map[string]string{"red/g1": "net1", "red/g2": "net1", "red/web1": "eth0", "red/web2": "eth0"})
	t.Run("policy", func(t *testing.T) { testGuestPolicies(t, m, port) })
	t.Run("agent killed", func(t *testing.T) {
		if err := world.Restart(ctx, worker2, sandbox.Agent, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		talk(ctx, t, m, port, map[string]string{"red/g1": "net1", "red/web1": "eth0"})
	})
	t.Run("bound twice", func(t *testing.T) { testBoundTwice(t, m, port) })
	t.Run("deleted in use", func(t *testing.T) { testDeletedInUse(t, m, port) })
	t.Run("unbound", func(t *testing.T) {
		m.Stop()
		unplug(ctx, t, worker2)
		if err := wait(ctx, port, portIn(v1alpha1.PortReady)); err != nil || port.Status.Node != "" {
			t.Errorf("%+v, %v", port.Status, err)
		}
		remove(ctx, t, "-n", "red", "ports.coelan.io", "guest")
		removePods(ctx, t, "red/g1", "red/g2")
		if err := waitGone(ctx, named(&v1alpha1.Network{}, "guests")); err != nil {
			t.Errorf("nothing uses it: %v", err)
		}
	})
}

// plug makes a tap on a node, a port of the integration bridge for the Port of that key, with more
// settings of its Interface.
func plug(ctx context.Context, t *testing.T, node, key string, settings ...string) {
	t.Helper()
	_, err := world.Exec(ctx, node, "sh", "-ec", "ip tuntap add guest0 mode tap; ip link set guest0 up mtu 1450; "+
		"ovs-vsctl add-port br-int guest0 -- set Interface guest0 external_ids:iface-id="+key+" "+strings.Join(settings, " "))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unplug(context.WithoutCancel(ctx), t, node) })
}

func unplug(ctx context.Context, t *testing.T, node string) {
	t.Helper()
	_, err := world.Exec(ctx, node, "sh", "-ec", "ovs-vsctl --if-exists del-port br-int guest0; ip link del guest0 2>/dev/null || true")
	if err != nil {
		t.Error(err)
	}
}

// bootGuest boots the virtual machine that a Port is for. It has these addresses and gateways from
// the start.
func bootGuest(ctx context.Context, t *testing.T, node string, port *v1alpha1.Port, addresses []netip.Prefix,
	gateways ...netip.Addr,
) *vm.Machine {
	t.Helper()
	plug(ctx, t, node, port.Namespace+"/"+port.Name)
	return bootPlugged(ctx, t, node, port, addresses, gateways...)
}

// bootPlugged is bootGuest where the machine's interface is plugged already.
func bootPlugged(ctx context.Context, t *testing.T, node string, port *v1alpha1.Port, addresses []netip.Prefix,
	gateways ...netip.Addr,
) *vm.Machine {
	t.Helper()
	kernel, err := debian.FindKernel(ctx, filepath.Join(artifact.DefaultDir(), "kernel"))
	if err != nil {
		t.Fatal(err)
	}
	mac, err := net.ParseMAC(port.Status.MAC)
	if err != nil {
		t.Fatalf("MAC of Port %s: %v", port.Name, err)
	}
	m, err := vm.Start(ctx, vm.Config{
		Name: port.Name, Tap: "guest0", MAC: mac, MTU: guestMTU,
		Addresses: addresses, Gateways: gateways, Kernel: kernel, Dir: t.TempDir(),
		Command: func(ctx context.Context, args ...string) (*exec.Cmd, error) { return world.Command(ctx, node, args...) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Stop)
	return m
}

// talk pings and speaks TCP, from pods to the machine and back.
func talk(ctx context.Context, t *testing.T, m *vm.Machine, port *v1alpha1.Port, pods map[string]string) {
	t.Helper()
	guest, err := parseAddresses(port.Status.Addresses)
	if err != nil {
		t.Fatal(err)
	}
	for key, ifname := range pods {
		pod := world.tenant(ctx, t, key)
		for _, a := range guest {
			if seen, err := get(ctx, pod, netip.AddrPortFrom(a, 80), "/cgi-bin/clientip"); err != nil || !contains(pod.on(t, ifname), seen) {
				t.Errorf("%s to the guest %s: seen as %q, %v; want its %s", key, a, seen, err, ifname)
			}
			pod.run(ctx, t, "ping", "-q", "-c", "1", "-W", "2", a.String())
		}
		for _, a := range pod.on(t, ifname) {
			url := "http://" + netip.AddrPortFrom(a, webPort).String()
			for _, line := range []string{"ping -q -c 1 -W 2 " + a.String(), "timeout 5 wget -q -O - " + url + "/hostname"} {
				if out, err := m.Run(ctx, line); err != nil {
					t.Errorf("the guest to %s: %v: %s", key, err, out)
				}
			}
		}
	}
	if other := world.tenant(ctx, t, "blue/shop1"); !t.Failed() {
		for _, a := range guest {
			closed(ctx, t, other, netip.AddrPortFrom(a, 80))
		}
	}
}

func contains(addresses []netip.Addr, text string) bool {
	a, err := netip.ParseAddr(strings.Trim(strings.TrimSpace(text), "[]"))
	for _, one := range addresses {
		if err == nil && one == a.Unmap() {
			return true
		}
	}
	return false
}

// testBoundTwice names the Port at another interface, on the other worker: it stays where it is,
// and says so.
func testBoundTwice(t *testing.T, m *vm.Machine, port *v1alpha1.Port) {
	ctx := within(t, time.Minute)
	plug(ctx, t, worker1, "red/guest")
	if err := wait(ctx, port, func(p *v1alpha1.Port) error {
		if !strings.Contains(p.Status.LastError, worker1) || p.Status.Node != worker2 {
			return fmt.Errorf("status %+v, want node %s and a lastError that names %s", p.Status, worker2, worker1)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if message, err := warning(ctx, "red/guest", worker1); err != nil || !strings.Contains(message, v1alpha1.ReasonBoundElsewhere) {
		t.Errorf("Event %q: %v", message, err)
	}
	talk(ctx, t, m, port, map[string]string{"red/g1": "net1"})
	unplug(ctx, t, worker1)
	if err := wait(ctx, port, func(p *v1alpha1.Port) error {
		if p.Status.LastError != "" || p.Status.Phase != v1alpha1.PortBound {
			return fmt.Errorf("status %+v, want Bound without an error", p.Status)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// testDeletedInUse deletes the Network: it waits, and names what uses it.
func testDeletedInUse(t *testing.T, m *vm.Machine, port *v1alpha1.Port) {
	ctx := within(t, time.Minute)
	network := named(&v1alpha1.Network{}, "guests")
	if err := world.objects.Delete(ctx, network); err != nil {
		t.Fatal(err)
	}
	if err := wait(ctx, network, func(n *v1alpha1.Network) error {
		if err := says(n.Status.Conditions, v1alpha1.ConditionDeletionBlocked, metav1.ConditionTrue, v1alpha1.ReasonInUse); err != nil {
			return err
		}
		for _, c := range n.Status.Conditions {
			if c.Type == v1alpha1.ConditionDeletionBlocked && !strings.Contains(c.Message, "red/") {
				return fmt.Errorf("%q does not say what uses it", c.Message)
			}
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	talk(ctx, t, m, port, map[string]string{"red/g1": "net1"})
	if err := world.objects.Get(ctx, client.ObjectKeyFromObject(network), network); err != nil {
		t.Errorf("a Network in use is gone: %v", err)
	}
}
