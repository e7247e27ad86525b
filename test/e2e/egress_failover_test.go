// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// routes lead from pods to the outside. The names of their ways are those of the pods.
func (w *payers) routes(datagrams bool, from ...*payer) (list []route) {
	for _, p := range from {
		list = append(list, route{way: p.name, from: p.place, to: w.fabric, datagrams: datagrams})
	}
	return list
}

// moved judges streams of pods while the addresses of one node were moved: what leaves by others
// has lost nothing, and the others were silent for a short time.
func (w *payers) moved(t *testing.T, outcomes map[string]outcome, node string) {
	t.Helper()
	var longest time.Duration
	moved, stayed := 0, 0
	for _, p := range w.pods() {
		for _, f := range families {
			o, ok := outcomes[p.name+" "+string(f)]
			switch {
			case !ok:
			case w.home[p.seen[f]] == node:
				moved++
				longest = max(longest, o.udp.Gap)
				if o.udp.Gap > longestSilence {
					t.Errorf("%s by %s, which moved: %s; want silence for at most %s", p.name, f, o.udp, longestSilence)
				}
			default:
				stayed++
				if len(o.udp.Lost) > 0 {
					t.Errorf("%s by %s, whose address stayed: %s", p.name, f, o.udp)
				}
			}
		}
	}
	if moved == 0 || stayed == 0 {
		t.Errorf("%d streams by addresses of %s, and %d by others", moved, node, stayed)
	}
	t.Logf("longest silence of an address that moved: %s", longest.Round(time.Millisecond))
}

// restarts kills all agents and controllers while the API server is away, and replaces them when it
// is back. Connections go on, new ones begin, and no address moves: 0 packets lost.
func (w *payers) restarts(t *testing.T) {
	ctx := within(t, 4*time.Minute)
	heard, check := officeWire(t), notAsNodes(ctx, t)
	tr := startTraffic(ctx, t, w.routes(false, w.pods()...)...)
	if err := world.Stop(ctx, control, "kube-apiserver", syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	restartCoelan(ctx, t)
	for _, p := range w.pods() {
		leavesNow(ctx, t, p.place, p.seen)
	}
	replaceCoelan(ctx, t)
	for _, p := range w.pods() {
		leavesNow(ctx, t, p.place, p.seen)
	}
	tr.settle(ctx, t)
	allow(t, tr.stop(t), 0)
	if now := agreed(ctx, t, w.all()...); !maps.Equal(now, w.home) {
		t.Errorf("active are %v, and were %v", now, w.home)
	}
	onlyKnown(t, heard, w.all()...)
	check()
}

// planned labels a node as one that is about to leave: the other one takes its addresses over. They
// return when it may have them again, as the Egress asks for. Connections that last may end.
func (w *payers) planned(t *testing.T) {
	ctx := within(t, 2*time.Minute)
	check := notAsNodes(ctx, t)
	set := func(ctx context.Context, change string) {
		t.Helper()
		if _, err := world.Kubectl(ctx, "label", "node", worker1, corev1.LabelNodeExcludeBalancers+change); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(func() { set(context.WithoutCancel(ctx), "-") })
	for _, c := range []struct {
		name, change string
		active       map[netip.Addr]string
	}{
		{"leaves", "=", w.without(worker1)},
		{"is back", "-", w.home},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr := startTraffic(ctx, t, w.routes(true, w.far...)...)
			set(ctx, c.change)
			agreedOn(ctx, t, c.active)
			for _, p := range w.pods() {
				leavesNow(ctx, t, p.place, p.seen)
			}
			tr.settle(ctx, t)
			w.moved(t, tr.stop(t), worker1)
			answerAlone(ctx, t, c.active)
		})
	}
	check()
}

// without is which node is active for each address when one may not be.
func (w *payers) without(node string) map[netip.Addr]string {
	active := maps.Clone(w.home)
	for a, has := range active {
		if has == node {
			active[a] = candidates[1-slices.Index(candidates, node)]
		}
	}
	return active
}

// apart cuts the way between the nodes that may be active. Both reach the external Network, so that
// each hears there that the other one answers: no address moves. What leaves by a node that its own
// node reaches goes on, without a packet lost.
func (w *payers) apart(t *testing.T) {
	ctx := within(t, 2*time.Minute)
	check := notAsNodes(ctx, t)
	tr := startTraffic(ctx, t, w.routes(false, w.far...)...)
	client, server := world.pod(ctx, t, "client1"), world.pod(ctx, t, "web2")
	heal := divide(ctx, t, fmt.Sprintf(`chain forward { type filter hook forward priority 0; `+
		`iifname %[1]q oifname %[2]q drop; iifname %[2]q oifname %[1]q drop; }; `, worker1, worker2))
	closed(ctx, t, client, netip.AddrPortFrom(server.address(ipv4), webPort))
	tr.await(ctx, t, 300) // several times what a takeover needs
	for _, p := range w.far {
		leavesNow(ctx, t, p.place, p.seen)
	}
	answerAlone(ctx, t, w.home)
	heal()
	agreedOn(ctx, t, w.home)
	w.leave(ctx, t)
	tr.settle(ctx, t)
	allow(t, tr.stop(t), 0)
	answerAlone(ctx, t, w.home)
	check()
}

// cutOff takes everything from a node but its power. The other one takes over; when the first is
// back it gives way, and then has its addresses again, as the Egress asks for.
func (w *payers) cutOff(t *testing.T) {
	ctx := within(t, 2*time.Minute)
	check := notAsNodes(ctx, t)
	tr := startTraffic(ctx, t, w.routes(true, w.far...)...)
	began := time.Now()
	ports := fmt.Sprintf("{ %q, %q }", worker1, officeLinkOf(worker1))
	heal := divide(ctx, t, "chain in { type filter hook prerouting priority -300; iifname "+ports+" drop; }; "+
		"chain out { type filter hook postrouting priority 300; oifname "+ports+" drop; }; ")
	newConnections(ctx, t, began, w.places(w.far...)...)
	tr.settle(ctx, t)
	w.moved(t, tr.stop(t), worker1)
	for a, node := range w.without(worker1) {
		if err := wait(ctx, officeBlock(a), activeIs(node)); err != nil {
			t.Error(err)
		}
	}
	heal()
	agreedOn(ctx, t, w.home)
	answerAlone(ctx, t, w.home)
	w.leave(ctx, t)
	check()
}

// powerCut takes the power of a node: the other one takes its addresses over. They return with it,
// as the Egress asks for.
func (w *payers) powerCut(t *testing.T) {
	ctx := within(t, 4*time.Minute)
	check := notAsNodes(ctx, t)
	users := append([]*payer{w.pay2}, w.far...)
	tr := startTraffic(ctx, t, w.routes(true, users...)...)
	cut := cutPower(ctx, t, worker1)
	newConnections(ctx, t, cut.at, w.places(users...)...)
	tr.settle(ctx, t)
	w.moved(t, tr.stop(t), worker1)
	for _, p := range users {
		leavesNow(ctx, t, p.place, p.seen)
	}
	for a, node := range w.without(worker1) {
		if err := wait(ctx, officeBlock(a), activeIs(node)); err != nil {
			t.Error(err)
		}
	}
	cut.back(ctx, t)
	agreedOn(ctx, t, w.home)
	answerAlone(ctx, t, w.home)
	w.pay1.place = world.pod(ctx, t, w.pay1.name)
	w.learn(ctx, t, w.pay1) // it may have other addresses of its own
	w.leave(ctx, t)
	check()
}

func (w *payers) places(from ...*payer) (list []place) {
	for _, p := range from {
		list = append(list, p.place)
	}
	return list
}
