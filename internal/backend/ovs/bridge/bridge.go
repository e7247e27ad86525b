// SPDX-License-Identifier: Apache-2.0

// Package bridge makes the flows, groups and meters of an OpenFlow switch what
// they should be: desired minus actual, applied as one bundle. The same code
// serves the first start, a reconnection and a normal change.
package bridge

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"coelan.io/coelan/openflow"
)

// Switch is one connection to an OpenFlow switch. *openflow.Conn is one, and
// Fake.
type Switch interface {
	// Flows, Groups and Meters dump all of them.
	Flows(ctx context.Context) ([]openflow.FlowDesc, error)
	Groups(ctx context.Context) ([]openflow.Group, error)
	Meters(ctx context.Context) ([]openflow.Meter, error)
	// Bundle applies all messages, in order, or none. openflow.Refusals lists the
	// messages that the switch refuses.
	Bundle(ctx context.Context, msgs []openflow.Message) error
	// Do sends messages in order and waits until all are processed. Errors are
	// as in Bundle, but the other messages have been applied.
	Do(ctx context.Context, msgs []openflow.Message) error
}

// Options of a Bridge.
type Options struct {
	// Connect returns the present connection, and waits for one if there is
	// none. A connection other than the last one makes Sync dump the switch.
	Connect func(ctx context.Context) (Switch, error)
	// Learned says which tables have flows made by learn actions: Sync leaves these alone, and none
	// can be desired. Nil: no table's, unknown flows go.
	Learned func(table uint8) bool
}

// Via returns a Connect for the connections of a client.
func Via(client *Client) func(context.Context) (Switch, error) {
	return func(ctx context.Context) (Switch, error) {
		conn, err := client.Conn(ctx)
		if err != nil {
			return nil, err // not a nil *Conn in an interface
		}
		return conn, nil
	}
}

// Bridge keeps one switch in the desired state. It is safe for concurrent use.
type Bridge struct {
	opts Options

	mu     sync.Mutex
	sw     Switch // the connection that actual is known on; nil: must be dumped
	actual *state
	synced map[string]*Rules // what actual was made from; nil if not by owner
	of     *Desired          // the one that these rules are of
	change int               // the number of its first change since
}

// New returns a Bridge. Nothing happens before the first Sync.
func New(opts Options) *Bridge { return &Bridge{opts: opts} }

// Result is what a Sync did.
type Result struct {
	Dumped                  bool // the switch was dumped first
	Added, Changed, Deleted int  // rules of all kinds
	Flows, Groups, Meters   int  // on the switch now
	Duration                time.Duration
	// Conflicts are rules that were left out; see Desired.
	Conflicts []Conflict
}

// Conflict is a rule that two owners want.
type Conflict struct {
	Winner, Loser string
	Rule          string // the loser's
}

// Refused is the error of a Sync if the switch refused its bundle, or would have accepted it to its
// own harm. Nothing of it was applied.
type Refused struct {
	Owner string
	Rule  string // as ovs-ofctl prints it
	Err   error
}

func (e *Refused) Error() string {
	return fmt.Sprintf("%s: rule refused: %v: %.1000s", e.Owner, e.Err, e.Rule)
}
func (e *Refused) Unwrap() error { return e.Err }

// refusedList is the error of a Sync of which the switch has named several rules.
type refusedList struct {
	list []*Refused
	// intact says that nothing at all has been written, so that what was known of
	// the switch still holds.
	intact bool
}

func (e *refusedList) Error() string {
	if len(e.list) == 1 {
		return e.list[0].Error()
	}
	return fmt.Sprintf("%v (and %d more rules)", e.list[0], len(e.list)-1)
}

func (e *refusedList) Unwrap() error { return e.list[0] }

// Refusals lists the rules that the error of a Sync is about, all that the switch has named. There
// may be more: of some errors Open vSwitch reports the first one only.
func Refusals(err error) []*Refused {
	var several *refusedList
	if errors.As(err, &several) {
		return several.list
	}
	return nil
}

// unwritten makes an error of rules that were not sent.
func unwritten(err error) error {
	var one *Refused
	if errors.As(err, &one) {
		return &refusedList{list: []*Refused{one}, intact: true}
	}
	return err
}

// Sync makes the switch what d says, in one atomic bundle; meters, which cannot
// be in a bundle, come before it or go after it. A rule that only changes is
// replaced in place, so no packet misses it. If nothing differs, nothing is
// sent. After an error the next Sync starts from a dump, unless the switch has
// refused the bundle and so nothing has changed.
func (b *Bridge) Sync(ctx context.Context, d *Desired) (Result, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	start := time.Now()
	res, err := b.sync(ctx, d)
	res.Duration = time.Since(start)
	if err != nil {
		var refused *refusedList
		if !errors.As(err, &refused) || !refused.intact {
			b.sw, b.actual, b.synced = nil, nil, nil
		}
		return res, fmt.Errorf("sync bridge: %w", err)
	}
	return res, nil
}

// Diff dumps the switch and reports how it differs from d, one line for each
// rule: "+" is missing, "-" is too many, "~" is not as it should be. Nothing is
// changed.
func (b *Bridge) Diff(ctx context.Context, d *Desired) ([]string, error) {
	b.mu.Lock() // else a Sync under way is taken for a difference
	defer b.mu.Unlock()
	sw, err := b.opts.Connect(ctx)
	if err != nil {
		return nil, err
	}
	actual, err := dump(ctx, sw, b.opts.Learned)
	if err != nil {
		return nil, err
	}
	want, _ := d.state()
	return diff(actual, want).lines(), nil
}

func (b *Bridge) sync(ctx context.Context, d *Desired) (res Result, err error) {
	sw, err := b.opts.Connect(ctx)
	if err != nil {
		return res, err
	}
	if sw != b.sw {
		res.Dumped = true
		b.sw, b.synced = sw, nil
		if b.actual, err = dump(ctx, sw, b.opts.Learned); err != nil {
			return res, err
		}
	}
	owners := b.changed(d)
	p, ok := b.incremental(d, owners)
	if !ok {
		var want *state
		want, res.Conflicts = d.state()
		p = diff(b.actual, want)
	}
	res.Added, res.Changed, res.Deleted = p.counts()
	change := usesAfter(p)
	if err := errors.Join(p.badGroup(), p.notLearned(b.opts.Learned)); err != nil {
		return res, unwritten(err)
	}
	if err := b.actual.dangling(p, change); err != nil {
		return res, unwritten(err)
	}
	if err := p.apply(ctx, sw); err != nil {
		return res, err
	}
	b.actual.update(p, change)
	b.remember(d, owners, len(res.Conflicts) > 0)
	res.Flows, res.Groups, res.Meters = len(b.actual.flows), len(b.actual.groups), len(b.actual.meters)
	return res, nil
}

// apply sends what the plan says.
func (p *plan) apply(ctx context.Context, sw Switch) error {
	before, bundle, after := p.messages()
	for _, step := range []struct {
		send func(context.Context, []openflow.Message) error
		ops  []op
		// intact says that a refusal leaves the switch as it was before the Sync.
		intact bool
	}{{sw.Do, before, false}, {sw.Bundle, bundle, len(before) == 0}, {sw.Do, after, false}} {
		if len(step.ops) == 0 {
			continue
		}
		msgs := make([]openflow.Message, len(step.ops))
		for i := range step.ops {
			msgs[i] = step.ops[i].msg
		}
		if err := step.send(ctx, msgs); err != nil {
			return explain(err, step.ops, step.intact)
		}
	}
	return nil
}

// explain finds the rules that an error is about.
func explain(err error, ops []op, intact bool) error {
	refused := &refusedList{intact: intact}
	for _, m := range openflow.Refusals(err) {
		if m.Index < 0 || m.Index >= len(ops) {
			return err
		}
		o := ops[m.Index]
		refused.list = append(refused.list, &Refused{Owner: o.owner, Rule: strings.TrimSpace(o.text()), Err: m.Err})
	}
	if len(refused.list) == 0 {
		return err
	}
	return refused
}
