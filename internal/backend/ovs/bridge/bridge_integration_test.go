// SPDX-License-Identifier: Apache-2.0

//go:build integration

package bridge

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"coelan.io/coelan/internal/ovstest"
	"coelan.io/coelan/openflow"
)

// live starts an Open vSwitch with bridge br0 and a Bridge for it.
func live(t testing.TB) (*ovstest.OVS, *Bridge, *Client, context.Context) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	t.Cleanup(cancel)
	ovs := ovstest.Start(t, ovstest.Options{})
	if err := ovs.AddBridge(ctx, "br0"); err != nil {
		t.Fatal(err)
	}
	client := NewClient(ClientOptions{Address: "unix:" + ovs.MgmtSocket("br0")})
	t.Cleanup(client.Close)
	return ovs, New(Options{Connect: Via(client)}), client, ctx
}

// dumped is what the switch holds, in the form of text.
func dumped(t testing.TB, ctx context.Context, client *Client) []string {
	t.Helper()
	conn, err := client.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	s, err := dump(ctx, conn, nil)
	if err != nil {
		t.Fatal(err)
	}
	return diff(newState(0, 0, 0), s).lines()
}

func plus(lines []string) []string {
	out := make([]string, len(lines))
	for i := range lines {
		out[i] = "+ " + strings.TrimSpace(lines[i])
	}
	return sorted(out)
}

// Open vSwitch itself ends up as the model says after any sequence, and finds
// what it dumps equal to what was sent.
func TestAnySequenceLive(t *testing.T) {
	_, b, client, ctx := live(t)
	rapid.Check(t, func(rt *rapid.T) {
		d := NewDesired()
		for range rapid.IntRange(1, 4).Draw(rt, "syncs") {
			for range rapid.IntRange(1, 3).Draw(rt, "changes") {
				d.Set(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "owner"), genRules(rt))
			}
			if _, err := b.Sync(ctx, d); err != nil {
				rt.Fatal(err)
			}
			if lines, err := b.Diff(ctx, d); err != nil || len(lines) > 0 {
				rt.Fatalf("Diff = %q, %v", lines, err)
			}
			if diff := cmp.Diff(plus(text(d)), dumped(t, ctx, client), cmpopts.EquateEmpty()); diff != "" {
				rt.Fatalf("switch (-want +got):\n%s", diff)
			}
		}
	})
}

// many wants n flows, of perOwner to an owner, of the kind that pods need.
func many(n, perOwner int) *Desired {
	d := NewDesired()
	for first := 0; first < n; first += perOwner {
		r := &Rules{}
		for i := first; i < min(n, first+perOwner); i++ {
			addr := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
			r.Flows = append(r.Flows, openflow.Flow{
				Table: 10, Priority: 200, Cookie: 0xc0e0_0100_0000_0000 | uint64(first),
				Match: openflow.NewMatch(openflow.Reg(2).Value(1), openflow.IPDst(addr)),
				Actions: []openflow.Action{
					openflow.SetField(openflow.EthSrc(openflow.MAC{0x0a, 0xc0, 0xe1, 0, 0, 1})),
					openflow.SetField(openflow.EthDst(openflow.MAC{0x0a, 0xce, 10, byte(i >> 16), byte(i >> 8), byte(i)})),
					openflow.DecTTL(),
					openflow.SetField(openflow.Reg(3).Value(uint64(i & 0xffff))),
				},
				Goto: 20,
			})
		}
		d.Set(fmt.Sprintf("port/%d", first), r)
	}
	return d
}

// ovs-vswitchd dies at any moment of a Sync; the next one puts all in place.
func TestKilledDuringSync(t *testing.T) {
	ovs, b, client, ctx := live(t)
	d := many(20000, 10)
	want := len(d.owners) * 10
	for _, after := range []time.Duration{0, 20, 50, 100, 150, 250} {
		if _, err := b.Sync(ctx, NewDesired()); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			time.Sleep(after * time.Millisecond)
			ovs.KillVswitchd()
			if err := ovs.SpawnVswitchd(); err != nil {
				t.Error(err)
			}
		})
		if _, err := b.Sync(ctx, d); err != nil && !errors.Is(err, openflow.ErrDisconnected) {
			t.Errorf("killed after %v: %v", after*time.Millisecond, err)
		}
		wg.Wait()
		res, err := b.Sync(ctx, d)
		if err != nil || res.Flows != want {
			t.Fatalf("after the restart: %+v, %v", res, err)
		}
		if got := dumped(t, ctx, client); len(got) != want {
			t.Errorf("killed after %v: %d flows on the switch, want %d", after*time.Millisecond, len(got), want)
		}
	}
}

func TestRefusedLive(t *testing.T) {
	_, b, client, ctx := live(t)
	good := flow(0, 1)
	d := desired(map[string]*Rules{"a": {Flows: []openflow.Flow{good}}})
	if _, err := b.Sync(ctx, d); err != nil {
		t.Fatal(err)
	}
	bad := flow(0, 2, openflow.ToGroup(7))
	d.Set("b", &Rules{Flows: []openflow.Flow{bad}})
	_, err := b.Sync(ctx, d)
	var refused *Refused
	if !errors.As(err, &refused) || refused.Owner != "b" || refused.Rule != strings.TrimSpace(bad.String()) {
		t.Errorf("error %v", err)
	}
	if diff := cmp.Diff(plus([]string{good.String()}), dumped(t, ctx, client)); diff != "" {
		t.Error(diff)
	}
}

// BenchmarkSync20k makes an empty bridge hold 20,000 flows, by Sync and by
// ovs-ofctl, alternating. The reference reads the same flows from a file.
func BenchmarkSync20k(b *testing.B) {
	ovs, br, client, ctx := live(b)
	d := many(20000, 10)
	var lines []byte
	for _, r := range d.owners {
		for i := range r.Flows {
			lines = append(append(lines, r.Flows[i].String()...), '\n')
		}
	}
	file := filepath.Join(b.TempDir(), "flows.txt")
	if err := os.WriteFile(file, lines, 0o600); err != nil {
		b.Fatal(err)
	}
	var ours, theirs, unchanged, redump, one time.Duration
	n := 0
	for b.Loop() {
		n++
		for _, step := range []struct {
			total *time.Duration
			do    func() error
		}{
			{nil, func() error { _, err := ovs.Ofctl(ctx, "del-flows", "br0"); return err }},
			{&theirs, func() error { _, err := ovs.Ofctl(ctx, "--bundle", "add-flows", "br0", file); return err }},
			{nil, func() error { _, err := ovs.Ofctl(ctx, "del-flows", "br0"); return err }},
			{nil, func() error { br = New(Options{Connect: Via(client)}); return nil }},
			{&ours, func() error { _, err := br.Sync(ctx, d); return err }},
			{&unchanged, func() error { _, err := br.Sync(ctx, d); return err }},
			{&one, func() error {
				d.Set("one", &Rules{Flows: []openflow.Flow{flow(0, 1)}})
				_, err := br.Sync(ctx, d)
				return err
			}},
			{&redump, func() error { _, err := New(Options{Connect: Via(client)}).Sync(ctx, d); return err }},
			{nil, func() error { d.Remove("one"); return nil }},
		} {
			start := time.Now()
			if err := step.do(); err != nil {
				b.Fatal(err)
			}
			if step.total != nil {
				*step.total += time.Since(start)
			}
		}
	}
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 / float64(n) }
	b.ReportMetric(ms(ours), "ms/sync")
	b.ReportMetric(ms(theirs), "ms/ovs-ofctl")
	b.ReportMetric(float64(ours)/float64(theirs), "ratio")
	b.ReportMetric(ms(unchanged), "ms/unchanged")
	b.ReportMetric(ms(one), "ms/one-more")
	b.ReportMetric(ms(redump), "ms/dump+diff")
}
