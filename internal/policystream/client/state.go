// SPDX-License-Identifier: Apache-2.0

package client

import (
	"fmt"
	"slices"
	"strings"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/policystream/wire"
)

// Change is what leads from the policies that the agent has to those that it should have: all of it
// goes into one Update of its intent.
type Change struct {
	// Version counts the changes from 1. It is the argument of Client.Programmed.
	Version uint64
	policy.Delta
}

// entry is an item as it came.
type entry struct {
	data   []byte
	digest wire.Digest
}

// state is all that is known of policies.
type state struct {
	items   map[wire.ID]entry
	rules   map[string][]string // of each subject, by key
	counts  map[wire.Key_Kind]int
	unknown map[wire.ID]string // what is not understood, with the reason
}

func newState() *state {
	return &state{map[wire.ID]entry{}, map[string][]string{}, map[wire.Key_Kind]int{}, map[wire.ID]string{}}
}

// received is a change while its parts come in.
type received struct {
	items   map[wire.ID]decoded
	gone    map[wire.ID]struct{}
	unknown map[wire.Digest]struct{}
	basis   policy.Basis // nil: not known
	rewound bool
}

type decoded struct {
	wire.Decoded
	entry
}

func newReceived() *received {
	return &received{
		items: map[wire.ID]decoded{}, gone: map[wire.ID]struct{}{}, unknown: map[wire.Digest]struct{}{},
	}
}

func (r *received) add(item []byte) error {
	d, err := wire.Decode(item)
	if err != nil {
		return err
	}
	if _, twice := r.items[d.ID]; twice {
		return fmt.Errorf("%s comes twice", d.ID)
	}
	r.items[d.ID] = decoded{d, entry{item, wire.DigestOf(item)}}
	return nil
}

// part adds a message's content.
func (r *received) part(m *wire.Update) error {
	for _, data := range m.GetItems() {
		if err := r.add(data); err != nil {
			return err
		}
	}
	for _, k := range m.GetGone() {
		id, err := wire.IDOf(k)
		if err != nil {
			return err
		}
		r.gone[id] = struct{}{}
	}
	list, err := wire.Digests(m.GetUnknown())
	if err != nil {
		return err
	}
	for _, d := range list {
		r.unknown[d] = struct{}{}
	}
	if m.GetBasis() != nil {
		r.basis, err = wire.BasisOf(m.GetBasis())
	}
	r.rewound = m.GetRewound()
	return err
}

// apply changes the state, and says what is new. The state stays as it is if there is an error.
// What could open something is one: a subject with a rule that is missing.
func (s *state) apply(r *received) (Change, error) {
	removed, err := s.removed(r)
	if err != nil {
		return Change{}, err
	}
	if err := s.complete(r, removed); err != nil {
		return Change{}, err
	}
	// Some item that cannot be understood may close others. That is rare, and all
	// are checked then.
	var before map[wire.ID]wire.Decoded
	slow := len(s.unknown) > 0 || r.later()
	if slow {
		before = effective(s.items)
	}
	var c Change
	for id := range removed {
		delete(s.items, id)
		delete(s.unknown, id)
		s.counts[id.Kind]--
		if id.Kind == wire.Key_SUBJECT {
			delete(s.rules, id.Key)
		}
		c.remove(id)
	}
	changed := map[wire.ID]bool{}
	for id, d := range r.items {
		old, ok := s.items[id]
		if ok && old.digest == d.digest {
			continue
		}
		if !ok {
			s.counts[id.Kind]++
		}
		s.items[id] = d.entry
		if delete(s.unknown, id); d.Unknown != "" {
			s.unknown[id] = d.Unknown
		}
		if id.Kind == wire.Key_SUBJECT {
			s.rules[id.Key] = d.Subject.Rules
		}
		changed[id] = true
		c.add(d.Decoded)
	}
	if slow {
		c = changeOf(before, effective(s.items), func(id wire.ID) bool { return changed[id] })
	}
	c.sort()
	return c, nil
}

func (r *received) later() bool {
	for _, d := range r.items {
		if d.Unknown != "" {
			return true
		}
	}
	return false
}

func (c *Change) remove(id wire.ID) {
	switch id.Kind {
	case wire.Key_RULE:
		c.RemovedRules = append(c.RemovedRules, id.Key)
	case wire.Key_SUBJECT:
		c.RemovedSubjects = append(c.RemovedSubjects, id.Key)
	case wire.Key_PEER:
		c.RemovedPeers = append(c.RemovedPeers, id.Key)
	}
}

func (c *Change) add(d wire.Decoded) {
	switch d.ID.Kind {
	case wire.Key_RULE:
		c.Rules = append(c.Rules, d.Rule)
	case wire.Key_SUBJECT:
		c.Subjects = append(c.Subjects, d.Subject)
	case wire.Key_PEER:
		c.Peers = append(c.Peers, d.Peer)
	}
}

// removed are the items that are there and will not be any more.
func (s *state) removed(r *received) (map[wire.ID]struct{}, error) {
	removed := map[wire.ID]struct{}{}
	if left := len(r.unknown); left > 0 {
		for id, e := range s.items {
			if _, ok := r.unknown[e.digest]; ok {
				removed[id] = struct{}{}
				left--
			}
		}
		if left > 0 {
			return nil, fmt.Errorf("%d digests are said to be unknown that the controller was not told of", left)
		}
	}
	for id := range r.gone {
		if _, both := r.items[id]; both {
			return nil, fmt.Errorf("%s is both there and gone", id)
		}
		if _, ok := s.items[id]; ok {
			removed[id] = struct{}{}
		}
	}
	for id := range r.items {
		delete(removed, id)
	}
	return removed, nil
}

// complete says which rule of a subject would be missing.
func (s *state) complete(r *received, removed map[wire.ID]struct{}) error {
	for id, d := range r.items {
		for _, rule := range d.Subject.Rules {
			_, comes := r.items[wire.RuleID(rule)]
			_, goes := removed[wire.RuleID(rule)]
			if _, is := s.items[wire.RuleID(rule)]; !comes && (goes || !is) {
				return fmt.Errorf("%s: there is no rule %s", id, rule)
			}
		}
	}
	gone := map[string]bool{}
	for id := range removed {
		if id.Kind == wire.Key_RULE {
			gone[id.Key] = true
		}
	}
	if len(gone) == 0 {
		return nil
	}
	for key, rules := range s.rules {
		id := wire.SubjectID(key)
		_, goes := removed[id]
		if _, comes := r.items[id]; goes || comes {
			continue
		}
		for _, rule := range rules {
			if gone[rule] {
				return fmt.Errorf("%s: its rule %s is gone", id, rule)
			}
		}
	}
	return nil
}

// sort is for logs and tests.
func (c *Change) sort() {
	slices.SortFunc(c.Rules, func(a, b intent.Rule) int { return strings.Compare(a.ID, b.ID) })
	slices.SortFunc(c.Subjects, func(a, b intent.Subject) int { return strings.Compare(a.Key, b.Key) })
	slices.SortFunc(c.Peers, func(a, b intent.Peer) int {
		if d := strings.Compare(a.Space, b.Space); d != 0 {
			return d
		}
		return a.Address.Compare(b.Address)
	})
	slices.Sort(c.RemovedRules)
	slices.Sort(c.RemovedSubjects)
	slices.Sort(c.RemovedPeers)
}

// digests is the inventory.
func (s *state) digests() []byte {
	list := make([]byte, 0, len(s.items)*wire.DigestSize)
	for _, e := range s.items {
		list = append(list, e.digest[:]...)
	}
	return list
}
