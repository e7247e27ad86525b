// SPDX-License-Identifier: Apache-2.0

//go:build integration

package podnet

import (
	"net/netip"
	"strings"
	"testing"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/cni/nstest"
	"coelan.io/coelan/internal/intent"
)

func route(to, via string) attachment.Route {
	r := attachment.Route{Destination: netip.MustParsePrefix(to)}
	if via != "" {
		r.NextHop = netip.MustParseAddr(via)
	}
	return r
}

// further is a second interface of a pod: several addresses of each family,
// routes, no default route.
func further(pod *nstest.NS) Interface {
	return Interface{Attachment: attachment.Attachment{
		MAC: intent.MAC{2, 0, 0, 0, 0, 7},
		Addresses: []netip.Prefix{
			netip.MustParsePrefix("10.9.0.7/24"), netip.MustParsePrefix("10.9.0.8/24"),
			netip.MustParsePrefix("fd09::7/64"), netip.MustParsePrefix("fd09::8/64"),
		},
		Gateways: make([]netip.Addr, 4),
		Spec: attachment.Spec{
			Key: attachment.Key{IfName: "net1234567890ab"}, Netns: pod.Path(), HostInterface: "co0000000000f1", MTU: 1300,
			Routes: []attachment.Route{
				route("10.50.0.0/16", "10.9.0.1"), route("fd50::/32", "fd09::1"), route("10.60.0.0/16", ""),
				route("10.70.0.9/32", "10.9.0.254"),
			},
		},
	}}
}

func TestSecondInterface(t *testing.T) {
	node, pod := nstest.New(t), nstest.New(t)
	p := newPlumber(t, node)
	first, second := podInterface(pod), further(pod)
	mustAdd(t, p, first)
	mustAdd(t, p, second)
	if err := p.Configure(second); err != nil { // what is right already stays
		t.Fatal(err)
	}
	show := pod.Command(t, "ip", "addr", "show", second.IfName)
	wantLines(t, "addresses", show, "inet 10.9.0.7/24", "inet 10.9.0.8/24", "inet6 fd09::7/64 scope global nodad",
		"inet6 fd09::8/64 scope global nodad", "mtu 1300", "link/ether 02:00:00:00:00:07")
	if strings.Contains(show, "tentative dadfailed") || strings.Contains(pod.Command(t, "ip", "addr", "show", second.IfName, "to", "fd09::/64"), "tentative") {
		t.Errorf("an IPv6 address cannot be used at once:\n%s", show)
	}
	routes := pod.Command(t, "ip", "route") + pod.Command(t, "ip", "-6", "route")
	wantLines(t, "routes", routes, "default via 10.0.0.1 dev eth0", "default via fd00::1 dev eth0",
		"10.50.0.0/16 via 10.9.0.1 dev "+second.IfName, "fd50::/32 via fd09::1 dev "+second.IfName,
		"10.60.0.0/16 dev "+second.IfName+" scope link", "10.70.0.9 via 10.9.0.254 dev "+second.IfName)
	if n := strings.Count(routes, "default"); n != 2 {
		t.Errorf("%d default routes, want one of each family:\n%s", n, routes)
	}
	wantLines(t, "accept_ra", pod.Command(t, "cat", "/proc/sys/net/ipv6/conf/"+second.IfName+"/accept_ra"), "0")
	for _, i := range []Interface{first, second} {
		if err := p.Check(i); err != nil {
			t.Errorf("Check: %v", err)
		}
	}
	if err := p.Remove(second.HostInterface); err != nil {
		t.Fatal(err)
	}
	if err := p.Check(first); err != nil {
		t.Errorf("Check of the first after the second is gone: %v", err)
	}
}

// An interface without an address is up and believes no router.
func TestInterfaceWithoutAddress(t *testing.T) {
	node, pod := nstest.New(t), nstest.New(t)
	p := newPlumber(t, node)
	i := further(pod)
	i.Addresses, i.Routes = nil, nil
	mustAdd(t, p, i)
	wantLines(t, "link", pod.Command(t, "ip", "link", "show", i.IfName), "state UP")
	wantLines(t, "accept_ra", pod.Command(t, "cat", "/proc/sys/net/ipv6/conf/"+i.IfName+"/accept_ra"), "0")
	if err := p.Check(i); err != nil {
		t.Errorf("Check: %v", err)
	}
}

func TestRoutesAreCheckedAndRepaired(t *testing.T) {
	node := nstest.New(t)
	p := newPlumber(t, node)
	for _, tt := range []struct{ name, change, want string }{
		{"gone", "ip route del 10.50.0.0/16", "lacks the route to 10.50.0.0/16 via 10.9.0.1"},
		{"IPv6 gone", "ip -6 route del fd50::/32", "lacks the route to fd50::/32 via fd09::1"},
		{"on link gone", "ip route del 10.60.0.0/16", "lacks the route to 10.60.0.0/16"},
		{"other next hop", "ip route replace 10.50.0.0/16 via 10.9.0.99", "lacks the route to 10.50.0.0/16 via 10.9.0.1"},
		{"other interface", "ip route replace 10.50.0.0/16 via 10.0.0.1", "lacks the route to 10.50.0.0/16 via 10.9.0.1"},
		{"second address", "ip addr del 10.9.0.8/24 dev net1234567890ab", "lacks address 10.9.0.8/24"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pod := nstest.New(t)
			first, i := podInterface(pod), further(pod)
			mustAdd(t, p, first)
			mustAdd(t, p, i)
			pod.Command(t, "sh", "-ec", tt.change)
			if err := p.Check(i); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Check = %v\nwant %q", err, tt.want)
			}
			if err := p.Configure(i); err != nil {
				t.Errorf("Configure: %v", err)
			}
			if err := p.Check(i); err != nil {
				t.Errorf("Check after Configure: %v", err)
			}
			for _, name := range []string{first.HostInterface, i.HostInterface} {
				if err := p.Remove(name); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// A default route that another made lead through its own interface is no difference; one
// that is gone is.
func TestDefaultRouteThatWasMoved(t *testing.T) {
	node, pod := nstest.New(t), nstest.New(t)
	p := newPlumber(t, node)
	first, second := podInterface(pod), further(pod)
	mustAdd(t, p, first)
	mustAdd(t, p, second)
	pod.Command(t, "ip", "route", "replace", "default", "via", "10.9.0.1", "dev", second.IfName)
	if err := p.Check(first); err != nil {
		t.Errorf("Check: %v", err)
	}
	pod.Command(t, "ip", "route", "del", "default")
	if err := p.Check(first); err == nil || !strings.Contains(err.Error(), "lacks the default route via 10.0.0.1") {
		t.Errorf("Check = %v", err)
	}
}

func TestNextHopThatIsNotThere(t *testing.T) {
	node, pod := nstest.New(t), nstest.New(t)
	p := newPlumber(t, node)
	i := further(pod)
	i.Routes = []attachment.Route{route("10.50.0.0/16", "10.8.0.1")}
	if err := p.Create(i); err != nil {
		t.Fatal(err)
	}
	if err := p.Configure(i); err == nil || !strings.Contains(err.Error(), "route to 10.50.0.0/16 via 10.8.0.1") {
		t.Errorf("Configure = %v, want it to name the route", err)
	}
}
