// SPDX-License-Identifier: Apache-2.0

// Package ctlimit limits how many connections conntrack remembers for each Router, so that pods
// of one cannot fill the table for all others.
//
// Open vSwitch counts only connections that are younger than their zone's limit, and forgets limits
// when ovs-vswitchd ends: they are compared with what is there on each connection to the switch.
package ctlimit

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"coelan.io/coelan/internal/backend/ovs/appctl"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/retry"
	"coelan.io/coelan/internal/trigger"
)

// Conntrack is that of a datapath.
type Conntrack interface {
	// Table is how many connections there are, and may be.
	Table(ctx context.Context, d intent.Datapath) (entries, size int, err error)
	Limits(ctx context.Context, d intent.Datapath) (map[uint16]appctl.ZoneLimit, error)
	SetLimits(ctx context.Context, d intent.Datapath, limits map[uint16]int) error
	DeleteLimits(ctx context.Context, d intent.Datapath, zones []uint16) error
}

// Limiter is the part of one node's agent.
type Limiter struct {
	log       *slog.Logger
	settings  config.Conntrack
	intent    *intent.Store
	conntrack Conntrack
	// renew asks for a comparison with what is there.
	renew trigger.Trigger

	mu      sync.Mutex
	table   int // its size at the last comparison
	applied map[uint16]zone
	problem error
}

// New makes a Limiter.
func New(
	log *slog.Logger, settings config.Conntrack, store *intent.Store, conntrack Conntrack,
) *Limiter {
	return &Limiter{
		log: log, settings: settings, intent: store, conntrack: conntrack,
		renew: trigger.New(),
	}
}

// Renew has the limits compared with what is there: ovs-vswitchd may have restarted.
func (l *Limiter) Renew() { l.renew.Fire() }

// Bounds of one attempt, and the pauses between failed ones.
const (
	timeout  = 5 * time.Second
	minPause = 200 * time.Millisecond
	maxPause = time.Minute
)

// Run keeps the limits until ctx ends.
func (l *Limiter) Run(ctx context.Context) error {
	backoff, stale := retry.New(minPause, maxPause), true
	var last *intent.State
	for {
		state := l.intent.State()
		var err error
		d := intent.Diff(last, state)
		if stale || d.Local || len(d.Routers)+len(d.GatewayAddresses)+len(d.EgressAddresses) > 0 {
			err = l.follow(ctx, state, stale)
		}
		last = state
		if ctx.Err() != nil {
			return nil
		}
		l.report(err)
		again := backoff.After(err)
		stale = err != nil
		// What failed waits for its time, or a new connection: intent may change many times a
		// second.
		changed := state.Replaced()
		if stale {
			changed = nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-l.renew:
			stale = true
		case <-again:
		}
	}
}

// follow brings the limits to a State, unless they are not stale and the same as before.
func (l *Limiter) follow(ctx context.Context, state *intent.State, stale bool) error {
	d := state.Local().Datapath
	if d == "" {
		return nil // not known yet
	}
	want := limits(l.settings, d)
	if !want && l.settings.Limits == config.AutoLimits {
		return nil // an administrator may have set some
	}
	l.mu.Lock()
	table, applied := l.table, l.applied
	l.mu.Unlock()
	if !stale && applied != nil && maps.Equal(applied, l.desired(state, want, table)) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if want {
		_, size, err := l.conntrack.Table(ctx, d)
		if err != nil {
			return err
		}
		table = size
	}
	desired := l.desired(state, want, table)
	if err := l.write(ctx, d, zonesOf(state, l.settings, table), applied, desired); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.table, l.applied = table, desired
	return nil
}

// desired are the limits that there have to be.
func (l *Limiter) desired(state *intent.State, want bool, table int) map[uint16]zone {
	if !want {
		return map[uint16]zone{}
	}
	return zonesOf(state, l.settings, table)
}

// write makes the difference between the limits that there are and those desired. Other zones than
// the bridge's, and those that were limited before, are not touched: other bridges share the
// datapath.
func (l *Limiter) write(
	ctx context.Context, d intent.Datapath, known, applied, desired map[uint16]zone,
) error {
	have, err := l.conntrack.Limits(ctx, d)
	if err != nil {
		return err
	}
	set := map[uint16]int{}
	for id, z := range desired {
		if there, ok := have[id]; !ok || there.Limit != z.limit {
			set[id] = z.limit
		}
	}
	var gone []uint16
	for _, id := range slices.Sorted(maps.Keys(have)) {
		_, of := known[id]
		_, before := applied[id]
		if _, ok := desired[id]; !ok && (of || before) {
			gone = append(gone, id)
		}
	}
	if len(set) > 0 {
		if err := l.conntrack.SetLimits(ctx, d, set); err != nil {
			return err
		}
	}
	if len(gone) > 0 {
		if err := l.conntrack.DeleteLimits(ctx, d, gone); err != nil {
			return err
		}
	}
	if len(set)+len(gone) > 0 {
		l.log.Info("conntrack zone limits updated", "set", len(set), "deleted", len(gone))
	}
	return nil
}

// report notes why the limits are not those desired, and logs it once.
func (l *Limiter) report(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil && l.problem == nil {
		l.log.Warn("cannot set the conntrack zone limits of Routers, retrying", "err", err)
	}
	l.problem = err
}

// Problem is why the limits are not those desired; nil if they are.
func (l *Limiter) Problem() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.problem == nil {
		return nil
	}
	return fmt.Errorf("the limits of Routers' connections are not as they should be"+
		" (conntrack.limits: %s): %w", l.settings.Limits, l.problem)
}

// Zone is what a Router, or what Physical and Hairpin stand for, has of the table.
type Zone struct {
	Router string
	// Gateway says that these are connections that leave by the Router's gateway, which have a zone
	// of their own.
	Gateway        bool
	Entries, Limit int
}

// Usage is how full the table is.
type Usage struct {
	Entries, Size int
	// Zones are those with limits, by number.
	Zones []Zone
}

// Usage asks the datapath. The cost does not depend on how many connections there are.
func (l *Limiter) Usage(ctx context.Context) (Usage, error) {
	d := l.intent.State().Local().Datapath
	if d == "" {
		return Usage{}, nil
	}
	entries, size, err := l.conntrack.Table(ctx, d)
	if err != nil {
		return Usage{}, err
	}
	u := Usage{Entries: entries, Size: size}
	l.mu.Lock()
	applied := l.applied
	l.mu.Unlock()
	if len(applied) == 0 {
		return u, nil
	}
	have, err := l.conntrack.Limits(ctx, d)
	if err != nil {
		return Usage{}, err
	}
	for _, id := range slices.Sorted(maps.Keys(applied)) {
		z := applied[id]
		if there, ok := have[id]; ok {
			u.Zones = append(u.Zones, Zone{z.router, z.gateway, there.Count, there.Limit})
		}
	}
	return u, nil
}

// full is the part of a table, in percent, from which on it is reported.
const full = 80

// Full reports whether a part of a table is nearly used up.
func Full(entries, size int) bool { return size > 0 && entries*100 > size*full }

// Findings say what of the table is nearly used up. They are the same until that changes.
func (u Usage) Findings() map[string]string {
	found := map[string]string{}
	if Full(u.Entries, u.Size) {
		found["table"] = fmt.Sprintf("holds more than %d %% of the %d connections that fit:"+
			" once it is full, no new connection on this node is tracked", full, u.Size)
	}
	for _, z := range u.Zones {
		if !Full(z.Entries, z.Limit) {
			continue
		}
		object, effect := "Router "+z.Router, "of its pods is tracked"
		if z.Gateway {
			object, effect = "gateway of Router "+z.Router, "leaves by it"
		}
		found[object] = fmt.Sprintf("has more than %d %% of the %d connections on this node that it may have:"+
			" once it has all, no new one %s", full, z.Limit, effect)
	}
	return found
}
