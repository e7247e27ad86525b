// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/packet"
)

const (
	askGateway  = "198.51.100.7 asks all for 198.51.100.1"
	askGateway6 = "2001:db8::7 asks all for 2001:db8::1"
)

// only is the Segment with one family's gateway.
func only(gateway string) Segment {
	s := segment()
	s.Gateways = []netip.Addr{addr(gateway)}
	return s
}

func TestGatewaysAreAskedForAtOnce(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		w.up(gateway, router)
		w.up(gateway6, other)
		w.SetSegments([]Segment{segment()})
		w.expect(askGateway, askGateway6)
		w.table(known(gateway, router), known(gateway6, other))
		if w.changes == 0 {
			t.Error("Changed was not called")
		}
		w.SetSegments([]Segment{segment()})
		w.expect() // the same again changes nothing
	})
}

func TestSilentGateway(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		w.SetSegments([]Segment{only(gateway)})
		w.pass(time.Minute)
		w.mu.Lock()
		frames := w.sent
		w.mu.Unlock()
		for i := 1; i < len(frames); i++ {
			if d := frames[i].at - frames[i-1].at; d < pause || d > maxPause*3/2 {
				t.Errorf("request %d comes %v after the one before", i, d)
			}
		}
		if len(frames) < 10 || len(frames) > 20 {
			t.Errorf("%d requests in a minute", len(frames))
		}
		w.lists(Neighbour{Key: Key{"office", addr(gateway)}, Gateway: true, Silent: true})
		w.up(gateway, router)
		w.pass(maxPause * 3 / 2)
		w.table(known(gateway, router))
		w.lists(Neighbour{Key: Key{"office", addr(gateway)}, Gateway: true, MAC: router})
		log := w.log.String()
		if n := strings.Count(log, "level=WARN"); n != 1 || !strings.Contains(log, "gateway=198.51.100.1") {
			t.Errorf("%d warnings, want one that names the gateway:\n%s", n, log)
		}
		if !strings.Contains(log, "answers again") {
			t.Errorf("the log does not say that the gateway answers again:\n%s", log)
		}
	})
}

// A packet that wants to go by a gateway has it asked for sooner, but not more often than once a
// second, and the log says nevertheless that it does not answer.
func TestTrafficToASilentGateway(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		w.SetSegments([]Segment{only(gateway)})
		for range 600 {
			w.Resolve("office", addr(gateway), waiting(fip, "a"))
			w.pass(100 * time.Millisecond)
		}
		if n := len(w.take()); n < 50 || n > 61 {
			t.Errorf("%d requests in a minute", n)
		}
		if n := strings.Count(w.log.String(), "level=WARN"); n != 1 {
			t.Errorf("%d warnings, want 1", n)
		}
		w.up(gateway, router)
		w.pass(pause)
		w.take()
		w.Resolve("office", addr(gateway), waiting(fip, "b"))
		if texts, _ := w.packets(); !slices.Equal(texts, []string{router.String() + " b"}) {
			t.Errorf("sent %q", texts)
		}
	})
}

func TestGatewayIsConfirmed(t *testing.T) {
	for _, tc := range []struct{ gateway, all, probe string }{
		{gateway, askGateway, "198.51.100.7 asks 0c:00:00:00:00:01 for 198.51.100.1"},
		{gateway6, askGateway6, "2001:db8::7 asks 0c:00:00:00:00:01 for 2001:db8::1"},
	} {
		play(t, func(t *testing.T, w *world) {
			w.up(tc.gateway, router)
			w.SetSegments([]Segment{only(tc.gateway)})
			w.expect(tc.all)
			w.pass(29 * time.Second)
			w.expect()
			w.pass(8 * time.Second)
			w.expect(tc.probe)
			// One that is silent keeps its MAC.
			w.down(tc.gateway)
			w.pass(40 * time.Second)
			got := w.take()
			want := []string{tc.probe, tc.probe, tc.probe, tc.all}
			if len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
				t.Errorf("sent %q, want %q first", got, want)
			}
			w.pass(time.Hour)
			w.take()
			w.table(known(tc.gateway, router))
			// Another router has it now.
			w.up(tc.gateway, other)
			w.pass(maxPause * 3 / 2)
			w.table(known(tc.gateway, other))
		})
	}
}

func TestGatewayMoves(t *testing.T) {
	for _, g := range []string{gateway, gateway6} {
		play(t, func(t *testing.T, w *world) {
			w.up(g, router)
			w.SetSegments([]Segment{only(g)})
			w.pass(10 * time.Second)
			w.take()
			changes := w.changes
			w.up(g, other)
			w.Received("office", gratuitous(g, other))
			w.table(known(g, other))
			if w.changes != changes+1 {
				t.Errorf("Changed was called %d times", w.changes-changes)
			}
			w.expect()
			w.pass(settling)
			if got := w.take(); len(got) != 1 || !strings.Contains(got[0], "asks "+other.String()) {
				t.Errorf("the new MAC is not verified: %q", got)
			}
		})
	}
}

// An unasked claim is displaced again if nothing answers at its MAC.
func TestGatewayDoesNotMoveForGood(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		w.up(gateway, router)
		w.SetSegments([]Segment{only(gateway)})
		w.pass(10 * time.Second)
		w.Received("office", gratuitous(gateway, station))
		w.table(known(gateway, station))
		w.pass(6 * time.Second)
		w.table(known(gateway, router))
	})
}

// However many claims there are, a MAC changes and is asked for at most once a second.
func TestDispute(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		w.up(gateway, router)
		w.SetSegments([]Segment{only(gateway)})
		w.pass(10 * time.Second)
		w.take()
		changes := w.changes
		w.Received("office", gratuitous(gateway, station))
		w.Received("office", gratuitous(gateway, router))
		w.Received("office", gratuitous(gateway, station)) // does not keep all from being asked
		w.table(known(gateway, station))
		w.expect()
		w.pass(settling)
		w.expect(askGateway)
		w.table(known(gateway, router))
		for range 1000 {
			w.Received("office", gratuitous(gateway, station))
			w.Received("office", gratuitous(gateway, router))
			w.pass(10 * time.Millisecond)
		}
		if n := w.changes - changes; n < 3 || n > 22 {
			t.Errorf("%d changes in 11 seconds", n)
		}
		if n := len(w.take()); n > 22 {
			t.Errorf("%d requests in 11 seconds", n)
		}
	})
}

func TestGatewayNeedsASource(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		w.up(gateway, router)
		w.up(gateway6, other)
		s := segment()
		delete(s.Sources, addr(fip6))
		w.SetSegments([]Segment{s})
		w.expect(askGateway)
		w.SetSegments([]Segment{segment()})
		w.expect(askGateway6)
		w.table(known(gateway, router), known(gateway6, other))
		w.SetSegments([]Segment{s})
		w.table(known(gateway, router))
		w.SetSegments(nil)
		w.table()
		w.pass(time.Hour)
		w.expect()
	})
}

func TestLinkLocalGateway(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		w.up("fe80::1", router)
		w.SetSegments([]Segment{only("fe80::1")})
		w.expect("2001:db8::7 asks all for fe80::1")
		w.table(known("fe80::1", router))
	})
}

// Hosts may refuse to answer to an address that is not on their subnet.
func TestSourceOfTheSameSubnet(t *testing.T) {
	s := only(gateway)
	s.Sources[addr("192.0.2.7")] = other
	s.Gateways = append(s.Gateways, addr("192.0.2.1"), addr("203.0.113.1"))
	s.Subnets = append(s.Subnets, netip.MustParsePrefix("192.0.2.0/24"))
	play(t, func(t *testing.T, w *world) {
		w.SetSegments([]Segment{s})
		w.expect(askGateway, "192.0.2.7 asks all for 192.0.2.1", "192.0.2.7 asks all for 203.0.113.1")
	})
}

func TestHostBecomesGateway(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		w.SetSegments([]Segment{segment4()})
		w.Resolve("office", addr(host), nil)
		w.pass(4 * time.Second)
		w.take()
		w.SetSegments([]Segment{only(host)}) // it has failed as a host
		w.expect("198.51.100.7 asks all for 198.51.100.9")
		w.up(host, station)
		w.pass(3 * time.Second)
		w.table(known(host, station))
		w.SetSegments([]Segment{segment4()})
		w.table(known(host, station))
		w.down(host)
		w.pass(time.Minute)
		w.table() // no gateway any more
	})
}

// A MAC that becomes this node's own cannot be the neighbour's.
func TestNeighbourHadAMACThatIsOwnNow(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		w.up(gateway, router)
		w.SetSegments([]Segment{only(gateway)})
		w.table(known(gateway, router))
		w.up(gateway, other)
		s := only(gateway)
		s.Sources[addr(fip)] = router
		w.SetSegments([]Segment{s})
		w.table(known(gateway, other))
	})
}

func TestRequestsThatCannotBeSent(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		w.up(gateway, router)
		w.up(host, station)
		s := segment4()
		s.Gateways = []netip.Addr{addr(gateway)}
		w.SetSegments([]Segment{s})
		w.Resolve("office", addr(host), nil)
		w.table(known(gateway, router), known(host, station))
		w.fail("the switch is down", "")
		w.pass(10 * time.Minute)
		w.table(known(gateway, router), known(host, station)) // nothing is known to be silent
		if log := w.log.String(); strings.Contains(log, "WARN") {
			t.Error(log)
		}
		w.fail("", "")
		w.pass(2 * time.Second)
		if len(w.take()) == 0 {
			t.Error("requests do not go on")
		}
	})
}

func TestAdvertisements(t *testing.T) {
	for _, tc := range []struct {
		name  string
		frame []byte
		want  intent.MAC
	}{
		{"override, unsolicited", advertisement(addr(gateway6), packet.Override, other[:]), other},
		{"no override", advertisement(addr(gateway6), packet.Solicited, other[:]), router},
		{"neither", advertisement(addr(gateway6), 0, other[:]), router},
	} {
		t.Run(tc.name, func(t *testing.T) {
			play(t, func(t *testing.T, w *world) {
				w.up(gateway6, router)
				w.SetSegments([]Segment{only(gateway6)})
				w.pass(5 * time.Second)
				w.Received("office", tc.frame)
				w.table(known(gateway6, tc.want))
			})
		})
	}
}

// The answer to a unicast probe may lack the option (RFC 4861, section 4.4), and an unasked one
// without it says nothing.
func TestAdvertisementWithoutOption(t *testing.T) {
	bare := func(flags uint32) []byte {
		p := packet.NeighbourAdvertisement(addr(gateway6), addr(fip6), flags, addr(gateway6), nil)
		return packet.Ethernet(own6[:], router[:], p.Type(), p)
	}
	for _, tc := range []struct {
		name  string
		frame []byte
		want  int // requests
	}{
		{"solicited", bare(packet.Solicited), 1},
		{"unsolicited", bare(packet.Override), 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			play(t, func(t *testing.T, w *world) {
				w.SetSegments([]Segment{only(gateway6)})
				w.Received("office", bare(packet.Solicited))
				w.table()
				w.Received("office", reply(addr(gateway6), router))
				w.take()
				for w.sent == nil {
					w.pass(100 * time.Millisecond)
				}
				w.Received("office", tc.frame)
				w.pass(2500 * time.Millisecond)
				if got := w.take(); len(got) != tc.want {
					t.Errorf("%d requests, want %d", len(got), tc.want)
				}
			})
		})
	}
}
