// SPDX-License-Identifier: Apache-2.0

//go:build integration

package pipeline

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ovstest"
	"coelan.io/coelan/test/lab/probe"
)

// TestServiceLife has Services change under their clients.
func TestServiceLife(t *testing.T) {
	t.Parallel()
	for _, v6 := range []bool{false, true} {
		t.Run(familyName(v6), func(t *testing.T) {
			t.Parallel()
			b := newBalanced(t, intent.Geneve)
			t.Run("Churn", func(t *testing.T) { testChurn(t, b, v6) })
			t.Run("Storm", func(t *testing.T) { testStorm(t, b, v6) })
			t.Run("Affinity", func(t *testing.T) { testAffinity(t, b, v6) })
			t.Run("Early", func(t *testing.T) { testEarly(t, b, v6) })
			t.Run("SamePort", func(t *testing.T) { testSamePort(t, b, v6) })
			t.Run("UsedPort", func(t *testing.T) { testUsedPort(t, b, v6) })
			t.Run("Fragments", func(t *testing.T) { testFragments(t, b, v6) })
			t.Run("Mode", func(t *testing.T) { testMode(t, b, v6) })
			t.Run("Reasons", func(t *testing.T) { testReasons(t, b, v6) })
		})
	}
	t.Run("many endpoints", func(t *testing.T) {
		t.Parallel()
		b := newBalanced(t, intent.Geneve)
		for _, count := range []int{300, 1100} {
			t.Run(fmt.Sprint(count), func(t *testing.T) { testManyEndpoints(t, b, count) })
		}
	})
}

// open has clients call a Service until each endpoint has one that it knows.
func (b *balanced) open(t *testing.T, from *ovstest.Namespace, network string, to netip.AddrPort, names ...string) map[string]*call {
	t.Helper()
	calls := map[string]*call{}
	for range 100 {
		c, err := called(t.Context(), from, network, to)
		if err != nil {
			t.Fatal(err)
		}
		who, _, err := c.say("coelan", talkTime)
		if err != nil || !slices.Contains(names, who) {
			t.Fatalf("%q answers, %v; want one of %v", who, err, names)
		}
		if calls[who] != nil {
			c.Close()
			continue
		}
		calls[who] = c
		t.Cleanup(func() { c.Close() })
		if len(calls) == len(names) {
			return calls
		}
	}
	t.Fatalf("of %v only %d answer", names, len(calls))
	return nil
}

// still says something in each call and expects the same endpoint.
func still(t *testing.T, calls map[string]*call, after string) {
	t.Helper()
	for name, c := range calls {
		if who, _, err := c.say(after, talkTime); err != nil || who != name {
			t.Errorf("%s: the connection with %s is answered by %q, %v", after, name, who, err)
		}
	}
}

// soon says whether something is so before long: a busy ovs-vswitchd takes a moment to look through
// what the datapath has learned.
func soon(so func() bool) bool {
	for end := time.Now().Add(talkTime); !so(); {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// testChurn changes endpoints. Connections stay, also those with an endpoint that is no more; new
// ones know what changed at once.
func testChurn(t *testing.T, b *balanced, v6 bool) {
	n1, n2 := b.nodes[0], b.nodes[1]
	pod, near, far, farther := n1.pods[0], n1.pods[1], n2.pods[0], n2.pods[1]
	s := &liveService{name: "churn", number: 20, endpoints: b.endpoints(near, far), outside: true}
	others := []*liveService{{name: "other", number: 21, endpoints: b.endpoints(near)}, {name: "tenant", number: 22, router: "red", endpoints: b.endpoints(b.red[1])}}
	set := b.set
	for _, network := range b.networks {
		s.endpoints = b.endpoints(near, far)
		set(append(others, s)...)
		names := []string{near.name(), far.name()}
		calls := []map[string]*call{
			b.open(t, pod.Namespace, network, s.clusterIP(v6), names...),
			b.open(t, n1.Namespace, network, s.clusterIP(v6), names...),
			b.open(t, b.outside, network, s.at(n1, v6), names...),
			b.open(t, b.red[0].Namespace, network, s.clusterIP(v6), names...),
			b.open(t, b.red[0].Namespace, network, others[1].clusterIP(v6), b.red[1].name()),
		}
		all := func(after string) {
			t.Helper()
			for _, c := range calls {
				still(t, c, after)
			}
		}
		all("nothing")
		s.endpoints = b.endpoints(near, far, farther)
		set(append(others, s)...)
		all("one more")
		b.open(t, pod.Namespace, network, s.clusterIP(v6), append(names, farther.name())...)
		s.endpoints = b.endpoints(farther)
		set(append(others, s)...)
		all("theirs are gone")
		left := func() bool {
			for range 10 {
				if who, _, err := b.ask(pod.Namespace, network, s.clusterIP(v6), talkTime); err != nil || who != farther.name() {
					return false
				}
			}
			return true
		}
		if !soon(left) {
			t.Errorf("%s: others than the one that is left answer", network)
		}
		s.endpoints = nil
		set(append(others, s)...)
		if network == "udp" {
			// The kernel refuses datagrams, connected or not, and the agent forgets them.
			calls = calls[len(calls)-1:]
		}
		all("all are gone")
		if !soon(func() bool { _, _, err := b.ask(pod.Namespace, network, s.clusterIP(v6), lostTime); return err != nil }) {
			t.Errorf("%s: somebody answers for a Service without endpoints", network)
		}
		set(others...)
		all("the Service is gone")
		b.agents = map[*liveNode]*liveAgent{} // as after a restart
		set(append(others, s)...)
		all("the agent is new")
	}
}

// testStorm has an endpoint come and go all the time, while a client connects to those that stay.
func testStorm(t *testing.T, b *balanced, v6 bool) {
	n1, n2 := b.nodes[0], b.nodes[1]
	stay := b.endpoints(n1.pods[1], n2.pods[0])
	storm(t, b, v6, stay, b.endpoints(n1.pods[1], n2.pods[0], n2.pods[1]))
	storm(t, b, v6, stay[:1], stay) // with a group, and without
}

func storm(t *testing.T, b *balanced, v6 bool, few, more []liveEndpoint) {
	n1 := b.nodes[0]
	s := &liveService{name: "storm", number: 25}
	s.endpoints = few
	b.set(s)
	stop, stopped := make(chan struct{}), make(chan error, 1)
	var asked, late int
	go func() {
		for ; ; asked++ {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			begin := time.Now()
			if who, _, err := b.ask(n1.pods[0].Namespace, "tcp", s.clusterIP(v6), talkTime); err != nil {
				stopped <- fmt.Errorf("connection %d: %q answers: %w", asked, who, err)
				return
			}
			if time.Since(begin) > 900*time.Millisecond {
				late++
			}
		}
	}()
	for range 40 {
		s.endpoints = more
		b.set(s)
		s.endpoints = few
		b.set(s)
	}
	close(stop)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	t.Logf("%d connections, %d of them had to ask again", asked, late)
	if asked < 40 {
		t.Errorf("only %d connections: the case says nothing", asked)
	}
}

// testAffinity has a client keep its endpoint, whatever else changes, until that is gone or it was
// silent for long.
func testAffinity(t *testing.T, b *balanced, v6 bool) {
	n1, n2 := b.nodes[0], b.nodes[1]
	pods := []*livePod{n1.pods[0], n1.pods[1], n2.pods[0], n2.pods[1]}
	const seconds = 2
	s := &liveService{name: "affinity", number: 30, endpoints: b.endpoints(pods...), affinity: seconds, outside: true}
	b.set(s)
	client := b.red[0]
	ask := func() string {
		t.Helper()
		who, _, err := b.ask(client.Namespace, "tcp", s.clusterIP(v6), talkTime)
		if err != nil {
			t.Fatal(err)
		}
		return who
	}
	first := ask()
	same := func(when string) {
		t.Helper()
		for range 10 {
			if who := ask(); who != first {
				t.Fatalf("%s: %s answers, and before it was %s", when, who, first)
			}
		}
	}
	same("at once")
	pause := time.NewTicker(seconds * time.Second / 4)
	defer pause.Stop()
	for range 10 {
		<-pause.C
		same("with pauses shorter than the timeout")
	}
	s.endpoints = slices.DeleteFunc(b.endpoints(pods...), func(e liveEndpoint) bool {
		return e.name != first && e.name == b.endpoint(pods[0]).name || e.name == pods[1].name() && e.name != first
	})
	b.set(s)
	same("others are gone")
	b.agents = map[*liveNode]*liveAgent{}
	b.set(s)
	same("the agent is new")
	s.endpoints = slices.DeleteFunc(b.endpoints(pods...), func(e liveEndpoint) bool { return e.name == first })
	b.set(s)
	if gone := first; !soon(func() bool { first = ask(); return first != gone }) {
		t.Fatalf("%s is gone and answers", gone)
	}
	same("after the first was gone")
	s.endpoints = b.endpoints(pods...)
	b.set(s)
	same("the first is back")
	// The endpoint after the timeout is random.
	for range 8 {
		for range 4*seconds + 4 {
			<-pause.C // as long as ovs-vswitchd may take to notice
		}
		if ask() != first {
			return
		}
	}
	t.Errorf("always %s, also long after the last connection", first)
}

// testEarly sends more before the first answer, which conntrack still calls new.
func testEarly(t *testing.T, b *balanced, v6 bool) {
	n1, n2 := b.nodes[0], b.nodes[1]
	var sockets []net.PacketConn
	for _, p := range []*livePod{n1.pods[0], n1.pods[1], n2.pods[0], b.red[1]} {
		var c net.PacketConn
		err := p.Do(func() (err error) {
			c, err = net.ListenPacket("udp", netip.AddrPortFrom(netip.MustParseAddr(p.address(v6)), 8090).String())
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		sockets = append(sockets, c)
	}
	at := func(pods ...*livePod) []liveEndpoint {
		list := b.endpoints(pods...)
		for i := range list {
			list[i].port = 8090
		}
		return list
	}
	several := &liveService{name: "several", number: 40, endpoints: at(n1.pods[1], n2.pods[0])}
	self := &liveService{name: "self", number: 41, endpoints: at(n1.pods[0])}
	tenant := &liveService{name: "tenant", number: 42, router: "red", endpoints: at(b.red[1])}
	b.set(several, self, tenant)
	for _, tc := range []struct {
		from *livePod
		to   *liveService
	}{{n1.pods[0], several}, {n1.pods[0], self}, {b.red[0], several}, {b.red[0], tenant}} {
		conn, err := dial(t.Context(), tc.from.Namespace, "udp", tc.to.clusterIP(v6))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		const count = 5
		for i := range count {
			fmt.Fprint(conn, i)
		}
		// All at the same endpoint, from the same client; only then an answer.
		var heard []string
		buf := make([]byte, 100)
		for _, c := range sockets {
			for {
				_ = c.SetReadDeadline(time.Now().Add(lostTime))
				n, from, err := c.ReadFrom(buf)
				if err != nil {
					break
				}
				heard = append(heard, fmt.Sprint(c.LocalAddr(), " ", from))
				who := string(buf[:n])
				if who == fmt.Sprint(count-1) {
					_, _ = c.WriteTo([]byte("late"), from)
					break
				}
			}
		}
		if slices.Sort(heard); len(heard) != count || heard[0] != heard[count-1] {
			t.Errorf("%s to %s: %d packets of %d arrived: %v", tc.from.name(), tc.to.name, len(heard), count, heard)
			continue
		}
		_ = conn.SetDeadline(time.Now().Add(talkTime))
		if n, err := conn.Read(buf); err != nil || string(buf[:n]) != "late" {
			t.Errorf("%s to %s: %q, %v", tc.from.name(), tc.to.name, buf[:n], err)
		}
	}
}

// testUsedPort has clients use ports again, for a Service after its endpoint and the other way
// round, that the endpoint remembers (TIME_WAIT) from a connection with another clock. It answers
// their SYN with an ACK of that connection, which conntrack takes for the first answer of the new
// one.
func testUsedPort(t *testing.T, b *balanced, v6 bool) {
	n1 := b.nodes[0]
	client, server := n1.pods[0], n1.pods[1]
	direct := netip.AddrPortFrom(netip.MustParseAddr(server.address(v6)), 8091)
	listener, err := probe.Serve(server.Namespace, direct, probe.Answer)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	endpoints := b.endpoints(server)
	endpoints[0].port = direct.Port()
	s := &liveService{name: "used", number: 55, endpoints: endpoints}
	b.set(s)
	for _, from := range []*ovstest.Namespace{client.Namespace, n1.Namespace} {
		for port := 20000; port < 20020; port++ {
			ways := []netip.AddrPort{direct, s.clusterIP(v6)}
			if port%2 == 1 {
				slices.Reverse(ways)
			}
			for _, to := range ways {
				if err := probe.AnswerFrom(t.Context(), from, port, to); err != nil {
					t.Errorf("%s, from port %d: %v", to, port, err)
				}
				// Or a connection of the node's own would have its port changed.
				if _, err := n1.ovs.Appctl(t.Context(), "dpctl/flush-conntrack"); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// testSamePort has two tenants' ports with the same address use the same source port
// at the same time.
func testSamePort(t *testing.T, b *balanced, v6 bool) {
	s := &liveService{name: "common", number: 50, endpoints: b.endpoints(b.nodes[0].pods[1], b.nodes[1].pods[0])}
	b.set(s)
	if b.red[0].address(v6) != b.blue[0].address(v6) {
		t.Fatal("the tenants' addresses differ")
	}
	for _, network := range []string{"tcp", "udp"} {
		var calls []*call
		for _, p := range []*livePod{b.red[0], b.blue[0]} {
			local := netip.AddrPortFrom(netip.MustParseAddr(p.address(v6)), 4444)
			d := net.Dialer{Timeout: talkTime, LocalAddr: net.UDPAddrFromAddrPort(local)}
			if network == "tcp" {
				d.LocalAddr = net.TCPAddrFromAddrPort(local)
			}
			var conn net.Conn
			err := p.Do(func() (err error) {
				conn, err = d.DialContext(t.Context(), network, s.clusterIP(v6).String())
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			calls = append(calls, newCall(conn))
		}
		for range 3 {
			for i, p := range []*livePod{b.red[0], b.blue[0]} {
				if who, seen, err := calls[i].say(p.name(), talkTime); err != nil || seen != p.inNode(v6) {
					t.Errorf("%s of %s: %s sees %s, %v; want %s", network, p.name(), who, seen, err, p.inNode(v6))
				}
			}
		}
	}
}

// testFragments sends datagrams longer than a packet, there and back.
func testFragments(t *testing.T, b *balanced, v6 bool) {
	n1, n2 := b.nodes[0], b.nodes[1]
	long := strings.TrimSpace(payload)
	near := &liveService{name: "near", number: 60, endpoints: b.endpoints(n1.pods[1])}
	far := &liveService{name: "far", number: 61, endpoints: b.endpoints(n2.pods[0])}
	self := &liveService{name: "self", number: 62, endpoints: b.endpoints(n1.pods[0])}
	b.set(near, far, self)
	for _, s := range []*liveService{near, far, self} {
		c, err := called(t.Context(), n1.pods[0].Namespace, "udp", s.clusterIP(v6))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for i, text := range []string{"short", long, "short", long} {
			if _, _, err := c.say(text, talkTime); err != nil {
				t.Errorf("%s, datagram %d: %v", s.name, i, err)
			}
		}
		first, err := called(t.Context(), n1.pods[0].Namespace, "udp", s.clusterIP(v6))
		if err != nil {
			t.Fatal(err)
		}
		defer first.Close()
		if _, _, err := first.say(long, talkTime); err != nil {
			t.Errorf("%s, the first datagram in fragments: %v", s.name, err)
		}
	}
}
