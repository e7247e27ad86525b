// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// oneCard is a world of nodes that have one network card, which they share with a physical network.
type oneCard struct {
	*world
	shared atomic.Bool // the setting is there
}

// startOneCard makes nodes without agents. Their configuration has more than an address.
func startOneCard(t *testing.T) *oneCard {
	t.Helper()
	o := &oneCard{}
	o.shared.Store(true)
	o.world = &world{Lab: lab.New(t, lab.Options{OneCard: true, NoAgents: true, Configure: func(c *config.Config) {
		if o.shared.Load() {
			c.Uplinks = map[string]config.Uplink{"dc": {Interface: "eth0", Shared: true}}
		}
	}})}
	o.n1, o.n2 = o.Nodes[0], o.Nodes[1]
	for _, c := range []string{
		"addr add 192.168.34.1/24 dev eth0 label eth0:more", "addr add fd00:34::1/64 dev eth0 nodad",
		"route add 198.18.0.0/15 via 192.168.33.1 src 192.168.33.11 mtu 1400 metric 9 proto static",
		"-6 route add fd00:18::/32 via fd00:33::1 table 77", "rule add iif eth0 lookup 77 priority 1077",
		"neigh add 192.168.33.77 lladdr 0a:00:00:00:00:77 dev eth0",
	} {
		run(t, o.n1.Host, "ip", strings.Fields(c)...)
	}
	// The node may choose any of its addresses.
	run(t, o.Outside, "ip", "route", "add", "fd00:34::/64", "via", o.n1.Address(lab.IPv6).String())
	return o
}

var aging = regexp.MustCompile(`expires \d+sec|valid_lft \S+ preferred_lft \S+`)

// had is what an interface of a node has, in the words of ip. What is Coelan's own comes and goes
// with the agent.
func (o *oneCard) had(ctx context.Context, n *lab.Node, link string) string {
	var lines []string
	for _, c := range []string{
		"-o addr show dev " + link, "-4 route show table all dev " + link, "-6 route show table all dev " + link, "-4 rule",
		"-4 neigh show nud permanent dev " + link,
	} {
		text, err := n.Run(ctx, "ip", strings.Fields(c)...)
		if err != nil {
			return err.Error()
		}
		for l := range strings.Lines(text) {
			l = strings.ReplaceAll(aging.ReplaceAllString(strings.Join(strings.Fields(l), " "), ""), `\`, "")
			if _, after, found := strings.Cut(l, ": "+link+" "); found {
				l = after
			}
			ours := !strings.HasSuffix(c, "rule") || strings.Contains(l, link)
			// The lab's card got its MAC after its link-local address.
			ours = ours && !strings.Contains(l, "inet6 fe80:")
			if ours && !strings.Contains(l, "table local") && !strings.Contains(l, "proto 206") {
				lines = append(lines, strings.TrimSpace(strings.NewReplacer(link, "LINK", " nodad", "").Replace(l)))
			}
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// has waits until an interface of the first node has what is wanted.
func (o *oneCard) has(ctx context.Context, t *testing.T, link, want string) {
	t.Helper()
	var got string
	poll(ctx, t, func() bool { got = o.had(ctx, o.n1, link); return got == want },
		func() { t.Errorf("%s (-want +got):\n%s", link, cmp.Diff(want, got)) })
}

// nodeInterval lets an emulated machine keep up.
const nodeInterval = 3 * probeInterval

// nodeTraffic are connections of the first node's own processes.
func (o *oneCard) nodeTraffic(ctx context.Context, t *testing.T) *traffic {
	t.Helper()
	tr := &traffic{}
	for _, p := range []path{
		{name: "into the node", from: o.Outside, to: o.n1.Host, dst: o.n1.Address},
		{name: "out of the node", from: o.n1.Host, to: o.Outside, dst: lab.Internet},
		{name: "from another node", from: o.n2.Host, to: o.n1.Host, dst: o.n1.Address},
	} {
		for f := range lab.Dual.Each {
			at := netip.AddrPortFrom(p.dst(f), uint16(7000+len(tr.udp)))
			udp, err := probe.StartUDP(p.from, p.to, at, at, nodeInterval)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(udp.Close)
			serve(t, p.to, at, probe.Echo)
			tcp, err := probe.StartTCP(ctx, p.from, at, nodeInterval)
			if err != nil {
				t.Fatalf("%s: %v", p.name, err)
			}
			t.Cleanup(tcp.Close)
			tr.names, tr.udp, tr.tcp = append(tr.names, f.String()+" "+p.name), append(tr.udp, udp), append(tr.tcp, tcp)
		}
	}
	tr.settle(ctx, t)
	return tr
}

// through runs a step under traffic, which goes on after it. No connection may break.
func (o *oneCard) through(ctx context.Context, t *testing.T, name string, step func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		tr := o.nodeTraffic(ctx, t)
		step(t)
		tr.settle(ctx, t)
		tr.stop(t)
	})
	if t.Failed() {
		t.FailNow()
	}
}

// TestUplinksShared has nodes with one network card, which leads to a physical network, too.
// Connections of the node live through the move of its addresses, through restarts, and through the
// way back.
func TestUplinksShared(t *testing.T) {
	o := startOneCard(t)
	ctx := within(t, 6*time.Minute)
	had := o.had(ctx, o.n1, "eth0")
	o.through(ctx, t, "move", func(t *testing.T) {
		if err := o.n1.StartAgent(ctx); err != nil {
			t.Fatal(err)
		}
		o.has(ctx, t, "br-dc", had)
	})
	if left := o.had(ctx, o.n1, "eth0"); left != "" {
		t.Errorf("the card still has\n%s", left)
	}
	o.leased(ctx, t)
	pods := o.pods(ctx, t)
	eachFamily(t, pods)
	o.through(ctx, t, "agent killed and started", func(t *testing.T) {
		o.n1.KillAgent()
		if err := o.n1.StartAgent(ctx); err != nil {
			t.Fatal(err)
		}
	})
	o.has(ctx, t, "br-dc", had)
	o.through(ctx, t, "Open vSwitch restarted without an agent", func(t *testing.T) {
		o.n1.KillAgent()
		if err := o.n1.OVS.Restart(ctx); err != nil {
			t.Fatal(err)
		}
	})
	if err := o.n1.StartAgent(ctx); err != nil {
		t.Fatal(err)
	}
	o.has(ctx, t, "br-dc", had)
	awaitCheck(ctx, t, o.world)
	eachFamily(t, pods)
	o.through(ctx, t, "back", func(t *testing.T) {
		o.n1.StopAgent()
		o.shared.Store(false)
		if err := o.n1.SpawnAgent(); err != nil {
			t.Fatal(err)
		}
		o.has(ctx, t, "eth0", had)
		poll(ctx, t, func() bool {
			bridges, err := o.n1.OVS.Vsctl(ctx, "list-br")
			links, errLinks := o.n1.Run(ctx, "ip", "-br", "link")
			return err == nil && errLinks == nil && !strings.Contains(bridges, "br-dc") && !strings.Contains(links, "coelan-card")
		}, func() { t.Error("bridge br-dc or its port is still there") })
	})
}

// leased has the second node's address end after an hour, which is refused, and then not.
func (o *oneCard) leased(ctx context.Context, t *testing.T) {
	t.Helper()
	at := netip.PrefixFrom(o.n2.Address(lab.IPv4), 24).String()
	run(t, o.n2.Host, "ip", "addr", "change", at, "dev", "eth0", "valid_lft", "3600", "preferred_lft", "3600")
	if err := o.n2.SpawnAgent(); err != nil {
		t.Fatal(err)
	}
	reason := "PhysicalNetworkNotConnected"
	if lab.Datapath() == config.DatapathNetdev {
		reason = "NetworkNotReady" // there are no tunnels without a bridge
	}
	awaitEvent(ctx, t, o.world, reason, "for a limited time only")
	run(t, o.n2.Host, "ip", "addr", "change", at, "dev", "eth0", "valid_lft", "forever", "preferred_lft", "forever")
	if err := o.n2.WaitAgent(ctx); err != nil {
		t.Fatal(err)
	}
	poll(ctx, t, func() bool { return strings.Contains(o.had(ctx, o.n2, "br-dc"), at) },
		func() { t.Error("the address that stays has not moved") })
}

// pods are a test of the ways of two pods, across a tunnel and out of the cluster, and of a host on
// a VLAN of the card.
func (o *oneCard) pods(ctx context.Context, t *testing.T) func(*testing.T, lab.Family) {
	t.Helper()
	a, c := addPodAs(t, o.n1, lab.PodSpec{Name: "a"}), addPodAs(t, o.n2, lab.PodSpec{Name: "c"})
	return func(t *testing.T, f lab.Family) {
		for _, p := range []path{
			{"pod to pod", a.Host, c.Host, c.Address, a.Address},
			{"pod back", c.Host, a.Host, a.Address, c.Address},
			{"node to node", o.n1.Host, o.n2.Host, o.n2.Address, o.n1.Address},
			{"pod to the other node", a.Host, o.n2.Host, o.n2.Address, nil},
			{"pod to the outside", a.Host, o.Outside, lab.Internet, nil},
		} {
			becomes(t, p.name, func(ctx context.Context) error { return probePath(ctx, p, f) })
		}
	}
}

// TestUplinksSharedReboot boots a node with a card that was in a bridge, as far as the distribution
// brings it: addresses on the card, Open vSwitch with its old database, no agent. The agent needs
// the kubelet, and this the API server.
func TestUplinksSharedReboot(t *testing.T) {
	o := startOneCard(t)
	ctx := within(t, 4*time.Minute)
	if err := o.n1.StartAgent(ctx); err != nil {
		t.Fatal(err)
	}
	reached := func(t *testing.T, f lab.Family) {
		for _, p := range []path{
			{"into the node", o.Outside, o.n1.Host, o.n1.Address, o.Outside.Address},
			{"out of the node", o.n1.Host, o.Outside, lab.Internet, o.n1.Address},
		} {
			if err := probePath(ctx, p, f); err != nil {
				t.Errorf("%s: %v", p.name, err)
			}
		}
	}
	eachFamily(t, reached)
	if err := o.n1.RebootWithoutAgent(ctx); err != nil {
		t.Fatal(err)
	}
	// The nodes' kernel is the machine's: it has not started anew.
	run(t, o.n1.Host, "sed", "-i", `s/"boot": ".*"/"boot": "another"/`, filepath.Join(o.n1.Config().StateDir, "card-br-dc.json"))
	if ports, err := o.n1.OVS.Vsctl(ctx, "list-ports", "br-dc"); err != nil || !strings.Contains(ports, "coelan-card3") {
		t.Errorf("Open vSwitch has ports %q of br-dc, %v: this tests nothing", ports, err)
	}
	eachFamily(t, reached)
	had := o.had(ctx, o.n1, "eth0")
	o.through(ctx, t, "agent", func(t *testing.T) {
		if err := o.n1.StartAgent(ctx); err != nil {
			t.Fatal(err)
		}
		o.has(ctx, t, "br-dc", had)
	})
	eachFamily(t, reached)
}

// TestUplinksSharedWithAnAdministratorsBridge uses a bridge that was made at boot, with the card in
// it and the node's addresses on it, as it is.
func TestUplinksSharedWithAnAdministratorsBridge(t *testing.T) {
	w := &world{Lab: lab.New(t, lab.Options{NoAgents: true, OneCard: true, Configure: func(c *config.Config) {
		c.Uplinks = map[string]config.Uplink{"dc": {Interface: "eth0", Bridge: "br-ext", Shared: true}}
	}})}
	ctx := within(t, 3*time.Minute)
	n := w.Nodes[0]
	mac := strings.Fields(run(t, n.Host, "ip", "-br", "link", "show", "eth0"))[2]
	if _, err := n.OVS.Vsctl(ctx, "add-br", "br-ext", "--", "set", "bridge", "br-ext", "datapath_type="+n.OVS.Datapath,
		fmt.Sprintf(`other_config:hwaddr="%s"`, mac), "--", "add-port", "br-ext", "eth0"); err != nil {
		t.Fatal(err)
	}
	run(t, n.Host, "ip", "addr", "flush", "dev", "eth0")
	run(t, n.Host, "sysctl", "-qw", "net.ipv6.conf.eth0.disable_ipv6=1")
	if n.OVS.Datapath == "netdev" {
		run(t, n.Host, "nft", `table netdev admin { chain eth0 { type filter hook ingress device "eth0" priority 0; policy drop; }; }`)
	}
	run(t, n.Host, "ip", "link", "set", "br-ext", "up")
	for f := range lab.Dual.Each {
		bits := map[lab.Family]int{lab.IPv4: 24, lab.IPv6: 64}[f]
		run(t, n.Host, "ip", "addr", "add", netip.PrefixFrom(n.Address(f), bits).String(), "dev", "br-ext")
		run(t, n.Host, "ip", "route", "add", "default", "via", w.Outside.Address(f).String())
	}
	if err := n.StartAgent(ctx); err != nil {
		t.Fatal(err)
	}
	awaitConnected(ctx, t, w, n, "dc")
	if ports, err := n.OVS.Vsctl(ctx, "list-ports", "br-ext"); err != nil || ports != "coelan-int3\neth0" {
		t.Errorf("ports of br-ext %q, %v", ports, err)
	}
	eachFamily(t, func(t *testing.T, f lab.Family) {
		becomes(t, "into the node", func(ctx context.Context) error {
			return probePath(ctx, path{"", w.Outside, n.Host, n.Address, w.Outside.Address}, f)
		})
	})
}
