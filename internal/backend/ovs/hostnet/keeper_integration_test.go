// SPDX-License-Identifier: Apache-2.0

//go:build integration

package hostnet

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
)

var quiet = slog.New(slog.DiscardHandler)

// tap makes an interface as ovs-vswitchd does; closing it as its death does.
func tap(t *testing.T, name string) netlink.Link {
	t.Helper()
	must(t, netlink.LinkAdd(&netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: name}, Mode: netlink.TUNTAP_MODE_TAP}))
	link, err := netlink.LinkByName(name)
	must(t, err)
	must(t, netlink.LinkSetUp(link))
	t.Cleanup(func() {
		if link, err := netlink.LinkByName(name); err == nil {
			_ = netlink.LinkDel(link)
		}
	})
	return link
}

func runKeeper(t *testing.T, path string) *Keeper {
	t.Helper()
	k := NewKeeper(slog.New(slog.NewTextHandler(t.Output(), nil)), path, procSys)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	t.Cleanup(func() { cancel(); must(t, <-done) })
	return k
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// configure gives an interface what a node's uplink has.
func configure(t *testing.T) {
	t.Helper()
	for _, c := range []string{
		"addr add 192.168.50.1/24 brd + dev phy0", "addr add 192.168.51.1/32 dev phy0", "addr add fd50::1/64 nodad dev phy0",
		"route add default via 192.168.50.254 proto static metric 50", "route add 10.99.0.0/16 via 192.168.50.9 src 192.168.51.1 mtu 1400",
		"route add 172.31.0.1 dev phy0 scope link", "route add 172.31.1.0/24 via 172.31.0.1 dev phy0",
		"route add 10.98.0.0/16 via 192.168.50.9 table 77", "-6 route add default via fd50::fe metric 99",
	} {
		run(t, "ip", strings.Fields(c)...)
	}
}

func shown(t *testing.T) string { return shownOf(t, "phy0") }

func shownOf(t *testing.T, link string) string {
	t.Helper()
	out := run(t, "ip", "-4", "-br", "addr", "show", "dev", link) + run(t, "ip", "-6", "addr", "show", "dev", link, "scope", "global") +
		run(t, "ip", "route", "show", "table", "all", "dev", link) + run(t, "ip", "-6", "route", "show", "dev", link)
	var kept []string
	for _, l := range strings.Split(out, "\n") {
		// Its number and flags of state are another one's, and the kernel's own
		// routes take their time.
		if l = strings.Join(strings.Fields(l), " "); !strings.Contains(l, link+": <") && !strings.Contains(l, "proto kernel") {
			kept = append(kept, strings.NewReplacer(" linkdown", "", "DOWN", "", "UNKNOWN", "").Replace(l))
		}
	}
	return strings.Join(kept, "\n")
}

func TestKeeperRestores(t *testing.T) {
	path := filepath.Join(t.TempDir(), "uplink.json")
	link := tap(t, "phy0")
	configure(t)
	before := shown(t)
	k := runKeeper(t, path)
	must(t, k.Set("phy0", netip.MustParseAddr("192.168.50.1")))
	remembered := func() bool {
		m, err := load(path)
		return err == nil && m != nil && strings.Count(fmt.Sprint(m.Objects), "route 10.") == 2
	}
	eventually(t, "the uplink is remembered", remembered)
	for range 3 {
		must(t, netlink.LinkDel(link))
		link = tap(t, "phy0")
		returned(t, before)
	}
}

// returned waits until the interface has what it had before.
func returned(t *testing.T, before string) {
	t.Helper()
	deadline := time.Now().Add(5 * time.Second)
	for {
		now := shown(t)
		if now == before {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("addresses and routes have not returned (-before +now):\n%s", cmp.Diff(before, now))
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestKeeperRestoresWhatWentWhileTheAgentWasAway(t *testing.T) {
	path := filepath.Join(t.TempDir(), "uplink.json")
	link := tap(t, "phy0")
	configure(t)
	before := shown(t)
	k := NewKeeper(quiet, path, procSys)
	must(t, k.Set("phy0", netip.MustParseAddr("192.168.50.1")))
	must(t, k.step())
	must(t, netlink.LinkDel(link))
	tap(t, "phy0")
	runKeeper(t, path)
	returned(t, before)
}

func TestKeeperLeavesTheAdministratorAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "uplink.json")
	tap(t, "phy0")
	configure(t)
	k := NewKeeper(quiet, path, procSys)
	must(t, k.Set("phy0", netip.MustParseAddr("192.168.50.1")))
	must(t, k.step())
	run(t, "ip", "addr", "del", "192.168.50.1/24", "dev", "phy0")
	run(t, "ip", "addr", "add", "192.168.50.7/24", "dev", "phy0")
	after := shown(t)
	must(t, k.step())
	if diff := cmp.Diff(after, shown(t)); diff != "" {
		t.Errorf("a change by hand was undone (-hand +now):\n%s", diff)
	}
	must(t, k.Set("", netip.Addr{}))
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the file is still there: %v", err)
	}
}

func TestKeeperDamagedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "uplink.json")
	must(t, os.WriteFile(path, []byte("{"), 0o600))
	tap(t, "phy0")
	configure(t)
	k := NewKeeper(quiet, path, procSys)
	must(t, k.Set("phy0", netip.MustParseAddr("192.168.50.1")))
	must(t, k.step())
	if m, err := load(path); err != nil || m == nil || m.Link != "phy0" {
		t.Errorf("not written again: %+v, %v", m, err)
	}
}

// TestNeighbours has the kernel find a neighbor in another namespace.
func TestNeighbours(t *testing.T) {
	link := veth(t, "phy0", "192.168.50.1/24")
	run(t, "ip", "netns", "add", "hnpeer")
	t.Cleanup(func() { run(t, "ip", "netns", "del", "hnpeer") })
	const mac = "0a:00:00:00:00:99"
	for _, c := range []string{
		"link set pphy0 netns hnpeer", "-n hnpeer link set pphy0 address " + mac, "-n hnpeer addr add 192.168.50.2/24 dev pphy0",
		"-n hnpeer addr add 192.168.50.9/24 dev pphy0", "-n hnpeer link set pphy0 up", "route add 192.168.60.0/24 via 192.168.50.9",
	} {
		run(t, "ip", strings.Fields(c)...)
	}
	s := newTables()
	n := NewNeighbours(quiet, s)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	defer func() { cancel(); must(t, <-done) }()
	n.Set("phy0", []netip.Addr{netip.MustParseAddr("192.168.50.2")})
	s.expect(t, "phy0 192.168.50.2 "+mac)
	n.Renew()
	s.expect(t, "phy0 192.168.50.2 "+mac)
	// Behind a router, the router is the neighbor.
	n.Set("phy0", []netip.Addr{netip.MustParseAddr("192.168.50.2"), netip.MustParseAddr("192.168.60.5")})
	s.expect(t, "phy0 192.168.50.9 "+mac)
	// Another network card.
	must(t, netlink.NeighSet(&netlink.Neigh{
		LinkIndex: link.Attrs().Index, IP: net.IPv4(192, 168, 50, 2), State: netlink.NUD_REACHABLE,
		HardwareAddr: net.HardwareAddr{0x0a, 0, 0, 0, 0, 0x77},
	}))
	s.expect(t, "phy0 192.168.50.2 0a:00:00:00:00:77")
	select {
	case e := <-s.entries:
		t.Errorf("entry %q was written for no reason", e)
	default:
	}
}

// TestTunnelRoutes changes the kernel's routes to peers.
func TestTunnelRoutes(t *testing.T) {
	veth(t, "phy0", "192.168.50.1/24", "fd50::1/64")
	veth(t, "other0", "192.168.70.1/24")
	near, far := netip.MustParseAddr("192.168.50.2"), netip.MustParseAddr("192.168.60.5")
	near6, far6 := netip.MustParseAddr("fd50::2"), netip.MustParseAddr("fd60::5")
	via := func(dst netip.Addr, gateway string) TunnelRoute {
		return TunnelRoute{Dst: dst, Dev: "phy0", Gateway: netip.MustParseAddr(gateway)}
	}
	here := func(dst netip.Addr) TunnelRoute { return TunnelRoute{Dst: dst, Dev: "phy0"} }
	s := newTables()
	stranger := TunnelRoute{Dst: netip.MustParseAddr("10.9.9.9"), Dev: "br9"}
	// What an earlier run left behind, and what others made.
	must(t, s.SetRoute(t.Context(), here(netip.MustParseAddr("192.168.50.77"))))
	must(t, s.SetRoute(t.Context(), via(near, "192.168.50.88")))
	must(t, s.SetRoute(t.Context(), stranger))
	n := NewNeighbours(quiet, s)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	defer func() { cancel(); must(t, <-done) }()
	n.Set("phy0", []netip.Addr{near, near6, far, far6})
	s.has(t, "peers on the link", stranger, here(near), here(near6))
	run(t, "ip", "route", "add", "192.168.60.0/24", "via", "192.168.50.9")
	run(t, "ip", "route", "add", "fd60::/64", "via", "fd50::9")
	s.has(t, "peers behind a router", stranger, here(near), here(near6), via(far, "192.168.50.9"), via(far6, "fd50::9"))
	run(t, "ip", "route", "replace", "192.168.60.0/24", "via", "192.168.50.8")
	s.has(t, "another router", stranger, here(near), here(near6), via(far, "192.168.50.8"), via(far6, "fd50::9"))
	run(t, "ip", "route", "replace", "192.168.60.0/24", "via", "192.168.70.9")
	run(t, "ip", "route", "replace", "blackhole", "fd60::/64")
	s.has(t, "another interface, and none", stranger, here(near), here(near6))
	s.clear()
	n.Renew()
	s.has(t, "ovs-vswitchd has restarted", here(near), here(near6))
	run(t, "ip", "link", "set", "phy0", "down")
	s.has(t, "the bridge is down")
	run(t, "ip", "link", "set", "phy0", "up")
	s.has(t, "the bridge is up", here(near)) // its IPv6 address went
	written := s.count()
	run(t, "ip", "addr", "add", "192.168.50.11/24", "dev", "phy0")
	eventually(t, "routes are written again for another address", func() bool { return s.count() > written })
	n.Set("phy0", nil)
	s.has(t, "no peers")
}

// TestConfirm has the kernel ask for a neighbor that does not answer.
func TestConfirm(t *testing.T) {
	link := veth(t, "gw0", "10.244.1.1/24", "fd44::1/64")
	index := link.Attrs().Index
	known := net.HardwareAddr{0x0a, 0, 0, 0, 0, 1}
	want := map[string]string{}
	for _, ip := range []string{"10.244.1.5", "10.244.1.6", "fd44::5"} {
		must(t, knock(netip.MustParseAddr(ip)))
		want[ip] = known.String()
	}
	want["10.244.1.6"] = ""
	h := newHost(t)
	must(t, h.Confirm("gw0", func(a netip.Addr) (net.HardwareAddr, bool) { return known, a.String() != "10.244.1.6" }))
	got := map[string]string{}
	for _, f := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		entries, err := netlink.NeighList(index, f)
		must(t, err)
		for _, e := range entries {
			if _, asked := want[e.IP.String()]; asked {
				got[e.IP.String()] = e.HardwareAddr.String()
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("neighbours (-want +got):\n%s", diff)
	}
}
