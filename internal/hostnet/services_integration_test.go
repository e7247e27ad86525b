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
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netns"

	"coelan.io/coelan/internal/intent"
)

// The world of these tests: the host (the test's own namespace) between an outside, by a wire called up0, and what plays
// the bridge, behind gw0. The bridge's end has the addresses of all Services, and tells each client whom it sees.
const (
	outside = "hnoutside"
	bridge  = "hnbridge"
)

// world is one family's addresses.
type world struct {
	node, client      string // on the wire
	gateway, pod      string // of the node's prefix
	clusterIP, alone  string // of the range, and outside of it
	announced         string // a load balancer's address that the nodes answer for
	external, ours    string // an external address of somebody, and one that is the host's
	unserved          string // a ClusterIP
	hop, masked       string
	ranges, elsewhere string // of ClusterIPs; an address of the outside
}

var worlds = map[string]world{
	"IPv4": {
		"192.168.50.1", "192.168.50.9", "10.244.1.1", "10.244.1.7", "10.96.0.10", "172.16.7.7", "203.0.113.5", "198.51.100.7",
		"192.168.51.2", "10.96.0.11", intent.NodePortIPv4.String(), intent.ServiceSourceIPv4.String(), "10.96.0.0/12", "198.51.100.8",
	},
	"IPv6": {
		"fd50::1", "fd50::9", "fd00:1::1", "fd00:1::7", "fd00:96::10", "fd00:77::7", "fd00:203::5", "fd00:198::7", "fd51::2",
		"fd00:96::11", intent.NodePortIPv6.String(), intent.ServiceSourceIPv6.String(), "fd00:96::/112", "fd00:198::8",
	},
}

// Ports of the Services. Those of a Service with ExternalLocal are one higher.
const (
	port     = 80
	nodePort = 30080
	// refused is a node port without endpoints.
	refused = 30090
	// nobody listens here.
	nobody = 7
	// chosen is a client's own port; the answer says that it has arrived.
	chosen = 5555
)

func (w world) ports(p intent.Protocol) []ServicePort {
	a := netip.MustParseAddr
	one := ServicePort{
		Protocol: p, IPv6: a(w.node).Is6(), Port: port, NodePort: nodePort, ClusterIP: a(w.clusterIP),
		ExternalIPs: []netip.Addr{a(w.external), a(w.ours)}, LoadBalancerIPs: []netip.Addr{a(w.announced)},
	}
	preserved := one
	preserved.Port, preserved.NodePort, preserved.ExternalLocal = port+1, nodePort+1, true
	plain := ServicePort{Protocol: p, IPv6: one.IPv6, Port: port + 2, ClusterIP: a(w.clusterIP), ExternalIPs: one.ExternalIPs}
	alone := ServicePort{Protocol: p, IPv6: one.IPv6, Port: port, ClusterIP: a(w.alone)}
	none := one
	none.Port, none.NodePort, none.ClusterIP, none.Unserved = port+3, refused, a(w.unserved), true
	mine, yours := one, one
	mine.Port, mine.NodePort, mine.SourceRanges = port+4, nodePort+4, []netip.Prefix{netip.PrefixFrom(a(w.client), a(w.client).BitLen())}
	yours.Port, yours.NodePort = port+5, nodePort+5
	yours.SourceRanges = []netip.Prefix{netip.MustParsePrefix("192.168.50.64/26"), netip.MustParsePrefix("fd50::1:0/112")}
	mine.SourceRanges = append(mine.SourceRanges, yours.SourceRanges...)
	hosts := one
	hosts.Port, hosts.NodePort, hosts.SourceRanges = port+6, nodePort+6, []netip.Prefix{netip.PrefixFrom(a(w.node), a(w.node).BitLen())}
	return []ServicePort{one, preserved, plain, alone, none, mine, yours, hosts}
}

func nativeServices() Services {
	s := Services{Native: true}
	for _, name := range []string{"IPv4", "IPv6"} {
		w := worlds[name]
		s.Ranges = append(s.Ranges, netip.MustParsePrefix(w.ranges))
		s.Announced = append(s.Announced, netip.MustParseAddr(w.announced))
		for _, p := range []intent.Protocol{intent.TCP, intent.UDP, intent.SCTP} {
			s.Ports = append(s.Ports, w.ports(p)...)
		}
	}
	return s
}

func withServices() Desired {
	d := overlay("gw0")
	d.Services = nativeServices()
	return d
}

// makeWorld builds the namespaces and applies everything.
func makeWorld(t *testing.T) *Host {
	t.Helper()
	noDuplicates := func() { _ = os.WriteFile("/proc/sys/net/ipv6/conf/default/accept_dad", []byte("0"), 0) }
	noDuplicates()
	for _, ns := range []string{outside, bridge} {
		_ = exec.Command("ip", "netns", "del", ns).Run()
		run(t, "ip", "netns", "add", ns)
		t.Cleanup(func() { run(t, "ip", "netns", "del", ns) })
		run(t, "ip", "-n", ns, "link", "set", "lo", "up")
		must(t, in(ns, noDuplicates))
	}
	veth(t, "up0", "192.168.50.1/24", "fd50::1/64")
	veth(t, "gw0")
	run(t, "ip", "link", "set", "lo", "up")
	// The kernel sends few errors a second to one client.
	must(t, os.WriteFile("/proc/sys/net/ipv4/icmp_ratelimit", []byte("0"), 0))
	must(t, os.WriteFile("/proc/sys/net/ipv6/icmp/ratelimit", []byte("0"), 0))
	run(t, "ip", "link", "set", "pup0", "netns", outside)
	run(t, "ip", "link", "set", "pgw0", "address", intent.RouterMAC.String(), "netns", bridge)
	configureIn := func(ns, dev string, addrs, routes []string) {
		run(t, "ip", "-n", ns, "link", "set", dev, "up")
		for _, a := range addrs {
			run(t, "ip", strings.Fields("-n "+ns+" addr add "+a+" nodad")...)
		}
		for _, r := range routes {
			run(t, "ip", strings.Fields("-n "+ns+" route add "+r)...)
		}
	}
	for _, name := range []string{"IPv4", "IPv6"} {
		w := worlds[name]
		long, short := "/32", "/24"
		if name == "IPv6" {
			long, short = "/128", "/64"
		}
		configureIn(outside, "pup0", []string{w.client + short + " dev pup0", w.elsewhere + long + " dev lo", w.external + long + " dev lo"},
			[]string{"default via " + w.node, w.announced + " via " + w.node})
		onBridge := []string{w.pod + short + " dev pgw0"}
		for _, a := range []string{w.clusterIP, w.alone, w.announced, w.hop, w.masked, w.unserved} {
			onBridge = append(onBridge, a+long+" dev lo")
		}
		configureIn(bridge, "pgw0", onBridge, []string{"default via " + w.gateway})
		run(t, "ip", "addr", "add", w.ours+long, "dev", "lo")
		t.Cleanup(func() { run(t, "ip", "addr", "del", w.ours+long, "dev", "lo") })
		// The external address is the outside's, but for the Service's ports.
		run(t, "ip", "route", "add", w.external+long, "via", w.client)
	}
	h := newHost(t)
	t.Cleanup(func() { must(t, RemoveServices()) })
	_, err := h.Apply(withServices())
	must(t, err)
	if n, err := h.Apply(withServices()); n != 0 || err != nil {
		t.Fatalf("applied again: %d writes, %v", n, err)
	}
	serve(t, bridge)
	serve(t, outside)
	return h
}

// in runs f in a namespace; sockets that it opens stay there.
func in(name string, f func()) error {
	if name == "" {
		f()
		return nil
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own, err := netns.Get()
	if err != nil {
		return err
	}
	defer func() { _ = own.Close() }()
	ns, err := netns.GetFromName(name)
	if err != nil {
		return err
	}
	defer func() { _ = ns.Close() }()
	if err := netns.Set(ns); err != nil {
		return err
	}
	f()
	return netns.Set(own)
}

// question is one way of a packet and what is heard in the end.
type question struct {
	name     string
	ns, from string // from may have a port, or be empty
	to       string
	port     int
	want     string
}

func seen(ns, at string, port int, client string) string {
	return fmt.Sprintf("%s %s %s", ns, netip.AddrPortFrom(netip.MustParseAddr(at), uint16(port)), client)
}

func (w world) questions() []question {
	toBridge := func(at string, port int, client string) string { return seen(bridge, at, port, client) }
	var all []question
	for _, from := range []struct{ name, ns, addr, seen string }{
		{"outside", outside, w.client, w.client},
		{"the host", "", "", w.gateway},
		{"a process bound to the node's address", "", w.node, w.gateway},
		{"a pod", bridge, w.pod, w.gateway},
	} {
		ask := func(what, to string, p int, want string) {
			all = append(all, question{what + " from " + from.name, from.ns, from.addr, to, p, want})
		}
		ask("node port", w.node, nodePort, toBridge(w.hop, nodePort, w.gateway))
		ask("node port, Local", w.node, nodePort+1, toBridge(w.hop, nodePort+1, from.seen))
		ask("node port at another address", w.ours, nodePort, toBridge(w.hop, nodePort, w.gateway))
		ask("own external address", w.ours, port, toBridge(w.hop, nodePort, w.gateway))
		ask("own external address, Local", w.ours, port+1, toBridge(w.hop, nodePort+1, from.seen))
		ask("own external address without a node port", w.ours, port+2, toBridge(w.clusterIP, port+2, w.gateway))
		ask("node port without endpoints", w.node, refused, "refused")
		ask("own external address without endpoints", w.ours, port+3, "refused")
		ask("another port of the host", w.node, nobody, "refused")
		if from.ns != bridge {
			// The bridge would not send these to the host.
			ask("ClusterIP", w.clusterIP, port, toBridge(w.clusterIP, port, w.gateway))
			ask("ClusterIP outside of all ranges", w.alone, port, toBridge(w.alone, port, w.gateway))
			ask("load balancer", w.announced, port, toBridge(w.announced, port, w.gateway))
			ask("load balancer, Local", w.announced, port+1, toBridge(w.announced, port+1, from.seen))
			ask("ClusterIP without endpoints", w.unserved, port+3, "refused")
			ask("load balancer without endpoints", w.announced, port+3, "refused")
			its, hosts := toBridge(w.announced, port+4, w.gateway), toBridge(w.announced, port+6, w.gateway)
			if from.ns == outside {
				hosts = "silence"
			} else {
				its = "silence"
			}
			ask("load balancer with the client's address", w.announced, port+4, its)
			ask("load balancer with the host's address", w.announced, port+6, hosts)
		}
		if from.ns != outside {
			ask("external address", w.external, port, toBridge(w.hop, nodePort, w.gateway))
			ask("another port of the external address", w.external, 9000, seen(outside, w.external, 9000, w.node))
		}
	}
	all = append(all,
		question{"a process that chose its port", "", netip.AddrPortFrom(netip.MustParseAddr(w.gateway), chosen).String(), w.clusterIP, 9000,
			toBridge(w.clusterIP, 9000, w.gateway) + " from the port chosen"},
		question{"load balancer with other sources", outside, w.client, w.announced, port + 5, "silence"},
		question{"a masked client leaves", bridge, w.masked, w.client, 9000, seen(outside, w.client, 9000, w.node)},
		question{"a pod leaves", bridge, w.pod, w.client, 9000, seen(outside, w.client, 9000, w.node)},
		question{"node port at the gateway's address", outside, w.client, w.gateway, nodePort, "refused"},
		question{"a hostPort", outside, w.client, w.node, 8080, seen(bridge, w.pod, 8080, w.client)},
	)
	return all
}

// leftovers are what the CNI plugin portmap writes for a hostPort, and what a kube-proxy left behind that knew endpoints
// which are gone.
func leftovers(t *testing.T) {
	t.Helper()
	var rules strings.Builder
	for _, name := range []string{"IPv4", "IPv6"} {
		w, ip, gone := worlds[name], "ip", "192.168.50.77"
		if name == "IPv6" {
			ip, gone = "ip6", "fd50::77"
		}
		fmt.Fprintf(&rules, "fib daddr type local %s daddr != ::1 meta l4proto { tcp, udp, sctp } th dport 8080 dnat %s to %s\n", ip, ip, w.pod)
		services := strings.Join([]string{w.clusterIP, w.alone, w.announced, w.external, w.ours}, ", ")
		fmt.Fprintf(&rules, "%s daddr { %s } meta l4proto { tcp, udp, sctp } th dport %d-%d meta mark set 0x4000 dnat %s to %s\n", ip, services, port, port+5, ip, gone)
		fmt.Fprintf(&rules, "%s daddr { %s, %s } meta l4proto { tcp, udp, sctp } th dport %d-%d dnat %s to %s\n", ip, w.node, w.ours, nodePort, nodePort+5, ip, gone)
	}
	all := strings.ReplaceAll(rules.String(), "ip daddr != ::1", "ip daddr != 127.0.0.1")
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader("table inet leftover {\n" +
		"chain prerouting { type nat hook prerouting priority -100;\n" + all + "}\n" +
		"chain output { type nat hook output priority -100;\n" + all + "}\n" +
		"chain postrouting { type nat hook postrouting priority 100;\nmeta mark 0x4000 masquerade\n}\n}\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, all)
	}
	t.Cleanup(func() { _ = exec.Command("nft", "delete", "table", "inet", "leftover").Run() })
}

// firmly is wrong, but on a machine that is busy: who got no answer asks a second time, and waits longer.
func firmly(t *testing.T, networks ...string) []string {
	t.Helper()
	if len(wrong(t, networks...)) == 0 {
		return nil
	}
	patience = time.Second
	defer func() { patience = hurry }()
	return wrong(t, networks...)
}

// wrong asks everything at once and returns the answers that are not as they should be.
func wrong(t *testing.T, networks ...string) (problems []string) {
	t.Helper()
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, name := range []string{"IPv4", "IPv6"} {
		for _, network := range networks {
			for _, q := range worlds[name].questions() {
				if network == "sctp" && (q.port == nobody || strings.HasSuffix(q.want, "chosen")) {
					// Nobody at all speaks it, and raw sockets have no ports.
					continue
				}
				if q.ns == "" && network != "tcp" && q.want == "silence" {
					// The kernel tells a sender of datagrams on the same host of any rule that stops them.
					q.want = "refused"
				}
				check := func() {
					if got := ask(q.ns, network, q.from, q.to, q.port); got != q.want {
						mu.Lock()
						defer mu.Unlock()
						problems = append(problems, fmt.Sprintf("%s %s: %s (%s:%d): %q, want %q", name, network, q.name, q.to, q.port, got, q.want))
					}
				}
				if network == "sctp" {
					// All raw sockets between two addresses hear of one's error.
					check()
				} else {
					all.Go(check)
				}
			}
		}
	}
	all.Wait()
	slices.Sort(problems)
	return problems
}

func TestServices(t *testing.T) {
	makeWorld(t)
	leftovers(t)
	for _, p := range firmly(t, "tcp", "udp", "sctp") {
		t.Error(p)
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
		{"nft list tables", servicesTable}, {"ip neigh show dev gw0", worlds["IPv4"].hop}, {"ip -6 neigh show dev gw0", worlds["IPv6"].hop},
		{"ip route", worlds["IPv4"].ranges}, {"ip -6 route", worlds["IPv6"].announced}, {"ip route", "169.254.64.0/30"},
	} {
		if args := strings.Fields(what.name); !strings.Contains(run(t, args[0], args[1:]...), what.text) {
			t.Errorf("%s: no %s", what.name, what.text)
		}
	}
	d := withServices()
	d.Services.Native = false
	_, err := h.Apply(d)
	must(t, err)
	for _, cmd := range []string{"nft list tables", "ip neigh show dev gw0", "ip -6 neigh show dev gw0", "ip route", "ip -6 route"} {
		args := strings.Fields(cmd)
		out := run(t, args[0], args[1:]...)
		for _, w := range worlds {
			for _, left := range []string{servicesTable, w.hop, w.ranges, w.announced} {
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

// TestServicesArePutBack damages each part while Run keeps it.
func TestServicesArePutBack(t *testing.T) {
	h := makeWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	defer func() { cancel(); must(t, <-done) }()
	w := worlds["IPv4"]
	for _, tc := range []struct{ damage, look, back string }{
		{"nft delete table inet coelan-services", "nft list chain inet coelan-services dnat-output", "external4"},
		{"nft flush chain inet coelan-services dnat-prerouting", "nft list chain inet coelan-services dnat-prerouting", "external4"},
		{"nft flush set inet coelan-services preserve4", "nft list set inet coelan-services preserve4", w.announced + " . tcp . 81"},
		{"nft flush map inet coelan-services external6", "nft list map inet coelan-services external6", "tcp . 80"},
		{"nft delete element inet coelan-services services4 { " + w.announced + " }", "nft list set inet coelan-services services4", w.announced},
		{"ip route del " + w.ranges, "ip route", w.ranges},
		{"ip neigh del " + w.hop + " dev gw0", "ip neigh show dev gw0", w.hop + " lladdr " + intent.RouterMAC.String() + " PERMANENT"},
		{"ip neigh replace " + w.hop + " dev gw0 lladdr 02:00:00:00:00:01", "ip neigh show dev gw0", w.hop + " lladdr " + intent.RouterMAC.String() + " PERMANENT"},
	} {
		t.Run(tc.damage, func(t *testing.T) {
			run(t, "sh", "-c", "nft list tables; "+strings.ReplaceAll(strings.ReplaceAll(tc.damage, "{", "'{"), "}", "}'"))
			args := strings.Fields(tc.look)
			eventually(t, tc.look, shows(t, tc.back, args[0], args[1:]...))
		})
	}
	run(t, "nft", "add", "element", "inet", servicesTable, "reject4", "{ 10.0.0.1 . tcp . 1 }")
	eventually(t, "a stranger's element goes", func() bool {
		return !shows(t, "10.0.0.1", "nft", "list", "set", "inet", servicesTable, "reject4")()
	})
}

// TestConnectionsOutliveTheirService has a connection go on when its Service has no endpoints any more.
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

// TestDatagramsFollow has one client that goes on sending from its port hear a Service come, change and go.
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
