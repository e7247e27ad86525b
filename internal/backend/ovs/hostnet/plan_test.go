// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"coelan.io/coelan/internal/backend/ovs/datapath"
)

// routesOn are routes as the kernel lists them: "destination [via address] [src address] dev index
// [mtu bytes]".
func routesOn(t *testing.T, texts ...string) map[routeKey]netlink.Route {
	t.Helper()
	all := map[routeKey]netlink.Route{}
	for _, text := range texts {
		words := strings.Fields(text)
		r := netlink.Route{Dst: ipNet(netip.MustParsePrefix(words[0])), Protocol: Protocol}
		for pair := range slices.Chunk(words[1:], 2) {
			switch pair[0] {
			case "via":
				r.Gw = netip.MustParseAddr(pair[1]).AsSlice()
			case "src":
				r.Src = netip.MustParseAddr(pair[1]).AsSlice()
			case "dev":
				_, _ = fmt.Sscan(pair[1], &r.LinkIndex)
			case "mtu":
				_, _ = fmt.Sscan(pair[1], &r.MTU)
			default:
				t.Fatalf("route %q: %s", text, pair[0])
			}
		}
		all[keyOf(r)] = r
	}
	return all
}

func routeText(r netlink.Route) string {
	k := keyOf(r)
	text := k.dst.String()
	if k.via.IsValid() {
		text += " via " + k.via.String()
	}
	if k.src.IsValid() {
		text += " src " + k.src.String()
	}
	if text += fmt.Sprint(" dev ", k.device); k.mtu > 0 {
		text += fmt.Sprint(" mtu ", k.mtu)
	}
	return text
}

// A route that changes its way is replaced, never removed first; what is not wanted goes at the
// end.
func TestPlanRoutes(t *testing.T) {
	for name, tc := range map[string]struct {
		have, want    []string
		change, stale []string
	}{
		"nothing differs": {
			have: []string{"10.244.2.0/24 via 192.0.2.2 dev 2"}, want: []string{"10.244.2.0/24 via 192.0.2.2 dev 2"},
		},
		"new ones by destination": {
			want: []string{"fd44:2::/64 dev 7", "10.244.3.0/24 dev 7", "10.244.2.0/24 dev 7", "10.244.2.0/23 dev 7"},
			change: []string{
				"add 10.244.2.0/23 dev 7", "add 10.244.2.0/24 dev 7", "add 10.244.3.0/24 dev 7", "add fd44:2::/64 dev 7",
			},
		},
		"one that is not wanted": {have: []string{"10.244.2.0/24 dev 7"}, stale: []string{"10.244.2.0/24 dev 7"}},
		"another next hop": {
			have: []string{"10.244.2.0/24 via 192.0.2.2 dev 2"}, want: []string{"10.244.2.0/24 via 192.0.2.3 dev 2"},
			change: []string{"10.244.2.0/24 via 192.0.2.2 dev 2 -> 10.244.2.0/24 via 192.0.2.3 dev 2"},
		},
		"another source and MTU": {
			have: []string{"10.244.2.0/24 dev 7"}, want: []string{"10.244.2.0/24 src 10.244.1.1 dev 7 mtu 1400"},
			change: []string{"10.244.2.0/24 dev 7 -> 10.244.2.0/24 src 10.244.1.1 dev 7 mtu 1400"},
		},
		"another device in IPv4": {
			have: []string{"10.244.2.0/24 dev 7"}, want: []string{"10.244.2.0/24 dev 8"},
			change: []string{"10.244.2.0/24 dev 7 -> 10.244.2.0/24 dev 8"},
		},
		"another device in IPv6": {
			have: []string{"fd44:2::/64 dev 7"}, want: []string{"fd44:2::/64 dev 8"},
			change: []string{"fd44:2::/64 dev 7 -> fd44:2::/64 dev 8, which leaves it"},
		},
		"another next hop in IPv6": {
			have: []string{"fd44:2::/64 via fd33::2 dev 2"}, want: []string{"fd44:2::/64 via fd33::3 dev 2"},
			change: []string{"fd44:2::/64 via fd33::2 dev 2 -> fd44:2::/64 via fd33::3 dev 2"},
		},
		"one of two to a destination": {
			have:   []string{"10.244.2.0/24 dev 7", "10.244.2.0/24 dev 8"},
			want:   []string{"10.244.2.0/24 dev 9"},
			change: []string{"10.244.2.0/24 dev 7 -> 10.244.2.0/24 dev 9"}, stale: []string{"10.244.2.0/24 dev 8"},
		},
		"another length is another destination": {
			have: []string{"10.244.2.0/24 dev 7"}, want: []string{"10.244.2.0/25 dev 7"},
			change: []string{"add 10.244.2.0/25 dev 7"}, stale: []string{"10.244.2.0/24 dev 7"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			changes, stale := planRoutes(routesOn(t, tc.have...), routesOn(t, tc.want...))
			var got, gone []string
			for _, c := range changes {
				text := "add "
				if c.replaces != nil {
					text = routeText(*c.replaces) + " -> "
				}
				if text += routeText(c.route); c.leaves() {
					text += ", which leaves it"
				}
				got = append(got, text)
			}
			for _, r := range stale {
				gone = append(gone, routeText(r))
			}
			if diff := cmp.Diff(tc.change, got); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.stale, gone); diff != "" {
				t.Errorf("stale (-want +got):\n%s", diff)
			}
		})
	}
}

// Each floating IP has one rule, which leads to the table of answers; whatever else carries our
// number goes.
func TestPlanReplyRules(t *testing.T) {
	rule := func(change func(*netlink.Rule)) netlink.Rule {
		r := *replyRule(netip.MustParseAddr("192.0.2.1"))
		change(&r)
		return r
	}
	right := rule(func(*netlink.Rule) {})
	subnet := rule(func(r *netlink.Rule) { r.Src = ipNet(netip.MustParsePrefix("192.0.2.0/24")) })
	for name, tc := range map[string]struct {
		have      []netlink.Rule
		floating  []string
		add, gone []string
	}{
		"nothing":           {},
		"new ones":          {floating: []string{"192.0.2.1", "2001:db8::1"}, add: []string{"192.0.2.1/32", "2001:db8::1/128"}},
		"there already":     {have: []netlink.Rule{right}, floating: []string{"192.0.2.1"}},
		"not wanted":        {have: []netlink.Rule{right}, gone: []string{"192.0.2.1/32"}},
		"another one":       {have: []netlink.Rule{right}, floating: []string{"192.0.2.2"}, add: []string{"192.0.2.2/32"}, gone: []string{"192.0.2.1/32"}},
		"twice":             {have: []netlink.Rule{right, right}, floating: []string{"192.0.2.1"}, gone: []string{"192.0.2.1/32"}},
		"of a whole subnet": {have: []netlink.Rule{subnet}, floating: []string{"192.0.2.1"}, add: []string{"192.0.2.1/32"}, gone: []string{"192.0.2.0/24"}},
		"to another table":  {have: []netlink.Rule{rule(func(r *netlink.Rule) { r.Table = 100 })}, floating: []string{"192.0.2.1"}, add: []string{"192.0.2.1/32"}, gone: []string{"192.0.2.1/32"}},
		"after others":      {have: []netlink.Rule{rule(func(r *netlink.Rule) { r.Priority = 40000 })}, floating: []string{"192.0.2.1"}, add: []string{"192.0.2.1/32"}, gone: []string{"192.0.2.1/32"}},
	} {
		t.Run(name, func(t *testing.T) {
			var want []netlink.Rule
			for _, a := range tc.floating {
				want = append(want, *replyRule(netip.MustParseAddr(a)))
			}
			add, del := planReplyRules(tc.have, want)
			sources := func(rules []netlink.Rule) (list []string) {
				for _, r := range rules {
					list = append(list, r.Src.String())
				}
				return list
			}
			if diff := cmp.Diff(tc.add, sources(add)); diff != "" {
				t.Errorf("add (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.gone, sources(del)); diff != "" {
				t.Errorf("delete (-want +got):\n%s", diff)
			}
			for _, r := range add {
				if r.Table != 206 || r.Protocol != 206 || r.Priority >= 32766 || (r.Family == unix.AF_INET6) != (r.Src.IP.To4() == nil) {
					t.Errorf("rule %+v does not come before the main table's, or leads elsewhere", r)
				}
			}
		})
	}
}

// Each route has its interface, or an error of its own that names it.
func TestResolveRoutes(t *testing.T) {
	p, a := netip.MustParsePrefix, netip.MustParseAddr
	routes := []Route{
		{Destination: p("10.244.1.0/24"), Gateway: true, Source: a("10.244.1.1")},
		{Destination: p("10.96.0.0/16"), Gateway: true, Via: a("169.254.64.1"), MTU: 1400},
		{Destination: p("10.244.2.0/24"), Via: a("192.0.2.2")},
		{Destination: p("10.244.3.0/24"), Via: a("198.51.100.3")},
	}
	find := func(via netip.Addr) (int, error) {
		switch via {
		case a("192.0.2.2"):
			return nextHopLink(via, []netlink.Route{{LinkIndex: 2}}, nil)
		case a("198.51.100.3"):
			return nextHopLink(via, []netlink.Route{{LinkIndex: 2, Gw: net.IP{192, 0, 2, 254}}}, nil)
		}
		return nextHopLink(via, nil, errors.New("network is unreachable"))
	}
	got, errs := resolveRoutes(routes, "gw0", 7, find)
	texts := map[string]netlink.Route{}
	for _, r := range got {
		texts[routeText(r)] = r
		if r.Protocol != Protocol || r.Table != unix.RT_TABLE_MAIN || r.Type != unix.RTN_UNICAST {
			t.Errorf("route %+v", r)
		}
	}
	for text, scope := range map[string]netlink.Scope{
		"10.244.1.0/24 src 10.244.1.1 dev 7":           netlink.SCOPE_LINK,
		"10.96.0.0/16 via 169.254.64.1 dev 7 mtu 1400": netlink.SCOPE_UNIVERSE,
		"10.244.2.0/24 via 192.0.2.2 dev 2":            netlink.SCOPE_UNIVERSE,
	} {
		r, ok := texts[text]
		if onlink := r.Flags == int(netlink.FLAG_ONLINK); !ok || r.Scope != scope || onlink != (r.MTU == 1400) {
			t.Errorf("route %s: %+v of %d", text, r, len(texts))
		}
	}
	if len(errs) != 1 || errs[0].Error() != "route 10.244.3.0/24: next hop 198.51.100.3 is behind the router "+
		"192.0.2.254; noEncap needs all nodes in one L2 segment" {
		t.Errorf("errors %v", errs)
	}
	routes = append(routes[:1:1], Route{Destination: p("10.244.9.0/24"), Via: a("203.0.113.9")})
	got, errs = resolveRoutes(routes, "gw0", 0, find)
	want := []string{
		"route 10.244.1.0/24: interface gw0 is missing or down",
		"route 10.244.9.0/24: next hop 203.0.113.9: no way there: network is unreachable",
	}
	if text := errors.Join(errs...).Error(); len(got) > 0 || text != strings.Join(want, "\n") {
		t.Errorf("without a gateway: %v, %s", got, text)
	}
}

// The gateway gets what it lacks, an address without the right flag again, and loses what it should
// not have; its link-local address is the kernel's.
func TestPlanAddresses(t *testing.T) {
	address := func(p string, flags int) netlink.Addr {
		return netlink.Addr{IPNet: ipNet(netip.MustParsePrefix(p)), Flags: flags}
	}
	have := []netlink.Addr{
		address("10.244.1.1/24", unix.IFA_F_NOPREFIXROUTE), address("fd44:1::1/64", unix.IFA_F_PERMANENT),
		address("10.244.1.1/16", unix.IFA_F_NOPREFIXROUTE), address("fe80::1/64", 0), address("192.0.2.9/32", 0),
	}
	want := []netip.Prefix{
		netip.MustParsePrefix("10.244.1.1/24"), netip.MustParsePrefix("fd44:1::1/64"), netip.MustParsePrefix("fd44:2::1/64"),
		netip.MustParsePrefix("10.244.9.1/24"),
	}
	var added, removed []string
	for _, c := range missingAddresses(have, want) {
		a := c.address()
		text := prefix(a.IPNet).String()
		if c.former != nil {
			text += " instead of " + prefix(c.former.IPNet).String()
		}
		if nodad := a.Flags&unix.IFA_F_NODAD != 0; a.Flags&unix.IFA_F_NOPREFIXROUTE == 0 || nodad != c.prefix.Addr().Is6() {
			t.Errorf("address %s has the flags %#x", text, a.Flags)
		}
		added = append(added, text)
	}
	for _, a := range surplusAddresses(have, want) {
		removed = append(removed, prefix(a.IPNet).String())
	}
	wantAdded := []string{"fd44:1::1/64 instead of fd44:1::1/64", "fd44:2::1/64", "10.244.9.1/24"}
	if diff := cmp.Diff(wantAdded, added); diff != "" {
		t.Errorf("added (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"10.244.1.1/16", "192.0.2.9/32"}, removed); diff != "" {
		t.Errorf("removed (-want +got):\n%s", diff)
	}
}

// The entry that stands for the bridge is permanent and has the router's address.
func TestPlanNeighbour(t *testing.T) {
	hop := datapath.ServiceSourceIPv4
	entry := func(ip netip.Addr, state int, mac net.HardwareAddr) netlink.Neigh {
		return netlink.Neigh{LinkIndex: gatewayIndex, IP: ip.AsSlice(), State: state, HardwareAddr: mac}
	}
	router, stranger := datapath.RouterMAC.HardwareAddr(), net.HardwareAddr{2, 0, 0, 0, 0, 9}
	right := entry(hop, unix.NUD_PERMANENT, router)
	other := entry(netip.MustParseAddr("10.244.1.9"), unix.NUD_REACHABLE, stranger)
	for name, tc := range map[string]struct {
		have             []netlink.Neigh
		wanted, set, del bool
	}{
		"missing":                   {[]netlink.Neigh{other}, true, true, false},
		"there":                     {[]netlink.Neigh{other, right}, true, false, false},
		"not permanent":             {[]netlink.Neigh{entry(hop, unix.NUD_STALE, router)}, true, true, false},
		"of another MAC":            {[]netlink.Neigh{entry(hop, unix.NUD_PERMANENT, stranger)}, true, true, false},
		"not wanted":                {[]netlink.Neigh{other, right}, false, false, true},
		"neither wanted, nor there": {[]netlink.Neigh{other}, false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			set, del := planNeighbour(tc.have, gatewayIndex, hop, tc.wanted)
			if (set != nil) != tc.set || (del != nil) != tc.del {
				t.Fatalf("set %v, delete %v", set, del)
			}
			if set != nil && (addr(set.IP) != hop || set.State != unix.NUD_PERMANENT || set.LinkIndex != gatewayIndex ||
				!slices.Equal(set.HardwareAddr, router) || set.Family != unix.AF_INET) {
				t.Errorf("set %v", set)
			}
			if del != nil && addr(del.IP) != hop {
				t.Errorf("delete %v", del)
			}
		})
	}
}

// Entries that the kernel still asks for get the address that is known; those that it is sure of,
// and those that are not known, stay.
func TestConfirmedNeighbours(t *testing.T) {
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	known := netip.MustParseAddr("10.244.1.9")
	find := func(a netip.Addr) (net.HardwareAddr, bool) { return mac, a == known }
	entry := func(ip netip.Addr, state int) netlink.Neigh {
		return netlink.Neigh{IP: ip.AsSlice(), State: state, Flags: netlink.NTF_USE, LinkIndex: gatewayIndex}
	}
	for state, want := range map[int]bool{
		unix.NUD_INCOMPLETE: true, unix.NUD_PROBE: true, unix.NUD_DELAY: true, unix.NUD_FAILED: true,
		unix.NUD_REACHABLE: false, unix.NUD_STALE: false, unix.NUD_PERMANENT: false,
	} {
		got := confirmed([]netlink.Neigh{entry(netip.MustParseAddr("10.244.1.10"), state), entry(known, state)}, find)
		if !want && len(got) > 0 {
			t.Errorf("state %#x: %v", state, got)
		}
		if want && (len(got) != 1 || addr(got[0].IP) != known || got[0].State != unix.NUD_REACHABLE || got[0].Flags != 0 ||
			!slices.Equal(got[0].HardwareAddr, mac) || got[0].LinkIndex != gatewayIndex) {
			t.Errorf("state %#x: %v", state, got)
		}
	}
}

// Peers are reached by the neighbors that the kernel's routes name, if these are on the bridge.
func TestHopsToPeers(t *testing.T) {
	direct, routed := netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("198.51.100.3")
	elsewhere := netip.MustParseAddr("203.0.113.4")
	gateway := netip.MustParseAddr("192.0.2.254")
	answers := map[netip.Addr][]netlink.Route{
		direct: {{LinkIndex: uplinkIndex}}, routed: {{LinkIndex: uplinkIndex, Gw: gateway.AsSlice()}},
		elsewhere: {{LinkIndex: 9}},
	}
	var hops []hop
	for _, p := range []netip.Addr{direct, routed, elsewhere, netip.MustParseAddr("203.0.113.5")} {
		if h, ok := hopTo(p, answers[p], uplinkIndex); ok {
			hops = append(hops, h)
		}
	}
	want := map[netip.Addr]TunnelRoute{
		direct: {Dst: direct, Dev: "br0"}, routed: {Dst: routed, Dev: "br0", Gateway: gateway},
	}
	if diff := cmp.Diff(want, routesBy(hops, "br0"), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("routes (-want +got):\n%s", diff)
	}
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	entries := usable([]netlink.Neigh{
		{IP: direct.AsSlice(), State: unix.NUD_STALE, HardwareAddr: mac},
		{IP: gateway.AsSlice(), State: unix.NUD_FAILED, HardwareAddr: mac},
		{IP: elsewhere.AsSlice(), State: unix.NUD_REACHABLE},
	})
	if len(entries) != 1 || !slices.Equal(entries[direct], mac) {
		t.Errorf("entries %v, want that of %s", entries, direct)
	}
}
