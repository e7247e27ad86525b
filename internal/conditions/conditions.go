// SPDX-License-Identifier: Apache-2.0

// Package conditions tracks the conditions of an agent's readiness, and the reasons why
// it is not ready.
package conditions

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"coelan.io/coelan/internal/broadcast"
)

// Condition is one thing that must hold.
type Condition struct {
	Name string
	// Limits: while it does not hold, running pods may be cut off as well.
	Limits bool
	// Last: it may come true only after pods can be attached, so these do not wait for it.
	Last bool
}

// ErrStarting is the state of a condition that was not checked yet.
var ErrStarting = errors.New("not checked yet, the agent is starting")

// Set holds the state of each condition. Its methods are safe for concurrent use.
type Set struct {
	log   *slog.Logger
	order []Condition

	mu      sync.Mutex
	errs    map[string]error
	changed broadcast.Broadcast
}

// New makes a Set in which no condition is met, in the order in which they come true at a start.
func New(log *slog.Logger, order ...Condition) *Set {
	s := &Set{log: log, order: order, errs: map[string]error{}}
	for _, c := range order {
		s.errs[c.Name] = ErrStarting
	}
	return s
}

// Set records an outcome, and logs it if it is a new one.
func (s *Set) Set(name string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.errs[name]
	if (old == nil) == (err == nil) && (err == nil || old.Error() == err.Error()) {
		return
	}
	if err == nil {
		delete(s.errs, name)
		s.log.Info("condition met", "condition", name)
	} else {
		s.errs[name] = err
		s.log.Warn("condition not met", "condition", name, "err", err)
	}
	s.changed.Send()
}

// Attaching returns the first unmet condition for attaching pods as an *UnmetError, nil
// if all are met.
func (s *Set) Attaching() error { return s.first(func(c Condition) bool { return !c.Last }) }

// Forwarding is Attaching for the conditions that running pods need.
func (s *Set) Forwarding() error { return s.first(func(c Condition) bool { return c.Limits }) }

// Ready is Attaching for all conditions.
func (s *Set) Ready() error { return s.first(func(Condition) bool { return true }) }

func (s *Set) first(counts func(Condition) bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.order {
		if err := s.errs[c.Name]; err != nil && counts(c) {
			return &UnmetError{c, err}
		}
	}
	return nil
}

// Await waits until pods can be attached. It returns the condition that was unmet when ctx ended.
func (s *Set) Await(ctx context.Context) error {
	for {
		changed := s.Changed()
		err := s.Attaching()
		if err == nil {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("agent is not ready: %w", err)
		}
	}
}

// Changed returns a channel that closes with the next change. Take it before looking, so that no
// change is missed.
func (s *Set) Changed() <-chan struct{} { return s.changed.Changed() }

// All lists the conditions with the reason why one is not met, empty if it is.
func (s *Set) All() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := map[string]string{}
	for _, c := range s.order {
		m[c.Name] = ""
		if err := s.errs[c.Name]; err != nil {
			m[c.Name] = err.Error()
		}
	}
	return m
}

// UnmetError is a condition that does not hold.
type UnmetError struct {
	Condition Condition
	Err       error
}

// Error implements error.
func (e *UnmetError) Error() string { return fmt.Sprintf("%s: %v", e.Condition.Name, e.Err) }

// Unwrap returns why the condition does not hold.
func (e *UnmetError) Unwrap() error { return e.Err }
