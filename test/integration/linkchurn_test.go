// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// TestLinkChurn starts and stops pods on a node, each of which makes and removes interfaces of its
// kernel, while another pod of that node and one of another talk to each other.
func TestLinkChurn(t *testing.T) {
	w := sharedWorld(t)
	for _, n := range []*lab.Node{w.n1, w.n2} {
		t.Run("pods of "+n.Name, func(t *testing.T) {
			ctx := within(t, 2*time.Minute)
			streams := map[lab.Family]*probe.UDPStream{}
			for f := range lab.Dual.Each {
				at := netip.AddrPortFrom(w.c.Address(f), 7100)
				s, err := probe.StartUDP(w.a, w.c, at, at, linkChurnInterval)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(s.Close)
				streams[f] = s
			}
			for f, s := range streams {
				if err := s.Wait(ctx, 30); err != nil {
					t.Fatalf("%s: %v", f, err)
				}
			}
			if err := comeAndGo(ctx, n, linkChurnPods); err != nil {
				t.Error(err)
			}
			for f, s := range streams {
				r := s.Stop()
				t.Logf("%s: %s", f, r)
				if len(r.Lost) > 0 {
					t.Errorf("%s: lost %d packets, %d of them on the way there", f, len(r.Lost), r.LostThere)
				}
			}
		})
	}
}

// comeAndGo has pods start and stop on the node, four at a time.
func comeAndGo(ctx context.Context, n *lab.Node, pods int) error {
	const atATime = 4
	errs := make([]error, atATime)
	var wg sync.WaitGroup
	for i := range atATime {
		wg.Go(func() {
			for k := range pods / atATime {
				p, err := n.AddPod(ctx, fmt.Sprintf("guest-%d-%d", i, k))
				if err == nil {
					err = p.Delete(ctx)
				}
				errs[i] = errors.Join(errs[i], err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
