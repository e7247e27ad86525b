// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestSave(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		w.up(gateway, router)
		w.up(host, station)
		w.SetSegments([]Segment{only(gateway)})
		w.Resolve("office", addr(host), nil)
		w.pass(0)
		if len(w.saves) != 0 {
			t.Error("Save was not delayed")
		}
		w.pass(saving)
		want := []map[string][]byte{{"office/" + gateway: []byte(router.String()), "office/" + host: []byte(station.String())}}
		if diff := cmp.Diff(want, w.saves); diff != "" {
			t.Errorf("saved (-want +got):\n%s", diff)
		}
		w.pass(10 * time.Minute) // confirmed again and again
		if len(w.saves) != 1 {
			t.Errorf("saved %d times", len(w.saves))
		}
		w.Received("office", gratuitous(gateway, other))
		w.pass(saving)
		if len(w.saves) != 2 || string(w.saves[1]["office/"+gateway]) != other.String() {
			t.Errorf("saved %q", w.saves)
		}
	})
}

func TestSaveFails(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		w.fail("", "disk full")
		w.up(gateway, router)
		w.SetSegments([]Segment{only(gateway)})
		w.pass(5 * time.Second)
		if n := len(w.saves); n < 2 || n > 4 {
			t.Errorf("%d attempts in 5 s", n)
		}
		if !strings.Contains(w.log.String(), "disk full") {
			t.Error("the log does not say so")
		}
		w.fail("", "")
		w.pass(time.Minute)
		n := len(w.saves)
		if len(w.saves[n-1]) != 1 {
			t.Errorf("saved %q", w.saves[n-1])
		}
		w.pass(time.Hour)
		if len(w.saves) != n {
			t.Errorf("saved again: %d", len(w.saves)-n)
		}
	})
}

// What has changed just before the end is saved.
func TestSaveAtTheEnd(t *testing.T) {
	var end *world
	play(t, func(t *testing.T, w *world) {
		w.up(gateway, router)
		w.SetSegments([]Segment{only(gateway)})
		w.table(known(gateway, router))
		end = w
	})
	if len(end.saves) != 1 || len(end.saves[0]) != 1 {
		t.Errorf("saved %q", end.saves)
	}
}

func TestRestart(t *testing.T) {
	saved := map[string][]byte{
		"office/" + gateway: []byte(router.String()), "office/" + gateway6: []byte(router.String()),
		"office/" + host: []byte(station.String()), "lab/" + host: []byte(station.String()),
		// What no release has written.
		"office": nil, "office/x": []byte(router.String()), "office/198.51.100.3": []byte("x"), "office/198.51.100.4": []byte("ff:ff:ff:ff:ff:ff"),
	}
	playWith(t, saved, func(t *testing.T, w *world) {
		w.table(known(gateway, router), known(gateway6, router), known(host, station), "lab "+host+" "+station.String())
		w.pass(time.Hour) // no clock before the Segments
		w.expect()
		w.up(gateway, router)
		w.up(gateway6, other)
		w.up(host, station)
		w.SetSegments([]Segment{segment()})
		got := w.take()
		slices.Sort(got)
		if diff := cmp.Diff([]string{askGateway, askGateway6}, got); diff != "" {
			t.Errorf("sent (-want +got):\n%s", diff)
		}
		w.table(known(gateway, router), known(gateway6, other), known(host, station))
		w.pass(30 * time.Second)
		if !slices.Contains(w.take(), "198.51.100.7 asks 0e:00:00:00:00:09 for 198.51.100.9") {
			t.Error("the saved host is not confirmed")
		}
		// A packet goes at once.
		w.Resolve("office", addr(host), waiting(fip, "a"))
		if texts, _ := w.packets(); !slices.Equal(texts, []string{station.String() + " a"}) {
			t.Errorf("sent %q", texts)
		}
	})
}

// A gateway that does not answer after a restart keeps the saved MAC; a host goes.
func TestRestartWithoutAnswer(t *testing.T) {
	saved := map[string][]byte{"office/" + gateway: []byte(router.String()), "office/" + host: []byte(station.String())}
	playWith(t, saved, func(t *testing.T, w *world) {
		w.SetSegments([]Segment{only(gateway)})
		w.pass(time.Minute)
		w.table(known(gateway, router))
		if got := w.saves[len(w.saves)-1]; len(got) != 1 {
			t.Errorf("saved %q", got)
		}
	})
}

func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	r := newIdle(t)
	r.metrics.register(registry, r)
	r.SetSegments([]Segment{segment()})
	r.Received("office", reply(addr(gateway), router))
	r.Resolve("office", addr("203.0.113.9"), waiting(fip, "a"))
	r.Resolve("office", addr("203.0.113.9"), nil) // no packet
	want := `
# HELP coelan_external_announcements_total Frames by which the agent has announced that this node has an address of an external Network.
# TYPE coelan_external_announcements_total counter
coelan_external_announcements_total 0
# HELP coelan_neighbour_lost_packets_total Packets to next hops on external Networks that the agent has dropped, by reason.
# TYPE coelan_neighbour_lost_packets_total counter
coelan_neighbour_lost_packets_total{reason="not_a_neighbour"} 1
# HELP coelan_neighbour_requests_total ARP requests and neighbor solicitations made for next hops on external Networks.
# TYPE coelan_neighbour_requests_total counter
coelan_neighbour_requests_total 2
# HELP coelan_neighbours Next hops on external Networks, by Network and state: known or unresolved.
# TYPE coelan_neighbours gauge
coelan_neighbours{network="office",state="known"} 1
coelan_neighbours{network="office",state="unresolved"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
