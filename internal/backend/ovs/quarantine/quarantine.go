// SPDX-License-Identifier: Apache-2.0

// Package quarantine leaves objects with flows that the switch refuses out of compilation, so that
// all other flows of the node can be written. An object is tried again when it changes, and from
// time to time.
package quarantine

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"coelan.io/coelan/internal/backend/ovs/bridge"
	"coelan.io/coelan/internal/backend/ovs/pipeline"
	"coelan.io/coelan/internal/intent"
)

// The pauses between two attempts to write an object that does not change.
const (
	minPause = 5 * time.Second
	maxPause = 5 * time.Minute
)

// Entry is an object that is left out.
type Entry struct {
	Object intent.Ref
	// Name is how people name the object in its namespace: a Port's is that of its pod and
	// interface.
	Name string
	// Rule is the flow, group or meter that the switch refuses, Err its error.
	Rule string
	Err  string
	// Since is when the object was refused first, as it is now.
	Since time.Time
	// Port is the object if it is a Port.
	Port intent.Port
}

// String says what is wrong.
func (e Entry) String() string {
	return string(e.Object.Kind) + " " + e.Name + ": the switch refuses it: " + e.Err
}

// held is an Entry and when it is tried again.
type held struct {
	Entry
	was    string // the object's description when it was refused
	pause  time.Duration
	retry  time.Time
	trying bool // it is part of the State of the present attempt
}

// Quarantine is a set of objects. It is safe for concurrent use; Begin, Refuse and Written are for
// the one goroutine that writes flows.
type Quarantine struct {
	mu   sync.Mutex
	held map[intent.Ref]*held
}

// New returns an empty Quarantine.
func New() *Quarantine { return &Quarantine{held: map[intent.Ref]*held{}} }

// Begin starts an attempt to write a State: objects that have changed, or are gone, are left out no
// more, and of those that are due the one that has waited longest is tried. One at a time, because
// a message that several objects share is refused for all of them.
func (q *Quarantine) Begin(s *intent.State) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var due *held
	for ref, h := range q.held {
		h.trying = false
		if s.Describe(ref) != h.was {
			delete(q.held, ref)
			continue
		}
		if due == nil || h.retry.Before(due.retry) ||
			h.retry.Equal(due.retry) && ref.Compare(due.Object) < 0 {
			due = h
		}
	}
	if due != nil && !due.retry.After(time.Now()) {
		due.trying = true
	}
}

// Apply is the State without the objects that are left out of the present attempt.
func (q *Quarantine) Apply(s *intent.State) *intent.State {
	return q.without(s, func(h *held) bool { return !h.trying })
}

// Settled is the State without all that is left out, also what is just being tried.
func (q *Quarantine) Settled(s *intent.State) *intent.State {
	return q.without(s, func(*held) bool { return true })
}

func (q *Quarantine) without(s *intent.State, which func(*held) bool) *intent.State {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := make(map[intent.Ref]string, len(q.held))
	for ref, h := range q.held {
		if which(h) {
			out[ref] = "the switch refuses " + ref.String() + ": " + h.Err
		}
	}
	return s.Without(out)
}

// Refuse leaves out the objects that an error of bridge.Sync is about, and what was tried. It
// returns those that were not left out before; more is false if there is nothing that could be left
// out, so that another attempt would fail in the same way. State is what was to be written, good
// what was written last on this connection; nil if nothing was.
func (q *Quarantine) Refuse(err error, state, good *intent.State) (added []Entry, more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range bridge.Refusals(err) {
		for _, ref := range suspects(r, state, good) {
			h, known := q.held[ref]
			switch {
			case !known:
				h = &held{Entry: entry(ref, r, state), was: state.Describe(ref), pause: minPause}
				h.retry = h.Since.Add(h.pause)
				q.held[ref] = h
				added = append(added, h.Entry)
			case !h.trying:
				continue // it is left out already, and is refused in spite of that
			default:
				h.again()
			}
			more = true
		}
	}
	for _, h := range q.held {
		if h.trying { // what the error names does not follow from it, or not from it alone
			h.again()
			more = true
		}
	}
	slices.SortFunc(added, func(a, b Entry) int { return a.Object.Compare(b.Object) })
	return added, more
}

// again puts off an object that was tried.
func (h *held) again() {
	h.trying = false
	h.pause = min(2*h.pause, maxPause)
	h.retry = time.Now().Add(h.pause)
}

// Written ends an attempt that succeeded. It returns what was tried, and is left out no more.
func (q *Quarantine) Written() (healed []Entry) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for ref, h := range q.held {
		if h.trying {
			healed = append(healed, h.Entry)
			delete(q.held, ref)
		}
	}
	return healed
}

// Clear forgets all objects, because the switch may be another one.
func (q *Quarantine) Clear() {
	q.mu.Lock()
	defer q.mu.Unlock()
	clear(q.held)
}

// Next is when an object is due; false if nothing is left out.
func (q *Quarantine) Next() (t time.Time, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, h := range q.held {
		if !ok || h.retry.Before(t) {
			t, ok = h.retry, true
		}
	}
	return t, ok
}

// List is what is left out, in a fixed order.
func (q *Quarantine) List() []Entry {
	q.mu.Lock()
	defer q.mu.Unlock()
	list := make([]Entry, 0, len(q.held))
	for _, h := range q.held {
		list = append(list, h.Entry)
	}
	slices.SortFunc(list, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Object.Kind, b.Object.Kind), cmp.Compare(a.Name, b.Name),
			a.Object.Compare(b.Object))
	})
	return list
}

// Of finds why a Port has no flows: it is left out itself, or its Network or Router is.
func (q *Quarantine) Of(s *intent.State, p intent.Port) (Entry, bool) {
	n, _ := s.Networks().Get(p.Network)
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, ref := range []intent.Ref{
		{Kind: intent.KindPort, Key: p.ID}, {Kind: intent.KindNetwork, Key: p.Network},
		{Kind: intent.KindRouter, Key: n.Router},
	} {
		if h, ok := q.held[ref]; ok {
			return h.Entry, true
		}
	}
	return Entry{}, false
}

// suspects are the objects that a refused rule is from. If several share it, those that have
// changed since flows were written last: the others' part of it was accepted.
func suspects(r *bridge.Refused, state, good *intent.State) []intent.Ref {
	list := slices.DeleteFunc(pipeline.Culprits(state, r.Owner), func(ref intent.Ref) bool {
		return state.Vital(ref) || state.Describe(ref) == ""
	})
	if good == nil || len(list) < 2 {
		return list
	}
	var changed []intent.Ref
	for _, ref := range list {
		if good.Describe(ref) != state.Describe(ref) {
			changed = append(changed, ref)
		}
	}
	if len(changed) > 0 {
		return changed
	}
	return list
}

// maxRule is how much of a rule is kept: a group may have thousands of buckets.
const maxRule = 500

func entry(ref intent.Ref, r *bridge.Refused, s *intent.State) Entry {
	e := Entry{
		Object: ref, Name: ref.Key, Rule: r.Rule[:min(len(r.Rule), maxRule)], Err: r.Err.Error(),
		Since: time.Now(),
	}
	if ref.Kind == intent.KindPort {
		e.Port, _ = s.Ports().Get(ref.Key)
		e.Name = e.Port.Name()
	}
	return e
}
