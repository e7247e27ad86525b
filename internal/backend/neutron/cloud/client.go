// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/internal/retry"
	"coelan.io/coelan/internal/trigger"
)

// ErrUnreachable is wrapped by errors of a Neutron, or a keystone, that cannot be used now.
var ErrUnreachable = errors.New("Neutron cannot be used")

// Pauses after what did not succeed.
const (
	firstPause = time.Second
	lastPause  = time.Minute
)

// DefaultResync is how often all is read anew.
const DefaultResync = time.Minute

// patience is how long a round of calls goes on when something else is wanted: to compare anew for
// each change would leave no time for calls.
const patience = time.Second

// resyncShare bounds the share of the time that reading takes: a Neutron with many ports is read
// more seldom.
const resyncShare = 20

// Options of a Client. All are needed but where it is said.
type Options struct {
	Access  Access
	Cluster names.Cluster
	// Want returns what is wanted now, of a Neutron that has this. It is called before each
	// comparison, by the goroutine of Run.
	Want func(have *resource.Inventory) *resource.Set
	// Projects are those beside the cluster's own that the settings name. They are read also while
	// nothing is wanted in them.
	Projects []string
	// Claims are asked for whenever all is read: which resources of another system are to be the
	// cluster's. Nil: none.
	Claims func(context.Context) []resource.Claim
	// Lent are asked for whenever all is read: which networks of other programs objects name. Nil:
	// none.
	Lent func() []Wanted
	// SubnetPools are the ids of those of other programs that the settings name.
	SubnetPools []string
	// Parents are asked for whenever all is read: by which ports machines of OpenStack are plugged
	// that are nodes. Nil: none are.
	Parents func() []Parent
	// Asks are asked for before each comparison: which ports objects name, that other programs have
	// made for them. Answered takes what comes of each. Nil: none.
	Asks     func(context.Context) []resource.Claim
	Answered func(c resource.Claim, a resource.Actual, refused string)
	// Found takes each network, subnet, router and floating IP that is there and wanted, and the
	// port of each object that has one as it is wanted, as often as they are looked at: also while
	// Neutron is away.
	Found func(resource.Resource, resource.Actual)
	// Report is called after each comparison: with what Neutron refuses of objects, and with why
	// Neutron cannot be used; neither: all is as wanted.
	Report func(problems []resource.Problem, err error)
	// Quotas takes those of all projects that resources are made in, after each reading of all
	// that there is; of projects that do not show theirs there are none. Another goroutine calls
	// it. Nil: they are not read.
	Quotas func([]Quota)
	Log    *slog.Logger
	Resync time.Duration // 0: DefaultResync
}

// Client makes what a Neutron has of a cluster be as wanted.
type Client struct {
	o       Options
	changed trigger.Trigger
	calls   atomic.Int64
	stale   atomic.Bool // what there is has to be read anew
	// patience is that of the package, and least is readPause, but in tests.
	patience, least time.Duration
}

// New returns a Client that Run lets work.
func New(o Options) *Client {
	if o.Resync == 0 {
		o.Resync = DefaultResync
	}
	if o.Claims == nil {
		o.Claims = noClaims
	}
	if o.Lent == nil {
		o.Lent = noneLent
	}
	if o.Parents == nil {
		o.Parents = noParents
	}
	if o.Asks == nil {
		o.Asks, o.Answered = noClaims, func(resource.Claim, resource.Actual, string) {}
	}
	return &Client{o: o, changed: trigger.New(), patience: patience, least: readPause}
}

func noClaims(context.Context) []resource.Claim { return nil }

func noneLent() []Wanted { return nil }

func noParents() []Parent { return nil }

// Changed says that Want has something else.
func (c *Client) Changed() { c.changed.Fire() }

// Reread says that Claims, Lent or Parents may be others.
func (c *Client) Reread() {
	c.stale.Store(true)
	c.changed.Fire()
}

// Calls is how many calls of Neutron's API were made.
func (c *Client) Calls() int64 { return c.calls.Load() }

// Run works until ctx ends.
func (c *Client) Run(ctx context.Context) {
	pause := retry.New(firstPause, lastPause)
	for {
		err := c.connected(ctx)
		if ctx.Err() != nil {
			return
		}
		err = fmt.Errorf("%w: %w", ErrUnreachable, err)
		c.o.Log.Warn("cannot work with Neutron, trying again", "err", err)
		c.o.Report(nil, err)
		pause.Wait(ctx)
	}
}

// connected works with one client of Neutron until ctx ends; an error is why there is none.
func (c *Client) connected(ctx context.Context) error {
	api, project, err := c.o.Access.connect(ctx)
	if err != nil {
		return err
	}
	tenants, err := newTenants(c.o.Access, api, c.o.Projects)
	if err != nil {
		return err
	}
	s := newSession(api, project, tenants, c.o, func() { c.calls.Add(1) })
	defer s.quotas.start(ctx)()
	s.least = c.least
	var have, known *resource.Inventory
	var said []resource.Problem // of the last comparison that was reported
	pause := retry.New(firstPause, lastPause)
	resync := time.NewTimer(0)
	defer resync.Stop()
	for ctx.Err() == nil {
		var again <-chan time.Time
		if c.stale.Swap(false) {
			have = nil
		}
		next, err := c.pass(ctx, s, have, resync)
		if have = next.have; ctx.Err() != nil {
			return nil
		}
		known = cmp.Or(have, known)
		if next.stale {
			have = nil
		}
		var away *outage
		switch {
		case errors.As(err, &away):
			s.attempt = newAttempt()
			// What was refused before is still so.
			c.o.Report(union(said, next.problems), fmt.Errorf("%w: %w", ErrUnreachable, err))
			if next.progress {
				pause.Reset()
			}
			again = time.After(away.pause(pause.Next, c.least))
		case err != nil:
			return err
		case next.left || s.attempt.again():
			if !next.left || time.Since(s.attempt.began) > lastPause {
				s.attempt = newAttempt()
			}
			c.changed.Fire()
		default:
			s.attempt, said = newAttempt(), next.problems
			c.o.Report(said, nil)
			if len(said) > 0 {
				again = time.After(pause.Next())
			} else {
				pause.Reset()
			}
		}
		if away != nil {
			c.waitWithout(ctx, again, known)
			select {
			case <-resync.C:
				have = nil
			default:
			}
			continue
		}
		select {
		case <-ctx.Done():
		case <-c.changed:
		case <-again:
		case <-resync.C:
			have = nil
		}
	}
	return nil
}

// waitWithout returns when Neutron is to be tried again. Meanwhile a change can be one that needs
// no call: a pod that has a port which another one had.
func (c *Client) waitWithout(ctx context.Context, again <-chan time.Time, known *resource.Inventory) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-again:
			return
		case <-c.changed:
			if known != nil {
				want := c.o.Want(known)
				newTeller(c.o.Found, want, known, resource.Plan(want, known)).all()
			}
		}
	}
}

// union are the problems of both lists.
func union(a, b []resource.Problem) []resource.Problem {
	all := slices.Clone(a)
	for _, p := range b {
		if !slices.Contains(a, p) {
			all = append(all, p)
		}
	}
	return all
}

// passed is what came of a comparison.
type passed struct {
	have     *resource.Inventory // nil: nothing could be read
	stale    bool                // all is to be read anew
	problems []resource.Problem
	left     bool
	progress bool // calls have succeeded
}

// pass compares what there is, which is read if it is not known, with what is wanted, and makes
// calls.
func (c *Client) pass(ctx context.Context, s *session, have *resource.Inventory, resync *time.Timer) (passed, error) {
	var err error
	read := have == nil
	if have == nil {
		if have, err = c.reread(ctx, s, resync); err != nil {
			return passed{}, asOutage(err)
		}
	}
	want := c.o.Want(have)
	if s.tenants.follow(want) {
		if have, err = c.reread(ctx, s, resync); err != nil {
			return passed{}, asOutage(err)
		}
		want = c.o.Want(have)
	}
	s.attempt.round(want, read)
	missing := s.missing(ctx, want)
	if s.short {
		want = want.Required()
	}
	if err = s.look(ctx, have, c.o.Asks(ctx)); err != nil {
		return passed{have: have, problems: missing}, err
	}
	resource.Judge(want, have, c.o.Answered)
	calls := resource.Plan(want, have)
	tell := newTeller(c.o.Found, want, have, calls)
	tell.all()
	began := time.Now()
	outdated := func() bool { return c.changed.Pending() && time.Since(began) >= c.patience }
	r := &round{
		session: s, have: have, want: want, tell: tell, failed: map[resource.Ref]bool{}, outdated: outdated,
	}
	r.problems = missing
	err = r.run(ctx, calls)
	// Last, since conditions have the last problem of an object: Neutron refuses what is made in
	// place of what is not adopted, and that is not the cause.
	r.problems = slices.Concat(r.problems, tell.exposed(), resource.NotAdopted(want, have))
	return passed{have, r.stale, r.problems, r.left, r.made > 0}, err
}

// reread reads all that there is.
func (c *Client) reread(ctx context.Context, s *session, resync *time.Timer) (*resource.Inventory, error) {
	began := time.Now()
	have, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	clear(s.doubtful)
	clear(s.refused)
	clear(s.tenants.asked)
	s.short = false
	s.resync = max(c.o.Resync, resyncShare*time.Since(began))
	resync.Reset(s.resync)
	s.quotas.ask(s.projects())
	return have, nil
}

// asOutage makes what a list is refused for a reason to wait, too: without lists nothing is known.
func asOutage(err error) error {
	var away *outage
	if errors.As(err, &away) {
		return err
	}
	return &outage{err: err}
}
