// SPDX-License-Identifier: Apache-2.0

package attachment

import "net/netip"

// Hold keeps an address of a Network with blocks from being handed out on this node, because it is
// promised to the Port that by names, as namespace/name. A request of that Port may still have it
// as a fixed address. If an attachment of another Port has the address, or it is held for another,
// the error is a *TakenError.
//
// Holds are not stored: they have to be made again after Open.
func (s *Store) Hold(network string, addr netip.Addr, by string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if holder, taken := s.holder(network, addr); taken && holder != by {
		return &TakenError{Network: network, What: "address " + addr.String(), By: holder}
	}
	s.held[place{network, addr}] = by
	return nil
}

// Unhold undoes Hold for the same Port; another one's stays.
func (s *Store) Unhold(network string, addr netip.Addr, by string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := (place{network, addr}); s.held[p] == by {
		delete(s.held, p)
	}
}

// holder is the namespace/name of the Port that has an address or that it is held for.
func (s *Store) holder(space string, addr netip.Addr) (string, bool) {
	p := place{space, addr}
	if k, ok := s.addresses[p]; ok {
		if a, ok := s.byKey[k]; ok {
			return a.PortKey(), true
		}
		return s.nameOf(k), true
	}
	by, ok := s.held[p]
	return by, ok
}

// Used counts the addresses of a prefix that attachments on a Network with blocks have.
func (s *Store) Used(network string, prefix netip.Prefix) int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	used := 0
	for p := range s.addresses {
		if p.space == network && prefix.Contains(p.addr) {
			used++
		}
	}
	return used
}

// On lists the attachments on a Network in the order of their keys.
func (s *Store) On(network string) []Attachment {
	return s.list(func(a *Attachment) bool { return a.NetworkName == network })
}

// Of lists the attachments of a container in the order of their interfaces' names.
func (s *Store) Of(containerID string) []Attachment {
	return s.list(func(a *Attachment) bool { return a.ContainerID == containerID })
}
