// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// traffic is what runs while something restarts: on each way a UDP packet every
// 10 ms there and back, and a TCP connection that stays open, if there are any at all.
type traffic struct {
	names []string
	udp   []*probe.UDPStream
	tcp   []*probe.TCPStream
}

const (
	probeInterval = 10 * time.Millisecond
	otherNode     = "other node"
)

func startTraffic(ctx context.Context, t *testing.T, w *world) *traffic {
	t.Helper()
	tr := &traffic{}
	for _, p := range []path{
		{name: "same node", from: w.a.Host, to: w.b.Host, dst: w.b.Address},
		{name: otherNode, from: w.a.Host, to: w.c.Host, dst: w.c.Address},
		{name: "node to pod", from: w.n1.Host, to: w.b.Host, dst: w.b.Address},
		{name: "outside", from: w.a.Host, to: w.Outside, dst: lab.Internet},
	} {
		for f := range lab.Dual.Each {
			at := netip.AddrPortFrom(p.dst(f), uint16(7000+len(tr.udp)))
			udp, err := probe.StartUDP(p.from, p.to, at, at, probeInterval)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(udp.Close)
			serve(t, p.to, at, probe.Echo)
			tcp, err := probe.StartTCP(ctx, p.from, at, probeInterval)
			if err != nil {
				t.Fatalf("%s: %v", p.name, err)
			}
			t.Cleanup(tcp.Close)
			tr.names, tr.udp, tr.tcp = append(tr.names, f.String()+" "+p.name), append(tr.udp, udp), append(tr.tcp, tcp)
		}
	}
	tr.settle(ctx, t)
	return tr
}

// settle waits until packets come back on every way.
func (tr *traffic) settle(ctx context.Context, t *testing.T) {
	t.Helper()
	for i, u := range tr.udp {
		if err := u.Wait(ctx, 30); err != nil {
			t.Errorf("%s: %v", tr.names[i], err)
		}
	}
}

// outcome is what a way's traffic went through.
type outcome struct {
	probe.UDPReport
	TCP probe.TCPReport
}

// stop ends the traffic. TCP must have lived through everything.
func (tr *traffic) stop(t *testing.T) map[string]outcome {
	t.Helper()
	var wg sync.WaitGroup
	outcomes := make([]outcome, len(tr.names))
	for i := range tr.names {
		wg.Go(func() { outcomes[i].UDPReport = tr.udp[i].Stop() })
		if len(tr.tcp) > 0 {
			wg.Go(func() { outcomes[i].TCP = tr.tcp[i].Stop() })
		}
	}
	wg.Wait()
	out := map[string]outcome{}
	for i, name := range tr.names {
		o := outcomes[i]
		out[name] = o
		t.Logf("%-18s UDP %s", name, o.UDPReport)
		t.Logf("%-18s TCP %s", name, o.TCP)
		if o.TCP.Err != nil {
			t.Errorf("%s: TCP: %v", name, o.TCP.Err)
		}
	}
	return out
}

// restart is one row of the promise.
type restart struct {
	name string
	do   func(context.Context, *lab.Node) error
	// gap is the longest interruption allowed; 0: not one packet may be lost.
	gap time.Duration
}

var restarts = []restart{
	{name: "agent killed and started", do: func(ctx context.Context, n *lab.Node) error {
		n.KillAgent()
		return n.StartAgent(ctx)
	}},
	{name: "agent stopped and started", do: func(ctx context.Context, n *lab.Node) error {
		n.StopAgent()
		return n.StartAgent(ctx)
	}},
	{name: "ovs-vswitchd killed and started", gap: vswitchdGap, do: func(ctx context.Context, n *lab.Node) error {
		n.OVS.KillVswitchd()
		return n.OVS.StartVswitchd(ctx)
	}},
	{name: "ovs-vswitchd stopped and started", gap: vswitchdGap, do: func(ctx context.Context, n *lab.Node) error {
		n.OVS.StopVswitchd()
		return n.OVS.StartVswitchd(ctx)
	}},
	// While the database is away, ovs-vswitchd's main thread does not run the
	// userspace datapath (ovs: bridge_run in vswitchd/bridge.c).
	{name: "ovsdb-server killed and started", gap: vswitchdGap, do: func(ctx context.Context, n *lab.Node) error {
		n.OVS.KillDB()
		return n.OVS.StartDB(ctx)
	}},
	{name: "both killed and started", gap: vswitchdGap, do: func(ctx context.Context, n *lab.Node) error {
		return n.OVS.Restart(ctx)
	}},
}

// allowed is the longest interruption of a way by a restart that took a while. On the kernel's
// datapath flows and connections outlive ovs-vswitchd; a tunnel's interface does not. In an
// emulated machine a second says nothing: there the restart itself may take longer than the gap.
func (r restart) allowed(way string, took time.Duration) time.Duration {
	switch {
	case r.gap == 0, emulated && !strings.HasSuffix(way, otherNode):
		return 0
	case emulated:
		return max(r.gap, took)
	default:
		return r.gap
	}
}

// TestRestarts restarts parts of a node under traffic.
func TestRestarts(t *testing.T) {
	w := start(t, lab.Options{})
	for _, r := range restarts {
		t.Run(r.name, func(t *testing.T) {
			ctx := within(t, 3*time.Minute)
			tr := startTraffic(ctx, t, w)
			t.Logf("flows of the datapath: %d", datapathFlows(ctx, t, w.n1))
			began := time.Now()
			if err := r.do(ctx, w.n1); err != nil {
				t.Fatal(err)
			}
			if err := w.n1.WaitAgent(ctx); err != nil {
				t.Fatal(err)
			}
			took := time.Since(began)
			tr.settle(ctx, t)
			for name, o := range tr.stop(t) {
				switch allowed := r.allowed(name, took); {
				case allowed == 0 && len(o.Lost) > 0:
					t.Errorf("%s: lost %d packets, want none", name, len(o.Lost))
				case allowed > 0 && o.Gap > allowed:
					t.Errorf("%s: interrupted for %s, want at most %s", name, o.Gap, allowed)
				}
			}
			healthy(ctx, t, w)
		})
	}
}

// datapathFlows is how many flows the traffic has brought to the datapath, which
// is what outlives ovs-vswitchd in the kernel.
func datapathFlows(ctx context.Context, t *testing.T, n *lab.Node) int {
	t.Helper()
	text, err := n.OVS.Appctl(ctx, "dpctl/dump-flows")
	if err != nil {
		t.Error(err)
	}
	return strings.Count(text, "actions:")
}

// healthy looks whether everything is as it should be.
func healthy(ctx context.Context, t *testing.T, w *world) {
	t.Helper()
	for _, n := range w.Nodes {
		if err := n.Check(ctx); err != nil {
			t.Error(err)
		}
		ports, err := n.OVS.Vsctl(ctx, "--columns=name,ofport", "--format=csv", "--no-headings", "find", "interface", "ofport=-1")
		if err != nil || ports != "" {
			t.Errorf("node %s: ports without a number: %q, %v", n.Name, ports, err)
		}
	}
	for _, p := range []*lab.Pod{w.a, w.b, w.d, w.c} {
		if err := p.Check(ctx); err != nil {
			t.Error(err)
		}
	}
	for f := range lab.Dual.Each {
		reach(t, w, true, f)
	}
}

// TestReboot reboots a node, and then the whole cluster twice in a row.
func TestReboot(t *testing.T) {
	t.Parallel()
	w := start(t, lab.Options{})
	ctx := within(t, 5*time.Minute)
	before := map[*lab.Node]lab.Inventory{}
	for _, n := range w.Nodes {
		i, err := n.Inventory(ctx)
		if err != nil {
			t.Fatal(err)
		}
		before[n] = i
	}
	boot := func(name string, nodes ...*lab.Node) {
		for _, n := range nodes {
			if err := n.Reboot(ctx); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		for _, p := range []*lab.Pod{w.a, w.b, w.d, w.c} {
			for _, n := range nodes {
				if p.Node == n {
					if err := p.Restart(ctx); err != nil {
						t.Fatalf("%s: %v", name, err)
					}
				}
			}
		}
		healthy(ctx, t, w)
		for _, n := range nodes {
			after, err := n.Inventory(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before[n].Counts(), after.Counts()); diff != "" {
				t.Errorf("%s: how much there is on node %s (-before +after): %s", name, n.Name, diff)
			}
		}
	}
	boot("one node", w.n1)
	boot("all nodes", w.n1, w.n2)
	boot("all nodes again", w.n1, w.n2)
}

// TestWithoutAPIServer stops the API server: pods notice nothing, others can
// start, also after the agent has started again.
func TestWithoutAPIServer(t *testing.T) {
	t.Parallel()
	w := start(t, lab.Options{})
	ctx := within(t, 3*time.Minute)
	tr := startTraffic(ctx, t, w)
	w.API.Stop()
	tr.settle(ctx, t)
	w.n1.KillAgent()
	if err := w.n1.StartAgent(ctx); err != nil {
		t.Fatal(err)
	}
	p, err := w.n1.AddPod(ctx, "late")
	if err != nil {
		t.Fatal(err)
	}
	tr.settle(ctx, t)
	for name, o := range tr.stop(t) {
		if len(o.Lost) > 0 {
			t.Errorf("%s: lost %d packets", name, len(o.Lost))
		}
	}
	if r := ping(t, p, probe.Ping{Dst: w.c.Address(lab.IPv6), Count: 3}); r.Lost() > 0 {
		t.Errorf("a pod that started without the API server: errors %v", r.Errors)
	}
}
