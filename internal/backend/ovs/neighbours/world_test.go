// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/packet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	own     = intent.MAC{0x0a, 0, 0, 0, 0, 1}
	own6    = intent.MAC{0x0a, 0, 0, 0, 0, 6}
	router  = intent.MAC{0x0c, 0, 0, 0, 0, 1}
	other   = intent.MAC{0x0c, 0, 0, 0, 0, 2}
	station = intent.MAC{0x0e, 0, 0, 0, 0, 9}
)

const (
	fip, fip6         = "198.51.100.7", "2001:db8::7"
	gateway, gateway6 = "198.51.100.1", "2001:db8::1"
	host, host6       = "198.51.100.9", "2001:db8::9"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// segment is that of the Network "office" with a Source, a gateway and a subnet of both families.
func segment() Segment {
	return Segment{
		Network:  "office",
		Sources:  map[netip.Addr]intent.MAC{addr(fip): own, addr(fip6): own6},
		Gateways: []netip.Addr{addr(gateway), addr(gateway6)},
		Subnets:  []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("2001:db8::/64")},
	}
}

// segment4 has IPv4 only, and no gateway, so that the wire is quiet.
func segment4() Segment {
	s := segment()
	delete(s.Sources, addr(fip6))
	s.Gateways = nil
	return s
}

// world is a Resolver that runs, and its wire.
type world struct {
	*Resolver
	t *testing.T

	mu      sync.Mutex
	log     strings.Builder
	start   time.Time
	sent    []sent
	changes int
	saves   []map[string][]byte
	// stations answer requests for their addresses.
	stations map[netip.Addr]intent.MAC
	sendErr  error
	saveErr  error
}

// sent is a frame and when it was sent.
type sent struct {
	at      time.Duration
	network string
	frame   []byte
}

// play runs a Resolver in a bubble with its own time.
func play(t *testing.T, fn func(t *testing.T, w *world)) { playWith(t, nil, fn) }

func playWith(t *testing.T, saved map[string][]byte, fn func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, start: time.Now(), stations: map[netip.Addr]intent.MAC{}}
		w.Resolver = New(Options{
			Log: slog.New(slog.NewTextHandler(&w.log, nil)), Send: w.send, Saved: saved, Save: w.save,
			Changed: func() {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.changes++
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.Run(ctx) }()
		fn(t, w)
		w.pass(0)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func (w *world) send(_ context.Context, network string, frame []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sendErr != nil {
		return w.sendErr
	}
	w.sent = append(w.sent, sent{time.Since(w.start), network, frame})
	q, ok := request(frame)
	if mac, up := w.stations[q.target]; ok && up && (q.to == mac || q.to[0]&1 == 1) {
		go w.Received(network, reply(q.target, mac))
	}
	return nil
}

func (w *world) save(saved map[string][]byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.saves = append(w.saves, maps.Clone(saved))
	return w.saveErr
}

// pass lets time go by, and what is under way be done. What the test has read without a lock before
// is not written at the same time, which the race detector learns by the locks.
func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	w.mu.Unlock() //nolint:staticcheck // the section is empty on purpose
	w.Resolver.mu.Lock()
	w.Resolver.mu.Unlock() //nolint:staticcheck // the same
	synctest.Wait()
	if d > 0 {
		time.Sleep(d)
		synctest.Wait()
	}
}

// up has a station answer from now on; down no more.
func (w *world) up(a string, mac intent.MAC) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stations[addr(a)] = mac
}

func (w *world) down(a string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.stations, addr(a))
}

func (w *world) fail(send, save string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sendErr, w.saveErr = nil, nil
	if send != "" {
		w.sendErr = errors.New(send)
	}
	if save != "" {
		w.saveErr = errors.New(save)
	}
}

// take returns what was sent since the last call, in words.
func (w *world) take() (frames []string) {
	w.pass(0)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.sent {
		frames = append(frames, s.String())
	}
	w.sent = nil
	return frames
}

// expect fails the test if something else was sent since the last call.
func (w *world) expect(want ...string) {
	w.t.Helper()
	if diff := cmp.Diff(want, w.take()); diff != "" {
		w.t.Errorf("sent (-want +got):\n%s", diff)
	}
}

// lists compares what the Resolver says of all neighbours.
func (w *world) lists(want ...Neighbour) {
	w.t.Helper()
	w.pass(0)
	if diff := cmp.Diff(want, w.Neighbours(), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		w.t.Errorf("neighbours (-want +got):\n%s", diff)
	}
}

// table compares the table with lines such as "198.51.100.1 0c:…".
func (w *world) table(want ...string) {
	w.t.Helper()
	w.pass(0)
	var got []string
	for key, mac := range w.Table() {
		got = append(got, fmt.Sprintf("%s %s %s", key.Network, key.Address, mac))
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Errorf("table (-want +got):\n%s", diff)
	}
}

func known(a string, mac intent.MAC) string { return "office " + a + " " + mac.String() }

// question is what a request asks.
type question struct {
	to, from, said intent.MAC
	source, target netip.Addr
}

// request reads a request that is not gratuitous.
func request(frame []byte) (q question, ok bool) {
	q.to, q.from = intent.MAC(frame[:6]), intent.MAC(frame[6:12])
	b := frame[packet.EthernetLen:]
	if frame[12] == 8 && frame[13] == 6 {
		q.said, q.source, q.target = intent.MAC(b[8:]), netip.AddrFrom4([4]byte(b[14:])), netip.AddrFrom4([4]byte(b[24:]))
		return q, b[7] == packet.ARPRequest && q.source != q.target
	}
	p, ok := packet.Parse(frame)
	if !ok || !p.Is6() || p[6] != packet.ICMPv6 || p[40] != 135 {
		return q, false
	}
	q.said, q.source, q.target = intent.MAC(p[66:]), p.Source(), netip.AddrFrom16([16]byte(p[48:]))
	return q, true
}

// String names the frame: requests with their target and, if it is one, the MAC that they go to.
func (s sent) String() string {
	if q, ok := request(s.frame); ok {
		to := "all"
		if q.to[0]&1 == 0 {
			to = q.to.String()
		}
		if q.from != q.said {
			return fmt.Sprintf("from %s with %s", q.from, q.said)
		}
		return fmt.Sprintf("%s asks %s for %s", q.source, to, q.target)
	}
	if c, ok := packet.ParseClaim(s.frame); ok {
		return fmt.Sprintf("%s is at %s, to %s", c.Address, c.MAC, net.HardwareAddr(s.frame[:6]))
	}
	return fmt.Sprintf("to %s: %s", net.HardwareAddr(s.frame[:6]), s.frame[packet.EthernetLen:])
}

// reply answers a request for a.
func reply(a netip.Addr, mac intent.MAC) []byte {
	if a.Is4() {
		return packet.Ethernet(own[:], mac[:], packet.TypeARP, packet.ARP(packet.ARPReply, mac[:], a, own[:], addr(fip)))
	}
	return advertisement(a, packet.Solicited|packet.Override, mac[:])
}

// advertisement is a neighbor advertisement to the Source.
func advertisement(a netip.Addr, flags uint32, mac []byte) []byte {
	p := packet.NeighbourAdvertisement(a, addr(fip6), flags, a, mac)
	return packet.Ethernet(own6[:], mac, p.Type(), p)
}

// gratuitous is the first frame of an announcement.
func gratuitous(a string, mac intent.MAC) []byte {
	return packet.Announcement(addr(a), mac[:], addr(a), packet.FromRouter)[0]
}

// waiting is a frame without destination MAC, from a pod with a Source.
func waiting(from string, text string) []byte {
	p := packet.Header{Source: addr(from), Destination: addr("203.0.113.1"), Protocol: packet.UDP, HopLimit: 9}.Packet([]byte(text))
	if addr(from).Is6() {
		p = packet.Header{Source: addr(from), Destination: addr("2001:db8:1::1"), Protocol: packet.UDP, HopLimit: 9}.Packet([]byte(text))
	}
	return packet.Ethernet(nil, own[:], p.Type(), p)
}
