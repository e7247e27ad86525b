// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"net"
	"testing"
	"time"

	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// TestQuestionLimit has a pod ask for a neighbor's MAC far more often than it may. It has as many
// answers as the limit allows in that time, and other pods have theirs.
func TestQuestionLimit(t *testing.T) {
	w := sharedWorld(t)
	const questions = 5000
	limit := config.Default().Neighbours.MaxPerSecond
	eachFamily(t, func(t *testing.T, f lab.Family) {
		// Each family has a pod of its own, of which nothing has used up what it may ask.
		busy, asked := w.a, w.b
		if f == lab.IPv6 {
			busy, asked = w.b, w.a
		}
		asker, other := wire(t, busy.Host), wire(t, w.d.Host)
		ask := func(p, of *lab.Pod) probe.Frame {
			if f == lab.IPv4 {
				return probe.Ethernet(p.MAC, probe.Broadcast, probe.EtherARP, probe.ARP(
					probe.ARPRequest, p.MAC, p.Address(f), make(net.HardwareAddr, 6), of.Address(f)))
			}
			return probe.Ethernet(p.MAC, of.MAC, probe.EtherIPv6, probe.Neighbour(
				probe.NeighbourSolicitation, p.Address(f), of.Address(f), of.Address(f), p.MAC))
		}
		answerOf := func(of *lab.Pod) func(probe.Frame) bool {
			return func(frame probe.Frame) bool {
				src, _ := frame.IPs()
				return src == of.Address(f) && (frame.Type() == probe.EtherARP ||
					frame.Payload()[6] == 58 && frame.Payload()[40] == probe.NeighbourAdvertisement)
			}
		}
		// asks repeats a question until it is answered.
		asks := func(at *probe.Wire, p, of *lab.Pod) {
			t.Helper()
			ctx := within(t, time.Minute)
			poll(ctx, t, func() bool {
				if err := at.Send(ask(p, of)); err != nil {
					t.Fatal(err)
				}
				return len(at.Frames(answerOf(of))) > 0
			}, func() { t.Errorf("pod %s has no answer", p.Name) })
		}

		start := time.Now()
		frame := ask(busy, asked)
		for range questions {
			if err := asker.Send(frame); err != nil {
				t.Fatal(err)
			}
		}
		asks(other, w.d, asked)
		// What a port sends is checked in order: once this is answered, nothing before it waits.
		asks(asker, busy, w.d)
		took := time.Since(start)
		answers := len(asker.Frames(answerOf(asked)))
		t.Logf("%d of %d questions are answered in %s", answers, questions, took)
		// At first there may be as many at once as in two seconds: how much a full meter holds
		// depends on the datapath.
		if most := limit * (3 + int(took.Seconds())); answers > most {
			t.Errorf("%d questions are answered in %s: want at most %d", answers, took, most)
		}
		if answers == 0 {
			t.Error("none of the questions is answered")
		}
	})
}
