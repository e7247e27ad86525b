// SPDX-License-Identifier: Apache-2.0

package nexthops

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"time"

	"coelan.io/coelan/internal/bfd"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/packet"
)

func newPeer(discriminator uint32) *bfd.Session {
	return bfd.New(bfd.Config{
		Discriminator: discriminator, Interval: interval, DetectMult: 3, Jitter: func() float64 { return 0.5 },
	})
}

// A session of which nothing is received counts as working for 3 s, and for the detection time.
func TestGrace(t *testing.T) {
	slow := overBFD()
	slow.Check.Interval = 2 * time.Second
	for want, target := range map[time.Duration]Target{3 * time.Second: overBFD(), 6 * time.Second: slow} {
		play(t, func(t *testing.T, w *world) {
			w.SetTargets([]Target{target})
			w.pass(want - time.Millisecond)
			w.down()
			w.pass(time.Millisecond)
			w.down(isDown)
			w.pass(time.Minute)
			if w.changes != 1 || w.logged(saysDown) != 1 {
				t.Errorf("%d changes, log %s", w.changes, &w.log)
			}
		})
	}
}

func TestBFD(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		w.peer = newPeer(77)
		w.SetTargets([]Target{overBFD()})
		w.speak(time.Minute)
		w.down()
		if w.changes != 0 || w.peer.State() != bfd.Up {
			t.Fatalf("%d changes, the peer is %s", w.changes, w.peer.State())
		}
		peer := w.peer
		w.set(func() { w.peer = nil })
		w.pass(590 * time.Millisecond) // its last packet is up to 300 ms old
		w.down()
		w.pass(310 * time.Millisecond)
		w.down(isDown)
		if w.logged("control detection time expired") != 1 || w.changes != 1 {
			t.Errorf("%d changes, log %s", w.changes, &w.log)
		}
		w.set(func() { w.peer = peer })
		w.speak(3 * time.Second)
		w.down()
		w.set(func() { w.peer = newPeer(78) }) // it has restarted
		w.speak(3 * time.Second)
		w.down()
		if w.peer.State() != bfd.Up {
			t.Errorf("the peer is %s", w.peer.State())
		}
		w.SetTargets([]Target{overBFD()}) // it stays Up
		w.speak(time.Second)
		if w.peer.State() != bfd.Up {
			t.Errorf("the peer is %s", w.peer.State())
		}
	})
}

// What is sent is as RFC 5881, sections 4 and 5, has it.
func TestBFDFrames(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		var list []Target
		for i := range 20 {
			list = append(list, targetOf(intent.CheckBFD, fmt.Sprintf("198.51.100.%d", 20+i), hop))
			list = append(list, targetOf(intent.CheckBFD, fmt.Sprintf("2001:db8::%d", 20+i), hop6))
		}
		w.SetTargets(list)
		w.pass(10 * time.Second)
		ports, discriminators := map[netip.Addr]uint16{}, map[netip.Addr]uint32{}
		for _, s := range w.sent {
			p, _ := packet.Parse(s.frame)
			from, to, control, ok := p.Datagram()
			if !ok || p.HopLimit() != 255 || to != 3784 || from < 49152 {
				t.Fatalf("%x", s.frame)
			}
			b, err := bfd.Decode(control)
			if err != nil || b.DetectMult != 3 || b.RequiredMinRxInterval != 300000 {
				t.Fatalf("%+v, %v", b, err)
			}
			if ports[p.Source()] != 0 && ports[p.Source()] != from || discriminators[p.Source()] != 0 && discriminators[p.Source()] != b.MyDiscriminator {
				t.Fatal("a session changes its port or its discriminator")
			}
			ports[p.Source()], discriminators[p.Source()] = from, b.MyDiscriminator
		}
		unique := map[any]bool{}
		for a := range ports {
			unique[ports[a]], unique[discriminators[a]] = true, true
		}
		if len(ports) != 40 || len(unique) != 80 {
			t.Errorf("%d sessions have %d ports and discriminators", len(ports), len(unique))
		}
	})
}

func TestForeignBFD(t *testing.T) {
	const ttl = packet.EthernetLen + 8
	for name, edit := range map[string]func([]byte) (string, []byte){
		"other Network": func(b []byte) (string, []byte) { return "lab", b },
		"TTL 254":       func(b []byte) (string, []byte) { return "office", edited(b, ttl, 254) },
		"other port":    func(b []byte) (string, []byte) { return "office", edited(edited(b, 37, b[37]+1), 41, b[41]-1) },
		"other source": func(b []byte) (string, []byte) {
			return "office", edited(edited(b, 29, b[29]+1), 41, b[41]-1)
		},
		"bad checksum": func(b []byte) (string, []byte) { return "office", edited(b, 41, b[41]+1) },
		"other discriminator": func(b []byte) (string, []byte) {
			p := bfd.Packet{State: bfd.Up, DetectMult: 3, MyDiscriminator: 77, YourDiscriminator: 1}
			return "office", controlFrame(p.Encode())
		},
		"no packet of BFD": func([]byte) (string, []byte) { return "office", controlFrame([]byte("text")) },
		"nothing":          func([]byte) (string, []byte) { return "office", controlFrame(nil) },
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(t *testing.T, w *world) {
				w.peer, w.edit = newPeer(77), edit
				w.SetTargets([]Target{overBFD()})
				w.speak(3 * time.Second)
				w.down(isDown)
				w.set(func() { w.edit = nil })
				w.speak(3 * time.Second)
				w.down()
			})
		})
	}
}

func TestPortsAreReusedOnlyIfNoneIsFree(t *testing.T) {
	const free = firstBFDPort + 5000
	taken := map[uint16]bool{}
	for i := range numBFDPorts {
		taken[uint16(firstBFDPort+i)] = true
	}
	delete(taken, free)
	if port := freePort(taken); port != free {
		t.Errorf("port %d, want the free one", port)
	}
	taken[free] = true
	if port := freePort(taken); port < firstBFDPort {
		t.Errorf("port %d", port)
	}
}

func TestConcurrentUse(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		var calls sync.WaitGroup
		for g := range 4 {
			calls.Go(func() {
				for i := range 200 {
					switch (g + i) % 4 {
					case 0:
						w.SetTargets([]Target{icmp()})
					case 1:
						w.SetTargets([]Target{overBFD(), targetOf(intent.CheckICMP, source6, hop6)})
					case 2:
						w.Received("office", controlFrame(bfd.Packet{State: bfd.Down, DetectMult: 1, MyDiscriminator: 9}.Encode()))
					case 3:
						_, _ = w.Down(), w.counts()
					}
					time.Sleep(time.Millisecond)
				}
			})
		}
		calls.Wait()
		w.SetTargets([]Target{icmp()})
		w.pass(time.Minute)
		w.down()
	})
}

// FuzzReceived expects that only what has both addresses of a Target changes what is said of it.
func FuzzReceived(f *testing.F) {
	p, _ := packet.Parse(replyTo(packet.Header{Source: addr(hop), Destination: addr(source)}.Packet(nil), 0))
	f.Add(replyTo(p, 1<<16|1))
	f.Add(controlFrame(bfd.Packet{State: bfd.Down, DetectMult: 1, MyDiscriminator: 9}.Encode()))
	f.Add(controlFrame(bfd.Packet{State: bfd.Init, Poll: true, DetectMult: 1, MyDiscriminator: 9, YourDiscriminator: 1}.Encode()))
	f.Fuzz(func(t *testing.T, frame []byte) {
		for _, target := range []Target{icmp(), overBFD()} {
			o := New(Options{
				Log:  slog.New(slog.DiscardHandler),
				Send: func(context.Context, string, []byte) error { return nil },
				MAC:  func(string, netip.Addr) (intent.MAC, bool) { return router, true },
			})
			o.SetTargets([]Target{target})
			now := time.Now()
			for range 4 {
				o.expire(now)
				now = now.Add(4 * time.Second)
			}
			if len(o.Down()) != 1 {
				t.Fatal("it is not down")
			}
			o.Received("office", frame)
			o.Received("office", frame)
			src, dst := target.NextHop.AsSlice(), target.Source.AsSlice()
			if len(o.Down()) != 1 && !bytes.Contains(frame, append(src, dst...)) {
				t.Errorf("%x has %s up", frame, target.NextHop)
			}
		}
	})
}
