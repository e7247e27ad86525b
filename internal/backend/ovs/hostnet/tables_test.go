// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables"

	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
)

// element says what a key, or a value, of a set of this package is: addresses of IPv4, protocols
// and ports are told apart by their lengths.
func element(t *testing.T, key string) string {
	t.Helper()
	address := func(s string) string { a, _ := netip.AddrFromSlice([]byte(s)); return a.String() }
	port := func(s string) string { return fmt.Sprint(binary.BigEndian.Uint16([]byte(s))) }
	protocolAndPort := func(s string) string { return fmt.Sprintf("%s %s", intent.Protocol(s[0]), port(s[4:])) }
	switch {
	case key == "":
		return ""
	case len(key) == 4:
		return address(key)
	case len(key) == 8 && key[1]+key[2]+key[3] == 0 && key[6]+key[7] == 0 && key[0] < 10 || len(key) == 8 && key[0] == 17:
		return protocolAndPort(key)
	case len(key) == 8 && key[6]+key[7] == 0:
		return address(key[:4]) + ":" + port(key[4:])
	case len(key) == 8:
		return address(key[:4]) + " " + address(key[4:])
	case len(key) == 12:
		return address(key[:4]) + " " + protocolAndPort(key[4:])
	case len(key) == 16:
		return element(t, key[:12]) + " from " + address(key[12:])
	}
	t.Fatalf("a key of %d bytes: %x", len(key), key)
	return ""
}

// contents are the elements of a table's sets, by name; empty sets are left out.
func contents(t *testing.T, sets []set) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, s := range sets {
		var list []string
		for _, r := range s.ranges {
			list = append(list, r.From().String()+"-"+r.To().String())
		}
		for _, key := range slices.Sorted(maps.Keys(s.elements)) {
			text := element(t, key)
			if v := s.elements[key]; v != "" {
				text += " -> " + element(t, v)
			}
			list = append(list, text)
		}
		if list != nil {
			slices.Sort(list)
			all[s.name] = list
		}
	}
	return all
}

func only4() Desired {
	return Desired{Gateway: Gateway{Name: "gw0", Addresses: []netip.Prefix{netip.MustParsePrefix("10.244.1.1/24")}}}
}

// texts are the rules of a chain.
func texts(chains []chain, name string) []string {
	var list []string
	for _, c := range chains {
		if c.Name == name {
			for _, r := range c.rules {
				list = append(list, r.text)
			}
		}
	}
	return list
}

// The guard names the nodes and their ports. The tunnel's is the kernel's to take only on its own
// datapath.
func TestGuardedPorts(t *testing.T) {
	d := only4()
	d.SNAT.Pods = []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24")}
	d.Guard = Guard{
		Nodes: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")}, Tunnel: 4789, TunnelToKernel: true, TunnelMark: 0x2000,
		Ports: []NodePort{{intent.TCP, 7946}},
	}
	want := map[string][]string{
		"pods4": {"10.244.1.0-10.244.1.255"}, "nodes4": {"192.0.2.1", "192.0.2.2"},
		"guarded": {"TCP 7946", "UDP 4789"}, "received": {"TCP 7946", "UDP 4789"},
	}
	if diff := cmp.Diff(want, contents(t, d.hostTable().sets)); diff != "" {
		t.Errorf("kernel's datapath (-want +got):\n%s", diff)
	}
	arriving := []string{
		"meta nfproto ip udp dport 4789 iifname != gw0 ip saddr @nodes4 ip daddr @nodes4 notrack meta mark set meta mark or 0x2000 return",
		"meta nfproto ip6 udp dport 4789 iifname != gw0 ip6 saddr @nodes6 ip6 daddr @nodes6 notrack meta mark set meta mark or 0x2000 return",
	}
	byMark, byAddress := []string{"meta mark 0x2000 notrack return"}, []string{
		"meta nfproto ip udp dport 4789 ip saddr @nodes4 ip daddr @nodes4 notrack return",
		"meta nfproto ip6 udp dport 4789 ip6 saddr @nodes6 ip6 daddr @nodes6 notrack return",
	}
	untracked := func() (list []string) {
		for _, name := range []string{"prerouting", "guard-output"} {
			for _, text := range texts(d.hostTable().chains, name) {
				if strings.Contains(text, "notrack") {
					list = append(list, text)
				}
			}
		}
		return list
	}
	if diff := cmp.Diff(slices.Concat(arriving, byMark), untracked()); diff != "" {
		t.Errorf("kernel's datapath (-want +got):\n%s", diff)
	}
	d.Guard.TunnelMark = 0
	if diff := cmp.Diff(slices.Concat(arriving, byAddress), untracked()); diff != "" {
		t.Errorf("kernel's datapath, tunnels without a mark (-want +got):\n%s", diff)
	}
	d.Guard.TunnelToKernel = false
	if got := untracked(); got != nil {
		t.Errorf("the kernel has no tunnels, and leaves out of conntrack: %q", got)
	}
	want["received"] = []string{"TCP 7946"}
	if diff := cmp.Diff(want, contents(t, d.hostTable().sets)); diff != "" {
		t.Errorf("userspace datapath (-want +got):\n%s", diff)
	}
	for _, tc := range []struct {
		protocol intent.Protocol
		port     uint16
		want     bool
	}{{intent.TCP, 7946, true}, {intent.UDP, 7946, false}, {intent.UDP, 4789, true}, {intent.TCP, 4789, false}, {intent.UDP, 0, false}} {
		if got := (&Host{desired: &d}).Reserves(tc.protocol, tc.port); got != tc.want {
			t.Errorf("%s port %d is reserved: %v, want %v", tc.protocol, tc.port, got, tc.want)
		}
	}
	if (&Host{}).Reserves(intent.UDP, 4789) {
		t.Error("a host that is to have nothing reserves a port")
	}
	d.Guard.Tunnel = 0
	for _, c := range d.Guard.chains("gw0") {
		for _, r := range c.rules {
			if strings.Contains(r.text, "udp dport") {
				t.Errorf("without tunnels: %s", r.text)
			}
		}
	}
}

// Masquerading can be turned off; what else the table does stays. Rules that differ are told apart.
func TestRulesOfTheHost(t *testing.T) {
	d := only4()
	off := d.hostTable()
	if rules := texts(off.chains, "postrouting"); len(rules) > 0 {
		t.Errorf("masquerading is off: %v", rules)
	}
	d.SNAT.Enabled = true
	on := d.hostTable()
	if diff := cmp.Diff([]string{
		"ip saddr @pods4 daddr != @direct4 oifname != gw0 masquerade fully-random",
		"ip6 saddr @pods6 daddr != @direct6 oifname != gw0 masquerade fully-random",
	}, texts(on.chains, "postrouting")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if len(texts(on.chains, "guard-output")) != len(texts(off.chains, "guard-output")) || len(texts(on.chains, "mss")) != 2 {
		t.Error("masquerading changes other chains")
	}
	if _, same := on.chainsFrom(off.texts(), on.texts()); same {
		t.Error("the table with masquerading is not told from the one without")
	}
	d.Gateway.Name = "gw1"
	other := d.hostTable()
	if _, same := other.chainsFrom(on.texts(), other.texts()); same {
		t.Error("rules for another gateway are not told apart")
	}
	digests := map[string]string{}
	for _, c := range on.chains {
		for _, r := range c.rules {
			if other, twice := digests[r.digest()]; twice && other != r.text {
				t.Errorf("one digest for %q and %q", other, r.text)
			}
			digests[r.digest()] = r.text
		}
	}
}

// Services are led to the bridge by their ClusterIPs and by addresses that the cluster announces.
// Of other external addresses and node ports the kernel takes the ports of Services alone.
func TestServiceSets(t *testing.T) {
	cluster, external, announced := netip.MustParseAddr("10.96.0.7"), netip.MustParseAddr("203.0.113.5"), netip.MustParseAddr("203.0.113.9")
	own := netip.MustParseAddr("192.0.2.1")
	hop := datapath.NodePortIPv4.String()
	services := []string{"10.96.0.0-10.96.0.255", "169.254.64.0-169.254.64.3"}
	always := map[string][]string{
		"services4": services, "clusterips4": {"10.96.0.0-10.96.0.255"},
		"node4": {"0.0.0.0-10.244.1.0", "10.244.1.2-126.255.255.255", "128.0.0.0-255.255.255.255"},
	}
	base := ServicePort{Protocol: intent.TCP, Port: 80, ClusterIP: cluster}
	for name, tc := range map[string]struct {
		change    func(p *ServicePort)
		announced []netip.Addr
		want      map[string][]string
	}{
		"a ClusterIP": {func(*ServicePort) {}, nil, nil},
		"without endpoints": {func(p *ServicePort) { p.Unserved = true }, nil, map[string][]string{
			"reject4": {"10.96.0.7 TCP 80"},
		}},
		"an external address": {func(p *ServicePort) { p.ExternalIPs = []netip.Addr{external} }, nil, map[string][]string{
			"external4": {"203.0.113.5 TCP 80 -> 10.96.0.7:80"},
		}},
		"a node port": {func(p *ServicePort) { p.NodePort = 30080; p.ExternalIPs = []netip.Addr{external} }, nil, map[string][]string{
			"nodeports4": {"TCP 30080"}, "external4": {"203.0.113.5 TCP 80 -> " + hop + ":30080"},
		}},
		"a node port of local endpoints": {func(p *ServicePort) { p.NodePort, p.ExternalLocal, p.Unserved = 30080, true, true }, nil, map[string][]string{
			"nodeports4": {"TCP 30080"}, "preserve4": {hop + " TCP 30080"}, "reject4": {"10.96.0.7 TCP 80", hop + " TCP 30080"},
		}},
		"an announced address": {func(p *ServicePort) { p.LoadBalancerIPs, p.ExternalLocal = []netip.Addr{announced}, true }, []netip.Addr{announced}, map[string][]string{
			"services4": append(slices.Clone(services), "203.0.113.9-203.0.113.9"), "preserve4": {"203.0.113.9 TCP 80"},
		}},
		"an announced address of the host's own": {func(p *ServicePort) { p.LoadBalancerIPs = []netip.Addr{own} }, []netip.Addr{own}, map[string][]string{
			"external4": {"192.0.2.1 TCP 80 -> 10.96.0.7:80"},
		}},
		"source ranges": {func(p *ServicePort) {
			p.LoadBalancerIPs, p.SourceRanges = []netip.Addr{external}, []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
		}, nil, map[string][]string{
			"external4": {"203.0.113.5 TCP 80 -> 10.96.0.7:80"}, "restricted4": {"203.0.113.5 TCP 80"},
			"allowed4": {"203.0.113.5 TCP 80 from 198.51.100.0 -> 203.0.113.5 TCP 80 from 198.51.100.255"},
		}},
		"source ranges with the host": {func(p *ServicePort) {
			p.LoadBalancerIPs, p.SourceRanges = []netip.Addr{external}, []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
		}, nil, map[string][]string{
			"external4": {"203.0.113.5 TCP 80 -> 10.96.0.7:80"}, "restricted4": {"203.0.113.5 TCP 80"},
			"allowed4": {
				"203.0.113.5 TCP 80 from 10.244.1.1 -> 203.0.113.5 TCP 80 from 10.244.1.1",
				"203.0.113.5 TCP 80 from 192.0.2.0 -> 203.0.113.5 TCP 80 from 192.0.2.255",
			},
		}},
		"of the other family": {func(p *ServicePort) {
			p.IPv6, p.ClusterIP = true, netip.MustParseAddr("fd96::7")
		}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := base
			tc.change(&p)
			s := Services{
				Native: true, Ranges: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/24")}, Announced: tc.announced, Ports: []ServicePort{p},
			}
			families := serviceFamilies(only4().Gateway)
			if len(families) != 1 {
				t.Fatalf("%d families", len(families))
			}
			k := servicesOf(s, families[0], map[netip.Addr]bool{own: true})
			want := maps.Clone(always)
			maps.Copy(want, tc.want)
			if diff := cmp.Diff(want, contents(t, k.sets(nil))); diff != "" {
				t.Errorf("sets (-want +got):\n%s", diff)
			}
			for _, r := range k.routes() {
				if !r.Gateway || r.Via != datapath.ServiceSourceIPv4 || r.Source != netip.MustParseAddr("10.244.1.1") {
					t.Errorf("route %+v", r)
				}
			}
		})
	}
}

// A floating IP is led to the bridge as an announced address is. The kernel knows besides that it
// is on the wire of a physical network, and which clients are not; each of them in its own family.
func TestFloatingSets(t *testing.T) {
	a, p := netip.MustParseAddr, netip.MustParsePrefix
	s := Services{
		Native: true, Ranges: []netip.Prefix{p("10.96.0.0/24")},
		Announced: []netip.Addr{a("198.51.100.7"), a("203.0.113.9"), a("2001:db8::7")},
		Floating:  []netip.Addr{a("198.51.100.7"), a("2001:db8::7")},
		Cluster:   []netip.Prefix{p("10.244.0.0/24"), p("10.244.1.0/24"), p("10.60.0.0/16"), p("fd44::/48")},
		Ports: []ServicePort{{
			Protocol: intent.TCP, Port: 80, ClusterIP: a("10.96.0.7"), ExternalLocal: true,
			ExternalIPs: []netip.Addr{a("198.51.100.7")}, LoadBalancerIPs: []netip.Addr{a("203.0.113.9")},
		}},
	}
	for _, f := range serviceFamilies(bothFamilies().Gateway) {
		got := contents(t, servicesOf(s, f, nil).sets(nil))
		want := map[string][]string{
			"floating4": {"198.51.100.7-198.51.100.7"}, "cluster4": {"10.60.0.0-10.60.255.255", "10.244.0.0-10.244.1.255"},
			"preserve4": {"198.51.100.7 TCP 80", "203.0.113.9 TCP 80"},
		}
		if f.ipv6 {
			want = map[string][]string{
				"floating6": {"2001:db8::7-2001:db8::7"}, "cluster6": {"fd44::-fd44::ffff:ffff:ffff:ffff:ffff"}, "preserve6": nil,
			}
		}
		for name, elements := range want {
			slices.Sort(elements)
			if diff := cmp.Diff(elements, got[name]); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
	}
}

// busySets are such that all chains of Services have something to ask.
func busySets() []set {
	elements := map[string]string{"": ""}
	return []set{{name: "restricted4", elements: elements}, {name: "reject6", elements: elements}}
}

// A packet of a tunnel goes through one chain where it comes in, one where the host takes it and
// one where it leaves, unless a Service has source ranges or no endpoint.
func TestChainsOfTunnelPackets(t *testing.T) {
	base := ServicePort{Protocol: intent.TCP, Port: 80, ClusterIP: netip.MustParseAddr("10.96.0.7")}
	for name, tc := range map[string]struct {
		change func(p *ServicePort)
		want   []string
	}{
		"no Service that needs more": {func(*ServicePort) {}, nil},
		"a Service without endpoints": {func(p *ServicePort) { p.Unserved = true },
			[]string{"reject-output"}},
		"a Service with source ranges": {func(p *ServicePort) {
			p.LoadBalancerIPs = []netip.Addr{netip.MustParseAddr("203.0.113.5")}
			p.SourceRanges = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
		}, []string{"sources-output", "sources-prerouting"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := bothFamilies()
			d.Guard = Guard{Tunnel: 4789, TunnelToKernel: true, TunnelMark: 0x2000}
			p := base
			tc.change(&p)
			d.Services = Services{Native: true, Ports: []ServicePort{p}}
			plan := newServicePlan(d, serviceFamilies(d.Gateway), nil)
			var got []string
			for _, c := range slices.Concat(d.hostTable().chains, plan.table.chains) {
				onTheWay := *c.Hooknum != *nftables.ChainHookForward && c.Type != nftables.ChainTypeNAT
				if onTheWay {
					got = append(got, c.Name)
				}
			}
			slices.Sort(got)
			want := append([]string{"guard-input", "guard-output", "prerouting"}, tc.want...)
			slices.Sort(want)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// Of what the bridge sends for Services, only clients on the wire of a physical network keep their
// address, and only where the Service wants to see it: this comes before all get the gateway's.
func TestFloatingSourceRule(t *testing.T) {
	chains := serviceChains("gw0", serviceFamilies(bothFamilies().Gateway), false, Guard{}, busySets())
	for _, ip := range []struct{ name, set string }{{"ip", "4"}, {"ip6", "6"}} {
		rules := texts(chains, "snat-postrouting")
		keep := slices.Index(rules, fmt.Sprintf("meta nfproto %[1]s oifname gw0 iifname gw0 %[1]s daddr @floating%[2]s "+
			"%[1]s saddr != @cluster%[2]s %[1]s daddr . meta l4proto . th dport @preserve%[2]s return", ip.name, ip.set))
		all := slices.IndexFunc(rules, func(r string) bool {
			return strings.Contains(r, fmt.Sprintf("%s daddr @services%s snat to", ip.name, ip.set))
		})
		if keep < 0 || all < keep {
			t.Errorf("%s: rule %d keeps the client's address, and %d gives all the gateway's, of\n%s", ip.name, keep, all,
				strings.Join(rules, "\n"))
		}
	}
}

// Both families have the same rules, each for its own addresses.
func TestServiceRulesOfBothFamilies(t *testing.T) {
	chains := serviceChains("gw0", serviceFamilies(bothFamilies().Gateway), false, Guard{}, busySets())
	for _, c := range chains {
		var v4, v6 int
		for _, r := range c.rules {
			switch {
			case strings.HasPrefix(r.text, "meta nfproto ip "):
				v4++
			case strings.HasPrefix(r.text, "meta nfproto ip6 "):
				v6++
			default:
				t.Errorf("chain %s: a rule for neither family: %s", c.Name, r.text)
			}
		}
		if v4 == 0 || v4 != v6 {
			t.Errorf("chain %s has %d rules for IPv4 and %d for IPv6", c.Name, v4, v6)
		}
	}
	for _, chosen := range serviceFamilies(bothFamilies().Gateway) {
		list := chosen.nodeRanges([]netip.Prefix{netip.MustParsePrefix("192.0.2.0/25"), netip.MustParsePrefix("fd33::/64")})
		if len(list) != 1 || list[0].From().Is6() != chosen.ipv6 {
			t.Errorf("node ports at %v", list)
		}
	}
}

// A host port leads to its pod at all addresses or at one, and the later of two has it.
func TestHostPortSets(t *testing.T) {
	pod, other := netip.MustParseAddr("10.244.1.10"), netip.MustParseAddr("10.244.1.11")
	list := []HostPort{
		{Protocol: intent.TCP, Port: 8080, To: netip.AddrPortFrom(pod, 80)},
		{Protocol: intent.UDP, Port: 5353, Address: netip.MustParseAddr("192.0.2.1"), To: netip.AddrPortFrom(pod, 53)},
		{Protocol: intent.TCP, Port: 8080, To: netip.AddrPortFrom(other, 81)},
		{Protocol: intent.TCP, Port: 8080, To: netip.MustParseAddrPort("[fd44:1::10]:80")},
	}
	table := hostPortTable(only4(), list)
	want := map[string][]string{
		"at4": {"192.0.2.1 UDP 5353 -> 10.244.1.10:53"}, "anywhere4": {"TCP 8080 -> 10.244.1.11:81"},
		"targets4":  {"10.244.1.10 TCP 80", "10.244.1.10 UDP 53", "10.244.1.11 TCP 81"},
		"hairpins4": {"10.244.1.10 10.244.1.10", "10.244.1.11 10.244.1.11"},
	}
	if diff := cmp.Diff(want, contents(t, table.sets)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if n := len(texts(table.chains, "prerouting")); n == 0 || n != len(texts(table.chains, "output")) {
		t.Errorf("%d rules for others, %d for the host itself", n, len(texts(table.chains, "output")))
	}
	if got := list[1].String() + ", " + list[0].String(); got != "UDP port 5353 of 192.0.2.1, TCP port 8080 of *" {
		t.Errorf("named %q", got)
	}
}

// Pods that are clients of host ports are hidden and marked, where the backend needs it.
func TestHiddenClientsOfHostPorts(t *testing.T) {
	list := []HostPort{{Protocol: intent.TCP, Port: 8080, To: netip.MustParseAddrPort("10.244.1.10:80")}}
	d := only4()
	before := texts(hostPortTable(d, list).chains, "postrouting")
	d.HideClientsOfHostPorts = true
	table := hostPortTable(d, list)
	gw := d.Gateway.Name
	through := "meta nfproto ip oifname " + gw + " iifname " + gw + " ct status dnat ip daddr . meta l4proto . th dport @targets4 "
	want := append(before, through+"snat to "+d.Gateway.Addresses[0].Addr().String()+" fully-random")
	if diff := cmp.Diff(want, texts(table.chains, "postrouting")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{through + "ip ttl > 32 ip ttl set 32"}, texts(table.chains, "hidden-postrouting")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// What the host forwards to ClusterIPs is marked, or all that it forwards to Services.
func TestMarkForwarded(t *testing.T) {
	for _, all := range []bool{false, true} {
		d := bothFamilies()
		d.Services = Services{
			Native: true, Ranges: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}, ByAddress: all,
		}
		p := newServicePlan(d, serviceFamilies(d.Gateway), nil)
		marked, led := 0, 0
		for _, s := range p.table.sets {
			switch s.name {
			case "clusterips4":
				marked = len(s.ranges)
			case "services4":
				led = len(s.ranges)
			}
		}
		if (marked == led) != all || marked == 0 {
			t.Errorf("all %t: %d ranges of %d are marked", all, marked, led)
		}
	}
}
