// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/backend/ovs/bridge"
	"coelan.io/coelan/internal/backend/ovs/pipeline"
	"coelan.io/coelan/internal/backend/ovs/quarantine"
	"coelan.io/coelan/internal/broadcast"
	"coelan.io/coelan/internal/conditions"
	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/retry"
	"coelan.io/coelan/internal/trigger"
)

// flows keeps the flows on the bridge those of the newest State. Every State that comes while
// one is being written is skipped in favor of the newest: eight pods that start together share
// one or two bundles.
type flows struct {
	log        *slog.Logger
	store      *intent.Store
	bridge     *bridge.Bridge
	metrics    *metrics
	conditions *conditions.Set
	// compiling guards compiler.
	compiling sync.Mutex
	compiler  *pipeline.Compiler
	// desired is what the compiler has desired for the last Sync. It is for the one goroutine that
	// writes flows.
	desired *bridge.Desired
	// numbers are the OpenFlow ports that States are compiled with.
	numbers func() *pipeline.Numbers
	// neighbourRate is that of all States: see pipeline.Input.
	neighbourRate uint32
	// begin waits for what a first comparison with the switch has to know.
	begin func(ctx context.Context)
	// synced is called after the first Sync on each connection, until it succeeds.
	synced func(ctx context.Context) error
	fresh  bool
	// relearn is called after changes of flows, until it succeeds, at most once in a relearnPause;
	// relearned is when that was last to be.
	relearn   func(ctx context.Context) error
	replaced  bool
	relearned time.Time
	// quarantine is what is left out because the switch refuses it; refused is called for what is
	// left out newly, leftOut after each Sync for all of it.
	quarantine *quarantine.Quarantine
	refused    func([]quarantine.Entry)
	leftOut    func([]quarantine.Entry)

	// work is sync; tests have another one. loop reports it if it does not end.
	work func(ctx context.Context, state *intent.State) error
	loop *heartbeat.Loop

	// wake asks for a Sync although the State is the same, because the switch may not be.
	wake trigger.Trigger

	mu sync.Mutex
	// losses counts the calls of lost: what was written before one counts for nothing.
	losses   int
	revision uint64
	done     bool
	err      error
	last     agentapi.SyncStatus
	changed  broadcast.Broadcast
	// good is what was compiled for the last Sync that succeeded on this connection, without what
	// was left out; nil: none yet.
	good *intent.State
}

// newFlows makes flows that have no bridge yet, nor what follows a Sync.
func newFlows(o backend.Options, numbers *numbers, metrics *metrics) *flows {
	f := &flows{
		log: o.Log, store: o.Intent, metrics: metrics, conditions: o.Conditions, begin: o.Hooks.Begin,
		loop: o.Monitor.Loop("flows"), compiler: pipeline.New(), desired: bridge.NewDesired(), numbers: numbers.get,
		neighbourRate: uint32(o.Config.Neighbours.MaxPerSecond), //nolint:gosec // at most a million
		wake:          trigger.New(), quarantine: quarantine.New(),
	}
	f.work = f.sync
	return f
}

// Sync's bounds: one attempt, and the pause after failed ones.
const (
	syncTimeout    = 30 * time.Second
	minSyncBackoff = 20 * time.Millisecond
	maxSyncBackoff = 2 * time.Second
)

// relearnPause bounds what a datapath that learns its flows anew costs while flows change all the
// time: some 50 µs for each learned flow that is in use.
const relearnPause = time.Second

// run syncs until ctx ends. Nothing is written before the State knows its node: a State without it
// has no flows, and would cut off pods that are running.
func (f *flows) run(ctx context.Context) error {
	f.begin(ctx)
	backoff := retry.New(minSyncBackoff, maxSyncBackoff)
	for {
		state := f.store.State()
		var err error
		if state.Local().Node != "" {
			done := f.loop.Step()
			err = f.work(ctx, state)
			done()
			if ctx.Err() != nil {
				return nil
			}
		}
		again := backoff.After(err)
		select {
		case <-ctx.Done():
			return nil
		case <-state.Replaced():
		case <-f.wake:
		case <-again:
		case <-f.due():
		}
	}
}

// due tells when something that is left out is to be tried again, or the datapath to learn anew;
// nil if neither is.
func (f *flows) due() <-chan time.Time {
	next, ok := f.quarantine.Next()
	if again := f.relearned.Add(relearnPause); f.replaced && (!ok || again.Before(next)) {
		next, ok = again, true
	}
	if !ok {
		return nil
	}
	return time.After(time.Until(next))
}

func (f *flows) sync(running context.Context, state *intent.State) error {
	ctx, cancel := context.WithTimeout(running, syncTimeout)
	defer cancel()
	f.mu.Lock()
	losses := f.losses
	f.mu.Unlock()
	start := time.Now()
	res, compiling, err := f.write(ctx, state)
	f.leftOut(f.quarantine.List())
	if err == nil && res.Dumped {
		f.fresh = true
		f.log.Info("flows synchronized with the switch",
			"flows", res.Flows, "added", res.Added, "changed", res.Changed, "deleted", res.Deleted,
			"duration", res.Duration)
		// Where there are many flows, what was read and sent is several times what is kept of it.
		go debug.FreeOSMemory()
	}
	if res.Added+res.Changed+res.Deleted > 0 {
		f.replaced = true
	}
	if now := time.Now(); f.replaced && now.Sub(f.relearned) >= relearnPause {
		if err == nil {
			err = f.relearn(ctx)
			f.replaced = err != nil
		}
		f.relearned = now // also after errors, which are tried again at their own pace
	}
	for _, c := range res.Conflicts {
		f.log.Error("two objects require the same flow; the loser's is not installed",
			"winner", c.Winner, "loser", c.Loser, "flow", c.Rule)
	}
	if err == nil && f.fresh {
		err = f.synced(ctx)
		f.fresh = err != nil
	}
	if running.Err() != nil {
		return running.Err()
	}
	f.metrics.sync(compiling, res, err)
	f.record(state, losses, res, start, err)
	return err
}

// write brings the switch to a State, without what the switch refuses. Each round that fails leaves
// out all that the switch has named, so there are at most as many as objects; those that do not fit
// into this call's time are made by the next one.
func (f *flows) write(ctx context.Context,
	state *intent.State,
) (res bridge.Result, compiling time.Duration, err error) {
	f.quarantine.Begin(state)
	dumped := false
	for {
		start := time.Now()
		part := f.quarantine.Apply(state)
		f.compile(part, f.desired)
		compiling += time.Since(start)
		res, err = f.bridge.Sync(ctx, f.desired)
		dumped = dumped || res.Dumped
		if err == nil {
			for _, e := range f.quarantine.Written() {
				f.log.Info("the switch accepts the flows of an object that it refused before",
					"object", e.Object.Kind, "name", e.Name)
			}
			f.mu.Lock()
			f.good = part
			f.mu.Unlock()
			res.Dumped = dumped
			return res, compiling, nil
		}
		f.mu.Lock()
		good := f.good
		f.mu.Unlock()
		added, more := f.quarantine.Refuse(err, part, good)
		for _, e := range added {
			f.log.Error("the switch refuses a flow of an object, which is left out; see coelan check",
				"object", e.Object.Kind, "name", e.Name, "err", e.Err, "rule", e.Rule)
		}
		f.refused(added)
		if !more || ctx.Err() != nil {
			return res, compiling, err
		}
	}
}

// compile brings the compiler, and what is desired, to a State. If the latter followed the compiler
// before, that costs what has changed since.
func (f *flows) compile(state *intent.State, desired *bridge.Desired) {
	f.compiling.Lock()
	defer f.compiling.Unlock()
	desired.Follow(f.compiler.Compile(pipeline.Input{
		State: state, Numbers: f.numbers(), NeighbourRate: f.neighbourRate,
	}))
}

// explain says what the flows with a cookie are for.
func (f *flows) explain(cookie uint64) (pipeline.Meaning, bool) {
	f.compiling.Lock()
	defer f.compiling.Unlock()
	return f.compiler.Explain(cookie)
}

// problems are the objects that could not be compiled whole.
func (f *flows) problems() []pipeline.Problem {
	f.compiling.Lock()
	defer f.compiling.Unlock()
	return f.compiler.Problems()
}

// diff compares the switch with the newest State, one line for each flow that differs.
func (f *flows) diff(ctx context.Context) ([]string, error) {
	desired := bridge.NewDesired()
	f.compile(f.effective(), desired)
	return f.bridge.Diff(ctx, desired)
}

// effective is the newest State without what the switch refuses.
func (f *flows) effective() *intent.State { return f.quarantine.Settled(f.store.State()) }

func (f *flows) record(state *intent.State, losses int, res bridge.Result, start time.Time, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil && losses != f.losses {
		return
	}
	f.conditions.Set(condFlows, err)
	f.err = err
	f.last.Time, f.last.Duration, f.last.Error = start, time.Since(start), ""
	f.last.Added, f.last.Changed, f.last.Deleted = res.Added, res.Changed, res.Deleted
	f.last.Syncs++
	if err != nil {
		f.last.Error = err.Error()
	} else {
		f.done, f.revision = true, state.Revision()
		f.last.Flows, f.last.Groups = res.Flows, res.Groups
	}
	f.changed.Send()
}

// wait blocks until the flows of that revision, or a newer one, are on the switch.
func (f *flows) wait(ctx context.Context, revision uint64) error {
	for {
		f.mu.Lock()
		done, err, changed := f.done && f.revision >= revision, f.err, f.changed.Changed()
		f.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if err == nil {
				err = ctx.Err()
			}
			return fmt.Errorf("flows are not on the bridge: %w", err)
		}
	}
}

// of returns why an attachment's flows are left out, if they are.
func (f *flows) of(at attachment.Attachment) error {
	state := f.store.State()
	p, ok := state.Ports().Get(at.Key.String())
	if !ok {
		return nil
	}
	if e, refused := f.quarantine.Of(state, p); refused {
		return &backend.RefusedError{Problem: e.String() + ": " + e.Rule}
	}
	return nil
}

// connected says whether the switch has answered since it was lost.
func (f *flows) connected() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.done
}

// lost says that the switch has gone: nothing is known of its flows until the next Sync.
func (f *flows) lost(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conditions.Set(condFlows, err)
	f.losses++
	f.done, f.err, f.good = false, err, nil
	f.quarantine.Clear() // the switch that comes back may be another release
	f.last.Error = err.Error()
	f.changed.Send()
}

func (f *flows) status() agentapi.SyncStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}
