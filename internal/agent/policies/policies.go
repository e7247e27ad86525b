// SPDX-License-Identifier: Apache-2.0

// Package policies is the agent's part of policies: it makes intent of what a controller says about
// this node's Ports, and tells the controller what is in effect.
//
// What a controller said last is on disk. A node that starts without a controller enforces it;
// Ports of which nothing is known are closed.
package policies

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/policystream/client"
	"coelan.io/coelan/internal/trigger"
)

// Client hears of policies from a controller. *client.Client is one.
type Client interface {
	// Load returns what is remembered, as a change from nothing.
	Load() client.Change
	// Run tells of changes until ctx ends.
	Run(ctx context.Context)
	// Programmed says that a version is in effect.
	Programmed(version uint64)
	// Attached tells of a pod that has just been attached.
	Attached(policy.Attachment)
	// Refused tells all that the switch refuses.
	Refused([]policy.Refusal)
	Status() client.Status
}

// Options are what Policies work with. All are needed.
type Options struct {
	Log    *slog.Logger
	Intent *intent.Store
	// NewClient makes the client, which calls changed in Run, one call at a time.
	NewClient func(changed func(client.Change)) Client
	// Applied waits until the flows of that revision of the intent, or of a newer one,
	// are on the switch.
	Applied func(ctx context.Context, revision uint64) error
	// Observe takes the time from a change to the flows that follow from it.
	Observe func(time.Duration)
}

// Policies keeps the intent's Rules, Subjects and Peers. Its methods are safe for concurrent use.
type Policies struct {
	Options
	client   Client
	wake     trigger.Trigger
	complete chan struct{} // closed when a controller has told everything
	once     sync.Once

	mu       sync.Mutex
	revision uint64
	version  uint64
	since    []time.Time
}

// New makes Policies that know nothing.
func New(o Options) *Policies {
	p := &Policies{Options: o, wake: trigger.New(), complete: make(chan struct{})}
	p.client = o.NewClient(p.changed)
	return p
}

// Load makes intent of what is remembered.
func (p *Policies) Load(tx *intent.Tx) {
	change := p.client.Load()
	change.Apply(tx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.version = change.Version
}

// Complete is closed once a controller has sent all policies since the start, and the intent
// is made of it.
func (p *Policies) Complete() <-chan struct{} { return p.complete }

// Attached reports a pod that has just been attached, so that other nodes can identify it before
// the API has its addresses.
func (p *Policies) Attached(a policy.Attachment) { p.client.Attached(a) }

// Refused tells a controller all that the switch refuses, which has the conditions of
// these objects say so.
func (p *Policies) Refused(list []policy.Refusal) { p.client.Refused(list) }

// Status is the client's.
func (p *Policies) Status() client.Status { return p.client.Status() }

// Run makes intent of what changes, until ctx ends.
func (p *Policies) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	p.mu.Lock()
	p.revision = p.Intent.State().Revision()
	p.mu.Unlock()
	p.wake.Fire() // what is remembered is in effect as well
	running.Go(func() { p.follow(ctx) })
	p.client.Run(ctx)
	return nil
}

// changed takes what a controller says.
func (p *Policies) changed(c client.Change) {
	start := time.Now()
	before := p.Intent.State()
	after, err := p.Intent.Update(func(tx *intent.Tx) error { c.Apply(tx); return nil })
	if err != nil {
		p.Log.Error("cannot update intent with policies from the controller", "err", err)
		return
	}
	if p.client.Status().Complete {
		p.once.Do(func() { close(p.complete) })
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.revision, p.version = after.Revision(), c.Version
	if after != before {
		p.since = append(p.since, start)
	}
	p.wake.Fire()
}

// follow does what has to wait until flows are on the switch.
func (p *Policies) follow(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		}
		p.mu.Lock()
		revision, version, since := p.revision, p.version, p.since
		p.since = nil
		p.mu.Unlock()
		for p.Applied(ctx, revision) != nil {
			if ctx.Err() != nil {
				return
			}
		}
		p.client.Programmed(version)
		for _, t := range since {
			p.Observe(time.Since(t))
		}
	}
}
