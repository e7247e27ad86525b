// SPDX-License-Identifier: Apache-2.0

//go:build integration

package pipeline

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"coelan.io/coelan/internal/backend/ovs/bridge"
	"coelan.io/coelan/internal/backend/ovs/hostnet"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ovstest"
	"coelan.io/coelan/openflow"
	"coelan.io/coelan/test/lab/probe"
)

// balanced is tenants with bridges that balance Services, and nodes' kernels as
// the agent configures them.
type balanced struct {
	*tenants
	services []*liveService
	agents   map[*liveNode]*liveAgent
	networks []string
}

// liveAgent is what an agent keeps.
type liveAgent struct {
	compiler *Compiler
	bridge   *bridge.Bridge
	host     *hostnet.Host
}

// liveService is a Service of all nodes, with every protocol and family on its one port, 80.
type liveService struct {
	name      string
	number    int    // of its addresses
	router    string // empty: default
	endpoints []liveEndpoint
	affinity  int // seconds
	// All addresses: also by a node port and an external one.
	outside bool
	// external is an address for all clients without a node port.
	external                     bool
	internalLocal, externalLocal bool
	sourceRanges                 []netip.Prefix // of a load balancer's address
}

// liveEndpoint is a server of one name in the cluster's address space.
type liveEndpoint struct {
	name    string
	node    *liveNode // nil: outside
	address func(v6 bool) string
	port    uint16
}

const (
	servedPort = 80
	answerPort = 8080
)

var liveRanges = []intent.ServiceRange{{Prefix: netip.MustParsePrefix("10.96.0.0/16")}, {Prefix: netip.MustParsePrefix("fd00:96::/64")}}

func (s *liveService) address(net4, net6 string, v6 bool) netip.Addr {
	if v6 {
		return netip.MustParseAddr(fmt.Sprintf("%s%x", net6, s.number))
	}
	return netip.MustParseAddr(fmt.Sprintf("%s%d", net4, s.number))
}

func (s *liveService) clusterIP(v6 bool) netip.AddrPort {
	return netip.AddrPortFrom(s.address("10.96.9.", "fd00:96::", v6), servedPort)
}

// loadBalancerIP is an unused address that the host outside has a route to by way
// of the first node.
func (s *liveService) loadBalancerIP(v6 bool) netip.AddrPort {
	return netip.AddrPortFrom(s.address("198.51.100.", "fd51::", v6), servedPort)
}

// externalIP is another one, with a route as well, that no pool has.
func (s *liveService) externalIP(v6 bool) netip.AddrPort {
	return netip.AddrPortFrom(s.address("198.51.100.1", "fd51::1:", v6), servedPort)
}

func (s *liveService) nodePort() uint16 { return uint16(30000 + s.number) }

func (s *liveService) at(n *liveNode, v6 bool) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(n.address(v6)), s.nodePort())
}

// view is the Service as a node knows it.
func (s *liveService) view(n *liveNode, networks []string) intent.NodeService {
	v := intent.NodeService{
		Namespace: "default", Name: s.name, UID: s.name, Router: s.router, AffinitySeconds: s.affinity,
		SourceRanges: s.sourceRanges, InternalLocal: s.internalLocal, ExternalLocal: s.externalLocal,
	}
	if v.Router == "" {
		v.Router = intent.DefaultRouterName
	}
	for _, network := range networks {
		for _, v6 := range []bool{false, true} {
			p := intent.NodeServicePort{
				Name: network, IPv6: v6, Port: servedPort, ClusterIP: s.clusterIP(v6).Addr(), Unserved: len(s.endpoints) == 0,
				Protocol: map[string]intent.Protocol{"tcp": intent.TCP, "udp": intent.UDP, "sctp": intent.SCTP}[network],
			}
			if s.outside {
				p.NodePort, p.LoadBalancerIPs = s.nodePort(), []netip.Addr{s.loadBalancerIP(v6).Addr()}
			}
			if s.external {
				p.ExternalIPs = []netip.Addr{s.externalIP(v6).Addr()}
			}
			for _, e := range s.endpoints {
				at := intent.Endpoint{Address: netip.MustParseAddr(e.address(v6)), Port: e.port}
				p.Endpoints = append(p.Endpoints, at)
				if e.node == n && (s.internalLocal || s.externalLocal) {
					p.LocalEndpoints = append(p.LocalEndpoints, at)
				}
			}
			slices.SortFunc(p.Endpoints, intent.Endpoint.Compare)
			slices.SortFunc(p.LocalEndpoints, intent.Endpoint.Compare)
			v.LocalEndpoints = len(p.LocalEndpoints)
			v.Ports = append(v.Ports, p)
		}
	}
	return v
}

// newBalanced builds the world with servers on port 8080 of all ends.
func newBalanced(t *testing.T, encap intent.Encapsulation) *balanced {
	t.Helper()
	b := &balanced{agents: map[*liveNode]*liveAgent{}, networks: []string{"tcp", "udp"}}
	if probe.HasSCTP() {
		b.networks = append(b.networks, "sctp")
	} else {
		t.Log("the kernel has no SCTP: not tried")
	}
	b.tenants = newTenants(t, encap, func(_ context.Context, w *world) {
		w.known.ServiceRanges = liveRanges
		for _, n := range w.nodes {
			n.local.ServiceMode = intent.NativeServices
		}
	})
	for _, v6 := range []bool{false, true} {
		b.run(b.outside, fmt.Sprintf("%s route add %s via %s", ip(v6), map[bool]string{false: "198.51.100.0/24", true: "fd51::/64"}[v6], b.nodes[0].address(v6)))
		for _, n := range b.nodes {
			// It will be the agent's.
			b.run(n.Namespace, fmt.Sprintf("%s route del %s", ip(v6), b.nodes[2-n.number].subnet(v6)))
			for _, p := range n.pods {
				b.answer(p.Namespace, p.name(), p.address(v6), answerPort)
			}
			b.answer(n.Namespace, n.local.Node, n.address(v6), answerPort)
		}
		b.answer(b.outside, "outside", outsideAddress(v6), answerPort)
	}
	for _, n := range b.nodes { // not in a hurry as for errors
		for _, p := range n.pods {
			b.run(p.Namespace, "ip ntable change name arp_cache dev eth0 retrans 1000", "ip ntable change name ndisc_cache dev eth0 retrans 1000")
		}
	}
	for _, n := range b.nodes { // tunnels know their neighbors, and wires their MTU
		_, _ = ping(n.Namespace, b.nodes[2-n.number].address(false), "")
	}
	b.run(b.outside, fmt.Sprintf("ip link set eth0 mtu %d", b.nodes[0].local.MTU))
	return b
}

func (p *livePod) name() string { return p.port.Pod }

// endpoint is a pod as endpoint.
func (b *balanced) endpoint(p *livePod) liveEndpoint {
	e := liveEndpoint{name: p.name(), address: p.address, port: answerPort}
	if len(p.port.NodeAddresses) > 0 {
		e.address = p.inNode
	}
	for _, n := range b.nodes {
		if slices.Contains(n.pods, p) {
			e.node = n
		}
	}
	return e
}

func (b *balanced) endpoints(pods ...*livePod) (list []liveEndpoint) {
	for _, p := range pods {
		list = append(list, b.endpoint(p))
	}
	return list
}

// set makes these the only Services, on bridges and in kernels.
func (b *balanced) set(services ...*liveService) {
	b.t.Helper()
	b.services = services
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	for _, n := range b.nodes {
		b.program(ctx, n)
	}
}

// program does what the agent of a node does.
func (b *balanced) program(ctx context.Context, n *liveNode) {
	b.t.Helper()
	b.known.NodeServices = nil
	for _, s := range b.services {
		b.known.NodeServices = append(b.known.NodeServices, s.view(n, b.networks))
	}
	services := b.known.NodeServices
	if n.local.ServiceMode != intent.NativeServices {
		b.known.NodeServices = nil
	}
	a := b.agentOf(ctx, n)
	desired := a.compiler.Compile(inputOf(b.state(n)))
	if p := a.compiler.Problems(); len(p) > 0 {
		b.t.Fatal(p)
	}
	if res, err := a.bridge.Sync(ctx, desired); err != nil || len(res.Conflicts) > 0 {
		b.t.Fatal(res, err)
	}
	b.relearn(ctx, n)
	kernel := b.kernel(n)
	kernel.Services = kernelServices(services, n.local.ServiceMode)
	err := n.Do(func() error {
		_, err := a.host.Apply(kernel)
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

// kernel is what the agent wants of its host.
func (b *balanced) kernel(n *liveNode) hostnet.Desired {
	d := hostnet.Desired{Gateway: hostnet.Gateway{Name: "coelan-gw0", MTU: n.local.MTU}, SNAT: hostnet.SNAT{Enabled: true}}
	for _, v6 := range []bool{false, true} {
		own, gateway := n.subnet(v6), netip.MustParseAddr(n.gateway(v6))
		d.Gateway.Addresses = append(d.Gateway.Addresses, netip.PrefixFrom(gateway, own.Bits()))
		d.Routes = append(d.Routes, hostnet.Route{Destination: own, Gateway: true, Source: gateway})
		d.SNAT.Pods = append(d.SNAT.Pods, own)
		for _, other := range b.nodes {
			d.SNAT.Direct = append(d.SNAT.Direct, other.subnet(v6))
			switch {
			case other == n:
			case b.encap.Tunneled():
				d.Routes = append(d.Routes, hostnet.Route{
					Destination: other.subnet(v6), Via: netip.MustParseAddr(other.gateway(v6)), Gateway: true, Source: gateway,
				})
			default:
				d.Routes = append(d.Routes, hostnet.Route{Destination: other.subnet(v6), Via: netip.MustParseAddr(other.address(v6))})
			}
		}
	}
	return d
}

func (b *balanced) agentOf(ctx context.Context, n *liveNode) *liveAgent {
	b.t.Helper()
	if a := b.agents[n]; a != nil {
		return a
	}
	a := &liveAgent{compiler: New()}
	conn, err := openflow.Dial(ctx, "unix:"+n.ovs.MgmtSocket("br-int"), openflow.ConnOptions{FragmentPorts: n.local.PolicyMode == intent.EnforcedPolicies})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { conn.Close() })
	a.bridge = bridge.New(bridge.Options{Connect: func(context.Context) (bridge.Switch, error) { return conn, nil }, Learned: Learned})
	err = n.Do(func() (err error) {
		a.host, err = hostnet.New(slog.New(slog.DiscardHandler), "/proc/sys")
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(a.host.Close)
	b.agents[n] = a
	return a
}

// kernelServices is what the kernel is to know of Services.
func kernelServices(services []intent.NodeService, mode intent.ServiceMode) hostnet.Services {
	if mode != intent.NativeServices {
		return hostnet.Services{}
	}
	k := hostnet.Services{Native: true}
	for _, r := range liveRanges {
		k.Ranges = append(k.Ranges, r.Prefix)
	}
	for _, s := range services {
		for _, p := range s.Ports {
			k.Ports = append(k.Ports, hostnet.ServicePort{
				Protocol: p.Protocol, IPv6: p.IPv6, Port: p.Port, NodePort: p.NodePort, ClusterIP: p.ClusterIP, ExternalIPs: p.ExternalIPs,
				LoadBalancerIPs: p.LoadBalancerIPs, SourceRanges: s.SourceRanges, ExternalLocal: s.ExternalLocal, Unserved: p.Unserved,
			})
			for _, a := range p.LoadBalancerIPs {
				if !slices.Contains(k.Announced, a) {
					k.Announced = append(k.Announced, a)
				}
			}
		}
	}
	return k
}

// answer replies with the server's name, the client's address and the text received.
func (b *balanced) answer(ns *ovstest.Namespace, name, address string, port uint16) {
	b.t.Helper()
	at := netip.AddrPortFrom(netip.MustParseAddr(address), port)
	stream := func(c net.Conn) {
		_ = c.SetDeadline(time.Now().Add(10 * time.Minute))
		host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
		for in := bufio.NewReader(c); ; {
			text, err := in.ReadString('\n')
			if err != nil {
				return
			}
			if _, err := fmt.Fprintf(c, "%s %s %s", name, host, text); err != nil {
				return
			}
		}
	}
	for _, network := range b.networks {
		if network == "udp" {
			b.answerPackets(ns, name, at)
			continue
		}
		serve := probe.Serve
		if network == "sctp" {
			serve = probe.ServeSCTP
		}
		s, err := serve(ns, at, stream)
		if err != nil {
			b.t.Fatalf("%s: %v", name, err)
		}
		b.t.Cleanup(s.Close)
	}
}

func (b *balanced) answerPackets(ns *ovstest.Namespace, name string, at netip.AddrPort) {
	b.t.Helper()
	var c net.PacketConn
	err := ns.Do(func() (err error) {
		c, err = net.ListenPacket("udp", at.String())
		return err
	})
	if err != nil {
		b.t.Fatalf("%s: %v", name, err)
	}
	b.t.Cleanup(func() { c.Close() })
	go func() {
		buf := make([]byte, 1<<16)
		for {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			host, _, _ := net.SplitHostPort(from.String())
			_, _ = c.WriteTo(fmt.Appendf(nil, "%s %s %s", name, host, buf[:n]), from)
		}
	}()
}

// call is a connection to a server that answers.
type call struct {
	net.Conn
	in *bufio.Reader
}

// called opens a connection to an address.
func called(ctx context.Context, ns *ovstest.Namespace, network string, to netip.AddrPort) (*call, error) {
	ctx, cancel := context.WithTimeout(ctx, talkTime)
	defer cancel()
	c, err := dial(ctx, ns, network, to)
	if err != nil {
		return nil, err
	}
	return newCall(c), nil
}

func newCall(c net.Conn) *call { return &call{c, bufio.NewReaderSize(c, 1<<16)} }

// say sends a text and returns the name that answered, and the client's address as seen there.
func (c *call) say(text string, wait time.Duration) (who, seen string, err error) {
	if err := c.SetDeadline(time.Now().Add(wait)); err != nil {
		return "", "", err
	}
	if _, err := fmt.Fprintln(c, text); err != nil {
		return "", "", err
	}
	heard, err := c.in.ReadString('\n')
	if err != nil {
		return "", "", err
	}
	who, rest, _ := strings.Cut(heard, " ")
	seen, rest, _ = strings.Cut(rest, " ")
	if rest != text+"\n" {
		return who, seen, fmt.Errorf("%.40q came back, not %.40q", rest, text)
	}
	return who, seen, nil
}

// lostTime is how long to wait for what is not to come.
const lostTime = 400 * time.Millisecond

// ask says one thing in a connection of its own.
func (b *balanced) ask(ns *ovstest.Namespace, network string, to netip.AddrPort, wait time.Duration) (who, seen string, err error) {
	ctx, cancel := context.WithTimeout(b.t.Context(), wait)
	defer cancel()
	c, err := called(ctx, ns, network, to)
	if err != nil {
		return "", "", err
	}
	defer c.Close()
	return c.say("coelan", wait)
}

// Outcomes of calls without an answer.
const (
	refusedCall = "refused"
	lostCall    = "lost"
)

// outcomeOf is how a call ended: the name that answered, refused or lost.
func outcomeOf(who string, err error) (string, error) {
	var timeout interface{ Timeout() bool }
	switch {
	case err == nil:
		return who, nil
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.EPERM):
		// The latter from the sender's own kernel.
		return refusedCall, nil
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded), errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.EINPROGRESS):
		return lostCall, nil
	}
	return "", err
}

// way is a client, the address that it calls, and the wanted outcome.
type way struct {
	name string
	from *ovstest.Namespace
	to   netip.AddrPort
	want []string // the names that answer, each at some time; refusedCall; lostCall
	seen string   // the client's address that they see; empty: any
	only string   // protocol; empty: all
}

// check tries a way with each protocol until all wanted names have answered.
func (b *balanced) check(t *testing.T, w way) {
	t.Helper()
	for _, network := range b.networks {
		if w.only != "" && network != w.only {
			continue
		}
		want := w.want
		if network == "sctp" && want[0] == refusedCall {
			want = []string{lostCall} // Linux's SCTP does not take "port unreachable" for an answer
		}
		var missing []string
		heard := map[string]bool{}
		for range 30 {
			wait := talkTime
			if want[0] == lostCall {
				wait = lostTime
			}
			who, seen, err := b.ask(w.from, network, w.to, wait)
			got, err := outcomeOf(who, err)
			if err != nil || !slices.Contains(want, got) {
				t.Errorf("%s, %s to %s: %s, %v; want %v", w.name, network, w.to, got, err, want)
				break
			}
			if w.seen != "" && seen != "" && seen != w.seen {
				t.Errorf("%s, %s to %s: %s sees %s, want %s", w.name, network, w.to, got, seen, w.seen)
				break
			}
			heard[got] = true
			if missing = slices.DeleteFunc(slices.Clone(want), func(name string) bool { return heard[name] }); len(missing) == 0 {
				break
			}
		}
		if len(missing) > 0 && !t.Failed() {
			t.Errorf("%s, %s to %s: %v never answered", w.name, network, w.to, missing)
		}
	}
}
