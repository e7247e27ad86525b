// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/diagnose"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// appliances is a central world in which an Egress sends what pods send to two firewalls, that have
// the address of a server behind them.
type appliances struct {
	*central
	firewalls [2]*lab.Host
	egress    outer
	spec      v1alpha1.EgressSpec
}

// server is the address behind each firewall.
func server(f lab.Family) netip.Addr {
	return netip.MustParseAddr(map[lab.Family]string{lab.IPv4: "203.0.113.77", lab.IPv6: "2001:db8:77::77"}[f])
}

// talkPort is that of a server that answers each line.
const talkPort = 8090

// TestPolicyRoutes sends what chosen pods send to next hops, with the pods' own addresses.
func TestPolicyRoutes(t *testing.T) {
	w := startAppliances(t)
	t.Run("spread", func(t *testing.T) { policySpread(t, w) })
	t.Run("trace", func(t *testing.T) { policyTrace(t, w) })
	t.Run("not in", func(t *testing.T) { policyNotIn(t, w) })
	t.Run("a next hop fails", func(t *testing.T) { policyHopFails(t, w) })
	t.Run("all next hops fail", func(t *testing.T) { policyHopsFail(t, w) })
	t.Run("BFD", func(t *testing.T) { policyBFD(t, w) })
	t.Run("the active node's agent restarts", func(t *testing.T) { policyAgent(t, w) })
	t.Run("the active node goes", func(t *testing.T) { policyPowerCut(t, w) })
}

func startAppliances(t *testing.T) *appliances {
	w := &appliances{central: startCentral(t), egress: outer{"", 181, nil}}
	for i := range w.firewalls {
		h, err := w.n3.AddVLANHost(within(t, time.Minute), "br-lan", fmt.Sprintf("fw%d", i+1), officeVLAN, officePrefixes(10+i)...)
		if err != nil {
			t.Fatal(err)
		}
		w.firewalls[i] = h
		for f := range lab.Dual.Each {
			run(t, h, "ip", "address", "add", netip.PrefixFrom(server(f), server(f).BitLen()).String(), "dev", "lo", "nodad")
			answers(t, h, netip.AddrPortFrom(server(f), answerPort))
			serve(t, h, netip.AddrPortFrom(server(f), talkPort), func(c net.Conn) {
				for s := bufio.NewScanner(c); s.Scan(); {
					if _, err := fmt.Fprintln(c, h.Name); err != nil {
						return
					}
				}
			})
			for _, pod := range w.pods() {
				if err := h.AddRoute(netip.PrefixFrom(pod.Address(f), pod.Address(f).BitLen()), w.egress.address(f)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	spec := v1alpha1.EgressSpec{
		Network: "office", NamespaceSelector: &metav1.LabelSelector{},
		Destinations: []v1alpha1.CIDR{"203.0.113.0/24", "2001:db8:77::/64"},
		PolicyRoute: &v1alpha1.PolicyRoute{
			HealthCheck: &v1alpha1.NextHopHealthCheck{Type: v1alpha1.HealthCheckICMP, IntervalMilliseconds: 200, FailureThreshold: 3},
		},
	}
	for f := range lab.Dual.Each {
		for i := range w.firewalls {
			spec.PolicyRoute.NextHops = append(spec.PolicyRoute.NextHops, office(f, 10+i).String())
		}
	}
	w.spec = spec
	w.API.SetEgress("appliances", spec, w.egress.address(lab.IPv4).String(), w.egress.address(lab.IPv6).String())
	w.awaitActive(t, w.egress.address(lab.IPv4), nil)
	return w
}

// pods are on the two nodes that may be active, and on one that is not connected; one is of a
// private Router.
func (w *appliances) pods() []*lab.Host {
	return []*lab.Host{w.a.Host, w.c.Host, w.default3.Host, w.tenants.red[0].Host}
}

// reaches waits until connections of a pod have come to all of these firewalls, and to no other.
func (w *appliances) reaches(t *testing.T, pod *lab.Host, firewalls ...string) {
	t.Helper()
	for f := range lab.Dual.Each {
		becomes(t, fmt.Sprintf("%s leaves by %v", pod.Name, firewalls), func(ctx context.Context) error {
			came := map[string]bool{}
			for range 20 {
				who, _, err := ask(ctx, pod, "tcp", netip.AddrPortFrom(server(f), answerPort), time.Second)
				if err != nil {
					return err
				}
				came[who] = true
			}
			if got := slices.Sorted(maps.Keys(came)); !slices.Equal(got, firewalls) {
				return fmt.Errorf("it leaves by %v", got)
			}
			return nil
		})
		asking{
			name: pod.Name, from: pod, to: netip.AddrPortFrom(server(f), answerPort), want: firewalls,
			seen: pod.Address(f),
		}.check(t)
	}
}

// awaitDown waits until so many next hops fail their check on the active node.
func (w *appliances) awaitDown(t *testing.T, want int) {
	t.Helper()
	active := w.awaitActive(t, w.egress.address(lab.IPv4), nil)
	becomes(t, fmt.Sprintf("%d next hops are down", want), func(ctx context.Context) error {
		var list []agentapi.NextHop
		if err := active.Query(ctx, "/v1/nexthops", &list); err != nil {
			return err
		}
		list = slices.DeleteFunc(list, func(h agentapi.NextHop) bool { return !h.Down })
		if len(list) != want {
			return fmt.Errorf("down: %+v", list)
		}
		return nil
	})
}

// talking is a connection to the server.
type talking struct {
	conn  net.Conn
	lines *bufio.Reader
}

func (w *appliances) talk(t *testing.T, pod *lab.Host, f lab.Family) *talking {
	t.Helper()
	conn, err := probe.Dial(within(t, 10*time.Second), pod, netip.AddrPortFrom(server(f), talkPort))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &talking{conn, bufio.NewReader(conn)}
}

// asks is the name of the firewall that answers.
func (c *talking) asks(wait time.Duration) (string, error) {
	if err := c.conn.SetDeadline(time.Now().Add(wait)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintln(c.conn, "?"); err != nil {
		return "", err
	}
	line, err := c.lines.ReadString('\n')
	return strings.TrimSpace(line), err
}

// policySpread has connections of pods of all nodes come to both firewalls, which see the pods' own
// addresses, and go on at the same one.
func policySpread(t *testing.T, w *appliances) {
	for _, pod := range w.pods() {
		w.reaches(t, pod, "fw1", "fw2")
		for f := range lab.Dual.Each {
			c := w.talk(t, pod, f)
			first, err := c.asks(5 * time.Second)
			for range 20 {
				if again, err2 := c.asks(5 * time.Second); err != nil || err2 != nil || again != first {
					t.Errorf("%s: %q, then %q: %v, %v", pod.Name, first, again, err, err2)
				}
			}
		}
	}
}

func policyTrace(t *testing.T, w *appliances) {
	active := w.awaitActive(t, w.egress.address(lab.IPv4), nil)
	for f := range lab.Dual.Each {
		way, err := diagnose.Trace(t.Context(), labAgents{w.Lab}, diagnose.Packet{
			Node: "n3", From: "lab/d3", Source: w.default3.Address(f), Destination: server(f), Protocol: "tcp", SourcePort: 40000, DestinationPort: answerPort,
		})
		if err != nil {
			t.Fatal(err)
		}
		last := way[len(way)-1]
		if last.LeavesBy == nil || last.LeavesBy.Egress != "appliances" || !last.LeavesBy.Routed || last.Node != active.Name ||
			last.NextHop == nil || !slices.Contains([]netip.Addr{office(f, 10), office(f, 11)}, last.NextHop.Address) {
			t.Errorf("%s: %+v by %+v via %+v", last.Node, last.Outcome, last.LeavesBy, last.NextHop)
		}
	}
}

// policyNotIn has firewalls reach no pod by themselves.
func policyNotIn(t *testing.T, w *appliances) {
	for f := range lab.Dual.Each {
		for _, pod := range []*lab.Host{w.a.Host, w.c.Host, w.default3.Host} {
			answers(t, pod, netip.AddrPortFrom(pod.Address(f), answerPort))
			if pod != w.c.Host { // others in the cluster reach it
				asking{
					name: "c to " + pod.Name, from: w.c.Host, to: netip.AddrPortFrom(pod.Address(f), answerPort),
					want: []string{pod.Name},
				}.check(t)
			}
			asking{
				name: "fw1 to " + pod.Name, from: w.firewalls[0], to: netip.AddrPortFrom(pod.Address(f), answerPort),
				want: []string{unanswered},
			}.check(t)
		}
	}
}

// policyHopFails has a firewall fail and come back: connections by the other one go on.
func policyHopFails(t *testing.T, w *appliances) {
	kept := map[string]*talking{}
	for range 40 {
		c := w.talk(t, w.c.Host, lab.IPv4)
		name, err := c.asks(5 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		kept[name] = c
	}
	if len(kept) != 2 {
		t.Fatalf("connections by %d firewalls, want 2", len(kept))
	}
	run(t, w.firewalls[1], "ip", "link", "set", "eth0", "down")
	began := time.Now()
	becomes(t, "all connections go by the other firewall", func(ctx context.Context) error {
		for range 10 {
			conn, err := probe.Dial(ctx, w.c.Host, netip.AddrPortFrom(server(lab.IPv4), talkPort))
			if err != nil {
				return err
			}
			_ = conn.Close()
		}
		return nil
	})
	t.Logf("all connections went by the other next hop after %v", time.Since(began))
	for _, pod := range w.pods() {
		w.reaches(t, pod, "fw1")
	}
	if name, err := kept["fw1"].asks(5 * time.Second); err != nil || name != "fw1" {
		t.Errorf("a connection by the firewall that works: %q, %v", name, err)
	}
	run(t, w.firewalls[1], "ip", "link", "set", "eth0", "up")
	for f := range lab.Dual.Each { // the kernel has taken away what was on the link
		run(t, w.firewalls[1], "ip", "address", "replace", netip.PrefixFrom(office(f, 11), map[lab.Family]int{lab.IPv4: 24, lab.IPv6: 64}[f]).String(), "dev", "eth0", "nodad")
		for _, pod := range w.pods() {
			to := netip.PrefixFrom(pod.Address(f), pod.Address(f).BitLen())
			run(t, w.firewalls[1], "ip", "route", "replace", to.String(), "via", w.egress.address(f).String())
		}
	}
	w.awaitDown(t, 0)
	for _, pod := range w.pods() {
		w.reaches(t, pod, "fw1", "fw2")
	}
	if name, err := kept["fw1"].asks(5 * time.Second); err != nil || name != "fw1" {
		t.Errorf("a connection by the firewall that works, after the other one is back: %q, %v", name, err)
	}
}

// policyHopsFail has no firewall answer: nothing leaves another way, and the trace says why.
func policyHopsFail(t *testing.T, w *appliances) {
	for _, h := range w.firewalls {
		run(t, h, "sysctl", "-qw", "net.ipv4.icmp_echo_ignore_all=1")
	}
	ask := diagnose.Packet{
		Node: "n1", From: "lab/a", Source: w.a.Address(lab.IPv4), Destination: server(lab.IPv4), Protocol: "tcp", SourcePort: 40000, DestinationPort: answerPort,
	}
	becomes(t, "the trace says that no next hop answers", func(ctx context.Context) error {
		way, err := diagnose.Trace(ctx, labAgents{w.Lab}, ask)
		if err != nil {
			return err
		}
		if last := way[len(way)-1]; !strings.Contains(last.Outcome.Reason, "no next hop of Egress appliances answers: 192.168.42.10, 192.168.42.11") {
			return fmt.Errorf("%+v", last.Outcome)
		}
		return nil
	})
	asking{
		name: "no next hop", from: w.a.Host, to: netip.AddrPortFrom(server(lab.IPv4), answerPort), want: []string{unanswered},
	}.check(t)
	for _, h := range w.firewalls {
		run(t, h, "sysctl", "-qw", "net.ipv4.icmp_echo_ignore_all=0")
	}
	w.awaitDown(t, 0)
	for _, pod := range w.pods() {
		w.reaches(t, pod, "fw1", "fw2")
	}
}

// bird runs a BIRD in a firewall that has a session of BFD with the addresses of the Egress. It
// returns how to end it.
func (w *appliances) bird(t *testing.T, i int) (end func()) {
	t.Helper()
	h, dir := w.firewalls[i], t.TempDir()
	config := fmt.Sprintf("router id %s;\nprotocol device {}\nprotocol bfd {\n", office(lab.IPv4, 10+i)) +
		"interface \"eth0\" { min rx interval 100 ms; min tx interval 100 ms; idle tx interval 300 ms; multiplier 3; };\n"
	for f := range lab.Dual.Each {
		config += fmt.Sprintf("neighbor %s dev \"eth0\" local %s;\n", w.egress.address(f), office(f, 10+i))
	}
	if err := os.WriteFile(dir+"/bird.conf", []byte(config+"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	daemon := exec.Command("bird", "-f", "-c", dir+"/bird.conf", "-s", dir+"/ctl")
	if err := h.Start(daemon); err != nil {
		t.Fatal(err)
	}
	ended := false
	end = func() {
		if !ended {
			ended = true
			_ = daemon.Process.Kill()
			_ = daemon.Wait() // it was killed
		}
	}
	t.Cleanup(end)
	becomes(t, "both sessions of "+h.Name+" are up", func(ctx context.Context) error {
		out, err := h.Run(ctx, "birdc", "-s", dir+"/ctl", "show", "bfd", "sessions")
		if err == nil && strings.Count(out, " Up ") != 2 {
			err = errors.New(out)
		}
		return err
	})
	return end
}

// policyBFD checks next hops by BFD, with BIRD on the other side.
func policyBFD(t *testing.T, w *appliances) {
	spec := *w.spec.DeepCopy()
	spec.PolicyRoute.HealthCheck = &v1alpha1.NextHopHealthCheck{
		Type: v1alpha1.HealthCheckBFD, IntervalMilliseconds: 100, FailureThreshold: 3,
	}
	set := func(spec v1alpha1.EgressSpec) {
		w.API.SetEgress("appliances", spec, w.egress.address(lab.IPv4).String(), w.egress.address(lab.IPv6).String())
	}
	set(spec)
	w.bird(t, 0)
	end := w.bird(t, 1)
	w.awaitDown(t, 0)
	w.reaches(t, w.c.Host, "fw1", "fw2")
	end()
	killed := time.Now()
	w.awaitDown(t, 2)
	t.Logf("the next hops of a router without BFD were down after %v", time.Since(killed))
	w.reaches(t, w.c.Host, "fw1")
	w.bird(t, 1)
	w.awaitDown(t, 0)
	w.reaches(t, w.c.Host, "fw1", "fw2")
	set(w.spec)
	w.awaitDown(t, 0)
}

// policyAgent restarts the active node's agent, which loses no packet: a datagram is sent once.
func policyAgent(t *testing.T, w *appliances) {
	active := w.awaitActive(t, w.egress.address(lab.IPv4), nil)
	var conn net.Conn
	must(t, w.default3.Do(func() (err error) {
		conn, err = net.Dial("udp", netip.AddrPortFrom(server(lab.IPv4), answerPort).String())
		return err
	}))
	t.Cleanup(func() { _ = conn.Close() })
	c := &talking{conn, bufio.NewReader(conn)}
	first, err := c.asks(5 * time.Second)
	if err != nil {
		t.Fatal(err)
	}
	goesOn := func(when string) {
		t.Helper()
		for range 1000 {
			if answer, err := c.asks(5 * time.Second); err != nil || answer != first {
				t.Fatalf("%s: %q, %v", when, answer, err)
			}
		}
	}
	active.KillAgent()
	goesOn("while the agent is away")
	if err := active.StartAgent(within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	goesOn("after the agent has begun again")
}

// policyPowerCut has another node become active: connections go on, since nothing is translated.
func policyPowerCut(t *testing.T, w *appliances) {
	active := w.awaitActive(t, w.egress.address(lab.IPv4), nil)
	c := w.talk(t, w.default3.Host, lab.IPv4)
	if _, err := c.asks(5 * time.Second); err != nil {
		t.Fatal(err)
	}
	if err := active.Unplug(); err != nil {
		t.Fatal(err)
	}
	w.awaitActive(t, w.egress.address(lab.IPv4), active)
	if _, err := c.asks(20 * time.Second); err != nil {
		t.Errorf("the connection has not gone on by the other node: %v", err)
	}
	w.reaches(t, w.default3.Host, "fw1", "fw2")
	if err := active.Plug(); err != nil {
		t.Fatal(err)
	}
}
