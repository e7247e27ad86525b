// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/backend/ovs/pipeline"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/packet"
	"coelan.io/coelan/openflow"
)

// dhcpWorld is a node with a machine on port 16 of a Network that answers, and one on port 17 of a
// Network that does not.
type dhcpWorld struct {
	*dhcpServer
	mu   sync.Mutex
	sent []string // the port and lifetime or length of what was sent
	err  error    // of the next message that is sent
	// leases are those that were reported.
	leases []backend.Lease
}

func newDHCPWorld(t *testing.T) *dhcpWorld {
	t.Helper()
	w := &dhcpWorld{}
	w.dhcpServer = &dhcpServer{
		log: slog.New(slog.DiscardHandler), intent: intent.NewStore(), numbers: newNumbers(nil, nil),
		count: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "requests"}, []string{"protocol", "outcome"}),
		wait:  func(ctx context.Context, _ uint64) error { return ctx.Err() }, send: w.take, reply: w.take,
		leased: func(l backend.Lease) { w.leases = append(w.leases, l) },
	}
	w.numbers.set("u1", 16)
	w.numbers.set("u2", 17)
	w.change(t, func(tx *intent.Tx) {
		subnets := []intent.NetworkSubnet{
			{Prefix: netip.MustParsePrefix("10.70.0.0/24"), Gateway: netip.MustParseAddr("10.70.0.1")},
			{Prefix: netip.MustParsePrefix("fd00:70::/64"), Gateway: netip.MustParseAddr("fd00:70::1")},
		}
		machine := func(id, network string, last byte) intent.Port {
			return intent.Port{
				ID: id, Namespace: "shop", Pod: id, Network: network, Node: "n1", MAC: intent.MAC{2, 0, 0, 0, 0, last},
				Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 70, 0, last}), netip.MustParseAddr(fmt.Sprintf("fd00:70::%x", last))},
			}
		}
		tx.Replace(intent.Objects{
			Local:   intent.Local{Node: "n1", MTU: 1450},
			Routers: []intent.Router{{Name: "red", ID: 20, VNI: 20}},
			Networks: []intent.Network{
				{Name: "red", ID: 10, VNI: 10, Router: "red", Subnets: subnets, DHCP: intent.DHCP{Enabled: true, Lease: time.Hour}},
				{Name: "quiet", ID: 11, VNI: 11, Router: "red", Subnets: subnets},
			},
			Ports: []intent.Port{machine("u1", "red", 50), machine("u2", "quiet", 51)},
		})
	})
	return w
}

func (w *dhcpWorld) change(t *testing.T, change func(*intent.Tx)) {
	t.Helper()
	if _, err := w.intent.Update(func(tx *intent.Tx) error { change(tx); return nil }); err != nil {
		t.Fatal(err)
	}
}

// network changes the Network that answers.
func (w *dhcpWorld) network(t *testing.T, change func(*intent.Network)) {
	t.Helper()
	n, _ := w.intent.State().Networks().Get("red")
	change(&n)
	w.change(t, func(tx *intent.Tx) { tx.SetNetwork(n) })
}

func (w *dhcpWorld) take(_ context.Context, messages []openflow.Message) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.err; err != nil {
		w.err = nil
		return err
	}
	for _, m := range messages {
		out := m.(*openflow.PacketOut)
		p, _ := packet.Parse(out.Packet)
		what := "answer"
		if protocol, at, _ := p.Transport(); protocol == packet.ICMPv6 {
			what = fmt.Sprintf("router for %d s, MTU %d", int(p[at+6])<<8|int(p[at+7]), int(p[at+16+8+6])<<8|int(p[at+16+8+7]))
		}
		w.sent = append(w.sent, fmt.Sprintf("%v: %s", out.Actions, what))
	}
	return nil
}

func (w *dhcpWorld) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
}

// took returns what was sent since the last call.
func (w *dhcpWorld) took() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.sent
	w.sent = nil
	return list
}

// discovered is a DISCOVER that has come in by a port.
func discovered(port uint32, mac intent.MAC) *openflow.PacketIn2 { return message(port, mac, 53, 1, 1) }

// message is one with these options that has come in by a port.
func message(port uint32, mac intent.MAC, options ...byte) *openflow.PacketIn2 {
	payload := make([]byte, 236, 244)
	payload[0], payload[1], payload[2] = 1, 1, 6
	copy(payload[28:], mac[:])
	payload = append(append(append(payload, 99, 130, 83, 99), options...), 255)
	from, to := netip.MustParseAddrPort("0.0.0.0:68"), netip.MustParseAddrPort("255.255.255.255:67")
	p := packet.Header{Source: from.Addr(), Destination: to.Addr(), Protocol: packet.UDP, HopLimit: 64}.Packet(
		packet.UDPFrom(from, to, payload))
	return &openflow.PacketIn2{
		Packet:   packet.Ethernet(packet.Broadcast, mac.HardwareAddr(), p.Type(), p),
		Metadata: openflow.NewMatch(openflow.InPort(port)),
	}
}

// A machine is answered by what intent says of the Port that its request came in by, and by nothing
// if that is gone, or its Network does not answer.
func TestDHCPRequests(t *testing.T) {
	w := newDHCPWorld(t)
	own := intent.MAC{2, 0, 0, 0, 0, 50}
	w.answer(t.Context(), discovered(16, own))
	if got := w.took(); len(got) != 1 || got[0] != fmt.Sprintf("%v: answer", []openflow.Action{openflow.Output(16)}) {
		t.Errorf("sent %q", got)
	}
	w.answer(t.Context(), discovered(16, intent.MAC{2, 0, 0, 0, 0, 99}))
	w.answer(t.Context(), discovered(17, intent.MAC{2, 0, 0, 0, 0, 51}))
	w.answer(t.Context(), discovered(99, own))
	w.answer(t.Context(), &openflow.PacketIn2{})
	w.lost()
	if got := w.took(); len(got) > 0 {
		t.Errorf("sent %q", got)
	}
	w.fail(errors.New("no connection"))
	w.answer(t.Context(), discovered(16, own))
	for outcome, want := range map[string]float64{"answered": 2, "ignored": 2} {
		if got := testutil.ToFloat64(w.count.WithLabelValues("dhcp", outcome)); got != want {
			t.Errorf("%v are %s, want %v", got, outcome, want)
		}
	}
}

// What a machine gets is reported once it has been sent, and so is that it has given it back; a
// first question is not.
func TestDHCPLeases(t *testing.T) {
	w := newDHCPWorld(t)
	own := intent.MAC{2, 0, 0, 0, 0, 50}
	request := message(16, own, 53, 1, 3, 50, 4, 10, 70, 0, 50, 12, 2, 'd', 'b')
	w.answer(t.Context(), discovered(16, own))
	w.fail(errors.New("no connection"))
	w.answer(t.Context(), request)
	if len(w.leases) > 0 {
		t.Errorf("reported before it was sent: %+v", w.leases)
	}
	w.answer(t.Context(), request)
	w.answer(t.Context(), message(16, own, 53, 1, 7, 12, 2, 'd', 'b'))
	p, _ := w.intent.State().Ports().Get("u1")
	want := []backend.Lease{
		{Port: p, HostName: "db", Addresses: []netip.Addr{netip.MustParseAddr("10.70.0.50")}, Duration: time.Hour},
		{Port: p, Duration: time.Hour},
	}
	if diff := cmp.Diff(want, w.leases, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Machines are told of the router when their Ports are there, when something of it changes, when
// their Network ceases to answer, and every ten minutes; a message that was not sent is sent later.
func TestRouterAdvertisements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newDHCPWorld(t)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.advertise(ctx) }()
		check := func(when string, want ...string) {
			t.Helper()
			synctest.Wait()
			for i, what := range want {
				want[i] = fmt.Sprintf("%v: router for %s", []openflow.Action{openflow.Output(16)}, what)
			}
			if diff := cmp.Diff(want, w.took()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", when, diff)
			}
		}
		check("at the start", "65535 s, MTU 1450")
		w.network(t, func(n *intent.Network) { n.MTU = 1400 })
		check("another MTU", "65535 s, MTU 1400")
		w.network(t, func(n *intent.Network) { n.DHCP.BootFile = "boot" })
		check("nothing of the router has changed")
		w.change(t, func(tx *intent.Tx) { tx.SetNode(intent.Node{Name: "n2"}) })
		check("something else has changed")
		time.Sleep(advertisedEvery)
		check("ten minutes later", "65535 s, MTU 1400")
		w.fail(errors.New("no connection"))
		w.network(t, func(n *intent.Network) { n.MTU = 1300 })
		check("the switch is away")
		time.Sleep(advertisedEvery)
		check("the switch is back", "65535 s, MTU 1300")
		w.network(t, func(n *intent.Network) { n.DHCP.IPv6 = intent.NoIPv6 })
		check("IPv6 is left alone", "0 s, MTU 1300")
		w.network(t, func(n *intent.Network) { n.DHCP.IPv6 = intent.StatefulIPv6 })
		check("and is not any more", "65535 s, MTU 1300")
		w.numbers.delete("u1")
		w.change(t, func(tx *intent.Tx) { tx.DeletePort("u1") })
		check("the Port is gone")
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Nothing is said before the node is known.
func TestNoAdvertisementsBeforeTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newDHCPWorld(t)
		local := w.intent.State().Local()
		w.change(t, func(tx *intent.Tx) { tx.SetLocal(intent.Local{}) })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.advertise(ctx) }()
		synctest.Wait()
		if got := w.took(); len(got) > 0 {
			t.Errorf("sent %q", got)
		}
		w.change(t, func(tx *intent.Tx) { tx.SetLocal(local) })
		synctest.Wait()
		if got := w.took(); !slices.Contains(got, fmt.Sprintf("%v: router for 65535 s, MTU 1450", []openflow.Action{openflow.Output(16)})) {
			t.Errorf("sent %q", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// requestTrace is the way of a machine's question.
const requestTrace = `Flow: udp,in_port=16

bridge("br-int")
----------------
0. in_port=16, priority 100
    goto_table:10
10. udp,in_port=16,nw_dst=255.255.255.255,tp_dst=67, priority 310, cookie %#x
    controller(reason=action,max_len=65535,id=0)

Final flow: unchanged
`

// A question that the agent answers is not dropped, as far as a trace says.
func TestTraceOfARequest(t *testing.T) {
	w := newDHCPWorld(t)
	c := pipeline.New()
	desired := c.Compile(pipeline.Input{State: w.intent.State(), Numbers: w.numbers.get()})
	var cookie uint64
	for _, f := range desired.Get("port/shop/u1#u1").Flows {
		if m, _ := c.Explain(f.Cookie); m.Feature == pipeline.DHCPFeature && !m.Drops() {
			cookie = f.Cookie
		}
	}
	b := &tracer{node: "n1", intent: w.intent, flows: &flows{compiler: c}}
	got := b.explainTrace("", fmt.Sprintf(requestTrace, cookie)).Outcome
	if want := (agentapi.Outcome{Kind: "answer", Node: "n1"}); got != want {
		t.Errorf("it ends at %+v, want %+v", got, want)
	}
}
