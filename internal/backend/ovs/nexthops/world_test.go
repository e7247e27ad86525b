// SPDX-License-Identifier: Apache-2.0

package nexthops

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"coelan.io/coelan/internal/bfd"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/packet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	own    = intent.MAC{0x0a, 0, 0, 0, 0, 1}
	router = intent.MAC{0x0c, 0, 0, 0, 0, 1}
)

const (
	source, source6 = "198.51.100.7", "2001:db8::7"
	hop, hop6       = "198.51.100.1", "2001:db8::1"
	interval        = 300 * time.Millisecond
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// targetOf is one of the Network "office" that is down after three intervals.
func targetOf(protocol intent.NextHopProtocol, from, to string) Target {
	return Target{
		Key: Key{"office", addr(from), addr(to)}, SourceMAC: own,
		Check: intent.NextHopCheck{Protocol: protocol, Interval: interval, Failures: 3},
	}
}

func icmp() Target { return targetOf(intent.CheckICMP, source, hop) }

func overBFD() Target { return targetOf(intent.CheckBFD, source, hop) }

// world is a Prober that runs, and its wire.
type world struct {
	*Prober
	t *testing.T

	mu      sync.Mutex
	log     strings.Builder
	start   time.Time
	sent    []sent
	changes int
	// unknown says that no MAC is known, silent that echo requests have no answers.
	unknown, silent bool
	sendErr         error
	// edit changes what comes back.
	edit func(frame []byte) (network string, changed []byte)
	// peer answers BFD.
	peer *bfd.Session
	// back has frames on their way to the Prober, which arrive in order.
	back chan delivery
}

type delivery struct {
	network string
	frame   []byte
}

// sent is a frame and when it was sent.
type sent struct {
	at    time.Duration
	frame []byte
}

// play runs a Prober in a bubble with its own time.
func play(t *testing.T, fn func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, start: time.Now(), back: make(chan delivery, 100)}
		w.Prober = New(Options{
			Log: slog.New(slog.NewTextHandler(&w.log, nil)), Send: w.send,
			MAC: func(network string, _ netip.Addr) (intent.MAC, bool) {
				w.mu.Lock()
				defer w.mu.Unlock()
				return router, network == "office" && !w.unknown
			},
			Changed: func() {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.changes++
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.Run(ctx) }()
		go func() {
			for d := range w.back {
				w.Received(d.network, d.frame)
			}
		}()
		defer func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			close(w.back)
		}()
		fn(t, w)
		w.pass(0)
	})
}

func (w *world) send(_ context.Context, network string, frame []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sendErr != nil {
		return w.sendErr
	}
	if network != "office" {
		return fmt.Errorf("sent to %s", network)
	}
	w.sent = append(w.sent, sent{time.Since(w.start), frame})
	w.answer(frame)
	return nil
}

func (w *world) answer(frame []byte) {
	p, _ := packet.Parse(frame)
	if m, ok := p.ICMPMessage(); ok && !w.silent {
		w.receive(replyTo(p, binary.BigEndian.Uint32(m[4:])))
	}
	if _, _, control, ok := p.Datagram(); ok && w.peer != nil {
		if err := w.peer.Receive(time.Now(), control); err != nil {
			w.t.Error(err)
		}
		w.tickPeer()
	}
}

// tickPeer has the other system of BFD send what is due.
func (w *world) tickPeer() (next time.Time) {
	packets, next := w.peer.Tick(time.Now())
	for _, b := range packets {
		w.receive(controlFrame(b))
	}
	return next
}

// speak has the other system of BFD run for a while.
func (w *world) speak(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); w.pass(min(10*time.Millisecond, time.Until(end))) {
		w.mu.Lock()
		w.tickPeer()
		w.mu.Unlock()
	}
}

func (w *world) receive(frame []byte) {
	network := "office"
	if w.edit != nil {
		network, frame = w.edit(frame)
	}
	w.back <- delivery{network, frame}
}

// replyTo answers an echo request.
func replyTo(p packet.IP, number uint32) []byte {
	h := packet.Header{Source: p.Destination(), Destination: p.Source(), Protocol: packet.ICMP, HopLimit: 64}
	m := packet.ICMPv4(0, 0, number, nil)
	if p.Is6() {
		h.Protocol = packet.ICMPv6
		m = packet.ICMPv6From(h.Source, h.Destination, 129, 0, number, nil)
	}
	return packet.Ethernet(own[:], router[:], p.Type(), h.Packet(m))
}

// controlFrame has a packet of BFD from the next hop.
func controlFrame(control []byte) []byte {
	from, to := netip.AddrPortFrom(addr(hop), 49152), netip.AddrPortFrom(addr(source), 3784)
	h := packet.Header{Source: from.Addr(), Destination: to.Addr(), Protocol: packet.UDP, HopLimit: 255}
	return packet.Ethernet(own[:], router[:], packet.TypeIPv4, h.Packet(packet.UDPFrom(from, to, control)))
}

// set changes the wire.
func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

// pass lets time go by, and what is under way be done. What the test has read without a lock
// before is not written at the same time, which the race detector learns by the locks.
func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	w.mu.Unlock() //nolint:staticcheck // the section is empty on purpose
	w.Prober.mu.Lock()
	w.Prober.mu.Unlock() //nolint:staticcheck // the same
	synctest.Wait()
	if d > 0 {
		time.Sleep(d)
		synctest.Wait()
	}
}

// down compares what is down with lines such as "office 198.51.100.7 198.51.100.1".
func (w *world) down(want ...string) {
	w.t.Helper()
	w.pass(0)
	var got []string
	for k := range w.Down() {
		got = append(got, fmt.Sprintf("%s %s %s", k.Network, k.Source, k.NextHop))
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Errorf("down after %v (-want +got):\n%s", time.Since(w.start), diff)
	}
}

const (
	isDown  = "office " + source + " " + hop
	isDown6 = "office " + source6 + " " + hop6
)

func (w *world) logged(message string) int {
	w.pass(0)
	return strings.Count(w.log.String(), message)
}

const (
	saysDown = "does not work"
	saysUp   = "works again"
)

var errSend = errors.New("the switch is away")
