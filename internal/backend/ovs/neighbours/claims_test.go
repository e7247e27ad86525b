// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/packet"
)

// newIdle is a Resolver without Run.
func newIdle(t testing.TB) *Resolver {
	t.Helper()
	return New(Options{
		Log:  slog.New(slog.DiscardHandler),
		Send: func(context.Context, string, []byte) error { return nil },
	})
}

// edit is a frame with some bytes changed.
func edit(frame []byte, at int, b ...byte) []byte {
	frame = bytes.Clone(frame)
	copy(frame[at:], b)
	return frame
}

// What strangers send makes no entry and changes none.
func TestNotBelieved(t *testing.T) {
	arp, nd := gratuitous(gateway, other), advertisement(addr(gateway6), packet.Override, other[:])
	for _, tc := range []struct {
		name, network string
		frame         []byte
	}{
		{"stranger", "office", gratuitous("198.51.100.50", other)},
		{"stranger IPv6", "office", advertisement(addr("2001:db8::50"), packet.Override, other[:])},
		{"other network", "lab", arp},
		{"host that asks for the gateway", "office", packet.NeighbourRequest(addr(gateway), nil, addr("198.51.100.50"), other[:])},
		{"own MAC", "office", gratuitous(gateway, own)},
		{"own MAC, of another family", "office", gratuitous(gateway, own6)},
		{"multicast MAC", "office", gratuitous(gateway, intent.MAC{1, 0, 0x5e, 0, 0, 1})},
		{"broadcast MAC", "office", gratuitous(gateway, intent.MAC(packet.Broadcast))},
		{"zero MAC", "office", gratuitous(gateway, intent.MAC{})},
		{"multicast MAC in an advertisement", "office", advertisement(addr(gateway6), packet.Override, []byte{0x33, 0x33, 0, 0, 0, 1})},
		{"own address", "office", gratuitous(fip, other)},
		{"own IPv6 address", "office", advertisement(addr(fip6), packet.Override, other[:])},
		{"RARP", "office", edit(arp, 20, 0, 3)},
		{"ARP of another hardware", "office", edit(arp, 14, 0, 6)},
		{"ARP of another protocol", "office", edit(arp, 16, 0x86, 0xdd)},
		{"ARP with other lengths", "office", edit(arp, 18, 8, 4)},
		{"ARP, cut", "office", arp[:41]},
		{"ARP with a tag", "office", append(append(bytes.Clone(arp[:12]), 0x81, 0, 0, 5), arp[12:]...)},
		{"hop limit 254", "office", edit(nd, 21, 254)},
		{"bad checksum", "office", edit(nd, 56, nd[56]^1)},
		{"ICMPv6 with a code", "office", edit(nd, 55, 1)},
		{"cut", "office", nd[:len(nd)-1]},
		{"empty", "office", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			play(t, func(t *testing.T, w *world) {
				w.up(gateway, router)
				w.up(gateway6, router)
				w.SetSegments([]Segment{segment()})
				w.pass(2 * time.Second)
				w.Received(tc.network, tc.frame)
				w.table(known(gateway, router), known(gateway6, router))
				if n := len(w.networks["office"].entries); n != 2 {
					t.Errorf("%d entries", n)
				}
			})
		})
	}
	for name, frame := range map[string][]byte{gateway: arp, gateway6: nd} {
		play(t, func(t *testing.T, w *world) { // the frames themselves are believed
			w.SetSegments([]Segment{only(name)})
			w.Received("office", frame)
			w.table(known(name, other))
		})
	}
}

// Strangers that claim every address make no entry.
func TestFloodOfClaims(t *testing.T) {
	r := newIdle(t)
	r.SetSegments([]Segment{wide()})
	for i := range 1 << 16 {
		r.Received("office", reply(hostNumber(i), station))
	}
	if n := len(r.networks["office"].entries); n != 1 {
		t.Errorf("%d entries, want the gateway", n)
	}
}

// An ARP request of the neighbour itself confirms its MAC, so that it needs no probe.
func TestRequestsConfirm(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		w.up(gateway, router)
		w.SetSegments([]Segment{only(gateway)})
		w.take()
		for range 60 {
			w.pass(10 * time.Second)
			w.Received("office", packet.NeighbourRequest(addr(fip), nil, addr(gateway), router[:]))
		}
		w.expect()
		w.table(known(gateway, router))
	})
}

func TestConcurrentUse(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		w.up("10.9.254.1", router)
		var calls sync.WaitGroup
		for g := range 8 {
			calls.Go(func() {
				for i := range 300 {
					a := hostNumber(i + 1)
					switch g % 4 {
					case 0:
						s := wide()
						delete(s.Sources, netip.AddrFrom4([4]byte{10, 9, 255, byte(i%7 + 1)}))
						w.SetSegments([]Segment{s})
					case 1:
						w.Resolve("office", a, waiting("10.9.255.1", fmt.Sprint(i)))
					case 2:
						w.Received("office", reply(a, station))
						w.Announce("office", addr("10.9.255.1"), own)
					case 3:
						_ = w.Table()
						_ = w.counts()
					}
				}
			})
		}
		calls.Wait()
		w.pass(time.Minute)
		w.SetSegments([]Segment{wide()})
		w.Received("office", gratuitous("10.9.254.1", router))
		if got := w.Table()[Key{"office", addr("10.9.254.1")}]; got != router {
			t.Errorf("the gateway is at %s", got)
		}
	})
}

// FuzzReceived expects that no frame makes an entry, or one of a MAC that no station can have.
func FuzzReceived(f *testing.F) {
	f.Add(gratuitous(gateway, other))
	f.Add(gratuitous(gateway6, other))
	f.Add(reply(addr(gateway6), router))
	f.Add(waiting(fip, "text"))
	f.Fuzz(func(t *testing.T, frame []byte) {
		r := newIdle(t)
		r.SetSegments([]Segment{segment()})
		r.Received("office", frame)
		r.Resolve("office", addr(gateway), frame)
		for key, mac := range r.Table() {
			if !unicast(mac) || mac == own || key.Network != "office" || !bytes.Contains(frame, mac[:]) ||
				!bytes.Contains(frame, key.Address.AsSlice()) {
				t.Errorf("%x: %v is at %s", frame, key, mac)
			}
		}
		if n := len(r.networks["office"].entries); n != 2 {
			t.Errorf("%x: %d entries", frame, n)
		}
	})
}

// The timers are the only clock: without anything to do, nothing runs.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newIdle(t)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = r.Run(ctx) }()
		synctest.Wait()
		if _, more := r.timers.Next(); more {
			t.Error("a timer is pending without any Segment")
		}
		cancel()
		synctest.Wait()
	})
}
