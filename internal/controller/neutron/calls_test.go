// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"coelan.io/coelan/internal/backend/neutron/cloud"
	"coelan.io/coelan/internal/backend/neutron/compile"
	"coelan.io/coelan/internal/backend/neutron/neutronfake"
	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/intenttest"
	"coelan.io/coelan/internal/reserved"
)

// Pods that come and go, 20 at once and others each time, take fewer than 0.2 calls of Neutron's
// API each, and each has a port when it is said to.
func TestCallsPerPod(t *testing.T) {
	const wave, waves, most = 20, 30, 0.2
	server, store := neutronfake.Start(t), intent.NewStore()
	found := make(chan string, wave)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	client := cloud.New(cloud.Options{
		Access: cloud.Access{Endpoint: server.URL, Project: "p"}, Log: slog.New(slog.DiscardHandler),
		Want: func(*resource.Inventory) *resource.Set {
			return compile.Compile(store.State(), compile.Options{Spare: reserved.NeutronSpare})
		},
		Found: func(r resource.Resource, a resource.Actual) {
			if r.Kind == resource.Port && a.ID != "" && r.Object != compile.NodeObject("n1") {
				select {
				case found <- r.Object:
				case <-ctx.Done():
				}
			}
		},
		Report: func([]resource.Problem, error) {},
	})
	change := func(change func(*intent.Tx)) {
		if _, err := store.Update(func(tx *intent.Tx) error { change(tx); return nil }); err != nil {
			t.Fatal(err)
		}
		client.Changed()
	}
	change(func(tx *intent.Tx) {
		tx.SetRouter(intent.Router{Name: "default", ID: 1})
		tx.SetNetwork(intent.Network{Name: "default", ID: intent.DefaultNetwork, Router: "default"})
		tx.SetNode(intenttest.Node("n1", 1))
	})
	running.Go(func() { client.Run(ctx) })
	// The agent hands out the first slots that are free, more of them if pods are about to go.
	before := 0
	for i := range waves {
		if i == 2 {
			before = server.Calls()
		}
		waits := map[string]bool{}
		change(func(tx *intent.Tx) {
			for j := range wave {
				slot := 2 + i%2*wave + j
				p := intenttest.Port("shop", fmt.Sprintf("web-%d-%d", i, j), "default", "n1", fmt.Sprintf("10.244.1.%d", slot),
					fmt.Sprintf("fd00:10:244:1::%x", slot))
				waits[compile.PortObject(p.ObjectKey())] = true
				tx.SetPort(p)
			}
		})
		for end := time.After(time.Minute); len(waits) > 0; {
			select {
			case object := <-found:
				delete(waits, object)
			case <-end:
				t.Fatalf("wave %d: no ports for %v", i, waits)
			}
		}
		change(func(tx *intent.Tx) {
			for p := range store.State().Ports().All() {
				tx.DeletePort(p.ID)
			}
		})
	}
	calls := float64(server.Calls()-before) / (wave * (waves - 2))
	t.Logf("%.3f calls per pod", calls)
	if calls > most {
		t.Errorf("%.2f calls per pod, at most %v are to be needed", calls, most)
	}
	if client.Calls() != int64(server.Calls()) {
		t.Errorf("%d calls are counted of %d", client.Calls(), server.Calls())
	}
}
