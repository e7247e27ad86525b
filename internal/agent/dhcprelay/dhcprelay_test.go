// SPDX-License-Identifier: Apache-2.0

package dhcprelay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"coelan.io/coelan/internal/dhcp/client"
	"coelan.io/coelan/internal/intent"
)

var (
	nodeAddress = netip.MustParseAddr("192.0.2.11")
	server      = netip.MustParseAddr("198.51.100.7")
	second      = netip.MustParseAddr("198.51.100.8")
	mac         = net.HardwareAddr{2, 0, 0, 0, 0, 1}
)

// relayed is the Network lan, with servers that are asked.
func relayed(servers ...netip.Addr) intent.Network {
	return intent.Network{
		Name: "lan", ID: 7, Physical: "dc", Leased: true,
		Relay: intent.Relay{Enabled: true, Servers: servers, Subnet: netip.MustParsePrefix("192.168.70.0/24")},
	}
}

// world is a node with a Relay and a socket in memory.
type world struct {
	*Relay
	t      *testing.T
	intent *intent.Store

	mu       sync.Mutex
	refuse   error // to open a socket
	mute     netip.Addr
	opened   []netip.AddrPort
	sockets  []*socket
	starting bool // no Event can be written
	warnings []string
	received []*dhcpv4.DHCPv4 // by machines on the Network lan
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, intent: intent.NewStore()}
	w.update(func(tx *intent.Tx) {
		tx.SetLocal(intent.Local{Node: "worker1"})
		w.address(tx, nodeAddress)
		tx.SetNetwork(relayed(server, second))
	})
	w.Relay = New(Options{
		Log: slog.New(slog.DiscardHandler), Intent: w.intent, Listen: w.listen, Metrics: prometheus.NewRegistry(),
		Received: func(network string, frame []byte) {
			_, m, ok := client.Reply(frame)
			if network != "lan" || !ok {
				t.Errorf("Network %s receives % x", network, frame)
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.received = append(w.received, m)
		},
		Warn: func(reason string, err error) bool {
			if !w.starting {
				w.warnings = append(w.warnings, reason+": "+err.Error())
			}
			return !w.starting
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		for _, s := range w.sockets {
			if !s.isClosed() {
				t.Error("a socket is open at the end")
			}
		}
	})
	return w
}

func (w *world) update(change func(*intent.Tx)) {
	w.t.Helper()
	if _, err := w.intent.Update(func(tx *intent.Tx) error { change(tx); return nil }); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) address(tx *intent.Tx, addresses ...netip.Addr) {
	tx.SetNode(intent.Node{Name: "worker1", Addresses: append([]netip.Addr{netip.MustParseAddr("fd00::11")}, addresses...)})
}

// socket is one in memory.
type socket struct {
	w    *world
	in   chan datagram
	once sync.Once
	done chan struct{}
	sent []datagram
}

type datagram struct {
	peer netip.AddrPort
	data []byte
}

func (w *world) listen(at netip.AddrPort) (Conn, error) {
	if w.refuse != nil {
		return nil, w.refuse
	}
	s := &socket{w: w, in: make(chan datagram), done: make(chan struct{})}
	w.opened, w.sockets = append(w.opened, at), append(w.sockets, s)
	return s, nil
}

func (s *socket) ReadFromUDPAddrPort(b []byte) (int, netip.AddrPort, error) {
	select {
	case d := <-s.in:
		return copy(b, d.data), d.peer, nil
	case <-s.done:
		return 0, netip.AddrPort{}, net.ErrClosed
	}
}

func (s *socket) WriteToUDPAddrPort(b []byte, to netip.AddrPort) (int, error) {
	if to.Addr() == s.w.mute {
		return 0, errors.New("network is unreachable")
	}
	s.sent = append(s.sent, datagram{to, bytes.Clone(b)})
	return len(b), nil
}

func (s *socket) Close() error { s.once.Do(func() { close(s.done) }); return nil }

func (s *socket) isClosed() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// ask has the interface of a Port discover.
func (w *world) ask(port string) error {
	frame := client.New(client.Config{MAC: mac, XID: func() dhcpv4.TransactionID { return dhcpv4.TransactionID{1} }}).Tick(time.Now()).Frame
	return w.Ask(w.t.Context(), "lan", port, frame)
}

// asked are the questions that the last socket has sent, and to where.
func (w *world) asked() (to []string, questions []*dhcpv4.DHCPv4) {
	w.t.Helper()
	s := w.sockets[len(w.sockets)-1]
	for _, d := range s.sent {
		m, err := dhcpv4.FromBytes(d.data)
		if err != nil {
			w.t.Fatal(err)
		}
		to, questions = append(to, d.peer.String()), append(questions, m)
	}
	s.sent = nil
	return to, questions
}

// answer has a server offer an address in answer to a question, and says what has come of it.
func (w *world) answer(q *dhcpv4.DHCPv4, from netip.AddrPort, address string, change ...dhcpv4.Modifier) (received int) {
	w.t.Helper()
	m, err := dhcpv4.NewReplyFromRequest(q, append([]dhcpv4.Modifier{
		dhcpv4.WithMessageType(dhcpv4.MessageTypeOffer), dhcpv4.WithYourIP(net.ParseIP(address)),
		dhcpv4.WithGeneric(dhcpv4.OptionRelayAgentInformation, q.GetOneOption(dhcpv4.OptionRelayAgentInformation)),
	}, change...)...)
	if err != nil {
		w.t.Fatal(err)
	}
	was := len(w.received)
	w.sockets[len(w.sockets)-1].in <- datagram{from, m.ToBytes()}
	synctest.Wait()
	return len(w.received) - was
}

func from(a netip.Addr) netip.AddrPort { return netip.AddrPortFrom(a, 67) }

// All servers are asked, from the node's address, and what each of them answers arrives.
func TestAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		if err := w.ask("shop/vm"); err != nil {
			t.Fatal(err)
		}
		to, questions := w.asked()
		if !slices.Equal(to, []string{"198.51.100.7:67", "198.51.100.8:67"}) || !slices.Equal(w.opened, []netip.AddrPort{from(nodeAddress)}) {
			t.Errorf("asked are %v from %v", to, w.opened)
		}
		option := string(questions[0].GetOneOption(dhcpv4.OptionRelayAgentInformation))
		if want := "\x01\x0blan/shop/vm\x02\x07worker1\x05\x04\xc0\xa8\x46\x00"; option != want || !questions[0].GatewayIPAddr.Equal(nodeAddress.AsSlice()) {
			t.Errorf("relay %v, option 82 %q", questions[0].GatewayIPAddr, option)
		}
		for _, a := range []netip.Addr{server, second} {
			if w.answer(questions[0], from(a), "192.168.70.101") != 1 {
				t.Errorf("the answer of %v does not arrive", a)
			}
		}
		if m := w.received[0]; !m.YourIPAddr.Equal(net.IP{192, 168, 70, 101}) || m.Options.Has(dhcpv4.OptionRelayAgentInformation) {
			t.Errorf("the machine receives %s", m.Summary())
		}
		if n := testutil.ToFloat64(w.count.WithLabelValues("answer")); n != 2 {
			t.Errorf("%v answers are counted", n)
		}
	})
}

// What is no answer of a listed server to a question of the node is not taken, and what is, is.
func TestNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for _, port := range []string{"shop/vm", "shop/other"} {
			if err := w.ask(port); err != nil {
				t.Fatal(err)
			}
		}
		_, questions := w.asked()
		q := questions[0]
		changed := bytes.Replace(q.GetOneOption(dhcpv4.OptionRelayAgentInformation), []byte("vm"), []byte("wm"), 1)
		for name, received := range map[string]func() int{
			"another server": func() int { return w.answer(q, from(netip.MustParseAddr("198.51.100.9")), "192.168.70.101") },
			"another port":   func() int { return w.answer(q, netip.AddrPortFrom(server, 1067), "192.168.70.101") },
			"another subnet": func() int { return w.answer(q, from(server), "192.0.2.50") },
			"another interface": func() int {
				return w.answer(q, from(server), "192.168.70.101", dhcpv4.WithHwAddr(net.HardwareAddr{9, 9, 9, 9, 9, 9}))
			},
			"no option 82": func() int {
				return w.answer(q, from(server), "192.168.70.101", dhcpv4.WithoutOption(dhcpv4.OptionRelayAgentInformation))
			},
			"another option 82": func() int {
				return w.answer(q, from(server), "192.168.70.101", dhcpv4.WithGeneric(dhcpv4.OptionRelayAgentInformation, changed))
			},
			"a question": func() int {
				return w.answer(q, from(server), "192.168.70.101", func(m *dhcpv4.DHCPv4) { m.OpCode = dhcpv4.OpcodeBootRequest })
			},
		} {
			if received() != 0 {
				t.Errorf("%s: it is taken", name)
			}
		}
		if n := testutil.ToFloat64(w.count.WithLabelValues("refused")); n != 7 {
			t.Errorf("%v refused messages are counted", n)
		}
		if w.answer(q, from(server), "192.168.70.101") != 1 {
			t.Error("a true answer is not taken")
		}
		w.update(func(tx *intent.Tx) { tx.SetNetwork(relayed(second)) })
		if w.answer(q, from(server), "192.168.70.101") != 0 || w.answer(q, from(second), "192.168.70.101") != 1 {
			t.Error("a server is believed that is not listed any more, or one is not that is")
		}
		time.Sleep(3 * time.Minute)
		if w.answer(q, from(second), "192.168.70.101") != 0 {
			t.Error("an answer is taken that is too late")
		}
	})
}

// What is wrong with a question, or with an answer to it, is said until the next question.
func TestProblems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		if err := w.ask("shop/vm"); err != nil {
			t.Fatal(err)
		}
		problem := func(want string) {
			t.Helper()
			which, got := w.Servers("lan", "shop/vm")
			if which != "DHCP server that the node asks as a relay from 192.0.2.11 (198.51.100.7, 198.51.100.8)" || !strings.HasPrefix(got, want) || (want == "") != (got == "") {
				t.Errorf("%s: %q, want %q", which, got, want)
			}
		}
		problem("")
		_, questions := w.asked()
		w.answer(questions[0], from(second), "192.0.2.50")
		problem("server 198.51.100.8: it gives 192.0.2.50, which is not of subnet 192.168.70.0/24")
		w.answer(questions[0], from(server), "192.168.70.101")
		problem("")
		w.mute = server
		if err := w.ask("shop/vm"); err != nil {
			t.Errorf("one of two servers can be asked: %v", err)
		}
		problem("")
		w.mute = second
		w.update(func(tx *intent.Tx) { tx.SetNetwork(relayed(second)) })
		if err := w.ask("shop/vm"); err == nil {
			t.Error("no server can be asked")
		}
		if _, got := w.Servers("lan", "shop/vm"); got != "server 198.51.100.8 cannot be asked: network is unreachable" {
			t.Errorf("the problem is %q", got)
		}
	})
}

// A port that another program has is said once, by an Event of the node, and tried again.
func TestPortTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.refuse = errors.New("UDP port 67 is in use by another program")
		for i := range 4 {
			w.starting = i == 0
			if err := w.ask("shop/vm"); !errors.Is(err, w.refuse) {
				t.Errorf("asking: %v", err)
			}
		}
		if !slices.Equal(w.warnings, []string{"DHCPRelayNotWorking: UDP port 67 is in use by another program"}) {
			t.Errorf("Events: %q", w.warnings)
		}
		if _, problem := w.Servers("lan", "shop/vm"); problem != w.refuse.Error() {
			t.Errorf("the Port's problem is %q", problem)
		}
		w.refuse = nil
		if err := w.ask("shop/vm"); err != nil {
			t.Errorf("the port is free: %v", err)
		}
	})
}

// The socket is open while a Network needs it, at the address that the node has.
func TestSocket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		if len(w.opened) > 0 {
			t.Errorf("without a question it opens %v", w.opened)
		}
		moved := nodeAddress.Next()
		for i, want := range []string{"192.0.2.11:67", "192.0.2.12:67"} {
			if err := w.ask("shop/vm"); err != nil {
				t.Fatal(err)
			}
			if got := w.opened[len(w.opened)-1].String(); got != want || len(w.opened) != i+1 {
				t.Errorf("opened are %v", w.opened)
			}
			w.update(func(tx *intent.Tx) { w.address(tx, moved) })
		}
		if !w.sockets[0].isClosed() || w.sockets[1].isClosed() {
			t.Error("the socket of the address that was, is open, or that of the one that is, is not")
		}
		w.update(func(tx *intent.Tx) {
			n := relayed()
			n.Relay = intent.Relay{}
			tx.SetNetwork(n)
		})
		synctest.Wait()
		if !w.sockets[1].isClosed() {
			t.Error("no Network needs the socket, and it is open")
		}
		w.update(func(tx *intent.Tx) { tx.SetNetwork(relayed(server)); w.address(tx) })
		if err := w.ask("shop/vm"); err == nil || !strings.Contains(err.Error(), "no IPv4 address") {
			t.Errorf("a node without an IPv4 address: %v", err)
		}
		w.update(func(tx *intent.Tx) { tx.SetNetwork(relayed()); w.address(tx, nodeAddress) })
		if err := w.ask("shop/vm"); err == nil || !strings.Contains(err.Error(), "network lan: spec.dhcpRelay names no server") {
			t.Errorf("a Network without servers: %v", err)
		}
	})
}

// The kernel's socket says which port is taken, and by what that is found.
func TestListen(t *testing.T) {
	at := netip.MustParseAddrPort("127.0.0.1:0")
	first, err := listen(at)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	at = first.(*net.UDPConn).LocalAddr().(*net.UDPAddr).AddrPort() //nolint:forcetypeassert // it is
	_, err = listen(at)
	if err == nil || !strings.Contains(err.Error(), "in use by another program") || !strings.Contains(err.Error(), fmt.Sprintf("ss -lunp 'sport = :%d'", at.Port())) {
		t.Errorf("%v", err)
	}
	if _, err := listen(netip.MustParseAddrPort("192.0.2.1:0")); err == nil || !strings.Contains(err.Error(), "asking DHCP servers as a relay: ") {
		t.Errorf("another node's address: %v", err)
	}
}
