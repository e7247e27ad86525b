// SPDX-License-Identifier: Apache-2.0

// Package ovn runs the controller's half of the backend ovn: in the leader, it has OVN's northbound
// database be as the cluster's intent says, and reports what OVN cannot do.
package ovn

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/backend/ovn/compile"
	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/internal/backend/ovn/nb"
	"coelan.io/coelan/internal/backend/ovn/northbound"
	"coelan.io/coelan/internal/backend/ovn/remote"
	"coelan.io/coelan/internal/controller/findings"
	"coelan.io/coelan/internal/controller/programmed"
	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/intent"
)

// Options are what a Runner is made with. All are needed but where it is said.
type Options struct {
	Log     *slog.Logger
	Cluster names.Cluster
	// Remotes are the servers of the northbound database.
	Remotes []string
	TLS     *remote.TLSFiles // nil: none
	Intent  Intent
	// Hub has the objects that conditions say are not in effect; the Runner adds those of which OVN
	// does not do all.
	Hub     findings.Hub
	Access  *reconcile.Access
	Monitor *heartbeat.Monitor
}

// Intent is the whole cluster's.
type Intent interface {
	Intent() *intent.Store
	// Ready is closed when it is complete.
	Ready() <-chan struct{}
}

// Runner writes while the manager runs it. Its methods are safe for concurrent use.
type Runner struct {
	Options
	client   *northbound.Client
	compiler *compile.Compiler // of the client's goroutine
	loop     *heartbeat.Loop
	findings *findings.Reporter
	verdicts *programmed.Verdicts
	metrics  *metrics
	leads    atomic.Bool

	mu       sync.Mutex
	problems []nb.Problem
	failure  error         // why the database is not as wanted
	compiled uint64        // revision of the newest State that rows are made of
	state    *intent.State // that of compiled
	// since is when the oldest State came that the database does not have; zero: it has all.
	since time.Time
}

// New makes a Runner. An error names the file that cannot be used.
func New(o Options) (*Runner, error) {
	r := &Runner{
		Options: o, compiler: compile.New(compile.Options{Cluster: o.Cluster}), loop: o.Monitor.Loop("ovn"),
		findings: findings.New(o.Log, o.Access, o.Hub), verdicts: programmed.New(),
	}
	to := northbound.Options{Cluster: o.Cluster, Remotes: o.Remotes, Rows: r.rows, Report: r.report, Log: o.Log}
	if o.TLS != nil {
		config, err := o.TLS.Config()
		if err != nil {
			return nil, err
		}
		to.TLS = config
	}
	r.client = northbound.New(to)
	r.metrics = newMetrics(r)
	return r, nil
}

// Progress measures how long OVN takes to follow. It is an error in replicas that do not lead.
func (r *Runner) Progress(ctx context.Context) (agentapi.OVNProgress, error) {
	return r.client.Progress(ctx)
}

// errNotLeading is the answer of replicas that do not know what the database has.
var errNotLeading = errors.New("this controller does not lead: another one writes OVN's northbound database")

// Check compares the database with what is wanted. That the database cannot be used is a finding.
func (r *Runner) Check(ctx context.Context) (agentapi.OVNCheck, error) {
	if !r.leads.Load() {
		return agentapi.OVNCheck{}, errNotLeading
	}
	select {
	case <-r.Intent.Ready():
	default:
		return agentapi.OVNCheck{}, errors.New("this controller does not know all of the cluster's objects yet")
	}
	return r.client.CheckOr(ctx, func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.failure
	}), nil
}

// Setup adds to a manager the Runner and what writes conditions.
func (r *Runner) Setup(m manager.Manager) error {
	if err := r.verdicts.Setup(m, "ovn", r.Access, r.Monitor); err != nil {
		return err
	}
	return m.Add(r)
}

// NeedLeaderElection says that the leader alone writes.
func (*Runner) NeedLeaderElection() bool { return true }

// Start works until ctx ends, which it does when leadership is lost.
func (r *Runner) Start(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	r.leads.Store(true)
	defer r.leads.Store(false)
	select {
	case <-ctx.Done():
		return nil
	case <-r.Intent.Ready():
	}
	r.metrics.register()
	defer r.metrics.unregister()
	running.Go(func() { r.followIntent(ctx) })
	running.Go(func() { r.findings.Run(ctx) })
	r.client.Run(ctx)
	return nil
}

// followIntent has the database compared whenever there is a newer State.
func (r *Runner) followIntent(ctx context.Context) {
	for state := r.Intent.Intent().State(); ; state = r.Intent.Intent().State() {
		r.changed(state)
		select {
		case <-ctx.Done():
			return
		case <-state.Replaced():
		}
	}
}

// changed notes since when there is a State that the database does not have.
func (r *Runner) changed(state *intent.State) {
	r.mu.Lock()
	if r.since.IsZero() && (state.Revision() != r.compiled || r.failure != nil) {
		r.since = time.Now()
	}
	r.mu.Unlock()
	r.client.Changed()
}

// rows brings the rows to the newest intent.
func (r *Runner) rows() *nb.Rows {
	defer r.loop.Step()()
	state := r.Intent.Intent().State()
	began := time.Now()
	r.mu.Lock()
	same := r.compiled == state.Revision() && r.compiled != 0
	r.mu.Unlock()
	if same {
		return r.compiler.Rows()
	}
	r.compiler.Update(state)
	rows := r.compiler.Rows()
	problems := rows.Problems()
	r.metrics.compiled(time.Since(began), rows.Len(), len(problems))
	r.mu.Lock()
	defer r.mu.Unlock()
	other := !slices.Equal(problems, r.problems)
	if other {
		r.problems = problems
		r.publish()
	}
	if d := intent.Diff(r.state, state); other || len(d.FloatingIPs)+len(d.EgressPaths) > 0 {
		r.verdicts.Want(state, found(problems))
	}
	r.compiled, r.state = state.Revision(), state
	return rows
}

// report takes what came of a comparison; nil: the database is as wanted.
func (r *Runner) report(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.verdicts.Judge(err)
	if text(err) != text(r.failure) {
		if err != nil {
			r.Log.Warn("OVN's northbound database is not as wanted", "err", err)
		}
		r.failure = err
		r.publish()
	}
	switch {
	case err != nil:
		if r.since.IsZero() {
			r.since = time.Now()
		}
	case !r.since.IsZero() && r.Intent.Intent().State().Revision() == r.compiled:
		r.metrics.written(time.Since(r.since))
		r.since = time.Time{}
	}
}

// publish reports what OVN does not do of objects. r.mu is held.
func (r *Runner) publish() {
	r.findings.Set(found(r.problems), r.failure)
}

func found(problems []nb.Problem) (list []findings.Finding) {
	for _, p := range problems {
		list = append(list, findings.Finding(p))
	}
	return list
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// lag is for how long there has been a State that the database does not have.
func (r *Runner) lag() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.since.IsZero() {
		return 0
	}
	return time.Since(r.since)
}
