// SPDX-License-Identifier: Apache-2.0

package restconf

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"coelan.io/coelan/internal/broadcast"
	"coelan.io/coelan/internal/restconf/datatree"
	"coelan.io/coelan/internal/restconf/mapping"
	"coelan.io/coelan/internal/retry"
	"coelan.io/coelan/internal/trigger"
)

// Bounds of streams. However many changes there are, objects are read for all streams together, at
// most once in readEvery, and pauses are so many times longer than the work between them.
const (
	maxStreams     = 64
	maxUserStreams = 8
	readEvery      = 250 * time.Millisecond
	pausesToWork   = 4
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
	// started counts the reads; latest is what is there after the last one that is complete.
	started uint64
	latest  *snapshot
	// stale are the resources that have changed since they were read.
	stale map[mapping.Resource]bool
	// work is how long reads and what was made of them took since the last pause.
	work time.Duration
}

// snapshot has the objects of one read, and those before that have not changed.
type snapshot struct {
	number uint64
	world  *mapping.World
	mu     sync.Mutex
	// rendered are the entries of clients that see all objects, of what is in operation (true) and
	// of the configuration. They are made once for all clients, and again if their objects have
	// changed.
	rendered map[bool]lists
}

// after is the snapshot that follows one, with objects of resources that have changed.
func (s *snapshot) after(number uint64, read *mapping.World, changed map[mapping.Resource]bool) *snapshot {
	next := &snapshot{number: number, world: read, rendered: map[bool]lists{true: {}, false: {}}}
	if s == nil {
		return next
	}
	next.world = s.world.Clone()
	next.world.Replace(read, slices.Collect(maps.Keys(changed)))
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range mapping.Lists() {
		if slices.ContainsFunc(l.Reads, func(r mapping.Resource) bool { return changed[r] }) {
			continue
		}
		for operational, rendered := range s.rendered {
			if e, done := rendered[l.Container]; done {
				next.rendered[operational][l.Container] = e
			}
		}
	}
	return next
}

func newStreams(log *slog.Logger, api API) *streams {
	return &streams{
		log: log, api: api, trigger: trigger.New(), ended: make(chan struct{}), users: map[string]int{},
		stale: map[mapping.Resource]bool{},
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
	backoff := retry.New(firstRetry, lastRetry)
	for _, r := range allResources() {
		for {
			err := s.api.Watch(ctx, r, func() { s.note(r) })
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
	for {
		select {
		case <-s.trigger:
		case <-ctx.Done():
			return nil
		}
		pause := s.pause()
		if err := s.read(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("RESTCONF cannot read objects for its streams, retrying", "err", err)
			s.trigger.Fire()
			pause = backoff.Next()
		} else {
			backoff.Reset()
		}
		if !retry.Sleep(ctx, pause) {
			return nil
		}
	}
}

// note says that objects of a resource may have changed.
func (s *streams) note(r mapping.Resource) {
	s.mu.Lock()
	s.stale[r] = true
	s.mu.Unlock()
	s.trigger.Fire()
}

// pause is how long nothing is read after the next read.
func (s *streams) pause() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	pause := max(readEvery, pausesToWork*s.work)
	s.work = 0
	return pause
}

// worked adds to the work.
func (s *streams) worked(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.work += d
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

// read makes the next snapshot, if there are streams. It reads what has changed since the last one.
func (s *streams) read(ctx context.Context) error {
	began := time.Now()
	defer func() { s.worked(time.Since(began)) }()
	s.mu.Lock()
	if s.total == 0 {
		s.latest = nil
		s.mu.Unlock()
		return nil
	}
	if s.latest == nil {
		for _, r := range allResources() {
			s.stale[r] = true
		}
	}
	s.started++
	number, last, changed := s.started, s.latest, s.stale
	s.stale = map[mapping.Resource]bool{}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	w, err := s.api.Read(ctx, slices.Collect(maps.Keys(changed)), mapping.Entry{})
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		maps.Copy(s.stale, changed)
		return err
	}
	next := last.after(number, w, changed)
	s.mu.Lock()
	s.latest = next
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
