// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/test/lab/probe"
)

const (
	// noisyTable is the size of the connection table of the noisy pod's node: small enough to be
	// filled at once. Routers have the same shares of it as of a large one.
	noisyTable = 20_000
	// noisyRate is how many frames of each kind the noisy pod sends in a second.
	noisyRate = 5000
	// neighbors is how many connections others open meanwhile.
	neighbors = 50
	// neighborPatience bounds one connection: on a busy machine its first packet may be lost, and
	// be sent again after 1, 3 and 7 s.
	neighborPatience = 20 * time.Second
)

// TestNoisyNeighbour has a tenant's pod begin connections as fast as it can, scan its subnet and
// ask for the MAC of every address, until its Router has all connections that it may have.
// Meanwhile pods of another tenant and of the default network on the same node connect, every time,
// and each of their connections is remembered. At which rate they do is measured by `make bench`
// (noisy-neighbour): here it would be that of the machine.
func TestNoisyNeighbour(t *testing.T) {
	ctx := within(t, 4*time.Minute)
	resizeTable(ctx, t, worker1, noisyTable)

	red, redWeb := world.tenant(ctx, t, "red/client1"), world.tenant(ctx, t, "red/web1")
	shop1, shop2 := world.tenant(ctx, t, "blue/shop1"), world.tenant(ctx, t, "blue/shop2")
	client1, web1 := world.pod(ctx, t, "client1"), world.pod(ctx, t, "web1")
	ways := []struct {
		router   string
		from, to place
	}{{"blue", shop1, shop2}, {intent.DefaultRouterName, client1, web1}}
	for _, w := range ways {
		for _, f := range families {
			connection(ctx, t, w.from, netip.AddrPortFrom(w.to.address(f), webPort)).Close()
		}
	}

	mac := macOf(t, red)
	for _, f := range families {
		noise := probe.Noise{
			MAC: mac, Router: routerMAC, Address: red.address(f), Peer: redWeb.address(f),
			Subnet: map[family]netip.Prefix{
				ipv4: netip.MustParsePrefix("10.50.0.0/16"), ipv6: netip.MustParsePrefix("fd00:50::/64"),
			}[f],
		}
		for _, next := range []func(int) probe.Frame{noise.Connections, noise.Scan, noise.Questions} {
			flood, err := probe.StartFlood(red, "eth0", noisyRate, next)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if _, err := flood.Stop(); err != nil {
					t.Errorf("the noise: %v", err)
				}
			})
		}
	}
	full, cancel := context.WithTimeout(ctx, learning)
	defer cancel()
	if err := eventually(full, func() error {
		out, err := world.coelan(ctx, "check")
		if err == nil {
			return fmt.Errorf("coelan check finds nothing: %s", out)
		}
		if !strings.Contains(out, "Router red") {
			return err
		}
		return nil
	}); err != nil {
		t.Fatalf("the noise does not fill the connections of its Router: %v", err)
	}

	for _, w := range ways {
		zone := zoneOf(ctx, t, w.router)
		for i := range neighbors {
			c := connection(ctx, t, w.from, netip.AddrPortFrom(w.to.address(families[i%2]), webPort))
			t.Cleanup(func() { c.Close() })
		}
		// They are open still, so that conntrack has no reason to forget one.
		l := zoneLimits(ctx, t, worker1)[zone]
		if l.count < neighbors {
			t.Errorf("conntrack remembers %d connections of Router %s, which has at least %d",
				l.count, w.router, neighbors)
		}
	}
	l := zoneLimits(ctx, t, worker1)[zoneOf(ctx, t, "red")]
	if l.limit != noisyTable/10 || l.count > l.limit || l.count < l.limit/2 {
		t.Errorf("Router red has %d connections of %d: want nearly a tenth of %d, and no more",
			l.count, l.limit, noisyTable)
	}
	asksMAC(ctx, t, shop1, shop2)
}

// connection opens one, which lasts.
func connection(ctx context.Context, t *testing.T, from place, to netip.AddrPort) (c net.Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, neighborPatience)
	defer cancel()
	if err := from.Do(func() (err error) {
		c, err = new(net.Dialer).DialContext(ctx, "tcp", to.String())
		return err
	}); err != nil {
		t.Fatalf("from %s: %v", from.name, err)
	}
	return c
}

// asksMAC asks for the MAC of another pod of the subnet until that is answered: a pod's kernel,
// too, asks more than once.
func asksMAC(ctx context.Context, t *testing.T, from, to place) {
	t.Helper()
	wire := wireOf(t, from)
	mac := macOf(t, from)
	ask := probe.Ethernet(mac, probe.Broadcast, probe.EtherARP, probe.ARP(
		probe.ARPRequest, mac, from.address(ipv4), make(net.HardwareAddr, 6), to.address(ipv4)))
	ctx, cancel := context.WithTimeout(ctx, learning)
	defer cancel()
	if err := eventually(ctx, func() error {
		if err := wire.Send(ask); err != nil {
			return err
		}
		_, err := wire.Wait(ctx, func(f probe.Frame) bool {
			src, _ := f.IPs()
			return f.Type() == probe.EtherARP && src == to.address(ipv4)
		})
		return err
	}); err != nil {
		t.Errorf("%s asks for the MAC of %s: %v", from.name, to.name, err)
	}
}

// resizeTable gives a node another connection table for as long as the test runs. The agent reads
// the size when it starts.
func resizeTable(ctx context.Context, t *testing.T, node string, size int) {
	t.Helper()
	before := strings.TrimSpace(appctl(ctx, t, node, "dpctl/ct-get-maxconns"))
	resize := func(ctx context.Context, size string, part int) {
		appctl(ctx, t, node, "dpctl/ct-set-maxconns", size)
		if _, err := world.Kubectl(ctx, "-n", agents, "delete", "pod",
			"-l", "app.kubernetes.io/component=agent", "--field-selector", "spec.nodeName="+node); err != nil {
			t.Fatal(err)
		}
		limited, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if err := eventually(limited, func() error {
			if l := zoneLimits(ctx, t, node)[1]; l.limit != part {
				return fmt.Errorf("Router default may have %d connections, want %d", l.limit, part)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
		defer cancel()
		var number int
		if _, err := fmt.Sscan(before, &number); err != nil {
			t.Fatalf("%q is no size of a table: %v", before, err)
		}
		resize(ctx, before, number/2)
	})
	resize(ctx, fmt.Sprint(size), size/2)
}

func appctl(ctx context.Context, t *testing.T, node string, args ...string) string {
	t.Helper()
	out, err := world.Exec(ctx, node, append([]string{"ovs-appctl"}, args...)...)
	if err != nil {
		t.Fatalf("%s: ovs-appctl %v: %v", node, args, err)
	}
	return string(out)
}

// zoneOf is the conntrack zone of a Router.
func zoneOf(ctx context.Context, t *testing.T, router string) int {
	t.Helper()
	var r v1alpha1.Router
	if err := world.objects.Get(ctx, types.NamespacedName{Name: router}, &r); err != nil {
		t.Fatal(err)
	}
	return int(r.Status.ID)
}

// zoneLimit is what a conntrack zone may have, and has.
type zoneLimit struct{ limit, count int }

// zoneLimits are those of a node, as Open vSwitch tells them.
func zoneLimits(ctx context.Context, t *testing.T, node string) map[int]zoneLimit {
	t.Helper()
	limits := map[int]zoneLimit{}
	for line := range strings.Lines(appctl(ctx, t, node, "dpctl/ct-get-limits")) {
		var zone int
		var l zoneLimit
		if _, err := fmt.Sscanf(line, "zone=%d,limit=%d,count=%d", &zone, &l.limit, &l.count); err == nil {
			limits[zone] = l
		}
	}
	return limits
}
