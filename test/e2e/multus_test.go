// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/internal/sandbox"
)

// firstNet has the addresses of pods' first interfaces while the bridge plugin gives them,
// besideNet those of macvlan interfaces; both are the same on every node.
var (
	firstNet  = netip.MustParsePrefix("10.99.0.0/24")
	besideNet = netip.MustParsePrefix("10.98.0.0/24")
)

// bridgeFirst is a configuration that runtimes and Multus take before Coelan's. It is not a
// list: for lists, the DEL of Multus's thick form leaves out what it does not know itself,
// such as the subnet.
const (
	bridgeFirst     = "/etc/cni/net.d/05-first.conf"
	bridgeFirstText = `{"cniVersion": "1.0.0", "name": "first", "type": "bridge", "bridge": "first0", "isGateway": true,
  "ipam": {"type": "host-local", "subnet": "10.99.0.0/24", "routes": [{"dst": "0.0.0.0/0"}]}}`
)

// testMultus runs Multus in both its forms. It gives pods three interfaces: the first by the bridge
// plugin or by Coelan, one on a Network, and one by a plugin that knows nothing of Coelan.
func testMultus(t *testing.T) {
	for _, c := range []struct {
		form   sandbox.Multus
		bridge bool // gives the first interface
	}{{sandbox.MultusThin, true}, {sandbox.MultusThick, true}, {sandbox.MultusThick, false}} {
		first := "Coelan"
		if c.bridge {
			first = "bridge"
		}
		t.Run(fmt.Sprintf("%s, first interface by %s", c.form, first), func(t *testing.T) {
			ctx := within(t, 4*time.Minute)
			multusOn(ctx, t, c.form, c.bridge)
			names := []string{"m1", "m2", "m3"}
			for i, node := range []string{worker1, worker1, worker2} {
				p := webServer(names[i], node)
				makePod(ctx, t, annotated(p, networksAnnotation, "side, beside"))
			}
			if err := world.waitReady(ctx, names...); err != nil {
				t.Fatal(err)
			}
			checkMultusPods(ctx, t, c.bridge)
			removePods(ctx, t, names...)
			leftovers(ctx, t)
		})
	}
	world.healthy(within(t, 2*time.Minute), t)
}

// multusOn runs Multus until the test ends.
func multusOn(ctx context.Context, t *testing.T, form sandbox.Multus, bridge bool) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		if err := world.RemoveMultus(ctx); err != nil {
			t.Error(err)
		}
		for _, node := range world.Nodes() {
			if _, err := world.Exec(ctx, node, "sh", "-c", "rm -f "+bridgeFirst+"; ip link del beside0; ip link del first0 2>/dev/null || true"); err != nil {
				t.Error(err)
			}
		}
	})
	for _, node := range world.Nodes() {
		lines := "ip link add beside0 type veth peer name beside1; ip link set beside0 up; ip link set beside1 up"
		if bridge {
			lines += "; echo '" + bridgeFirstText + "' >" + bridgeFirst
		}
		if _, err := world.Exec(ctx, node, "sh", "-ec", lines); err != nil {
			t.Fatal(err)
		}
	}
	if err := world.InstallMultus(ctx, form); err != nil {
		t.Fatal(err)
	}
}

// checkMultusPods looks at the three interfaces of m1, and talks by each: m2 is on the same node,
// m3 on another.
func checkMultusPods(ctx context.Context, t *testing.T, bridge bool) {
	t.Helper()
	m1, m2, m3 := world.pod(ctx, t, "m1"), world.pod(ctx, t, "m2"), world.pod(ctx, t, "m3")
	if bridge && !firstNet.Contains(m1.on(t, "eth0")[0]) {
		t.Errorf("m1 has eth0 with %v, want one of %s", m1.on(t, "eth0"), firstNet)
	}
	for _, way := range []struct {
		to     place
		ifname string
		in     netip.Prefix
	}{
		{m2, "eth0", netip.Prefix{}}, {m2, "net1", sideNet}, {m3, "net1", sideNet}, {m2, "net2", besideNet},
	} {
		for _, address := range way.to.on(t, way.ifname) {
			seen, err := clientOf(ctx, m1, netip.AddrPortFrom(address, webPort))
			if err != nil {
				t.Errorf("m1 to %s's %s: %v", way.to.name, way.ifname, err)
			}
			if way.in.IsValid() && address.Is4() && !way.in.Contains(seen) {
				t.Errorf("%s's %s sees m1 as %s, want one of %s", way.to.name, way.ifname, seen, way.in)
			}
		}
	}
	checkStatus(t, m1, statusOf(ctx, t, "m1", 3), []string{"eth0", "net1", "net2"})
}

// leftovers looks for what plugins left of pods that are gone.
func leftovers(ctx context.Context, t *testing.T) {
	t.Helper()
	ports, err := world.Kubectl(ctx, "-n", namespace, "get", "ports.coelan.io", "-o", "name")
	if err != nil || len(ports) > 0 {
		t.Errorf("Ports of no pod: %s%v", ports, err)
	}
	for _, node := range world.WorkerNames() {
		out, err := world.Exec(ctx, node, "sh", "-c", "ls /var/lib/cni/networks/first /var/lib/cni/networks/beside 2>/dev/null | grep '^10' || true")
		if err != nil || strings.TrimSpace(string(out)) != "" {
			t.Errorf("%s: addresses of no pod: %s%v", node, out, err)
		}
	}
	pods, err := world.api.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Error(err)
		return
	}
	for _, p := range pods.Items {
		if strings.HasPrefix(p.Name, "m") {
			t.Errorf("pod %s is there", p.Name)
		}
	}
}
