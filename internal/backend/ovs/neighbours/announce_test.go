// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"coelan.io/coelan/internal/intent"
)

const (
	said  = "198.51.100.7 is at 0a:00:00:00:00:01, to ff:ff:ff:ff:ff:ff"
	said6 = "2001:db8::7 is at 0a:00:00:00:00:06, to 33:33:00:00:00:01"
)

func quiet() Segment {
	s := segment()
	s.Gateways = nil
	return s
}

func TestAnnounce(t *testing.T) {
	for _, tc := range []struct {
		address string
		mac     intent.MAC
		want    []string
	}{
		{fip, own, []string{said, said}}, // a request and a reply
		{fip6, own6, []string{said6}},
	} {
		play(t, func(t *testing.T, w *world) {
			w.SetSegments([]Segment{quiet()})
			w.Announce("office", addr(tc.address), tc.mac)
			w.expect(tc.want...)
			for _, wait := range []time.Duration{50, 100, 250, 600} { // a second altogether
				w.pass(wait*time.Millisecond - 1)
				w.expect()
				w.pass(1)
				w.expect(tc.want...)
			}
			w.pass(time.Hour)
			w.expect()
			if len(w.announcements) != 0 {
				t.Error("the announcement is kept")
			}
			if n := testutil.ToFloat64(w.metrics.announcements); int(n) != 5*len(tc.want) {
				t.Errorf("%v announcements are counted, want %d", n, 5*len(tc.want))
			}
		})
	}
}

// No router flag: a floating IP is not a router.
func TestAnnouncementIsNoRouters(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		w.SetSegments([]Segment{quiet()})
		w.Announce("office", addr(fip6), own6)
		w.pass(0)
		if flags := w.sent[0].frame[58]; flags != 0x20 {
			t.Errorf("flags %#x, want override only", flags)
		}
	})
}

func TestAnnouncementsEnd(t *testing.T) {
	moved := quiet()
	moved.Sources[addr(fip)] = other
	gone := quiet()
	delete(gone.Sources, addr(fip))
	for name, segments := range map[string][]Segment{"network gone": nil, "address gone": {gone}, "other MAC": {moved}} {
		t.Run(name, func(t *testing.T) {
			play(t, func(t *testing.T, w *world) {
				w.SetSegments([]Segment{quiet()})
				w.Announce("office", addr(fip), own)
				w.expect(said, said)
				w.SetSegments(segments)
				w.pass(time.Hour)
				w.expect()
			})
		})
	}
}

// What is not this node's is not announced.
func TestOnlySourcesAreAnnounced(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		w.Announce("office", addr(fip), own)
		w.SetSegments([]Segment{quiet()})
		w.Announce("office", addr(fip), other)
		w.Announce("office", addr(host), own)
		w.Announce("lab", addr(fip), own)
		w.pass(time.Hour)
		w.expect()
	})
}

func TestAnnouncedAgain(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		w.SetSegments([]Segment{quiet()})
		w.Announce("office", addr(fip), own)
		w.pass(40 * time.Millisecond)
		w.Announce("office", addr(fip), own)
		w.expect(said, said, said, said)
		w.pass(time.Hour)
		w.expect(said, said, said, said, said, said, said, said) // one series
	})
}

// Many announcements go out in bursts.
func TestAnnouncementsArePaced(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		s := Segment{Network: "office", Sources: map[netip.Addr]intent.MAC{}}
		for i := range 500 {
			s.Sources[hostNumber(i)] = own
		}
		w.SetSegments([]Segment{s})
		for a := range s.Sources {
			w.Announce("office", a, own)
		}
		w.pass(time.Minute)
		at := map[time.Duration]int{}
		count := map[string]int{}
		for _, f := range w.sent {
			at[f.at]++
			count[f.String()]++
		}
		for when, n := range at {
			if n > burst+1 {
				t.Errorf("%d frames at %v", n, when)
			}
		}
		for i := range 500 {
			if n := count[fmt.Sprintf("%s is at %s, to ff:ff:ff:ff:ff:ff", hostNumber(i), own)]; n != 2*len(repeats) {
				t.Errorf("%s: %d frames", hostNumber(i), n)
			}
		}
	})
}
