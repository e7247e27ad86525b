// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/test/lab"
)

// TestChurn adds and deletes pods, eight at a time, repeats calls and kills some
// ADDs half way. Afterward nothing is left of them.
func TestChurn(t *testing.T) {
	w := start(t, lab.Options{})
	ctx := within(t, 10*time.Minute)
	before, err := w.n1.Inventory(ctx)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	var wg sync.WaitGroup
	work := make(chan int)
	for range 8 {
		wg.Go(func() {
			for i := range work {
				if err := churn(ctx, w.n1, i); err != nil {
					t.Errorf("pod %d: %v", i, err)
				}
			}
		})
	}
	for i := range churnPods {
		work <- i
	}
	close(work)
	wg.Wait()
	t.Logf("%d pods in %s", churnPods, time.Since(began).Round(time.Millisecond))
	after, err := w.n1.Inventory(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("what is on the node (-before +after):\n%s", diff)
	}
	if err := w.n1.Check(ctx); err != nil {
		t.Error(err)
	}
	for f := range lab.Dual.Each {
		reach(t, w, true, f)
	}
}

// churn is the life of one pod.
func churn(ctx context.Context, n *lab.Node, i int) error {
	p, err := n.NewPod(fmt.Sprintf("churn-%d", i))
	if err != nil {
		return err
	}
	if i%5 == 0 { // the first ADD is killed while it runs
		killed, cancel := context.WithTimeout(ctx, time.Duration(rand.IntN(20))*time.Millisecond)
		err := p.Add(killed)
		cancel()
		if err == nil {
			return errors.Join(p.Check(ctx), p.Delete(ctx))
		}
		if i%10 == 0 { // and the runtime gives up
			return p.Delete(ctx)
		}
		if err := p.Del(ctx); err != nil { // or tries again
			return err
		}
	}
	if err := p.Add(ctx); err != nil {
		return errors.Join(err, p.Delete(ctx))
	}
	if err := p.Check(ctx); err != nil {
		return errors.Join(err, p.Delete(ctx))
	}
	if i%3 == 0 {
		if err := p.Del(ctx); err != nil {
			return err
		}
	}
	return p.Delete(ctx)
}
