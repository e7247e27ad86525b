// SPDX-License-Identifier: Apache-2.0

package streamtest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"coelan.io/coelan/internal/broadcast"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/policystream/client"
)

// Agent is a client that implements each change at once.
type Agent struct {
	*client.Client

	mu      sync.Mutex
	view    map[string]any // intent.Rule, intent.Subject and intent.Peer
	changes []client.Change
	changed broadcast.Broadcast // with each change
}

// NewAgent is one that does not run yet. It has loaded what its file remembers.
func NewAgent(o client.Options) *Agent {
	a := &Agent{view: map[string]any{}}
	o.OnChange = a.apply
	a.Client = client.New(o)
	if c := a.Load(); c.Version > 0 {
		a.apply(c)
	}
	return a
}

// StartAgent runs one until the test ends, or stop is called.
func StartAgent(t testing.TB, o client.Options) (a *Agent, stop func()) {
	t.Helper()
	a = NewAgent(o)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { a.Run(ctx) })
	stop = func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	return a, stop
}

func (a *Agent) apply(c client.Change) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range c.Rules {
		a.view["rule "+r.ID] = r
	}
	for _, s := range c.Subjects {
		a.view["subject "+s.Key] = s
	}
	for _, p := range c.Peers {
		a.view["peer "+intent.PeerKey(p.Space, p.Address)] = p
	}
	for kind, list := range map[string][]string{"rule ": c.RemovedRules, "subject ": c.RemovedSubjects,
		"peer ": c.RemovedPeers} {
		for _, key := range list {
			delete(a.view, kind+key)
		}
	}
	a.changes = append(a.changes, c)
	a.changed.Send()
	a.Programmed(c.Version)
}

// Changes are all that it received, the one of Load among them.
func (a *Agent) Changes() []client.Change {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]client.Change(nil), a.changes...)
}

// View is what it has made of the changes, by kind and key.
func (a *Agent) View() map[string]any {
	a.mu.Lock()
	defer a.mu.Unlock()
	view := map[string]any{}
	for k, v := range a.view {
		view[k] = v
	}
	return view
}

// ViewOf is what an agent should have made of it.
func ViewOf(v policy.View) map[string]any {
	view := map[string]any{}
	for _, r := range v.Rules {
		view["rule "+r.ID] = r
	}
	for _, s := range v.Subjects {
		view["subject "+s.Key] = s
	}
	for _, p := range v.Peers {
		view["peer "+intent.PeerKey(p.Space, p.Address)] = p
	}
	return view
}

// awaitTimeout is for a machine that does much else.
const awaitTimeout = 30 * time.Second

// Await waits until the condition, which is checked after each change, holds.
func (a *Agent) Await(t testing.TB, what string, condition func() bool) {
	t.Helper()
	if err := a.await(what, condition); err != nil {
		t.Fatal(err)
	}
}

func (a *Agent) await(what string, condition func() bool) error {
	timeout := time.NewTimer(awaitTimeout)
	defer timeout.Stop()
	for {
		changed := a.changed.Changed()
		if condition() {
			return nil
		}
		select {
		case <-changed:
		case <-timeout.C:
			return fmt.Errorf("node %s waits for %s: %+v", a.Node, what, a.Status())
		}
	}
}
