// SPDX-License-Identifier: Apache-2.0

//go:build integration

package bridge

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"coelan.io/coelan/internal/ovstest"
	"coelan.io/coelan/openflow"
)

// short buckets, of which 2,000 fit into a group.
func resubmits(group uint32, ids []uint32) openflow.Group {
	g := endpoints(group, ids...)
	for i := range g.Buckets {
		g.Buckets[i].Actions = []openflow.Action{openflow.Resubmit(20)}
	}
	return g
}

// A group of 2,000 buckets comes in one bundle, keeps up with endpoints that
// come and go, and is what a new agent expects.
func TestChurnLive(t *testing.T) {
	_, b, client, ctx := live(t)
	ids, next := upTo(0, 2000), uint32(2000)
	d := NewDesired()
	sync := func(b *Bridge) Result {
		t.Helper()
		d.Set("service/default/web", &Rules{
			Groups: []openflow.Group{resubmits(1, ids), endpoints(2, ids[:500]...)},
			Flows:  []openflow.Flow{flow(0, 1, openflow.ToGroup(1)), flow(0, 2, openflow.ToGroup(2))}})
		res, err := b.Sync(ctx, d)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	sync(b)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		for range 1 + rng.IntN(3) {
			if at := rng.IntN(len(ids)); len(ids) == 2000 || rng.IntN(2) == 0 {
				ids = slices.Delete(ids, at, at+1)
			} else {
				ids, next = slices.Insert(ids, at, next), next+1
			}
		}
		sync(b)
	}
	conn, err := client.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	groups, err := conn.Groups(ctx)
	if err != nil || len(groups) != 2 || len(groups[0].Buckets)+len(groups[1].Buckets) != len(ids)+500 {
		t.Fatalf("%d groups, %v", len(groups), err)
	}
	again := New(Options{Connect: Via(client)})
	if res := sync(again); !res.Dumped || res.Added+res.Changed+res.Deleted != 0 {
		t.Errorf("a new agent: %+v", res)
	}
}

// A bundle that changes buckets and fails leaves all as it was.
func TestFailedChurnLive(t *testing.T) {
	_, b, client, ctx := live(t)
	d := desired(map[string]*Rules{"a": {
		Groups: []openflow.Group{endpoints(1, upTo(0, 10)...), endpoints(2, 1)},
		Flows:  []openflow.Flow{flow(0, 1, openflow.ToGroup(1)), flow(0, 2, openflow.ToGroup(2))}}})
	if _, err := b.Sync(ctx, d); err != nil {
		t.Fatal(err)
	}
	before := dumped(t, ctx, client)
	bad := flow(0, 3, openflow.ToGroup(9))
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		ids := upTo(0, 20)
		rng.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
		next := desired(map[string]*Rules{"a": {
			Groups: []openflow.Group{endpoints(1, ids[:5+rng.IntN(10)]...), endpoints(3, 1)},
			Flows:  []openflow.Flow{flow(0, 1, openflow.ToGroup(1)), flow(0, 4, openflow.ToGroup(1)), flow(0, 5, openflow.ToGroup(3)), bad}}})
		if _, err := b.Sync(ctx, next); err == nil {
			t.Fatal("a flow to no group was accepted")
		}
		if after := dumped(t, ctx, client); !slices.Equal(before, after) {
			t.Fatalf("before %q, after %q", before, after)
		}
	}
}

var usingBucket = regexp.MustCompile(`(?m)^ +bucket (\d+)$|-> using bucket (\d+)`)

// Whatever way a group came to its buckets, packets get to all of them.
func TestAllBucketsAreChosen(t *testing.T) {
	for _, method := range []string{"hash", "dp_hash", ""} {
		t.Run("method "+method, func(t *testing.T) {
			ovs, b, _, ctx := live(t)
			for _, ids := range [][]uint32{{1}, {1, 2, 3}, {1, 2, 3, 4}, {1, 3, 4}, {1, 3, 4, 5, 6}, {6}, {1, 6}} {
				g := endpoints(1, ids...)
				g.SelectionMethod = method
				d := desired(map[string]*Rules{"a": {Groups: []openflow.Group{g}, Flows: []openflow.Flow{{Actions: []openflow.Action{openflow.ToGroup(1)}}}}})
				if _, err := b.Sync(ctx, d); err != nil {
					t.Fatal(err)
				}
				if got := chosen(t, ctx, ovs); !slices.Equal(got, ids) {
					t.Errorf("of %d, packets get to %d", ids, got)
				}
			}
		})
	}
}

// chosen lists the buckets that some of many packets get to.
func chosen(t *testing.T, ctx context.Context, ovs *ovstest.OVS) (ids []uint32) {
	t.Helper()
	for port := range 48 {
		out, err := ovs.Appctl(ctx, "ofproto/trace", "br0",
			fmt.Sprintf("in_port=LOCAL,dp_hash=%d,tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_src=%d,tp_dst=80", port+1, 1000+port))
		if err != nil {
			t.Fatal(err)
		}
		m := usingBucket.FindStringSubmatch(out)
		if m == nil {
			t.Fatalf("no bucket: %s", out)
		}
		var id uint32
		if _, err := fmt.Sscan(m[1]+m[2], &id); err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// BenchmarkOneBucket removes a bucket and adds one, in turn, by buckets and with
// the whole group.
func BenchmarkOneBucket(b *testing.B) {
	for _, n := range []uint32{250, 1000} {
		for _, method := range []string{"hash", "dp_hash"} {
			b.Run(fmt.Sprintf("%d of %s", n, method), func(b *testing.B) {
				ovs, br, _, ctx := live(b)
				d, ids := NewDesired(), upTo(0, n)
				before := cpuOf(b, ovs)
				for i := uint32(0); b.Loop(); i++ {
					if i%2 == 0 {
						ids = ids[1:]
					} else {
						ids = append(ids, n+i)
					}
					g := endpoints(1, ids...)
					g.SelectionMethod = method
					d.Set("a", &Rules{Groups: []openflow.Group{g}, Flows: []openflow.Flow{flow(0, 1, openflow.ToGroup(1))}})
					if _, err := br.Sync(ctx, d); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64((cpuOf(b, ovs)-before).Microseconds())/float64(b.N), "ovs-µs/op")
			})
		}
	}
}

// cpuOf is the processor time that ovs-vswitchd has used.
func cpuOf(b *testing.B, ovs *ovstest.OVS) time.Duration {
	b.Helper()
	pid, err := os.ReadFile(filepath.Join(ovs.Dir, "ovs-vswitchd.pid"))
	if err != nil {
		b.Fatal(err)
	}
	stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/stat")
	if err != nil {
		b.Fatal(err)
	}
	fields := strings.Fields(string(stat)) // proc(5): utime and stime, in ticks of 10 ms
	var user, system int64
	if _, err := fmt.Sscan(fields[13]+" "+fields[14], &user, &system); err != nil {
		b.Fatal(err)
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}
