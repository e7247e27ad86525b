// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	nl "github.com/vishvananda/netlink"

	"coelan.io/coelan/internal/intent"
)

// hostsAt counts the places of each "frontend -> endpoint" of a map.
func hostsAt(t *testing.T, s set) map[string]int {
	t.Helper()
	places := map[string]int{}
	for key, to := range s.elements {
		places[element(t, key[:len(key)-4])+" -> "+element(t, to)]++
	}
	return places
}

func apiServer(endpoints ...string) (p ServicePort) {
	p = ServicePort{
		Protocol: intent.TCP, Port: 443, NodePort: 30443, ClusterIP: netip.MustParseAddr("10.96.0.1"),
		ExternalIPs: []netip.Addr{netip.MustParseAddr("203.0.113.5")},
	}
	for _, e := range endpoints {
		a := netip.MustParseAddrPort(e)
		p.Hosts.Cluster = append(p.Hosts.Cluster, intent.Endpoint{Address: a.Addr(), Port: a.Port()})
	}
	p.Hosts.Inside = p.Hosts.Cluster
	return p
}

// The kernel spreads the connections to each address of a Service evenly over its endpoints, those
// of clients inside and outside apart, or by the client's address.
func TestHostEndpoints(t *testing.T) {
	d := only4()
	d.Services = Services{Native: true, ByAddress: true}
	sets := func(p ServicePort) map[string]set {
		s := d.Services
		s.Ports = []ServicePort{p}
		byName := map[string]set{}
		for _, x := range servicesOf(s, serviceFamilies(d.Gateway)[0], nil).sets(nil) {
			byName[x.name] = x
		}
		return byName
	}
	p := apiServer("192.0.2.1:6443", "192.0.2.2:6443")
	p.Hosts.Outside = p.Hosts.Cluster[:1]
	got := sets(p)
	inside, outside := map[string]int{}, map[string]int{}
	for _, e := range []string{"192.0.2.1:6443", "192.0.2.2:6443"} {
		for _, at := range []string{"10.96.0.1 TCP 443", "169.254.64.2 TCP 30443", "203.0.113.5 TCP 443"} {
			inside[at+" -> "+e] = hostSlots / 2
		}
		outside["10.96.0.1 TCP 443 -> "+e] = hostSlots / 2
	}
	outside["169.254.64.2 TCP 30443 -> 192.0.2.1:6443"] = hostSlots
	outside["203.0.113.5 TCP 443 -> 192.0.2.1:6443"] = hostSlots
	if diff := cmp.Diff(inside, hostsAt(t, got["inside4"])); diff != "" {
		t.Errorf("clients inside (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(outside, hostsAt(t, got["outside4"])); diff != "" {
		t.Errorf("clients outside (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"192.0.2.1 TCP 6443", "192.0.2.2 TCP 6443"}, contents(t, []set{got["ends4"]})["ends4"]); diff != "" {
		t.Errorf("endpoints (-want +got):\n%s", diff)
	}
	p.Hosts.Sticky = true
	got = sets(p)
	if diff := cmp.Diff(inside, hostsAt(t, got["sticky-inside4"])); diff != "" || len(got["inside4"].elements) > 0 {
		t.Errorf("with affinity (-want +got):\n%s", diff)
	}
	d.Services.ByAddress = false
	if _, there := sets(p)["inside4"]; there {
		t.Error("the kernel chooses endpoints where the bridge does")
	}
}

// Where a policy keeps clients outside on their node, those inside are led to the ClusterIP, and
// addresses that the bridge has for these alone lead to the node port; so do those with source
// ranges, which the kernel judges.
func TestClientsInsideAndOutside(t *testing.T) {
	balanced := netip.MustParseAddr("203.0.113.9")
	for name, tc := range map[string]struct {
		byAddress bool
		change    func(*ServicePort)
		within    []string
		external  []string
	}{
		"a bridge that knows clients": {false, func(p *ServicePort) { p.ExternalLocal = true }, nil, nil},
		"policy Cluster":              {true, func(*ServicePort) {}, nil, nil},
		"policy Local": {true, func(p *ServicePort) { p.ExternalLocal = true },
			[]string{"169.254.64.2 TCP 30080 -> 10.96.0.7:80", "203.0.113.9 TCP 80 -> 10.96.0.7:80"},
			[]string{"203.0.113.9 TCP 80 -> 169.254.64.2:30080"}},
		"both policies Local": {true, func(p *ServicePort) { p.ExternalLocal, p.InternalLocal = true, true },
			nil, []string{"203.0.113.9 TCP 80 -> 169.254.64.2:30080"}},
		"source ranges": {true, func(p *ServicePort) {
			p.SourceRanges = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
		}, nil, []string{"203.0.113.9 TCP 80 -> 169.254.64.2:30080"}},
		"no node port": {true, func(p *ServicePort) { p.ExternalLocal, p.NodePort = true, 0 },
			[]string{"203.0.113.9 TCP 80 -> 10.96.0.7:80"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := ServicePort{
				Protocol: intent.TCP, Port: 80, NodePort: 30080, ClusterIP: netip.MustParseAddr("10.96.0.7"),
				LoadBalancerIPs: []netip.Addr{balanced},
			}
			tc.change(&p)
			s := Services{Native: true, ByAddress: tc.byAddress, Announced: []netip.Addr{balanced}, Ports: []ServicePort{p}}
			got := contents(t, servicesOf(s, serviceFamilies(only4().Gateway)[0], nil).sets(nil))
			if diff := cmp.Diff(tc.within, got["within4"]); diff != "" {
				t.Errorf("within (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.external, got["external4"]); diff != "" {
				t.Errorf("external (-want +got):\n%s", diff)
			}
		})
	}
}

// All are translated before anything is led to the bridge, each family by its own rules; and pods
// are judged by source ranges where the bridge does not do it.
func TestRulesOfHostEndpoints(t *testing.T) {
	chains := serviceChains("gw0", serviceFamilies(bothFamilies().Gateway), true, Guard{}, busySets())
	for chain, want := range map[string]string{
		"dnat-prerouting": "iifname gw0 inside, iifname gw0 sticky-inside, iifname gw0 within, outside, sticky-outside",
		"dnat-output":     "inside, sticky-inside, within",
	} {
		rules := texts(chains, chain)
		for _, n := range []string{"4", "6"} {
			last := -1
			for name := range strings.SplitSeq(want, ", ") {
				when, mapped := "", name
				if i := strings.LastIndex(name, " "); i > 0 {
					when, mapped = name[:i], name[i+1:]
				}
				found := 0
				for i, r := range rules {
					if strings.HasSuffix(r, "map @"+mapped+n) && strings.Contains(r, when) {
						found++
						last = max(last, i)
					}
				}
				if found != 2 {
					t.Errorf("%s: %d rules %s%s, of\n%s", chain, found, name, n, strings.Join(rules, "\n"))
				}
			}
			for i, r := range rules {
				if strings.Contains(r, "@services"+n) && i < last {
					t.Errorf("%s: led to the bridge before it is translated: %s", chain, r)
				}
			}
		}
	}
	for _, r := range texts(chains, "sources-prerouting") {
		if strings.Contains(r, "iifname") {
			t.Errorf("pods are not judged: %s", r)
		}
	}
	if rules := texts(chains, "snat-postrouting"); !strings.Contains(rules[0], "@ends4 masquerade") {
		t.Errorf("first of all: %s", rules[0])
	}
}

// Clients on wires are those outside, though they come from the bridge: they are translated first,
// and their answers marked, as long as there are floating IPs.
func TestRulesOfWires(t *testing.T) {
	f := serviceFamilies(only4().Gateway)
	s := Services{Floating: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}
	chains := serviceChains("gw0", f, true, Guard{}, servicesOf(s, f[0], nil).sets(nil))
	from := "meta nfproto ip iifname gw0 ip daddr @floating4 ip saddr != @cluster4 "
	want := []string{
		from + "dnat to ip daddr . meta l4proto . th dport . numgen random mod 60 map @outside4",
		from + "dnat to ip daddr . meta l4proto . th dport . jhash ip saddr mod 60 map @sticky-outside4",
		from + "dnat to ip daddr . meta l4proto . th dport map @external4",
		from + "ip daddr @services4 dnat to ip daddr",
	}
	if got := texts(chains, "dnat-prerouting"); !slices.Equal(got[:len(want)], want) {
		t.Errorf("first of all:\n%s", strings.Join(got[:len(want)], "\n"))
	}
	answer := "meta nfproto ip ct direction reply ct mark and 0x1000 != 0 meta mark set meta mark or 0x1000"
	for chain, want := range map[string][]string{
		"wires-prerouting": {from + "ct mark set ct mark or 0x1000", answer}, "wires-output": {answer},
	} {
		if diff := cmp.Diff(want, texts(chains, chain)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", chain, diff)
		}
	}
	const keep = "meta nfproto ip oifname gw0 iifname gw0 ct mark and 0x1000 != 0 ip daddr . meta l4proto . th dport @preserve4 return"
	if !slices.Contains(texts(chains, "snat-postrouting"), keep) {
		t.Errorf("clients on wires are not preserved: %s", strings.Join(texts(chains, "snat-postrouting"), "\n"))
	}
	for _, c := range serviceChains("gw0", f, true, Guard{}, servicesOf(Services{}, f[0], nil).sets(nil)) {
		if strings.HasPrefix(c.Name, "wires") {
			t.Errorf("chain %s without floating IPs", c.Name)
		}
	}
}

// A client of UDP forgets an endpoint that is gone, and keeps one that stays, at an external
// address, at the ClusterIP and at a node port.
func TestClientsOfHostEndpointsAreForgotten(t *testing.T) {
	d := only4()
	d.Services = Services{Native: true, ByAddress: true}
	family := serviceFamilies(d.Gateway)[0]
	sets := func(endpoints ...string) []set {
		p := apiServer(endpoints...)
		p.Protocol = intent.UDP
		s := d.Services
		s.Ports = []ServicePort{p}
		return servicesOf(s, family, nil).sets(nil)
	}
	node := netip.MustParseAddr("192.0.2.7")
	stale := family.stale(sets("192.0.2.1:53", "192.0.2.2:53"), sets("192.0.2.2:53"))
	stale.own = map[netip.Addr]bool{node: true}
	for at, port := range map[netip.Addr]uint16{
		netip.MustParseAddr("10.96.0.1"): 443, netip.MustParseAddr("203.0.113.5"): 443, node: 30443,
	} {
		for last, want := range map[byte]bool{1: true, 2: false} {
			f := &nl.ConntrackFlow{}
			f.Forward = nl.IPTuple{Protocol: uint8(intent.UDP), DstIP: at.AsSlice(), DstPort: port}
			f.Reverse = nl.IPTuple{Protocol: uint8(intent.UDP), SrcIP: []byte{192, 0, 2, last}, SrcPort: 53}
			if got := stale.MatchConntrackFlow(f); got != want {
				t.Errorf("%s: endpoint %s is forgotten: %v", fmt.Sprint(at, ":", port), f.Reverse.SrcIP, got)
			}
		}
	}
}
