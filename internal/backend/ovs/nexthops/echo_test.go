// SPDX-License-Identifier: Apache-2.0

package nexthops

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/packet"
)

func TestAnswersKeepItUp(t *testing.T) {
	for _, tc := range []struct{ source, hop string }{{source, hop}, {source6, hop6}} {
		play(t, func(t *testing.T, w *world) {
			w.SetTargets([]Target{targetOf(intent.CheckICMP, tc.source, tc.hop)})
			w.pass(10*time.Second + interval/2)
			w.down()
			if len(w.sent) != 34 || w.changes != 0 || w.log.Len() != 0 {
				t.Errorf("%d requests, %d changes, log %q", len(w.sent), w.changes, &w.log)
			}
			for i, s := range w.sent {
				p, ok := packet.Parse(s.frame)
				if !ok || !bytes.Equal(s.frame[:6], router[:]) || !bytes.Equal(s.frame[6:12], own[:]) ||
					p.Source() != addr(tc.source) || p.Destination() != addr(tc.hop) || s.at != time.Duration(i)*interval {
					t.Fatalf("%x at %v", s.frame, s.at)
				}
			}
		})
	}
}

// A next hop begins as working, and is down after three intervals, whatever keeps it from
// answering.
func TestDownAfterFailures(t *testing.T) {
	for name, broken := range map[string]func(w *world){
		"no answer":   func(w *world) { w.silent = true },
		"MAC unknown": func(w *world) { w.unknown = true },
		"cannot send": func(w *world) { w.sendErr = errSend },
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(t *testing.T, w *world) {
				broken(w)
				w.SetTargets([]Target{icmp(), targetOf(intent.CheckICMP, source6, hop6)})
				w.pass(3*interval - time.Millisecond)
				w.down()
				w.pass(time.Millisecond)
				w.down(isDown, isDown6)
				if w.changes != 1 {
					t.Errorf("Changed was called %d times", w.changes)
				}
				w.pass(time.Minute)
				if n := w.logged(saysDown); n != 2 || w.changes != 1 {
					t.Errorf("%d lines in the log, %d changes", n, w.changes)
				}
			})
		})
	}
}

func TestBackAfterTwoAnswers(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		w.silent = true
		w.SetTargets([]Target{icmp()})
		w.pass(3*interval + interval/2)
		w.down(isDown)
		w.set(func() { w.silent = false })
		w.pass(interval) // one answer
		w.set(func() { w.silent = true })
		w.pass(interval)
		w.set(func() { w.silent = false })
		w.pass(interval) // one answer, and not two in a row
		w.down(isDown)
		w.pass(interval)
		w.down()
		if w.logged(saysDown) != 1 || w.logged(saysUp) != 1 || w.changes != 2 {
			t.Errorf("%d changes, log %s", w.changes, &w.log)
		}
		if !strings.Contains(w.log.String(), "network=office nextHop="+hop+" source="+source) {
			t.Errorf("the log does not name the next hop: %s", &w.log)
		}
	})
}

// Two of three intervals without an answer are no failure.
func TestFewerFailures(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		w.SetTargets([]Target{icmp()})
		w.pass(interval / 2)
		for range 20 {
			w.set(func() { w.silent = true })
			w.pass(2 * interval)
			w.set(func() { w.silent = false })
			w.pass(interval)
		}
		w.down()
		if w.changes != 0 {
			t.Errorf("%d changes", w.changes)
		}
	})
}

// shift moves the sequence number of a reply.
func shift(frame []byte, by int) []byte {
	p, _ := packet.Parse(frame)
	number := binary.BigEndian.Uint32(frame[packet.EthernetLen+packet.IPv4Len+4:])
	sequence := uint16(int(number) + by) //nolint:gosec // it may wrap
	back := packet.Header{Source: p.Destination(), Destination: p.Source()}.Packet(nil)
	return replyTo(back, number&^0xffff|uint32(sequence))
}

// from is a reply with other addresses.
func from(frame []byte, src, dst string) []byte {
	h := packet.Header{Source: addr(dst), Destination: addr(src)}.Packet(nil)
	return replyTo(h, binary.BigEndian.Uint32(frame[packet.EthernetLen+packet.IPv4Len+4:]))
}

// edited is a frame with a byte changed.
func edited(frame []byte, at int, b byte) []byte {
	frame = bytes.Clone(frame)
	frame[at] = b
	return frame
}

func TestForeignEchoReplies(t *testing.T) {
	office := func(fn func([]byte) []byte) func([]byte) (string, []byte) {
		return func(b []byte) (string, []byte) { return "office", fn(b) }
	}
	const at = packet.EthernetLen + packet.IPv4Len
	for name, edit := range map[string]func([]byte) (string, []byte){
		"other Network":     func(b []byte) (string, []byte) { return "lab", b },
		"other source":      office(func(b []byte) []byte { return from(b, "198.51.100.2", source) }),
		"other destination": office(func(b []byte) []byte { return from(b, hop, "198.51.100.8") }),
		"other identifier":  office(func(b []byte) []byte { return shift(edited(b, at+4, b[at+4]^1), 0) }),
		"old sequence":      office(func(b []byte) []byte { return shift(b, -3) }),
		"future sequence":   office(func(b []byte) []byte { return shift(b, 1) }),
		"bad checksum":      office(func(b []byte) []byte { return edited(b, at+2, b[at+2]^1) }),
		"request":           office(func(b []byte) []byte { return edited(edited(b, at, 8), at+2, b[at+2]-8) }),
		"cut":               office(func(b []byte) []byte { return b[:len(b)-1] }),
		"tag": office(func(b []byte) []byte {
			return append(append(bytes.Clone(b[:12]), 0x81, 0, 0, 5), b[12:]...)
		}),
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(t *testing.T, w *world) {
				w.edit = edit
				w.SetTargets([]Target{icmp()})
				w.pass(3 * interval)
				w.down(isDown)
				w.set(func() { w.edit = nil })
				w.pass(2 * interval)
				w.down()
			})
		})
	}
}

// An answer counts once, and one that takes more than an interval counts, too.
func TestLateAndRepeatedReplies(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		w.silent = true
		w.SetTargets([]Target{icmp()})
		w.pass(3 * interval)
		w.down(isDown)
		p, _ := packet.Parse(w.sent[3].frame)
		m, _ := p.ICMPMessage()
		number := binary.BigEndian.Uint32(m[4:])
		for range 5 {
			w.Received("office", replyTo(p, number))
		}
		w.down(isDown)
		w.Received("office", replyTo(p, number&^0xffff|uint32(uint16(number-2)))) //nolint:gosec // it may wrap
		w.down()
	})
}

func TestTargetsStay(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		w.silent = true
		w.SetTargets([]Target{icmp()})
		w.pass(2 * interval)
		other := icmp()
		other.SourceMAC = router
		w.SetTargets([]Target{other, targetOf(intent.CheckICMP, source6, hop6)})
		w.pass(interval)
		w.down(isDown)
		if last := w.sent[len(w.sent)-1].frame; !bytes.Equal(last[6:12], router[:]) && !bytes.Equal(last[6:12], own[:]) {
			t.Errorf("%x", last)
		}
		slower := other
		slower.Check.Interval = time.Second
		w.SetTargets([]Target{slower}) // of the same protocol: down until it answers
		w.down(isDown)
		w.SetTargets([]Target{overBFD()}) // of another one: as new
		w.down()
		w.SetTargets([]Target{slower})
		w.pass(3 * time.Second)
		w.down(isDown)
		changes := w.changes
		w.SetTargets(nil)
		w.down()
		if w.changes != changes+1 {
			t.Errorf("%d changes, had %d", w.changes, changes)
		}
		n := len(w.sent)
		w.pass(time.Minute)
		if _, more := w.timers.Next(); len(w.sent) != n || more {
			t.Error("a Target that was removed is checked")
		}
		w.SetTargets([]Target{icmp()})
		w.down() // as new
	})
}

func TestNotCheckable(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		none, mixed, invalid := icmp(), icmp(), icmp()
		none.Check = intent.NextHopCheck{}
		mixed.NextHop, invalid.NextHop = addr(hop6), netip.Addr{}
		w.SetTargets([]Target{none, mixed, invalid})
		w.pass(time.Minute)
		w.down()
		if len(w.sent) != 0 {
			t.Errorf("%d frames", len(w.sent))
		}
		// Values that make no sense do not have it run wild.
		wild := icmp()
		wild.Check.Interval, wild.Check.Failures = -1, -1
		w.SetTargets([]Target{wild})
		w.pass(time.Second)
		w.down()
		if n := len(w.sent); n > 101 {
			t.Errorf("%d frames in a second", n)
		}
	})
}

func TestMetrics(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		w.silent = true
		w.SetTargets([]Target{icmp()})
		w.pass(3 * interval)
		w.SetTargets([]Target{icmp(), targetOf(intent.CheckICMP, source6, hop6)})
		registry := prometheus.NewRegistry()
		registry.MustRegister(&stateCollector{w.Prober})
		const want = `
# HELP coelan_next_hops Next hops on external Networks that are checked, by Network and state: up or down.
# TYPE coelan_next_hops gauge
coelan_next_hops{network="office",state="down"} 1
coelan_next_hops{network="office",state="up"} 1
`
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
			t.Error(err)
		}
	})
}
