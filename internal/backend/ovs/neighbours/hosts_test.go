// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/packet"
)

const askHost = "198.51.100.7 asks all for 198.51.100.9"

// payload is the text that waiting has put into a packet.
func payload(frame []byte) string {
	p, ok := packet.Parse(frame)
	if !ok {
		return ""
	}
	return string(p[p.HeaderLen():])
}

// packets are the packets that were sent on, as MAC and text; requests counts the rest.
func (w *world) packets() (texts []string, requests int) {
	w.pass(0)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.sent {
		if _, ok := request(s.frame); ok {
			requests++
			continue
		}
		texts = append(texts, intent.MAC(s.frame[:6]).String()+" "+payload(s.frame))
	}
	w.sent = nil
	return texts, requests
}

func TestPacketsWait(t *testing.T) {
	for _, tc := range []struct{ from, host string }{{fip, host}, {fip6, host6}} {
		play(t, func(t *testing.T, w *world) {
			s := segment()
			s.Gateways = nil
			w.SetSegments([]Segment{s})
			for i := range 5 {
				w.Resolve("office", addr(tc.host), waiting(tc.from, fmt.Sprint(i)))
			}
			if texts, requests := w.packets(); texts != nil || requests != 1 {
				t.Errorf("%q, %d requests before an answer", texts, requests)
			}
			w.Received("office", reply(addr(tc.host), station))
			want := []string{station.String() + " 2", station.String() + " 3", station.String() + " 4"}
			if texts, requests := w.packets(); !slices.Equal(texts, want) || requests != 0 {
				t.Errorf("sent %q and %d requests, want %q", texts, requests, want)
			}
			w.table(known(tc.host, station))
			// One that comes before the flow is there goes at once.
			w.Resolve("office", addr(tc.host), waiting(tc.from, "late"))
			if texts, _ := w.packets(); !slices.Equal(texts, []string{station.String() + " late"}) {
				t.Errorf("sent %q", texts)
			}
			if w.waiting != 0 {
				t.Errorf("%d bytes wait", w.waiting)
			}
		})
	}
}

// The caller may use the frame's memory again.
func TestWaitingIsACopy(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		w.SetSegments([]Segment{segment4()})
		frame := waiting(fip, "mine")
		w.Resolve("office", addr(host), frame)
		clear(frame)
		w.Received("office", reply(addr(host), station))
		if texts, _ := w.packets(); !slices.Equal(texts, []string{station.String() + " mine"}) {
			t.Errorf("sent %q", texts)
		}
	})
}

func TestHostDoesNotAnswer(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		w.SetSegments([]Segment{segment4()})
		ask := func() { w.Resolve("office", addr(host), waiting(fip, "a")) }
		ask()
		w.pass(4 * time.Second)
		w.expect(askHost, askHost, askHost)
		if w.waiting != 0 {
			t.Errorf("%d bytes wait", w.waiting)
		}
		ask()
		w.pass(2 * time.Second)
		w.expect() // not again so soon
		w.pass(4 * time.Second)
		if n := len(w.networks["office"].entries); n != 0 {
			t.Errorf("%d entries are left", n)
		}
		ask()
		w.expect(askHost)
		w.Received("office", reply(addr(host), station))
		if texts, _ := w.packets(); len(texts) != 1 {
			t.Errorf("sent %q", texts)
		}
	})
}

// A host that was silent may boot.
func TestFailedHostSpeaks(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		w.SetSegments([]Segment{segment4()})
		w.Resolve("office", addr(host), nil)
		w.lists(Neighbour{Key: Key{"office", addr(host)}})
		w.pass(4 * time.Second)
		w.lists(Neighbour{Key: Key{"office", addr(host)}, Silent: true})
		w.Received("office", gratuitous(host, station))
		w.table(known(host, station))
		w.lists(Neighbour{Key: Key{"office", addr(host)}, MAC: station})
	})
}

func TestHostStaysAsLongAsItAnswers(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		w.up(host, station)
		w.SetSegments([]Segment{segment4()})
		w.Resolve("office", addr(host), nil)
		w.pass(time.Hour)
		w.table(known(host, station))
		if n := len(w.take()); n < 95 || n > 121 {
			t.Errorf("%d requests in an hour", n)
		}
		w.down(host)
		changes := w.changes
		w.pass(41 * time.Second)
		w.table()
		if w.changes != changes+1 {
			t.Errorf("Changed was called %d times", w.changes-changes)
		}
		w.take()
		w.pass(time.Hour)
		w.expect()
	})
}

func TestNotANeighbour(t *testing.T) {
	for _, tc := range []struct{ name, network, address string }{
		{"other network", "lab", host},
		{"outside of the subnets", "office", "203.0.113.9"},
		{"IPv6 outside of the subnets", "office", "2001:db8:1::9"},
		{"own", "office", fip},
		{"own IPv6", "office", fip6},
		{"the subnet", "office", "198.51.100.0"},
		{"its broadcast address", "office", "198.51.100.255"},
		{"multicast", "office", "ff02::1"},
		{"unspecified", "office", "0.0.0.0"},
		{"link-local", "office", "fe80::9"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			play(t, func(t *testing.T, w *world) {
				s := segment()
				s.Gateways = nil
				w.SetSegments([]Segment{s})
				w.Resolve(tc.network, addr(tc.address), waiting(fip, "a"))
				w.expect()
				if w.waiting != 0 {
					t.Error("a packet waits for it")
				}
			})
		})
	}
	play(t, func(t *testing.T, w *world) {
		w.SetSegments([]Segment{segment4()})
		w.Resolve("office", netip.Addr{}, waiting(fip, "a"))
		w.Resolve("office", addr(host6), waiting(fip6, "a")) // without a Source
		w.Resolve("office", addr(host), []byte("short"))     // no frame: only the hop counts
		w.expect(askHost)
		w.Resolve("office", addr("::ffff:198.51.100.9"), waiting(fip, "a")) // the same
		w.Received("office", reply(addr(host), station))
		if texts, _ := w.packets(); len(texts) != 1 {
			t.Errorf("sent %q", texts)
		}
	})
}

// hostNumber is one of 65,534 hosts.
func hostNumber(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 9, byte(i >> 8), byte(i)}) }

// wide is a Segment with many hosts and some Sources.
func wide() Segment {
	return Segment{
		Network: "office",
		Sources: map[netip.Addr]intent.MAC{
			addr("10.9.255.1"): own, addr("10.9.255.2"): own, addr("10.9.255.3"): own, addr("10.9.255.4"): own,
			addr("10.9.255.5"): own, addr("10.9.255.6"): own, addr("10.9.255.7"): own,
		},
		Gateways: []netip.Addr{addr("10.9.254.1")},
		Subnets:  []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")},
	}
}

// A pod that scans a subnet without hosts.
func TestScan(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		w.up("10.9.254.1", router)
		w.SetSegments([]Segment{wide()})
		w.take()
		const seconds = 20
		for i := range seconds * 1000 {
			w.Resolve("office", hostNumber(i+1), waiting("10.9.255.1", "scan"))
			w.pass(time.Millisecond)
		}
		w.pass(10 * time.Second)
		if n, most := len(w.take()), attempts*(seconds*sourceRate+sourceBurst+1)+1; n > most || n < most/2 {
			t.Errorf("%d requests in %d s, want at most %d", n, seconds, most)
		}
		// It harms itself only.
		w.Resolve("office", hostNumber(60000), waiting("10.9.255.1", "scan"))
		for i := range 100 {
			w.Resolve("office", hostNumber(40000+i), waiting("10.9.255.1", "scan"))
		}
		w.take()
		w.up("10.9.200.1", station)
		w.Resolve("office", addr("10.9.200.1"), waiting("10.9.255.2", "good"))
		if texts, _ := w.packets(); !slices.Equal(texts, []string{station.String() + " good"}) {
			t.Errorf("another pod's packet: %q", texts)
		}
		w.pass(time.Minute)
		if n := len(w.networks["office"].entries); n != 2 {
			t.Errorf("%d entries are left, want the gateway and the host", n)
		}
		if w.waiting != 0 {
			t.Errorf("%d bytes wait", w.waiting)
		}
	})
}

// All pods of a node scan, and forged sources have one limit together.
func TestScansTogether(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		w.SetSegments([]Segment{wide()})
		w.take()
		from := []string{"192.0.2.1", "192.0.2.2", "192.0.2.3"}
		for a := range wide().Sources {
			from = append(from, a.String())
		}
		const seconds = 20
		most := 0
		for i := range seconds * 1000 {
			w.Resolve("office", hostNumber(i+1), waiting(from[i%len(from)], strings.Repeat("x", 9000)))
			w.pass(time.Millisecond)
			most = max(most, w.waiting)
		}
		w.mu.Lock()
		requests := map[netip.Addr]bool{}
		for _, s := range w.sent {
			if q, ok := request(s.frame); ok && q.target != addr("10.9.254.1") {
				requests[q.target] = true
			}
		}
		w.mu.Unlock()
		if n := len(requests); n > seconds*networkRate+networkBurst+1 || n < seconds*networkRate/2 {
			t.Errorf("%d hosts were asked for in %d s", n, seconds)
		}
		if most > maxWaitingBytes || most == 0 {
			t.Errorf("up to %d bytes wait", most)
		}
		if n := len(w.networks["office"].limits); n > len(wide().Sources)+1 {
			t.Errorf("%d limits", n)
		}
	})
}

// fill makes entries without the limit of rates, and has them answer if there is a MAC.
func (w *world) fill(from, to int, mac intent.MAC) {
	n := w.networks["office"]
	for i := from; i < to; i++ {
		w.Resolver.mu.Lock()
		n.makeRoom(false)
		w.ask(n.add(hostNumber(i), time.Now()), time.Now())
		w.Resolver.mu.Unlock()
		if mac != (intent.MAC{}) {
			w.Received("office", reply(hostNumber(i), mac))
		}
		if i%50 == 0 {
			w.pass(time.Millisecond)
		}
	}
	w.pass(time.Millisecond)
}

func TestTableIsBounded(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		w.up("10.9.254.1", router)
		w.SetSegments([]Segment{wide()})
		w.fill(1, 4300, station)
		table := w.Table()
		if n := len(table); n != maxKnown+1 { // and the gateway
			t.Errorf("%d entries", n)
		}
		for a, want := range map[string]bool{"10.9.254.1": true, "10.9.0.1": false, hostNumber(4299).String(): true} {
			if _, ok := table[Key{"office", addr(a)}]; ok != want {
				t.Errorf("%s is in the table: %v", a, ok)
			}
		}
		// Those without answer take the place of others of their kind.
		w.fill(10000, 11100, intent.MAC{})
		if n := len(w.Table()); n != maxKnown+1 {
			t.Errorf("%d known neighbours after a scan", n)
		}
		if n := len(w.networks["office"].entries); n != maxKnown+1+maxUnresolved {
			t.Errorf("%d entries", n)
		}
	})
}

func TestUnresolvedAreBounded(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		w.SetSegments([]Segment{wide()})
		w.fill(1, 3000, intent.MAC{})
		if n := len(w.networks["office"].entries); n != maxUnresolved+1 { // and the gateway
			t.Errorf("%d entries", n)
		}
		if w.networks["office"].entries[hostNumber(2999)] == nil || w.networks["office"].entries[addr("10.9.254.1")] == nil {
			t.Error("the newest entry or the gateway has gone")
		}
	})
}

// What waits to be sent is bounded, too, even if Run cannot go on.
func TestQueueIsBounded(t *testing.T) {
	r := newIdle(t)
	r.SetSegments([]Segment{segment4()})
	r.Resolve("office", addr(host), nil)
	r.Received("office", reply(addr(host), station))
	for range 1000 {
		r.Resolve("office", addr(host), waiting(fip, strings.Repeat("x", 9000)))
	}
	if r.out.size > maxQueuedBytes || r.out.size < maxQueuedBytes/2 {
		t.Errorf("%d bytes are queued", r.out.size)
	}
}

func TestPacketsOfWhatIsGone(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		w.SetSegments([]Segment{segment4()})
		w.Resolve("office", addr(host), waiting(fip, "a"))
		w.SetSegments(nil)
		w.SetSegments([]Segment{segment4()})
		w.Received("office", reply(addr(host), station))
		w.table()
		w.expect(askHost)
		if w.waiting != 0 {
			t.Errorf("%d bytes wait", w.waiting)
		}
	})
}
