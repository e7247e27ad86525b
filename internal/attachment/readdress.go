// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"net/netip"
	"slices"
)

// Readdress gives an attachment other addresses, or none, in place of those that it has. What it
// has no more is released as by Release. When it returns, that is on disk. Errors: a *TakenError if
// another attachment has one of them or has just had it, ErrGone, *WriteError; nothing is changed
// then.
func (s *Store) Readdress(k Key, addresses []netip.Prefix) (Attachment, error) {
	now, changes, err := s.chooseAgain(k, addresses)
	if err != nil || len(changes) == 0 {
		return now, err
	}
	err = s.commit(changes...)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pending, k)
	if err != nil {
		for _, p := range now.places() {
			if was := s.byKey[k]; !slices.Contains(was.places(), p) {
				delete(s.addresses, p)
			}
		}
		return Attachment{}, err
	}
	return now.clone(), nil
}

// chooseAgain reserves addresses for an attachment that is there, and returns what is to be
// committed; none if it has just these.
func (s *Store) chooseAgain(k Key, addresses []netip.Prefix) (now Attachment, changes []change, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was, ok := s.byKey[k]
	if !ok || s.pending[k] {
		return now, nil, ErrGone
	}
	if slices.Equal(was.Addresses, addresses) {
		return was.clone(), nil, nil
	}
	now = was.clone()
	now.Addresses, now.Gateways = slices.Clone(addresses), make([]netip.Addr, len(addresses))
	had := was.places()
	for _, p := range now.places() {
		if slices.Contains(had, p) {
			continue
		}
		if err := s.checkFixed(was, p.addr); err != nil {
			return now, nil, err
		}
	}
	s.pending[k] = true
	for _, p := range now.places() {
		s.addresses[p] = k
	}
	changes = []change{{Delete: &k}}
	lost := was.clone()
	lost.Addresses = slices.DeleteFunc(lost.Addresses, func(p netip.Prefix) bool {
		return slices.ContainsFunc(addresses, func(n netip.Prefix) bool { return n.Addr() == p.Addr() })
	})
	if len(lost.Addresses) > 0 {
		lost.NodeAddresses = nil
		if kept, ok := s.released(lost); ok {
			changes = append(changes, kept)
		}
	}
	kept := now.clone()
	return now, append(changes, change{Put: &kept, unknown: s.unknown[k]}), nil
}
