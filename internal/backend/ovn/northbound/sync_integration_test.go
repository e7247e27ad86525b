// SPDX-License-Identifier: Apache-2.0

//go:build integration

package northbound

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"coelan.io/coelan/internal/backend/ovn/compile"
	"coelan.io/coelan/internal/backend/ovn/nb"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/intenttest"
	"coelan.io/coelan/internal/ovntest"
)

// world has pods on two nodes, two tenants with one subnet, and a shared Router.
func world() intent.Objects {
	o := intent.Objects{
		Routers: []intent.Router{
			{Name: "default", ID: 1}, {Name: "red", ID: 2}, {Name: "blue", ID: 3}, {Name: "lab", ID: 4, Shared: true},
			{Name: "audit", ID: 5, Imports: []string{"red"}}, {Name: "spare", ID: 6},
		},
		Networks: []intent.Network{
			{Name: "default", Router: "default"},
			{Name: "red", Router: "red", Subnets: []intent.NetworkSubnet{intenttest.Subnet("10.10.0.0/16"), intenttest.Subnet("fd00:10::/64")},
				DNS: intent.DNS{Searches: []string{"red.example", "example"},
					Servers: []netip.Addr{netip.MustParseAddr("192.0.2.53"), netip.MustParseAddr("2001:db8::53")}},
				DHCP: intent.DHCP{
					Enabled: true, Lease: 3600e9, NTP: []netip.Addr{netip.MustParseAddr("192.0.2.123")},
					NextServer: netip.MustParseAddr("192.0.2.69"), BootFile: "pxelinux.0",
					Routes: []intent.Route{{
						Destination: netip.MustParsePrefix("192.168.50.0/24"), NextHop: netip.MustParseAddr("10.10.0.5"),
					}},
				}},
			{Name: "red2", Router: "red", Subnets: []intent.NetworkSubnet{intenttest.Subnet("10.11.0.0/16")}},
			{Name: "blue", Router: "blue", Subnets: []intent.NetworkSubnet{intenttest.Subnet("10.10.0.0/16")}},
			{Name: "lab", Router: "lab", Subnets: []intent.NetworkSubnet{intenttest.Subnet("10.30.0.0/16"), intenttest.Subnet("fd00:30::/64")}},
			{Name: "audit", Router: "audit", Subnets: []intent.NetworkSubnet{intenttest.Subnet("10.20.0.0/16")}},
			{Name: "office", Physical: "dc", VLAN: 70, Subnets: []intent.NetworkSubnet{intenttest.Subnet("192.168.70.0/24")}},
		},
		ServiceRanges: []intent.ServiceRange{{Prefix: netip.MustParsePrefix("10.96.0.0/16")}},
		Ports: []intent.Port{
			intenttest.Port("shop", "web", "default", "n1", "10.244.1.2", "fd00:244:1::2"),
			intenttest.Port("shop", "db", "default", "n2", "10.244.2.2", "fd00:244:2::2"),
			intenttest.Port("red", "a", "red", "n1", "10.10.0.2", "fd00:10::2"), intenttest.Port("red", "b", "red2", "n2", "10.11.0.2"),
			intenttest.Port("red", "c", "red", "n2", "10.10.0.3"),
			intenttest.Port("blue", "a", "blue", "n1", "10.10.0.2"), intenttest.Port("lab", "a", "lab", "n2", "10.30.0.2", "fd00:30::2"),
			intenttest.Port("audit", "a", "audit", "n1", "10.20.0.2"), intenttest.Port("shop", "web.net1", "office", "n1", "192.168.70.9"),
		},
	}
	for i := range 2 {
		n := intent.Node{Name: fmt.Sprintf("n%d", i+1), MTU: 1400}
		for _, s := range []string{fmt.Sprintf("10.244.%d.0/24", i+1), fmt.Sprintf("fd00:244:%d::/64", i+1)} {
			p := netip.MustParsePrefix(s)
			n.Subnets = append(n.Subnets, intent.Subnet{Network: "default", Prefix: p, Gateway: p.Addr().Next()})
		}
		o.Nodes = append(o.Nodes, n)
	}
	return o
}

func lines(text string) []string { return strings.Fields(text) }

// A controller that starts again on a database that is right writes nothing; one that finds less,
// more or something else mends it, and leaves alone what is others'.
func TestSync(t *testing.T) {
	o := ovntest.Start(t)
	remotes := []string{o.Remote("nb")}
	c := start(t, remotes, intenttest.State(world()), nil)
	c.synced()
	if n := c.client.Transactions(); n != 1 {
		t.Errorf("%d transactions made a small world, not 1", n)
	}
	ports := lines(o.Nbctl("--columns=name", "--bare", "list", "Logical_Switch_Port"))
	if len(ports) != 9+2+2+5+1 {
		t.Errorf("ports: %v", ports)
	}
	want := o.Nbctl("--bare", "--columns=external_ids,static_routes", "list", "Logical_Router")
	if strings.Count(want, "coelan.io/owner=coelan/Router/") != 6 {
		t.Errorf("routers have no owners: %s", want)
	}
	c.stop()
	c = start(t, remotes, intenttest.State(world()), nil)
	c.synced()
	if n := c.client.Transactions(); n != 0 {
		t.Errorf("a restart wrote %d transactions, not 0", n)
	}

	// Each transaction is followed by a report, but the news of a row with others that belong to it
	// come one by one, so that it may take several.
	content := func() string {
		return o.Nbctl("--bare", "--columns=name,options", "list", "Logical_Router",
			"--", "--columns=name", "list", "Logical_Router_Port",
			"--", "--columns=name", "list", "Logical_Switch",
			"--", "--columns=name,addresses", "list", "Logical_Switch_Port")
	}
	sorted := func(text string) []string { return slices.Sorted(strings.SplitSeq(text, "\n")) }
	whole := sorted(content())
	many := slices.Repeat([][]string{{"ls-del", "net-red"}, {"lr-del", "router-default"}}, 10)
	for _, damage := range append(many, [][]string{
		{"lsp-del", "shop/web"},
		{"lsp-set-addresses", "shop/db", "0a:00:00:00:00:01 10.1.1.1"},
		{"set", "logical_router", "router-red", "options:mcast_relay=true"},
	}...) {
		o.Nbctl(damage...)
		c.until(fmt.Sprint(damage), func(error) bool { return slices.Equal(sorted(content()), whole) })
	}
	o.Nbctl("--ecmp", "lr-route-add", "router-lab", "0.0.0.0/0", "10.30.0.9")
	if got := o.Nbctl("lsp-get-addresses", "shop/db"); !strings.Contains(got, "10.244.2.2") {
		t.Errorf("the port has addresses %s", got)
	}
	if got := lines(o.Nbctl("--columns=name", "--bare", "list", "Logical_Switch_Port")); len(got) != len(ports) {
		t.Errorf("ports: %v", got)
	}
	if got := o.Nbctl("get", "logical_router", "router-red", "options"); strings.Contains(got, "mcast_relay") {
		t.Errorf("options are %s", got)
	}
	if got := o.Nbctl("lr-route-list", "router-lab"); !strings.Contains(got, "10.30.0.9") {
		t.Errorf("the route of another system is gone: %s", got)
	}
}

// Rows that are not ours stay, in our sets too, and one with a name of ours is an error.
func TestStrangers(t *testing.T) {
	o := ovntest.Start(t)
	o.Nbctl("ls-add", "net-blue")
	w := world()
	c := start(t, []string{o.Remote("nb")}, intenttest.State(w), nil)
	c.fails("Logical_Switch net-blue: the northbound database has a row of this name", nil)
	if got := o.Nbctl("lsp-list", "net-red"); !strings.Contains(got, "red/a") {
		t.Errorf("because of one row that is taken others are not there: %s", got)
	}
	o.Nbctl("lsp-add", "net-red", "vm", "--", "lsp-set-addresses", "vm", "0a:00:00:00:00:01 10.10.0.77")
	o.Nbctl("set", "logical_switch_port", "red/a", "external_ids:note=mine")
	o.Nbctl("ls-add", "other")
	o.Nbctl("ls-del", "net-blue")
	c.synced()
	if got := o.Nbctl("lsp-list", "net-blue"); !strings.Contains(got, "blue/a") {
		t.Errorf("the name is free, and the switch has %s", got)
	}
	w.Ports = w.Ports[:4] // all but a and b of red are gone
	c.set(intenttest.State(w))
	c.synced()
	red := o.Nbctl("lsp-list", "net-red")
	if !strings.Contains(red, "(vm)") || strings.Contains(red, "red/c") || !strings.Contains(red, "red/a") {
		t.Errorf("ports of red: %s", red)
	}
	if got := o.Nbctl("get", "logical_switch_port", "red/a", "external_ids:note"); !strings.Contains(got, "mine") {
		t.Errorf("the note is %s", got)
	}
	c.set(intenttest.State(intent.Objects{}))
	c.synced()
	if got := o.Nbctl("ls-list"); !strings.Contains(got, "(other)") || strings.Contains(got, "net-") {
		t.Errorf("switches: %s", got)
	}
}

// Two clusters share a database, with a group of load balancers of another system in it, which has
// nothing but its name to say so: none changes what the others have.
func TestClusters(t *testing.T) {
	o := ovntest.Start(t)
	o.Nbctl("create", "load_balancer_group", "name=theirs")
	remotes := []string{o.Remote("nb")}
	first := start(t, remotes, intenttest.State(world()), nil)
	first.synced()
	second := startCluster(t, "blue", remotes, intenttest.State(world()), nil)
	second.synced()
	first.stop()
	first = start(t, remotes, intenttest.State(world()), nil)
	first.synced()
	if n := first.client.Transactions(); n != 0 {
		t.Errorf("beside another cluster a restart wrote %d transactions, not 0", n)
	}
	if got := o.Nbctl("ls-list"); !strings.Contains(got, "(net-red)") || !strings.Contains(got, "(blue:net-red)") {
		t.Errorf("switches: %s", got)
	}
	if got := o.Nbctl("--bare", "--columns=name", "list", "load_balancer_group"); !strings.Contains(got, "theirs") {
		t.Errorf("groups of load balancers: %s", got)
	}
}

// Ports of a Network join the switch of another system that it names. Nothing else of the switch
// changes, and it stays when they go, whether the controller sees that or not.
func TestStrangersSwitch(t *testing.T) {
	o := ovntest.Start(t)
	o.Nbctl("ls-add", "neutron-1", "--", "set", "logical_switch", "neutron-1", "other_config:mcast_snoop=true", "--",
		"lsp-add", "neutron-1", "vm", "--", "lsp-set-addresses", "vm", "0a:00:00:00:00:01 10.70.0.77")
	switchRow := func() string {
		return o.Nbctl("--columns=name,other_config,external_ids,load_balancer,load_balancer_group", "list", "logical_switch", "neutron-1")
	}
	before := switchRow()
	w := world()
	without := intenttest.State(w)
	w.Networks = append(w.Networks, intent.Network{Name: "legacy", Router: "spare", Subnets: []intent.NetworkSubnet{intenttest.Subnet("10.70.0.0/16")},
		LogicalSwitch: "neutron-1"})
	w.Ports = append(w.Ports, intenttest.Port("legacy", "a", "legacy", "n1", "10.70.0.2"), intenttest.Port("legacy", "b", "legacy", "n2", "10.70.0.3"))
	remotes := []string{o.Remote("nb")}
	c := start(t, remotes, intenttest.State(w), nil)
	c.synced()
	has := func(what, want string) {
		t.Helper()
		var ports []string
		for _, p := range lines(o.Nbctl("lsp-list", "neutron-1")) {
			if strings.HasPrefix(p, "(") {
				ports = append(ports, strings.Trim(p, "()"))
			}
		}
		slices.Sort(ports)
		if got := strings.Join(ports, " "); got != want {
			t.Errorf("%s: the switch has %s, want %s", what, got, want)
		}
		if now := switchRow(); now != before {
			t.Errorf("%s: the switch was\n%s\nand is\n%s", what, before, now)
		}
	}
	has("at first", "legacy/a legacy/b vm")
	if got := o.Nbctl("ls-list"); strings.Contains(got, "net-legacy") {
		t.Errorf("there is a switch beside it: %s", got)
	}
	c.stop()
	c = start(t, remotes, intenttest.State(w), nil)
	c.synced()
	if n := c.client.Transactions(); n != 0 {
		t.Errorf("a restart wrote %d transactions, not 0", n)
	}
	o.Nbctl("lsp-del", "legacy/a")
	for c.client.Transactions() == 0 {
		c.until("the port is back", func(error) bool { return true })
	}
	has("after a port was deleted", "legacy/a legacy/b vm")
	w.Ports = w.Ports[:len(w.Ports)-1]
	c.set(intenttest.State(w))
	c.synced()
	has("after a Port has gone", "legacy/a vm")

	o.Nbctl("ls-del", "neutron-1")
	c.fails("has no Logical_Switch neutron-1 of another system", nil)
	o.Nbctl("ls-add", "neutron-1", "--", "set", "logical_switch", "neutron-1", "other_config:mcast_snoop=true")
	c.synced()
	before = switchRow()
	has("after it was made anew", "legacy/a")
	o.Nbctl("lsp-add", "neutron-1", "vm")
	c.stop()
	c = start(t, remotes, without, nil)
	c.synced()
	has("after the Network has gone while there was no controller", "vm")
}

// How far OVN is behind is measured while the Client is connected: with ovn-northd, and without any
// chassis, which is all of them; and not at all without ovn-northd.
func TestSyncProgress(t *testing.T) {
	o := ovntest.Start(t)
	c := start(t, []string{o.Remote("nb")}, intenttest.State(world()), nil)
	c.synced()
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	p, err := c.client.Progress(short)
	if err != nil || p.Northd != nil || p.Chassis != nil {
		t.Errorf("without ovn-northd: %+v, %v", p, err)
	}
	o.Northd()
	long, cancel := context.WithTimeout(t.Context(), syncTimeout)
	defer cancel()
	if p, err = c.client.Progress(long); err != nil || p.Northd == nil || p.Chassis == nil {
		t.Errorf("with ovn-northd: %+v, %v", p, err)
	}
	if n := c.client.Transactions(); n != 1 {
		t.Errorf("rows were written in %d transactions, not 1", n)
	}
	c.stop()
	if _, err := c.client.Progress(t.Context()); !errors.Is(err, ErrNotConnected) {
		t.Errorf("after the end: %v", err)
	}
}

// One pod more is one transaction with a row and elements.
func TestOnePodMore(t *testing.T) {
	o := ovntest.Start(t)
	store := intent.NewStore()
	s, _ := store.Update(func(tx *intent.Tx) error { tx.Replace(world()); return nil })
	c := start(t, []string{o.Remote("nb")}, s, nil)
	c.synced()
	before := c.client.Transactions()
	s, _ = store.Update(func(tx *intent.Tx) error {
		tx.SetPort(intenttest.Port("shop", "new", "default", "n1", "10.244.1.9"))
		return nil
	})
	c.set(s)
	for !strings.Contains(o.Nbctl("lsp-list", "net-default@n1"), "shop/new") {
		c.until("the pod is there", func(error) bool { return true })
	}
	s, _ = store.Update(func(tx *intent.Tx) error { tx.DeletePort("shop/new"); return nil })
	c.set(s)
	for strings.Contains(o.Nbctl("lsp-list", "net-default@n1"), "shop/new") {
		c.until("the pod is gone", func(error) bool { return true })
	}
	if n := c.client.Transactions() - before; n != 2 {
		t.Errorf("a pod came and went with %d transactions, not 2", n)
	}
}

// A database that is wiped, or is that of last week, is mended; one that is away or read-only is
// an error that says so.
func TestDatabaseUnderIt(t *testing.T) {
	o := ovntest.Start(t)
	w := world()
	c := start(t, []string{o.Remote("nb")}, intenttest.State(w), nil)
	c.synced()
	backup := o.SaveNB()
	o.WipeNB()
	c.fails("does not answer", ErrUnreachable)
	c.synced()
	if got := o.Nbctl("lsp-list", "net-red"); !strings.Contains(got, "red/a") {
		t.Errorf("after it was wiped: %s", got)
	}
	w.Ports = append(w.Ports[:1], intenttest.Port("shop", "young", "default", "n1", "10.244.1.77"))
	c.set(intenttest.State(w))
	c.synced()
	o.RestoreNB(backup)
	c.fails("does not answer", ErrUnreachable)
	c.synced()
	if got := o.Nbctl("lsp-list", "net-default@n1"); !strings.Contains(got, "shop/young") {
		t.Errorf("after it was restored: %s", got)
	}
	if got := o.Nbctl("lsp-list", "net-red"); strings.Contains(got, "red/a") {
		t.Errorf("what is wanted no longer has come back: %s", got)
	}
	o.StopNB()
	c.fails("does not answer", ErrUnreachable)
	o.StartNB()
	c.synced()
}

// A connection that is lost while a change is being made of what differs ends in an error.
func TestDatabaseUnderItIsLost(t *testing.T) {
	o := ovntest.Start(t)
	compiler := compile.New(compile.Options{})
	compiler.Update(intenttest.State(world()))
	c := New(Options{Remotes: []string{o.Remote("nb")}, Rows: compiler.Rows})
	s, err := connect(t.Context(), c.o, c.changed)
	if err != nil {
		t.Fatal(err)
	}
	s.cli.Close()
	w := writer{session: s, client: c, pending: map[nb.Ref]*nb.Change{}, all: true}
	if err := w.pass(t.Context()); err == nil {
		t.Error("all is written, without a connection")
	}
}
