// SPDX-License-Identifier: Apache-2.0

//go:build integration

package hostnet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"coelan.io/coelan/internal/backend/ovs/datapath"
)

func TestServices(t *testing.T) {
	makeWorld(t)
	leftovers(t)
	for _, p := range firmly(t, "tcp", "udp", "sctp") {
		t.Error(p)
	}
}

// TestServicesCauseNoRedirects has a pod ask for Services at all addresses by which the kernel
// sends its packets back. Each redirect, which the kernel would make before anything drops it,
// takes the pod's ICMP errors away. The control is a packet to a neighbor of the pod.
func TestServicesCauseNoRedirects(t *testing.T) {
	makeWorld(t)
	patience = time.Second
	defer func() { patience = hurry }()
	run(t, "nft", "add table inet redirects; add chain inet redirects output { type filter hook output priority -300; }; "+
		"add rule inet redirects output icmp type redirect counter; add rule inet redirects output icmpv6 type nd-redirect counter")
	t.Cleanup(func() { run(t, "nft", "delete", "table", "inet", "redirects") })
	redirects := func() int {
		counted := run(t, "nft", "list", "table", "inet", "redirects")
		return strings.Count(counted, "counter") - strings.Count(counted, "packets 0 ")
	}
	for _, name := range []string{"IPv4", "IPv6"} {
		w := worlds[name]
		for _, q := range []struct {
			to   string
			port int
			want string
		}{
			{w.node, nodePort, seen(bridge, w.hop, nodePort, w.gateway)},
			{w.node, refused, "refused"},
			{w.external, port, seen(bridge, w.hop, nodePort, w.gateway)},
			{w.ours, port + 3, "refused"},
		} {
			for _, network := range []string{"tcp", "udp"} {
				want := w.forwarded(q.want)
				if got := ask(bridge, network, w.pod, q.to, q.port); got != want {
					t.Errorf("%s %s: %s:%d: %q, want %q", name, network, q.to, q.port, got, want)
				}
			}
		}
	}
	if n := redirects(); n > 0 {
		t.Errorf("a redirect was made:\n%s", run(t, "nft", "list", "table", "inet", "redirects"))
	}
	// What has been refused something may get no redirect for a second.
	const other, neighbour = "fd00:1::8", "fd00:1::99"
	run(t, "ip", "-n", bridge, "addr", "add", other+"/64", "dev", "pgw0", "nodad")
	run(t, "ip", "-n", bridge, "route", "add", neighbour+"/128", "via", worlds["IPv6"].gateway)
	ask(bridge, "udp", other, neighbour, port)
	if redirects() == 0 {
		t.Error("the control makes no redirect either")
	}
}

// TestEveryRuleCounts takes one rule away after the other: each time something must be wrong.
func TestEveryRuleCounts(t *testing.T) {
	h := makeWorld(t)
	leftovers(t)
	for i := 0; ; i++ {
		rules := rulesOfServices(t)
		if i == len(rules) {
			break
		}
		run(t, "nft", "delete", "rule", "inet", servicesTable, rules[i].chain, "handle", rules[i].handle)
		var problems []string
		for _, network := range []string{"tcp", "udp", "sctp"} {
			if problems = wrong(t, network); len(problems) > 0 {
				t.Logf("%s: %s\nwithout it %s and %d more", rules[i].chain, rules[i].text, problems[0], len(problems)-1)
				break
			}
		}
		if len(problems) == 0 {
			t.Errorf("nobody misses the rule of %s: %s", rules[i].chain, rules[i].text)
		}
		h.doubt.Store(true)
		if n, err := h.Apply(withServices()); n != 1 || err != nil {
			t.Fatalf("put back: %d writes, %v", n, err)
		}
	}
}

type listedRule struct{ chain, text, handle string }

func rulesOfServices(t *testing.T) (rules []listedRule) {
	t.Helper()
	chain := ""
	for line := range strings.SplitSeq(run(t, "nft", "-a", "list", "table", "inet", servicesTable), "\n") {
		words := strings.Fields(line)
		if len(words) > 1 && words[0] == "chain" {
			chain = words[1]
		}
		if text, _, ok := strings.Cut(line, ` comment "coelan `); ok {
			rules = append(rules, listedRule{chain, strings.TrimSpace(text), words[len(words)-1]})
		}
	}
	return rules
}

// TestServicesGo leaves nothing in the kernel when kube-proxy is to balance.
func TestServicesGo(t *testing.T) {
	h := makeWorld(t)
	for _, what := range []struct{ name, text string }{
		{"nft list tables", servicesTable}, {"ip neigh show dev gw0", worlds["IPv4"].masked}, {"ip -6 neigh show dev gw0", worlds["IPv6"].masked},
		{"ip route", worlds["IPv4"].ranges}, {"ip -6 route", worlds["IPv6"].announced}, {"ip route", "169.254.64.0/30"},
		{"ip rule", worlds["IPv4"].floating}, {"ip -6 rule", worlds["IPv6"].floating},
		{"ip route show table all", "default via " + worlds["IPv4"].masked + " dev gw0 table 206"},
		{"ip -6 route show table all", "default via " + worlds["IPv6"].masked + " dev gw0 table 206"},
	} {
		if args := strings.Fields(what.name); !strings.Contains(run(t, args[0], args[1:]...), what.text) {
			t.Errorf("%s: no %s", what.name, what.text)
		}
	}
	d := withServices()
	d.Services.Native = false
	_, err := h.Apply(d)
	must(t, err)
	for _, cmd := range []string{"nft list tables", "ip neigh show dev gw0", "ip -6 neigh show dev gw0", "ip route show table all", "ip -6 route show table all", "ip rule", "ip -6 rule"} {
		args := strings.Fields(cmd)
		out := run(t, args[0], args[1:]...)
		for _, w := range worlds {
			for _, left := range []string{servicesTable, w.masked, w.ranges, w.announced, w.floating} {
				if strings.Contains(out, left) {
					t.Errorf("%s: %s is left:\n%s", cmd, left, out)
				}
			}
		}
	}
	if n, err := h.Apply(d); n != 0 || err != nil {
		t.Errorf("applied again: %d writes, %v", n, err)
	}
}

// damage is what another program does to a part of it.
type damage struct{ damage, look, back string }

// putsBack damages each part while Run keeps it, and then does what is left.
func putsBack(t *testing.T, all []damage, then func()) {
	t.Helper()
	h := makeWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	defer func() { cancel(); must(t, <-done) }()
	for _, tc := range all {
		t.Run(tc.damage, func(t *testing.T) {
			run(t, "sh", "-c", "nft list tables; "+strings.ReplaceAll(strings.ReplaceAll(tc.damage, "{", "'{"), "}", "}'"))
			args := strings.Fields(tc.look)
			eventually(t, tc.look, shows(t, tc.back, args[0], args[1:]...))
		})
	}
	then()
}

func TestServicesArePutBack(t *testing.T) {
	w := worlds["IPv4"]
	putsBack(t, []damage{
		{"nft delete table inet coelan-services", "nft list chain inet coelan-services dnat-output", "external4"},
		{"nft flush chain inet coelan-services dnat-prerouting", "nft list chain inet coelan-services dnat-prerouting", "external4"},
		{"nft flush set inet coelan-services preserve4", "nft list set inet coelan-services preserve4", w.announced + " . tcp . 81"},
		{"nft flush map inet coelan-services external6", "nft list map inet coelan-services external6", "tcp . 80"},
		{"nft delete element inet coelan-services services4 { " + w.announced + " }", "nft list set inet coelan-services services4", w.announced},
		{"ip route del " + w.ranges, "ip route", w.ranges},
		{"ip neigh del " + w.masked + " dev gw0", "ip neigh show dev gw0", w.masked + " lladdr " + datapath.RouterMAC.String() + " PERMANENT"},
		{"ip neigh replace " + w.masked + " dev gw0 lladdr 02:00:00:00:00:01", "ip neigh show dev gw0", w.masked + " lladdr " + datapath.RouterMAC.String() + " PERMANENT"},
	}, func() {
		run(t, "nft", "add", "element", "inet", servicesTable, "reject4", "{ 10.0.0.1 . tcp . 1 }")
		eventually(t, "a stranger's element goes", func() bool {
			return !shows(t, "10.0.0.1", "nft", "list", "set", "inet", servicesTable, "reject4")()
		})
	})
}

func TestFloatingIPsArePutBack(t *testing.T) {
	w, w6 := worlds["IPv4"], worlds["IPv6"]
	putsBack(t, []damage{
		{"ip rule del from " + w.floating, "ip rule", "from " + w.floating + " lookup 206"},
		{"ip -6 rule del from " + w6.floating, "ip -6 rule", "from " + w6.floating + " lookup 206"},
		{"ip route flush table 206", "ip route show table 206", "default via " + w.masked},
		{"ip -6 route flush table 206", "ip -6 route show table 206", "default via " + w6.masked},
		{"nft flush set inet coelan-services floating4", "nft list set inet coelan-services floating4", w.floating},
	}, func() {
		run(t, "ip", "rule", "add", "from", "198.51.100.99", "lookup", "206", "protocol", "206")
		eventually(t, "a rule for what is no floating IP goes", func() bool { return !shows(t, "198.51.100.99", "ip", "rule")() })
	})
}

// TestConnectionsOutliveTheirService has a connection go on when its Service has
// no endpoints any more.
func TestConnectionsOutliveTheirService(t *testing.T) {
	h := makeWorld(t)
	w := worlds["IPv4"]
	var c net.Conn
	must(t, in(outside, func() {
		var err error
		c, err = net.Dial("tcp", net.JoinHostPort(w.node, fmt.Sprint(nodePort)))
		must(t, err)
	}))
	defer func() { _ = c.Close() }()
	b := make([]byte, 200)
	_, err := c.Read(b)
	must(t, err)
	d := withServices()
	for i := range d.Services.Ports {
		d.Services.Ports[i].Unserved = true
	}
	_, err = h.Apply(d)
	must(t, err)
	if got := ask(outside, "tcp", "", w.node, nodePort); got != "refused" {
		t.Errorf("a new connection: %q", got)
	}
	_, err = c.Write([]byte("?"))
	must(t, err)
	must(t, c.SetDeadline(time.Now().Add(3*time.Second)))
	// The server ends the connection when it hears something.
	if _, err := c.Read(b); !errors.Is(err, io.EOF) {
		t.Errorf("the old connection: %v", err)
	}
}

// TestDatagramsFollow has one client that goes on sending from its port hear a Service
// come, change and go.
func TestDatagramsFollow(t *testing.T) {
	h := makeWorld(t)
	for _, name := range []string{"IPv4", "IPv6"} {
		w := worlds[name]
		for _, tc := range []struct {
			name, to string
			port     int
		}{{"node port", w.node, nodePort}, {"external address", w.ours, port}} {
			t.Run(name+" "+tc.name, func(t *testing.T) {
				_, err := h.Apply(withServices())
				must(t, err)
				from := netip.AddrPortFrom(netip.MustParseAddr(w.client), uint16(6000+len(tc.name))).String()
				heard := func(want string) {
					t.Helper()
					if got := ask(outside, "udp", from, tc.to, tc.port); got != want {
						t.Errorf("%q, want %q", got, want)
					}
				}
				there := seen(bridge, w.hop, nodePort, w.gateway)
				heard(there)
				d := withServices()
				d.Services.Ports = nil
				_, err = h.Apply(d)
				must(t, err)
				heard("refused")
				_, err = h.Apply(withServices())
				must(t, err)
				heard(there)
			})
		}
	}
}

// TestNodePortAddresses has node ports at chosen addresses only.
func TestNodePortAddresses(t *testing.T) {
	h := makeWorld(t)
	d := withServices()
	d.Services.NodePortAddresses = pfx("192.168.51.0/24", "10.244.1.0/24")
	_, err := h.Apply(d)
	must(t, err)
	w := worlds["IPv4"]
	there := seen(bridge, w.hop, nodePort, w.gateway)
	for to, want := range map[string]string{w.ours: there, w.gateway: there, w.node: "refused", worlds["IPv6"].node: "refused"} {
		if got := ask(outside, "tcp", "", to, nodePort); got != want {
			t.Errorf("%s: %q, want %q", to, got, want)
		}
	}
}

// TestAnnouncedAddressOfTheHost is reached although the host itself has it.
func TestAnnouncedAddressOfTheHost(t *testing.T) {
	h := makeWorld(t)
	for _, w := range worlds {
		must(t, exec.Command("ip", "addr", "add", w.announced, "dev", "lo").Run())
		defer func() { must(t, exec.Command("ip", "addr", "del", w.announced, "dev", "lo").Run()) }()
		_, err := h.Apply(withServices())
		must(t, err)
		want := seen(bridge, w.hop, nodePort, w.gateway)
		if got := ask(outside, "tcp", "", w.announced, port); got != want {
			t.Errorf("%s: %q, want %q", w.announced, got, want)
		}
	}
}
