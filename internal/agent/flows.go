// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"coelan.io/coelan/internal/bridge"
	"coelan.io/coelan/internal/compile"
	"coelan.io/coelan/internal/intent"
)

// flows keeps the flows on the bridge those of the newest State. Every State that comes while one is being written is
// skipped in favour of the newest: eight pods that start together share one or two bundles.
type flows struct {
	log        *slog.Logger
	store      *intent.Store
	bridge     *bridge.Bridge
	metrics    *metrics
	conditions *conditions
	// compiling guards compiler.
	compiling sync.Mutex
	compiler  *compile.Compiler
	// begin waits for what a first comparison with the switch has to know.
	begin func(ctx context.Context)
	// synced is called after the first Sync on each connection, until it succeeds.
	synced func(ctx context.Context) error
	fresh  bool

	// wake asks for a Sync although the State is the same, because the switch may not be.
	wake chan struct{}

	mu sync.Mutex
	// losses counts the calls of lost: what was written before one counts for nothing.
	losses   int
	revision uint64
	done     bool
	err      error
	last     syncStatus
	changed  chan struct{}
}

// newFlows makes flows that have no bridge yet.
func newFlows(a *Agent) *flows {
	return &flows{
		log: a.log, store: a.intent, metrics: a.metrics, conditions: a.conditions, begin: a.catchUp, synced: a.synced,
		compiler: compile.New(), wake: make(chan struct{}, 1), changed: make(chan struct{}),
	}
}

// syncStatus is the outcome of the newest Sync.
type syncStatus struct {
	Time     time.Time     `json:"time"`
	Duration time.Duration `json:"duration"`
	Flows    int           `json:"flows"`
	Groups   int           `json:"groups"`
	Added    int           `json:"added"`
	Changed  int           `json:"changed"`
	Deleted  int           `json:"deleted"`
	Syncs    int           `json:"syncs"`
	Error    string        `json:"error,omitempty"`
}

// Sync's bounds: one attempt, and the pause after failed ones.
const (
	syncTimeout    = 30 * time.Second
	minSyncBackoff = 20 * time.Millisecond
	maxSyncBackoff = 2 * time.Second
)

// run syncs until ctx ends. Nothing is written before the State knows its node: a State without it has no flows, and
// would cut off pods that are running.
func (f *flows) run(ctx context.Context) error {
	f.begin(ctx)
	backoff := minSyncBackoff
	for {
		state := f.store.State()
		var err error
		if state.Local().Node != "" {
			if err = f.sync(ctx, state); ctx.Err() != nil {
				return nil
			}
		}
		var retry <-chan time.Time
		if err != nil {
			retry = time.After(backoff)
			backoff = min(2*backoff, maxSyncBackoff)
		} else {
			backoff = minSyncBackoff
		}
		select {
		case <-ctx.Done():
			return nil
		case <-state.Replaced():
		case <-f.wake:
		case <-retry:
		}
	}
}

func (f *flows) kick() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

func (f *flows) sync(running context.Context, state *intent.State) error {
	ctx, cancel := context.WithTimeout(running, syncTimeout)
	defer cancel()
	f.mu.Lock()
	losses := f.losses
	f.mu.Unlock()
	start := time.Now()
	desired := f.compile(state)
	compiled := time.Now()
	res, err := f.bridge.Sync(ctx, desired)
	if err == nil && res.Dumped {
		f.fresh = true
		f.log.Info("flows synchronised with the switch", "flows", res.Flows, "added", res.Added, "changed", res.Changed,
			"deleted", res.Deleted, "duration", res.Duration)
		// Where there are many flows, what was read and sent is several times what is kept of it.
		go debug.FreeOSMemory()
	}
	for _, c := range res.Conflicts {
		f.log.Error("two objects want the same flow", "winner", c.Winner, "loser", c.Loser, "flow", c.Rule)
	}
	if err == nil && f.fresh {
		err = f.synced(ctx)
		f.fresh = err != nil
	}
	if running.Err() != nil {
		return running.Err()
	}
	f.metrics.sync(compiled.Sub(start), res, err)
	f.record(state, losses, res, start, err)
	return err
}

// compile brings the compiler to a State. What it returns is not changed by the next call.
func (f *flows) compile(state *intent.State) *bridge.Desired {
	f.compiling.Lock()
	defer f.compiling.Unlock()
	return f.compiler.Compile(state).Clone()
}

// explain says what the flows with a cookie are for.
func (f *flows) explain(cookie uint64) (compile.Meaning, bool) {
	f.compiling.Lock()
	defer f.compiling.Unlock()
	return f.compiler.Explain(cookie)
}

// problems are the objects that could not be compiled whole.
func (f *flows) problems() []compile.Problem {
	f.compiling.Lock()
	defer f.compiling.Unlock()
	return f.compiler.Problems()
}

// diff compares the switch with the newest State, one line for each flow that differs.
func (f *flows) diff(ctx context.Context) ([]string, error) {
	return f.bridge.Diff(ctx, f.compile(f.store.State()))
}

func (f *flows) record(state *intent.State, losses int, res bridge.Result, start time.Time, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil && losses != f.losses {
		return
	}
	f.conditions.set(condFlows, err)
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
	close(f.changed)
	f.changed = make(chan struct{})
}

// wait blocks until the flows of that revision, or a newer one, are on the switch.
func (f *flows) wait(ctx context.Context, revision uint64) error {
	for {
		f.mu.Lock()
		done, err, changed := f.done && f.revision >= revision, f.err, f.changed
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
	f.conditions.set(condFlows, err)
	f.losses++
	f.done, f.err = false, err
	f.last.Error = err.Error()
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *flows) status() syncStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}
