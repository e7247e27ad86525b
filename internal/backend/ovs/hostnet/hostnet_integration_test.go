// SPDX-License-Identifier: Apache-2.0

//go:build integration

package hostnet

import (
	"context"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"

	"coelan.io/coelan/internal/ovstest"
)

// TestMain runs the tests in a network namespace of their own, which ends with them.
func TestMain(m *testing.M) {
	ovstest.OwnNamespace()
	goleak.VerifyTestMain(m)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// veth makes a pair with the first end called name and the other end up, and removes
// it after the test.
func veth(t *testing.T, name string, addrs ...string) netlink.Link {
	t.Helper()
	must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name, MTU: 1500}, PeerName: "p" + name}))
	link, err := netlink.LinkByName(name)
	must(t, err)
	t.Cleanup(func() {
		if link, err := netlink.LinkByName(name); err == nil {
			_ = netlink.LinkDel(link)
		}
	})
	peer, err := netlink.LinkByName("p" + name)
	must(t, err)
	must(t, netlink.LinkSetUp(peer))
	for _, a := range addrs {
		p := netip.MustParsePrefix(a)
		must(t, netlink.AddrAdd(link, &netlink.Addr{IPNet: ipNet(p), Flags: 0x02}))
		must(t, netlink.LinkSetUp(link))
	}
	return link
}

func newHost(t *testing.T) *Host {
	t.Helper()
	h, err := New(quiet, "/proc/sys")
	must(t, err)
	t.Cleanup(h.Close)
	t.Cleanup(func() { must(t, RemoveSNAT()) })
	return h
}

func pfx(s ...string) (ps []netip.Prefix) {
	for _, p := range s {
		ps = append(ps, netip.MustParsePrefix(p))
	}
	return ps
}

func overlay(name string) Desired {
	a := netip.MustParseAddr
	return Desired{
		Gateway: Gateway{Name: name, MTU: 1450, Addresses: pfx("10.244.1.1/24", "fd00:1::1/64")},
		Routes: []Route{
			{Destination: pfx("10.244.1.0/24")[0], Gateway: true, Source: a("10.244.1.1")},
			{Destination: pfx("10.244.2.0/24")[0], Via: a("10.244.2.1"), Gateway: true, Source: a("10.244.1.1")},
			{Destination: pfx("fd00:1::/64")[0], Gateway: true, Source: a("fd00:1::1")},
			{Destination: pfx("fd00:2::/64")[0], Via: a("fd00:2::1"), Gateway: true, Source: a("fd00:1::1")},
		},
		SNAT: SNAT{
			Enabled: true,
			Pods:    pfx("10.244.1.0/24", "fd00:1::/64"),
			Direct:  pfx("10.244.1.0/24", "10.244.2.0/24", "fd00:1::/64", "fd00:2::/64"),
		},
	}
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

func TestApplyIsIdempotent(t *testing.T) {
	veth(t, "gw0")
	h := newHost(t)
	n, err := h.Apply(overlay("gw0"))
	must(t, err)
	if n == 0 {
		t.Fatal("nothing was written")
	}
	for _, tc := range []struct{ cmd, want string }{
		{"ip -4 addr show dev gw0", "inet 10.244.1.1/24"},
		{"ip -6 addr show dev gw0", "inet6 fd00:1::1/64"},
		{"ip link show dev gw0", "mtu 1450"},
		{"ip -4 route show proto 206", "10.244.1.0/24 dev gw0 scope link src 10.244.1.1"},
		{"ip -4 route show proto 206", "10.244.2.0/24 via 10.244.2.1 dev gw0 src 10.244.1.1 onlink"},
		{"ip -6 route show proto 206", "fd00:1::/64 dev gw0"},
		{"ip -6 route show proto 206", "fd00:2::/64 via fd00:2::1 dev gw0 src fd00:1::1"},
		{"nft list table inet coelan", "ip saddr @pods4 ip daddr != @direct4 oifname != \"gw0\" masquerade fully-random"},
		{"nft list table inet coelan", "ip6 saddr @pods6 ip6 daddr != @direct6 oifname != \"gw0\" masquerade fully-random"},
		{"nft list table inet coelan", "icmp type redirect drop"},
		{"nft list table inet coelan", "icmpv6 type nd-redirect drop"},
		{"nft list set inet coelan direct4", "10.244.1.0-10.244.2.255"},
		{"cat /proc/sys/net/ipv4/conf/gw0/rp_filter", "2"},
		{"cat /proc/sys/net/ipv4/ip_forward", "1"},
		{"cat /proc/sys/net/ipv6/conf/all/forwarding", "1"},
		{"cat /proc/sys/net/ipv6/conf/gw0/accept_ra", "0"},
	} {
		args := strings.Fields(tc.cmd)
		if out := run(t, args[0], args[1:]...); !strings.Contains(out, tc.want) {
			t.Errorf("%s: no %q in\n%s", tc.cmd, tc.want, out)
		}
	}
	if n, err := h.Apply(overlay("gw0")); n != 0 || err != nil {
		t.Errorf("applied again: %d writes, %v", n, err)
	}
	if n, err := newHost(t).Apply(overlay("gw0")); n != 0 || err != nil {
		t.Errorf("applied by another process: %d writes, %v", n, err)
	}
}

func TestApplyChanges(t *testing.T) {
	link := veth(t, "gw0")
	veth(t, "up0", "192.168.50.1/24", "fd50::1/64")
	h := newHost(t)
	_, err := h.Apply(overlay("gw0"))
	must(t, err)
	// A foreign address is removed, a foreign route stays.
	must(t, netlink.AddrAdd(link, &netlink.Addr{IPNet: ipNet(pfx("10.9.9.9/32")[0])}))
	foreign := netlink.Route{Dst: ipNet(pfx("10.77.0.0/16")[0]), LinkIndex: link.Attrs().Index, Protocol: 4}
	must(t, netlink.RouteAdd(&foreign))

	a := netip.MustParseAddr
	d := overlay("gw0")
	d.Gateway.Addresses = pfx("10.244.7.1/24")
	d.Routes = []Route{
		{Destination: pfx("10.244.7.0/24")[0], Gateway: true, Source: a("10.244.7.1")},
		{Destination: pfx("10.244.2.0/24")[0], Via: a("192.168.50.2")},
		{Destination: pfx("fd00:2::/64")[0], Via: a("fd50::2")},
	}
	d.SNAT.Pods = pfx("10.244.7.0/24")
	_, err = h.Apply(d)
	must(t, err)
	want := `10.244.2.0/24 via 192.168.50.2 dev up0 
10.244.7.0/24 dev gw0 scope link src 10.244.7.1 
`
	if diff := cmp.Diff(want, run(t, "ip", "route", "show", "proto", "206")); diff != "" {
		t.Errorf("routes (-want +got):\n%s", diff)
	}
	if out := run(t, "ip", "-6", "route", "show", "proto", "206"); !strings.HasPrefix(out, "fd00:2::/64 via fd50::2 dev up0 ") || strings.Count(out, "\n") != 1 {
		t.Errorf("IPv6 routes:\n%s", out)
	}
	if out := run(t, "ip", "addr", "show", "dev", "gw0"); strings.Contains(out, "10.9.9.9") || strings.Contains(out, "fd00:1::1") {
		t.Errorf("a foreign address remained:\n%s", out)
	}
	if out := run(t, "ip", "route"); !strings.Contains(out, "10.77.0.0/16") {
		t.Errorf("a foreign route was removed:\n%s", out)
	}
	if out := run(t, "nft", "list", "set", "inet", "coelan", "pods4"); !strings.Contains(out, "10.244.7.0/24") {
		t.Errorf("set pods4:\n%s", out)
	}
	d.SNAT.Enabled = false
	_, err = h.Apply(d)
	must(t, err)
	if out := run(t, "nft", "list", "table", "inet", "coelan"); strings.Contains(out, "masquerade") {
		t.Errorf("masquerading although turned off:\n%s", out)
	}
	if n, err := h.Apply(d); n != 0 || err != nil {
		t.Errorf("applied again: %d writes, %v", n, err)
	}
}

func TestApplyErrorsNameTheObject(t *testing.T) {
	h := newHost(t)
	d := overlay("gw0")
	if _, err := h.Apply(d); err == nil || !strings.Contains(err.Error(), "gateway interface gw0") {
		t.Errorf("missing gateway: %v", err)
	}
	link := veth(t, "gw0")
	veth(t, "up0", "192.168.50.1/24")
	must(t, netlink.LinkSetUp(link))
	foreign := netlink.Route{Dst: ipNet(pfx("10.244.2.0/24")[0]), LinkIndex: link.Attrs().Index, Protocol: 4}
	must(t, netlink.RouteAdd(&foreign))
	if _, err := h.Apply(d); err == nil || !strings.Contains(err.Error(), "route 10.244.2.0/24: there is one already") {
		t.Errorf("foreign route: %v", err)
	}
	must(t, netlink.RouteDel(&foreign))
	must(t, netlink.RouteAdd(&netlink.Route{Gw: net.IPv4(192, 168, 50, 9)}))
	d.Routes = append(d.Routes, Route{Destination: pfx("10.244.3.0/24")[0], Via: netip.MustParseAddr("192.168.60.3")})
	if _, err := h.Apply(d); err == nil || !strings.Contains(err.Error(), "192.168.60.3 is behind the router 192.168.50.9") {
		t.Errorf("next hop off link: %v", err)
	}
	if out := run(t, "ip", "route", "show", "proto", "206"); !strings.Contains(out, "10.244.2.0/24") {
		t.Errorf("one wrong route kept the others away:\n%s", out)
	}
}

// TestRunPutsBack damages every kind of state and waits for its return.
func TestRunPutsBack(t *testing.T) {
	link := veth(t, "gw0")
	h := newHost(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	h.Set(overlay("gw0"))
	go func() { done <- h.Run(ctx) }()
	defer func() { cancel(); must(t, <-done) }()
	synced, stop := context.WithTimeout(ctx, 5*time.Second)
	defer stop()
	must(t, h.Watch(synced, func(s Status) {
		if s.Synced {
			stop()
		}
	}))
	if s := h.Status(); !s.Synced {
		t.Fatalf("not synchronized: %+v", s)
	}
	for _, tc := range []struct {
		name   string
		damage func()
		back   func() bool
	}{
		{"route", func() { run(t, "ip", "route", "del", "10.244.2.0/24") }, shows(t, "10.244.2.0/24", "ip", "route")},
		{"on-link route", func() { run(t, "ip", "route", "del", "10.244.1.0/24") }, shows(t, "10.244.1.0/24", "ip", "route")},
		{"IPv6 route", func() { run(t, "ip", "-6", "route", "del", "fd00:2::/64") }, shows(t, "fd00:2::/64", "ip", "-6", "route")},
		{"address", func() { run(t, "ip", "addr", "del", "10.244.1.1/24", "dev", "gw0") }, shows(t, "10.244.1.1/24", "ip", "addr")},
		{"link down", func() { must(t, netlink.LinkSetDown(link)) }, shows(t, "fd00:2::/64", "ip", "-6", "route")},
		{"MTU", func() { must(t, netlink.LinkSetMTU(link, 1300)) }, shows(t, "mtu 1450", "ip", "link", "show", "gw0")},
		{"sysctl", func() { must(t, os.WriteFile("/proc/sys/net/ipv4/conf/gw0/rp_filter", []byte("1"), 0)) },
			shows(t, "2", "cat", "/proc/sys/net/ipv4/conf/gw0/rp_filter")},
		{"rule", func() { run(t, "nft", "flush", "chain", "inet", "coelan", "postrouting") },
			shows(t, "fully-random", "nft", "list", "table", "inet", "coelan")},
		{"set element", func() { run(t, "nft", "flush", "set", "inet", "coelan", "pods4") },
			shows(t, "10.244.1.0/24", "nft", "list", "set", "inet", "coelan", "pods4")},
		{"interface made anew", func() {
			must(t, netlink.LinkDel(link))
			link = veth(t, "gw0")
		}, shows(t, "10.244.2.0/24", "ip", "route")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.damage()
			deadline := time.Now().Add(3 * time.Second)
			for !tc.back() {
				if time.Now().After(deadline) {
					t.Fatal("not put back")
				}
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
}

func shows(t *testing.T, want, name string, args ...string) func() bool {
	return func() bool {
		out, err := exec.Command(name, args...).CombinedOutput()
		return err == nil && strings.Contains(string(out), want)
	}
}

func TestUplink(t *testing.T) {
	veth(t, "up0", "192.168.50.1/24", "fd50::1/64")
	for _, a := range []string{"192.168.50.1", "fd50::1"} {
		u, err := FindUplink(netip.MustParseAddr(a))
		if err != nil || u.Name != "up0" || u.MTU != 1500 || u.Address.Addr().String() != a {
			t.Errorf("%s: %+v, %v", a, u, err)
		}
	}
	if _, err := FindUplink(netip.MustParseAddr("192.168.50.2")); err == nil || !strings.Contains(err.Error(), "192.168.50.2") {
		t.Errorf("unknown address: %v", err)
	}
}

func TestForwardingKeepsRouterAdvertisements(t *testing.T) {
	veth(t, "gw0")
	veth(t, "up0")
	dir := "/proc/sys/net/ipv6/conf"
	must(t, os.WriteFile(filepath.Join(dir, "all/forwarding"), []byte("0"), 0))
	must(t, os.WriteFile(filepath.Join(dir, "up0/accept_ra"), []byte("1"), 0))
	d := overlay("gw0")
	d.Uplink = "up0"
	_, err := newHost(t).Apply(d)
	must(t, err)
	if out := run(t, "cat", filepath.Join(dir, "up0/accept_ra")); strings.TrimSpace(out) != "2" {
		t.Errorf("accept_ra of the uplink is %s", out)
	}
}

// TestCardsDoNotAnswer has a card under a bridge keep silent about the bridge's address.
func TestCardsDoNotAnswer(t *testing.T) {
	veth(t, "gw0")
	veth(t, "card0")
	veth(t, "card1")
	path := "/proc/sys/net/ipv4/conf/card1/arp_ignore"
	must(t, os.WriteFile(path, []byte("2"), 0))
	d := overlay("gw0")
	d.Cards = []string{"card0", "card1", "patch-port-of-the-switch"}
	h := newHost(t)
	_, err := h.Apply(d)
	must(t, err)
	for card, want := range map[string]string{"card0": "1", "card1": "2"} {
		if out := run(t, "cat", "/proc/sys/net/ipv4/conf/"+card+"/arp_ignore"); strings.TrimSpace(out) != want {
			t.Errorf("arp_ignore of %s is %s, want %s", card, strings.TrimSpace(out), want)
		}
	}
	if n, err := h.Apply(d); n != 0 || err != nil {
		t.Errorf("applied again: %d writes, %v", n, err)
	}
}

// TestRunDoesNotFight has another program undo each write: the two must not keep a processor busy.
func TestRunDoesNotFight(t *testing.T) {
	veth(t, "gw0")
	h := newHost(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	h.Set(overlay("gw0"))
	go func() { done <- h.Run(ctx) }()
	route := &netlink.Route{Dst: ipNet(pfx("10.244.2.0/24")[0]), Table: 254, Protocol: Protocol}
	removed := 0
	for end := time.Now().Add(1500 * time.Millisecond); time.Now().Before(end); {
		if netlink.RouteDel(route) == nil {
			removed++
		}
	}
	cancel()
	must(t, <-done)
	if removed < 5 || removed > 30 {
		t.Errorf("the route was put back %d times in 1.5 s", removed)
	}
}
