// SPDX-License-Identifier: Apache-2.0

package restconf

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"coelan.io/coelan/internal/broadcast"
	"coelan.io/coelan/internal/restconf/datatree"
	"coelan.io/coelan/internal/restconf/mapping"
	"coelan.io/coelan/internal/retry"
	"coelan.io/coelan/internal/trigger"
)

// Bounds of streams. However many changes there are, objects are read for all streams together, at
// most once in readEvery.
const (
	maxStreams     = 64
	maxUserStreams = 8
	readEvery      = 250 * time.Millisecond
	firstRetry     = 200 * time.Millisecond
	lastRetry      = 10 * time.Second
)

// streams read objects when they have changed, for clients that wait for that. Watches of the API
// say when; what they deliver is not used, because the controller's cache keeps a part of it alone.
type streams struct {
	log     *slog.Logger
	api     API
	trigger trigger.Trigger
	changed broadcast.Broadcast
	// ended is closed when there are no streams any more.
	ended chan struct{}

	mu sync.Mutex
	// users have a number of streams each, total is their sum.
	users map[string]int
	total int
	// started counts the reads; latest is what the last one that is complete has read.
	started uint64
	latest  *snapshot
}

// snapshot has the objects of one read.
type snapshot struct {
	number uint64
	world  *mapping.World
	mu     sync.Mutex
	// rendered are the entries of clients that see all objects, made once for all of them.
	rendered map[bool]entries
}

func newStreams(log *slog.Logger, api API) *streams {
	return &streams{
		log: log, api: api, trigger: trigger.New(), ended: make(chan struct{}), users: map[string]int{},
	}
}

// run reads for streams until ctx ends, which ends them. It watches nothing before the first one.
func (s *streams) run(ctx context.Context) error {
	defer close(s.ended)
	select {
	case <-s.trigger:
	case <-ctx.Done():
		return nil
	}
	resources := allResources()
	backoff := retry.New(firstRetry, lastRetry)
	for _, r := range resources {
		for {
			err := s.api.Watch(ctx, r, s.trigger.Fire)
			if err == nil {
				break
			}
			s.log.Warn("RESTCONF cannot watch objects for its streams, retrying", "resource", r.Name, "err", err)
			if !backoff.Wait(ctx) {
				return nil
			}
		}
	}
	s.trigger.Fire()
	backoff.Reset()
	limit := rate.NewLimiter(rate.Every(readEvery), 1)
	for {
		select {
		case <-s.trigger:
		case <-ctx.Done():
			return nil
		}
		if limit.Wait(ctx) != nil {
			return nil
		}
		if err := s.read(ctx, resources); err != nil && ctx.Err() == nil {
			s.log.Warn("RESTCONF cannot read objects for its streams, retrying", "err", err)
			if !backoff.Wait(ctx) {
				return nil
			}
			s.trigger.Fire()
			continue
		}
		backoff.Reset()
	}
}

// allResources are those that any list is made of.
func allResources() []mapping.Resource {
	seen, all := map[mapping.Resource]bool{}, []mapping.Resource{}
	for _, l := range mapping.Lists() {
		for _, r := range l.Reads {
			if !seen[r] {
				all = append(all, r)
			}
			seen[r] = true
		}
	}
	return all
}

// read makes the next snapshot, if there are streams.
func (s *streams) read(ctx context.Context, resources []mapping.Resource) error {
	s.mu.Lock()
	if s.total == 0 {
		s.latest = nil
		s.mu.Unlock()
		return nil
	}
	s.started++
	number := s.started
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	w, err := s.api.Read(ctx, resources, mapping.Entry{})
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.latest = &snapshot{number: number, world: w, rendered: map[bool]entries{}}
	s.mu.Unlock()
	s.changed.Send()
	return nil
}

// join admits a stream of a user. It returns the number of the last read that began before.
func (s *streams) join(user string) (after uint64, leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.users[user] >= maxUserStreams:
		return 0, nil, &datatree.Error{Tag: datatree.ResourceDenied, Status: http.StatusTooManyRequests,
			Message: fmt.Sprintf("%s has %d streams already", user, maxUserStreams)}
	case s.total >= maxStreams:
		return 0, nil, &datatree.Error{Tag: datatree.ResourceDenied, Status: http.StatusServiceUnavailable,
			Message: fmt.Sprintf("there are %d streams already", maxStreams)}
	}
	s.users[user]++
	s.total++
	s.trigger.Fire()
	return s.started, func() { s.leave(user) }, nil
}

func (s *streams) leave(user string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total--
	if s.users[user]--; s.users[user] == 0 {
		delete(s.users, user)
	}
}

// errStreamsEnded says that the server does not read for streams any more.
var errStreamsEnded = errors.New("the server is ending")

// next waits for a snapshot of a read that began after that of a number. It calls beat, and waits
// on, each time beats has something.
func (s *streams) next(ctx context.Context, after uint64, beats <-chan time.Time, beat func() error,
) (*snapshot, error) {
	for {
		changed := s.changed.Changed()
		s.mu.Lock()
		latest := s.latest
		s.mu.Unlock()
		if latest != nil && latest.number > after {
			return latest, nil
		}
		select {
		case <-changed:
		case <-beats:
			if err := beat(); err != nil {
				return nil, err
			}
		case <-s.ended:
			return nil, errStreamsEnded
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
