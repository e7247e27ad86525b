// SPDX-License-Identifier: Apache-2.0

// Package ctflush has conntrack forget the connections of Ports that are gone, and only then lets
// others have their addresses. To conntrack, what the next pod with the address sends could
// otherwise be answers in connections of the last one, which no policy judges.
//
// Which addresses wait is on disk with the attachments (attachment.Released), so a restart of the
// agent loses none.
package ctflush

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/retry"
)

// ErrUnsupported says that the datapath cannot forget single connections.
var ErrUnsupported = errors.New("Open vSwitch before 3.1 cannot forget connections by their addresses")

// Datapath is where connections are known.
type Datapath interface {
	// Settled waits until no packet follows flows of Ports that were gone at the call: it
	// would be tracked again.
	Settled(ctx context.Context) error
	// Flush forgets the connections of an address; ErrUnsupported if that is not possible.
	Flush(ctx context.Context, a attachment.ReleasedAddress) error
}

// Store is where the addresses are kept. *attachment.Store is one.
type Store interface {
	Released() []attachment.Released
	Releases() <-chan struct{}
	Free(ids ...string) error
}

// Flusher is the part of one node's agent.
type Flusher struct {
	log      *slog.Logger
	store    Store
	datapath Datapath

	mu      sync.Mutex
	problem error
}

// New makes a Flusher.
func New(log *slog.Logger, store Store, datapath Datapath) *Flusher {
	return &Flusher{log: log, store: store, datapath: datapath}
}

// Bounds of one attempt, and the pauses between failed ones.
const (
	flushTimeout = time.Minute
	minPause     = 100 * time.Millisecond
	maxPause     = 10 * time.Second
)

// Run flushes until ctx ends.
func (f *Flusher) Run(ctx context.Context) error {
	backoff := retry.New(minPause, maxPause)
	for {
		changed := f.store.Releases()
		list := f.store.Released()
		if len(list) == 0 {
			select {
			case <-ctx.Done():
				return nil
			case <-changed:
			}
			continue
		}
		err := f.flush(ctx, list)
		if ctx.Err() != nil {
			return nil
		}
		f.report(err)
		if err == nil {
			backoff.Reset()
			continue
		}
		if !backoff.Wait(ctx) {
			return nil
		}
	}
}

// flush frees what it can; those that come meanwhile are left for the next call, which waits for
// the datapath anew.
func (f *Flusher) flush(ctx context.Context, list []attachment.Released) error {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	if err := f.datapath.Settled(ctx); err != nil {
		return err
	}
	var unsupported error
	for _, r := range list {
		for _, a := range r.Addresses {
			switch err := f.datapath.Flush(ctx, a); {
			case errors.Is(err, ErrUnsupported):
				unsupported = err
			case err != nil:
				return fmt.Errorf("address %s of %s, which is gone: %w", a.Address, r.Was, err)
			}
		}
		if err := f.store.Free(r.ID); err != nil {
			return err
		}
	}
	if unsupported != nil {
		f.log.Warn("cannot flush conntrack by address here; connections of a deleted pod may outlive it",
			"err", unsupported)
	}
	return nil
}

// report notes what keeps addresses, and logs it once.
func (f *Flusher) report(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil && f.problem == nil {
		f.log.Warn("cannot flush deleted pods' connections from conntrack; their addresses stay reserved, retrying",
			"err", err)
	}
	f.problem = err
}

// Status is how many addresses wait, and why they could not be freed at the last attempt.
func (f *Flusher) Status() (waiting int, problem error) {
	for _, r := range f.store.Released() {
		waiting += len(r.Addresses)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return waiting, f.problem
}
