// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// The Ports that are made for the machines of TestDynamicDHCP.
const (
	firstPort  = "shop/guest-52-54-00-77-00-01"
	secondPort = "shop/guest-52-54-00-77-00-02"
)

// TestDynamicDHCP has machines that name no Port ask for addresses, on two nodes.
func TestDynamicDHCP(t *testing.T) {
	w := start(t, lab.Options{})
	ctx := within(t, 4*time.Minute)
	w.API.AddNamespace("shop", map[string]string{"on": "lan"})
	w.API.AddNetwork("lan", v1alpha1.NetworkSpec{
		Role: v1alpha1.Primary, NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"on": "lan"}},
		Subnets: subnets("10.77.0.0/24", "fd00:77::/64"), DHCP: &v1alpha1.DHCP{LeaseSeconds: 3600},
	})
	guest := func(n *lab.Node, name string, last byte) *lab.Guest {
		t.Helper()
		mac := intent.MAC{0x52, 0x54, 0, 0x77, 0, last}
		g, err := n.AddGuest(ctx, name, "shop/?", mac.HardwareAddr(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	first, second := guest(w.n1, "first", 1), guest(w.n2, "second", 2)
	bound := func(key string) *v1alpha1.Port {
		return awaitPort(ctx, t, w, key, func(p *v1alpha1.Port) bool { return p.Status.Phase == v1alpha1.PortBound })
	}
	gone := func(key string) {
		t.Helper()
		poll(ctx, t, func() bool {
			return !slices.ContainsFunc(w.API.Ports(), func(p *v1alpha1.Port) bool { return p.Namespace+"/"+p.Name == key })
		}, func() { t.Errorf("Port %s is still there", key) })
	}
	had := bound(firstPort).Status.Addresses
	bound(secondPort)
	a, b := askAnyAddress(ctx, t, first), askAnyAddress(ctx, t, second)
	if a.String() != had[0] || a == b {
		t.Errorf("the machines have %s and %s, Port %s has %s", a, b, firstPort, had)
	}
	awaitPort(ctx, t, w, firstPort, func(p *v1alpha1.Port) bool {
		return p.Status.Lease != nil && slices.Equal(p.Status.Lease.Addresses, []string{a.String()})
	})
	reach := func() {
		t.Helper()
		if r := ping(t, first, probe.Ping{Dst: b, Count: 3}); len(r.Replies) == 0 {
			t.Errorf("%s does not reach %s on the other node: %v, %v", a, b, r.Errors, r.SendError)
		}
	}
	reach()

	t.Run("agent killed, without API server", func(t *testing.T) {
		w.API.Stop()
		w.n1.KillAgent()
		if err := w.n1.StartAgent(ctx); err != nil {
			t.Fatal(err)
		}
		if again := askAnyAddress(ctx, t, first); again != a {
			t.Errorf("the machine has %s, had %s", again, a)
		}
		reach()
		if err := w.API.Resume(); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("away and back", func(t *testing.T) {
		if err := first.Unplug(ctx); err != nil {
			t.Fatal(err)
		}
		awaitPort(ctx, t, w, firstPort, func(p *v1alpha1.Port) bool {
			return p.Status.Phase == v1alpha1.PortReady && p.Status.Node == "" && slices.Equal(p.Status.Addresses, had)
		})
		checkAll(ctx, t, w) // the Port that waits is nothing wrong
		if err := first.Plug(ctx, "shop/?"); err != nil {
			t.Fatal(err)
		}
		bound(firstPort)
		if again := askAnyAddress(ctx, t, first); again != a {
			t.Errorf("the machine has %s, had %s", again, a)
		}
		reach()
	})
	t.Run("given back", func(t *testing.T) {
		router := netip.MustParseAddr("10.77.0.1")
		frame := probe.Ethernet(intent.MAC{0x52, 0x54, 0, 0x77, 0, 2}.HardwareAddr(), datapath.RouterMAC.HardwareAddr(), probe.EtherIPv4,
			probe.UDP(netip.AddrPortFrom(b, 68), netip.AddrPortFrom(router, 67), releaseOf(intent.MAC{0x52, 0x54, 0, 0x77, 0, 2}, b, router)))
		if err := wire(t, second.Host).Send(frame); err != nil {
			t.Fatal(err)
		}
		awaitPort(ctx, t, w, secondPort, func(p *v1alpha1.Port) bool { return p.Status.Lease == nil })
		if err := second.Unplug(ctx); err != nil {
			t.Fatal(err)
		}
		gone(secondPort)
		poll(ctx, t, func() bool {
			return !slices.ContainsFunc(w.API.Blocks(), func(o *v1alpha1.AddressBlock) bool { return o.Spec.Node == "n2" && o.Spec.Network == "lan" })
		}, func() { t.Error("node n2 keeps its block") })
	})
	t.Run("no Network", func(t *testing.T) {
		w.API.AddNamespace("other", nil)
		g := guest(w.n1, "third", 3)
		if err := g.Plug(ctx, "other/?"); err != nil {
			t.Fatal(err)
		}
		awaitEvent(ctx, t, w, v1alpha1.ReasonNetworkNotFound, "no Network selects namespace other")
	})
	checkAll(ctx, t, w)
}

// askAnyAddress configures a machine by busybox's client, and returns what it was given.
func askAnyAddress(ctx context.Context, t *testing.T, g *lab.Guest) netip.Addr {
	t.Helper()
	path, file := script(t, `[ "$1" = bound ] || exit 0`,
		`ip address flush dev $interface scope global
ip address add $ip/$mask dev $interface
ip route replace default via $router`)
	args := []string{"udhcpc", "-i", "eth0", "-f", "-n", "-q", "-t", "5", "-T", "1", "-s", path}
	if out, err := g.Run(ctx, "/bin/busybox", args...); err != nil {
		t.Fatalf("%s: %v\n%s", g.Name, err, out)
	}
	a, err := netip.ParseAddr(reported(t, file)["ip"])
	if err != nil {
		t.Fatalf("%s: %v", g.Name, err)
	}
	return a
}

// releaseOf is a RELEASE of a machine that has an address of a server.
func releaseOf(mac intent.MAC, has, server netip.Addr) []byte {
	const ciaddrAt = 12
	b := discover(mac)
	copy(b[ciaddrAt:], has.AsSlice())
	b[len(b)-2] = 7
	return append(append(b[:len(b)-1], 54, 4), append(server.AsSlice(), 255)...)
}
