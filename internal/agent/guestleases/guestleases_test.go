// SPDX-License-Identifier: Apache-2.0

package guestleases

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/dhcp/snoop"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/packet"
)

// node has machines on the Network lan, and shows what is passed on.
type node struct {
	*Leases
	t     *testing.T
	store *attachment.Store

	mu        sync.Mutex
	asked     []string // Network and Port
	delivered []string // by Port
	connected []string // addresses
	events    []string
	leases    []backend.Lease
}

func newNode(t *testing.T) *node {
	t.Helper()
	store, err := attachment.Open(filepath.Join(t.TempDir(), "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	n := &node{t: t, store: store}
	n.start()
	return n
}

// start runs Leases until the function that it returns is called, or the test ends.
func (n *node) start() (stop func()) {
	n.t.Helper()
	record := func(do func()) {
		n.mu.Lock()
		defer n.mu.Unlock()
		do()
	}
	var err error
	n.Leases, err = New(Options{
		Log: slog.New(slog.DiscardHandler), Store: n.store, Events: n, Changed: func() {},
		Ask: func(_ context.Context, network, port string, _ []byte) error {
			record(func() { n.asked = append(n.asked, network+" "+port) })
			return nil
		},
		Servers: func(network, port string) (which, problem string) {
			return "DHCP server of " + network, "it does not know " + port
		},
		Deliver: func(_ context.Context, port string, _ []byte) error {
			record(func() { n.delivered = append(n.delivered, port) })
			return nil
		},
		Connect: func(_ context.Context, at attachment.Attachment) error {
			text := "none"
			if len(at.Addresses) > 0 {
				text = at.Addresses[0].String()
			}
			record(func() { n.connected = append(n.connected, at.PodName+" "+text) })
			return nil
		},
		Leased: func(l backend.Lease) { record(func() { n.leases = append(n.leases, l) }) },
	})
	if err != nil {
		n.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(n.t.Context())
	ended := make(chan error, 1)
	leases := n.Leases
	go func() { ended <- leases.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			n.t.Error(err)
		}
	})
	n.t.Cleanup(stop)
	return stop
}

func (n *node) PortWarning(namespace, name, _, reason, message string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events = append(n.events, namespace+"/"+name+" "+reason+": "+message)
}

// guest is a machine that is plugged in.
type guest struct {
	n    *node
	port intent.Port
	key  attachment.Key
}

func (n *node) plug(name string, last byte) guest {
	n.t.Helper()
	mac := intent.MAC{2, 0, 0, 0, 0, last}
	at, err := n.store.Allocate(attachment.Plan{Spec: attachment.Spec{
		Key: attachment.PortKey("shop", name), PodNamespace: "shop", PodName: name, PortName: name, HostInterface: "tap-" + name,
		NetworkName: "lan", BlockSpace: true, Leased: true,
	}, Requested: attachment.Requested{MAC: &mac}})
	if err != nil {
		n.t.Fatal(err)
	}
	return guest{n, intent.Port{ID: at.Key.String(), Namespace: "shop", Pod: name, Object: name, Network: "lan", MAC: mac}, at.Key}
}

func (g guest) frame(kind dhcpv4.MessageType, from, to netip.AddrPort, change ...dhcpv4.Modifier) []byte {
	g.n.t.Helper()
	m, err := dhcpv4.New(append([]dhcpv4.Modifier{
		dhcpv4.WithHwAddr(g.port.MAC.HardwareAddr()), dhcpv4.WithTransactionID(dhcpv4.TransactionID{1}), dhcpv4.WithMessageType(kind),
	}, change...)...)
	if err != nil {
		g.n.t.Fatal(err)
	}
	if from.Port() == 67 {
		m.OpCode = dhcpv4.OpcodeBootReply
	}
	p := packet.Header{Source: from.Addr(), Destination: to.Addr(), Protocol: packet.UDP, HopLimit: 64}.Packet(
		packet.UDPFrom(from, to, m.ToBytes()))
	return packet.Ethernet(packet.Broadcast, g.port.MAC.HardwareAddr(), p.Type(), p)
}

func (g guest) ask(kind dhcpv4.MessageType, change ...dhcpv4.Modifier) {
	g.n.Asked(g.port, g.frame(kind, netip.MustParseAddrPort("0.0.0.0:68"), netip.MustParseAddrPort("255.255.255.255:67"), change...))
	synctest.Wait()
}

// answer has a server answer, with an address for a minute if one is given.
func (g guest) answer(kind dhcpv4.MessageType, address string) {
	var change []dhcpv4.Modifier
	if address != "" {
		change = []dhcpv4.Modifier{
			dhcpv4.WithYourIP(net.ParseIP(address)), dhcpv4.WithLeaseTime(60), dhcpv4.WithNetmask(net.CIDRMask(24, 32)),
		}
	}
	g.n.Answered("lan", g.frame(kind, netip.MustParseAddrPort("192.0.2.1:67"), netip.MustParseAddrPort("255.255.255.255:68"), change...))
	synctest.Wait()
}

// gets has the machine ask for an address, and get it.
func (g guest) gets(address string) {
	g.ask(dhcpv4.MessageTypeRequest)
	g.answer(dhcpv4.MessageTypeAck, address)
}

// has is the address that the machine may send from.
func (g guest) has() string {
	at, _ := g.n.store.Get(g.key)
	if len(at.Addresses) == 0 {
		return ""
	}
	return at.Addresses[0].Addr().String()
}

func (g guest) want(when, address string) {
	g.n.t.Helper()
	if got := g.has(); got != address {
		g.n.t.Errorf("%s the machine may send from %q, want %q", when, got, address)
	}
}

func TestLifeOfALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		g := n.plug("vm", 1)
		g.ask(dhcpv4.MessageTypeDiscover)
		g.answer(dhcpv4.MessageTypeOffer, "192.0.2.50")
		g.want("offered,", "")
		g.gets("192.0.2.50")
		g.want("acknowledged,", "192.0.2.50")
		if !slices.Equal(n.connected, []string{"vm 192.0.2.50/24"}) || len(n.delivered) != 2 || !slices.Equal(n.asked, []string{"lan shop/vm", "lan shop/vm"}) {
			t.Errorf("connected %v, delivered %v, asked %q", n.connected, n.delivered, n.asked)
		}
		time.Sleep(40 * time.Second)
		g.gets("192.0.2.50") // renewed
		time.Sleep(40 * time.Second)
		g.want("renewed,", "192.0.2.50")
		g.gets("192.0.2.60")
		g.want("with another address,", "192.0.2.60")
		g.ask(dhcpv4.MessageTypeRequest)
		g.answer(dhcpv4.MessageTypeNak, "")
		g.want("refused,", "")
		g.gets("192.0.2.60")
		g.ask(dhcpv4.MessageTypeRelease, dhcpv4.WithClientIP(net.IP{192, 0, 2, 60}))
		g.want("given back,", "")
		if last := n.leases[len(n.leases)-1]; len(last.Addresses) > 0 || len(n.events) > 0 {
			t.Errorf("shown is %v, events %q", last, n.events)
		}
	})
}

func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		g := n.plug("vm", 1)
		g.gets("192.0.2.50")
		time.Sleep(59 * time.Second)
		synctest.Wait()
		g.want("before its end,", "192.0.2.50")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		g.want("after its end,", "")
		if len(n.events) != 1 || !strings.HasPrefix(n.events[0], "shop/vm NoDHCPLease: its lease of 192.0.2.50 has expired") {
			t.Errorf("events %q", n.events)
		}
		if last := n.leases[len(n.leases)-1]; len(last.Addresses) > 0 {
			t.Errorf("shown is %v", last)
		}
		g.gets("192.0.2.50")
		g.want("again,", "192.0.2.50")
	})
}

// A machine that is not answered is told of once, until there is an answer.
func TestNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		g := n.plug("vm", 1)
		events := func(when string, want int) {
			t.Helper()
			synctest.Wait()
			n.mu.Lock()
			defer n.mu.Unlock()
			if len(n.events) != want {
				t.Errorf("%s there are Events %q", when, n.events)
			}
		}
		for range 4 {
			g.ask(dhcpv4.MessageTypeDiscover)
			time.Sleep(3 * time.Second)
		}
		events("after twelve seconds", 1)
		if want := "shop/vm NoDHCPLease: no DHCP server of lan has answered for 10s what the machine asks: it does not know shop/vm"; n.events[0] != want {
			t.Errorf("the Event is %q", n.events[0])
		}
		g.ask(dhcpv4.MessageTypeDiscover)
		time.Sleep(time.Minute)
		events("after a minute", 1)
		g.ask(dhcpv4.MessageTypeDiscover)
		time.Sleep(9 * time.Second)
		g.answer(dhcpv4.MessageTypeOffer, "192.0.2.50")
		time.Sleep(time.Minute)
		events("after an answer", 1)
		g.ask(dhcpv4.MessageTypeDiscover)
		time.Sleep(9 * time.Second)
		events("nine seconds after the next question", 1)
		time.Sleep(2 * time.Second)
		events("eleven seconds after it", 2)
	})
}

// Answers that the machine has not asked for, or that give it another Port's address, change
// nothing.
func TestNotBelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		g, other := n.plug("vm", 1), n.plug("other", 2)
		g.answer(dhcpv4.MessageTypeAck, "192.0.2.66")
		g.want("unasked,", "")
		other.gets("192.0.2.51")
		delivered := len(n.delivered)
		g.gets("192.0.2.51")
		g.want("with the address of another,", "")
		if len(n.delivered) != delivered || len(n.events) != 1 || !strings.Contains(n.events[0], "gives it 192.0.2.51") {
			t.Errorf("delivered %v, events %q", n.delivered, n.events)
		}
		n.Asked(intent.Port{ID: "c1/net1", Namespace: "shop", Pod: "web", Object: "web", Network: "lan"}, nil)
		n.Answered("lan", []byte("hello"))
		n.Answered("elsewhere", g.frame(dhcpv4.MessageTypeAck, netip.MustParseAddrPort("192.0.2.1:67"), netip.MustParseAddrPort("255.255.255.255:68")))
		synctest.Wait()
		other.want("at the end,", "192.0.2.51")
	})
}

// An agent that starts anew goes on with leases that are valid, and withdraws the others.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		g := n.plug("vm", 1)
		stop := n.start()
		g.gets("192.0.2.50")
		stop()
		time.Sleep(30 * time.Second)
		stop = n.start()
		g.want("after a restart,", "192.0.2.50")
		stop()
		time.Sleep(time.Minute)
		n.start()
		g.want("started after its end,", "")
		if objects := n.store.Objects(kindLease); len(objects) != 0 {
			t.Errorf("stored are %v", objects)
		}
	})
}

// A machine that has moved here goes on with its lease, and one that is gone is forgotten.
func TestMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		g := n.plug("vm", 1)
		address := netip.MustParsePrefix("192.0.2.50/32")
		at, err := n.store.Readdress(g.key, []netip.Prefix{address})
		if err != nil {
			t.Fatal(err)
		}
		n.Adopt(at, snoop.Lease{Address: address, Expires: time.Now().Add(time.Minute)})
		time.Sleep(50 * time.Second)
		g.want("moved here,", "192.0.2.50")
		time.Sleep(time.Minute)
		synctest.Wait()
		g.want("after its end,", "")
		if _, err := n.store.Release(g.key); err != nil {
			t.Fatal(err)
		}
		n.Forget(g.key)
		asked := len(n.asked)
		g.ask(dhcpv4.MessageTypeDiscover)
		if len(n.asked) != asked {
			t.Error("a machine that is gone asks")
		}
	})
}
