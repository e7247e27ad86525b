// SPDX-License-Identifier: Apache-2.0

//go:build integration

package hostnet

import (
	"fmt"
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

	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
)

// The world of these tests: the host (the test's own namespace) between an outside, by a wire
// called up0, and what plays the bridge, behind gw0. The bridge's end has the addresses of all
// Services, and answers each client with its address as seen here. Behind it is the wire of a
// physical network, with a client of floating IPs.
const (
	outside  = "hnoutside"
	bridge   = "hnbridge"
	physical = "hnphysical"
)

// world is one family's addresses.
type world struct {
	node, client      string // on the wire
	gateway, pod      string // of the node's prefix
	clusterIP, alone  string // of the range, and outside of it
	announced         string // a load balancer's address that the nodes answer for
	external, ours    string // an external address of another host, and one that is the host's
	unserved          string // a ClusterIP
	hop, masked       string
	ranges, elsewhere string // of ClusterIPs; an address of the outside
	floating, wired   string // a floating IP, and a client on the wire of its network
}

var worlds = map[string]world{
	"IPv4": {
		"192.168.50.1", "192.168.50.9", "10.244.1.1", "10.244.1.7", "10.96.0.10", "172.16.7.7", "203.0.113.5", "198.51.100.7",
		"192.168.51.2", "10.96.0.11", datapath.NodePortIPv4.String(), datapath.ServiceSourceIPv4.String(), "10.96.0.0/12", "198.51.100.8",
		"192.168.60.7", "192.168.60.9",
	},
	"IPv6": {
		"fd50::1", "fd50::9", "fd00:1::1", "fd00:1::7", "fd00:96::10", "fd00:77::7", "fd00:203::5", "fd00:198::7", "fd51::2",
		"fd00:96::11", datapath.NodePortIPv6.String(), datapath.ServiceSourceIPv6.String(), "fd00:96::/112", "fd00:198::8",
		"fd60::7", "fd60::9",
	},
}

// Ports of the Services. Those of a Service with ExternalLocal are one higher.
const (
	port     = 80
	nodePort = 30080
	// refused is a node port without endpoints.
	refused = 30090
	// There is no listener here.
	noListener = 7
	// marked is where what plays the bridge leads packets that the host's kernel
	// has marked as forwarded.
	marked = 9100
	// process is where a process of the host serves.
	process = 9200
	// chosen is a client's own port; the answer says that it has arrived.
	chosen = 5555
)

func (w world) ports(p intent.Protocol) []ServicePort {
	a := netip.MustParseAddr
	one := ServicePort{
		Protocol: p, IPv6: a(w.node).Is6(), Port: port, NodePort: nodePort, ClusterIP: a(w.clusterIP),
		ExternalIPs: []netip.Addr{a(w.external), a(w.ours), a(w.floating)}, LoadBalancerIPs: []netip.Addr{a(w.announced)},
	}
	preserved := one
	preserved.Port, preserved.NodePort, preserved.ExternalLocal = port+1, nodePort+1, true
	plain := ServicePort{Protocol: p, IPv6: one.IPv6, Port: port + 2, ClusterIP: a(w.clusterIP), ExternalIPs: one.ExternalIPs}
	alone := ServicePort{Protocol: p, IPv6: one.IPv6, Port: port, ClusterIP: a(w.alone)}
	none := one
	none.Port, none.NodePort, none.ClusterIP, none.Unserved = port+3, refused, a(w.unserved), true
	mine, yours := one, one
	mine.ExternalIPs = mine.ExternalIPs[:2] // the floating IP is the load balancer's
	mine.LoadBalancerIPs = append(mine.LoadBalancerIPs[:1:1], a(w.floating))
	yours.ExternalIPs, yours.LoadBalancerIPs = mine.ExternalIPs, mine.LoadBalancerIPs
	mine.Port, mine.NodePort, mine.SourceRanges = port+4, nodePort+4, []netip.Prefix{netip.PrefixFrom(a(w.client), a(w.client).BitLen())}
	yours.Port, yours.NodePort = port+5, nodePort+5
	yours.SourceRanges = []netip.Prefix{netip.MustParsePrefix("192.168.50.64/26"), netip.MustParsePrefix("fd50::1:0/112")}
	mine.SourceRanges = append(mine.SourceRanges, yours.SourceRanges...)
	mine.SourceRanges = append(mine.SourceRanges, netip.PrefixFrom(a(w.wired), a(w.wired).BitLen()))
	hosts := one
	hosts.Port, hosts.NodePort, hosts.SourceRanges = port+6, nodePort+6, []netip.Prefix{netip.PrefixFrom(a(w.node), a(w.node).BitLen())}
	own, sticky := preserved, preserved
	own.Port, own.NodePort, sticky.Port, sticky.NodePort = port+7, nodePort+7, port+8, nodePort+8
	own.Hosts.Outside = []intent.Endpoint{{Address: a(w.node), Port: process}}
	sticky.Hosts = HostEndpoints{Outside: own.Hosts.Outside, Sticky: true}
	return []ServicePort{one, preserved, plain, alone, none, mine, yours, hosts, own, sticky}
}

func nativeServices() Services {
	s := Services{Native: true}
	for _, name := range []string{"IPv4", "IPv6"} {
		w := worlds[name]
		s.Ranges = append(s.Ranges, netip.MustParsePrefix(w.ranges))
		s.Announced = append(s.Announced, netip.MustParseAddr(w.announced), netip.MustParseAddr(w.floating))
		s.Floating = append(s.Floating, netip.MustParseAddr(w.floating))
		s.Cluster = append(s.Cluster, netip.PrefixFrom(netip.MustParseAddr(w.pod), map[string]int{"IPv4": 24, "IPv6": 64}[name]))
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
	for _, ns := range []string{outside, bridge, physical} {
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
	run(t, "ip", "link", "set", "pgw0", "address", datapath.RouterMAC.String(), "netns", bridge)
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
	attachWire(t)
	h := newHost(t)
	t.Cleanup(func() { must(t, RemoveServices()); must(t, h.RemoveRoutes()) })
	_, err := h.Apply(withServices())
	must(t, err)
	if n, err := h.Apply(withServices()); n != 0 || err != nil {
		t.Fatalf("applied again: %d writes, %v", n, err)
	}
	leadMarked(t)
	serve(t, bridge)
	serve(t, outside)
	serveAt(t, "", process)
	return h
}

// attachWire has what plays the bridge take a client's packets from a wire: it gives those for a
// floating IP to the host, and those that the host gives to the Service to its own listeners, at
// the address of the load balancer. Answers go to the host, too, and from there to the wire.
func attachWire(t *testing.T) {
	t.Helper()
	run(t, "ip", "-n", bridge, "link", "add", "wire0", "type", "veth", "peer", "name", "wire0", "netns", physical)
	for _, ns := range []string{bridge, physical} {
		run(t, "ip", "-n", ns, "link", "set", "wire0", "up")
	}
	run(t, "ip", "netns", "exec", bridge, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
	var rules strings.Builder
	// Each packet passes twice, of which conntrack has to know no more than what the listeners
	// need.
	v4, v6 := worlds["IPv4"], worlds["IPv6"]
	fmt.Fprintf(&rules, "table inet wire {\nchain zones { type filter hook prerouting priority raw;\niifname wire0 notrack\n"+
		"ip saddr %s notrack\nip6 saddr %s notrack\n}\nchain prerouting { type nat hook prerouting priority dstnat + 10;\n", v4.floating, v6.floating)
	for _, name := range []string{"IPv4", "IPv6"} {
		w, ip, family, long := worlds[name], "ip", "-4", "/32"
		if name == "IPv6" {
			ip, family, long = "ip6", "-6", "/128"
		}
		fmt.Fprintf(&rules, "iifname pgw0 %s daddr %s dnat %s to %s\n", ip, w.floating, ip, w.announced)
		run(t, "ip", "-n", physical, "addr", "add", w.wired+long, "dev", "wire0", "nodad")
		run(t, "ip", "-n", bridge, "addr", "add", w.hop+long, "dev", "wire0", "nodad")
		run(t, "ip", "-n", physical, "route", "add", w.hop, "dev", "wire0")
		run(t, "ip", "-n", physical, "route", "add", w.floating, "via", w.hop)
		run(t, "ip", "-n", bridge, "route", "add", w.wired, "dev", "wire0")
		run(t, "ip", "-n", bridge, "route", "add", "default", "via", w.gateway, "table", "100")
		run(t, "ip", family, "-n", bridge, "rule", "add", "to", w.wired, "iif", "lo", "lookup", "100")
	}
	rules.WriteString("}\n}\n")
	cmd := exec.Command("ip", "netns", "exec", bridge, "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(rules.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, rules.String())
	}
}

// leadMarked makes a mark be seen: TCP and UDP with it arrive at another port.
func leadMarked(t *testing.T) {
	t.Helper()
	var rules strings.Builder
	for _, ip := range []string{"ip", "ip6"} {
		fmt.Fprintf(&rules, "table %s marked {\nchain prerouting { type nat hook prerouting priority -100;\n", ip)
		for _, network := range []string{"tcp", "udp"} {
			fmt.Fprintf(&rules, "%s dscp %d %s dport 1-65535 dnat to :%d\n", ip, datapath.ForwardedDSCP, network, marked)
		}
		rules.WriteString("}\n}\n")
	}
	cmd := exec.Command("ip", "netns", "exec", bridge, "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(rules.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, rules.String())
	}
}

// forwarded is what is seen of a packet that the host has not sent itself: those
// to ClusterIPs are marked.
func (w world) forwarded(want string) string {
	for _, a := range []string{w.clusterIP, w.alone} {
		for p := port; p < port+4; p++ {
			if client, is := strings.CutPrefix(want, seen(bridge, a, p, "")); is {
				return seen(bridge, a, marked, client)
			}
		}
	}
	return want
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
		ask("another port of the host", w.node, noListener, "refused")
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
		question{"floating IP from the wire", physical, w.wired, w.floating, port, toBridge(w.announced, port, w.gateway)},
		question{"floating IP, Local, from the wire", physical, w.wired, w.floating, port + 1, toBridge(w.announced, port+1, w.wired)},
		question{"floating IP without endpoints from the wire", physical, w.wired, w.floating, port + 3, "refused"},
		question{"floating IP from a pod", bridge, w.pod, w.floating, port, toBridge(w.announced, port, w.gateway)},
		question{"floating IP, Local, from a pod", bridge, w.pod, w.floating, port + 1, toBridge(w.announced, port+1, w.gateway)},
		question{"floating IP, Local, from the host", "", "", w.floating, port + 1, toBridge(w.announced, port+1, w.gateway)},
		question{"floating IP of a load balancer with the client's address from the wire", physical, w.wired, w.floating, port + 4,
			toBridge(w.announced, port+4, w.gateway)},
		question{"floating IP of a load balancer with other sources from the wire", physical, w.wired, w.floating, port + 5, "silence"},
		question{"floating IP of a load balancer from a pod that the bridge has judged", bridge, w.pod, w.floating, port + 5,
			toBridge(w.announced, port+5, w.gateway)},
		question{"node port of a process", outside, w.client, w.node, nodePort + 7, seen("", w.node, process, w.client)},
		question{"load balancer of a process", outside, w.client, w.announced, port + 7, seen("", w.node, process, w.client)},
		question{"node port of a process, with affinity", outside, w.client, w.node, nodePort + 8, seen("", w.node, process, w.client)},
		question{"load balancer of a process, with affinity", outside, w.client, w.announced, port + 8,
			seen("", w.node, process, w.client)},
		question{"load balancer with other sources", outside, w.client, w.announced, port + 5, "silence"},
		question{"a masked client leaves", bridge, w.masked, w.client, 9000, seen(outside, w.client, 9000, w.node)},
		question{"a pod leaves", bridge, w.pod, w.client, 9000, seen(outside, w.client, 9000, w.node)},
		question{"node port at the gateway's address", outside, w.client, w.gateway, nodePort, "refused"},
		question{"a hostPort", outside, w.client, w.node, 8080, seen(bridge, w.pod, 8080, w.client)},
	)
	return all
}

// leftovers are what the CNI plugin portmap writes for a hostPort, and what a kube-proxy left
// behind that knew endpoints which are gone.
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

// firmly repeats a question without an answer once and waits longer, for busy machines.
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
				own := strings.HasPrefix(q.want, " ") // of the host
				if network == "sctp" && (q.port == noListener || own || strings.HasSuffix(q.want, "chosen")) {
					// No program speaks it, and raw sockets have no ports.
					continue
				}
				if q.ns == physical && network != "tcp" && q.want == "refused" {
					// The kernel's error comes from an address of its own, which knows no way to
					// the wire.
					q.want = "silence"
				}
				if q.ns == "" && network != "tcp" && q.want == "silence" {
					// The kernel tells a sender of datagrams on the same host of any
					// rule that stops them.
					q.want = "refused"
				}
				if q.ns != "" && network != "sctp" {
					q.want = worlds[name].forwarded(q.want)
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
