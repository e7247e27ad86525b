// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/policystream/wire"
	"coelan.io/coelan/internal/retry"
)

// The pauses between two rounds of asking all controllers, none of which answered as it should. The
// watch of where they are ends a pause.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 10 * time.Second
)

// steady is how long a stream has to last for the next one to come without a pause.
const steady = time.Second

// patience is how long a controller may be silent in the middle of a change, and before the first.
const patience = 30 * time.Second

// Run keeps a stream to a controller until ctx ends.
func (c *Client) Run(ctx context.Context) {
	var saving sync.WaitGroup
	defer saving.Wait()
	if c.File != "" {
		saving.Go(func() { c.saveChanges(ctx) })
	}
	r := rounds{
		controllers: c.Controllers, session: c.session,
		ended: func(controller string, err error) {
			c.Log.Debug("policy stream ended", "controller", controller, "err", err)
		},
		failed: func(err error) {
			before := c.Status().LastError
			c.update(func(s *Status) { s.LastError = err.Error() })
			if before != err.Error() {
				c.Log.Warn("no controller serves policies; the last known ones stay in effect, retrying", "err", err)
			}
		},
	}
	r.run(ctx)
}

// rounds keep a session with one of the controllers.
type rounds struct {
	controllers Controllers
	// session lasts as long as a connection; began says that it has worked.
	session func(ctx context.Context, address string) (began bool, err error)
	// ended is called after a session that has worked, failed after a round in which none did.
	ended  func(controller string, err error)
	failed func(err error)
	// last is the controller of the last session that has worked.
	last string
}

// run goes on until ctx ends.
func (r *rounds) run(ctx context.Context) {
	for backoff := retry.New(firstPause, lastPause); ctx.Err() == nil; {
		start := time.Now()
		worked, err := r.round(ctx)
		if ctx.Err() != nil {
			return
		}
		if worked && time.Since(start) > steady {
			backoff.Reset()
			r.ended(r.last, err)
			continue
		}
		r.failed(err)
		select {
		case <-backoff.After(err):
		case <-r.controllers.Changed():
		case <-ctx.Done():
		}
	}
}

// errNone says that no controller is known.
var errNone = errors.New("no controller is known: the Kubernetes API has no endpoints of the Service " + wire.Service)

// round asks one controller after the other, until a session has begun and ended. The one of the
// last round that did comes last.
func (r *rounds) round(ctx context.Context) (worked bool, err error) {
	addresses, _ := r.controllers.Current()
	if len(addresses) == 0 {
		return false, errNone
	}
	addresses = slices.Clone(addresses)
	rand.Shuffle(len(addresses), func(i, j int) { addresses[i], addresses[j] = addresses[j], addresses[i] })
	if i := slices.Index(addresses, r.last); i >= 0 {
		addresses = append(slices.Delete(addresses, i, i+1), r.last)
	}
	var errs []error
	for _, a := range addresses {
		began, err := r.session(ctx, a)
		if began {
			r.last = a
			return true, err
		}
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		errs = append(errs, fmt.Errorf("controller %s: %w", a, err))
	}
	// The same text whichever controller was asked first, so that it is logged once.
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return false, errors.Join(errs...)
}

// session is one stream to one controller. It has begun when there was a whole change.
func (c *Client) session(ctx context.Context, address string) (began bool, err error) {
	_, roots := c.Controllers.Current()
	conn, err := Dial(address, wire.ServerName(c.Namespace), roots, c.Token)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := time.AfterFunc(c.patience, func() { cancel(errSilent) })
	defer silent.Stop()
	stream, err := wire.NewPoliciesClient(conn).Sync(ctx)
	if err == nil {
		err = c.inventory(stream)
	}
	if err != nil {
		return false, because(ctx, err)
	}
	base := c.Status().Version
	defer c.update(func(s *Status) {
		if s.Connected {
			s.Connected, s.Since = false, time.Now()
		}
	})
	var telling sync.WaitGroup
	defer telling.Wait()
	defer cancel(nil)
	telling.Go(func() { c.tell(ctx, stream, base) })
	if c.Beside != nil {
		telling.Go(func() { c.Beside(ctx, conn) })
	}
	for r := newReceived(); ; {
		m, err := stream.Recv()
		if err != nil {
			return began, because(ctx, err)
		}
		silent.Stop()
		if err := r.part(m); err != nil {
			return began, c.invalid(address, err)
		}
		c.update(func(s *Status) { s.Received += uint64(len(m.GetItems())) })
		if m.GetVersion() == 0 {
			silent.Reset(c.patience)
			continue
		}
		err = c.change(address, r, base, m.GetVersion())
		if errors.Is(err, errOlder) {
			return began, err
		}
		if err != nil {
			return began, c.invalid(address, err)
		}
		began, r = true, newReceived()
	}
}

// errSilent ends a stream that does not go on.
var errSilent = errors.New("it says nothing any more in the middle of a change")

// because prefers why a context was canceled to that it was.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, errSilent) {
		return cause
	}
	return err
}

func (c *Client) invalid(address string, err error) error {
	c.update(func(s *Status) { s.InvalidUpdates++ })
	c.Log.Error("a controller sent an invalid policy update: the last known policies stay in effect",
		"controller", address, "err", err)
	return err
}

// inventoryPart is how many bytes of digests go in one message.
const inventoryPart = wire.MaxUpdate / wire.DigestSize * wire.DigestSize

// inventory says what is known.
func (c *Client) inventory(stream wire.Policies_SyncClient) error {
	c.mu.Lock()
	digests, basis := c.state.digests(), wire.BasisMessage(c.basis)
	c.mu.Unlock()
	for {
		part := digests[:min(len(digests), inventoryPart)]
		digests = digests[len(part):]
		last := len(digests) == 0
		m := &wire.Inventory{Digests: part, Last: last}
		if last {
			m.Basis = basis
		}
		if err := stream.Send(&wire.AgentMessage{Kind: &wire.AgentMessage_Inventory{Inventory: m}}); err != nil {
			// Recv has the reason.
			_, err := stream.Recv()
			return err
		}
		if last {
			return nil
		}
	}
}

// errOlder says that a controller knows less than what is in effect. Another one may know more;
// until then nothing is undone.
var errOlder = errors.New("the controller is behind")

// advance returns what is known after a change. It is an error if the first change of a stream,
// which is a whole view, lacks what is known already. Controllers of releases that do not say what
// they know are believed. c.mu is held.
func (c *Client) advance(r *received, version uint64) (policy.Basis, error) {
	if r.basis == nil {
		return c.basis, nil
	}
	if version == 1 && r.rewound {
		return c.basis.Rewind(r.basis), nil
	}
	if kind := r.basis.Lacks(c.basis); version == 1 && kind != "" {
		return nil, fmt.Errorf("%w: %w", errOlder, r.basis.Missing(kind, c.basis))
	}
	return c.basis.Advance(r.basis), nil
}

// change has a whole one put into effect. A controller's versions count from 1 with each stream.
func (c *Client) change(address string, r *received, base, version uint64) error {
	c.mu.Lock()
	if c.status.Version+1 != base+version {
		c.mu.Unlock()
		return fmt.Errorf("its change %d comes after %d", version, c.status.Version-base)
	}
	basis, err := c.advance(r, version)
	var change Change
	if err == nil {
		change, err = c.state.apply(r)
	}
	if err != nil {
		c.mu.Unlock()
		return err
	}
	c.next(&change)
	if version == 1 {
		c.status.Connected, c.status.Since, c.status.Controller = true, time.Now(), address
		c.status.Complete, c.status.LastError = true, ""
		c.status.Streams++
	}
	unsaved := c.lost || !change.Empty() || !c.basis.Equal(basis)
	c.lost, c.basis = false, basis
	c.mu.Unlock()
	if version == 1 {
		c.Log.Debug("policy stream opened", "controller", address, "new", len(r.items))
	}
	if unsaved {
		c.dirty.Fire()
	}
	c.OnChange(change)
	return nil
}

// tell passes on what is in effect, what the switch refuses, and which pods have come. What is
// refused comes before what is in effect, so that it is not counted for a moment.
func (c *Client) tell(ctx context.Context, stream wire.Policies_SyncClient, base uint64) {
	var told uint64
	var refused []policy.Refusal
	for {
		if now := c.refusals(); !slices.Equal(now, refused) {
			refused = now
			m := &wire.AgentMessage{Kind: &wire.AgentMessage_Refused{Refused: wire.RefusalsMessage(now)}}
			if stream.Send(m) != nil {
				return // Recv has the reason
			}
		}
		if now := c.Status().Programmed; now > base+told {
			told = now - base
			programmed := &wire.ProgrammedVersion{Version: told}
			m := &wire.AgentMessage{Kind: &wire.AgentMessage_Programmed{Programmed: programmed}}
			if stream.Send(m) != nil {
				return // Recv has the reason
			}
		}
		for _, a := range c.takeAttached() {
			m := &wire.AgentMessage{Kind: &wire.AgentMessage_Attached{Attached: wire.AttachmentMessage(a)}}
			if stream.Send(m) != nil {
				return
			}
		}
		select {
		case <-c.news:
		case <-ctx.Done():
			return
		}
	}
}
