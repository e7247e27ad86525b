// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"net/netip"
	"slices"
	"strings"
	"sync"

	bolt "go.etcd.io/bbolt"

	"coelan.io/coelan/internal/intent"
)

// Store is the durable set of this node's attachments. Reads are served from
// memory; every change is on disk (fsync) before the call that makes it returns,
// and is not made at all if that fails. Its methods are safe for concurrent use.
type Store struct {
	path string
	db   *bolt.DB

	queueMu    sync.Mutex
	queue      []*write
	committing bool

	mu        sync.RWMutex
	byKey     map[Key]Attachment // on disk
	pending   map[Key]bool       // on its way there, or from there
	addresses map[netip.Addr]Key // of both
	macs      map[intent.MAC]Key
	ports     map[uint32]Key
	cursors   cursors
}

// Get returns the attachment of a key.
func (s *Store) Get(k Key) (Attachment, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	a, ok := s.byKey[k]
	return a.clone(), ok
}

// List returns all attachments in the order of their keys.
func (s *Store) List() []Attachment {
	s.mu.RLock()
	list := make([]Attachment, 0, len(s.byKey))
	for _, a := range s.byKey {
		list = append(list, a.clone())
	}
	s.mu.RUnlock()
	slices.SortFunc(list, func(a, b Attachment) int {
		if c := strings.Compare(a.ContainerID, b.ContainerID); c != 0 {
			return c
		}
		return strings.Compare(a.IfName, b.IfName)
	})
	return list
}

// conflict returns another attachment that has an address, the MAC or the port.
func (s *Store) conflict(a Attachment) (Key, bool) {
	for _, p := range a.Addresses {
		if k, ok := s.addresses[p.Addr()]; ok {
			return k, true
		}
	}
	if k, ok := s.macs[a.MAC]; ok {
		return k, true
	}
	k, ok := s.ports[a.OFPort]
	return k, ok
}

// reserve keeps what the attachment has from others.
func (s *Store) reserve(a Attachment) {
	for _, p := range a.Addresses {
		s.addresses[p.Addr()] = a.Key
	}
	s.macs[a.MAC] = a.Key
	s.ports[a.OFPort] = a.Key
}

// free undoes reserve and removes the attachment.
func (s *Store) free(a Attachment) {
	for _, p := range a.Addresses {
		delete(s.addresses, p.Addr())
	}
	delete(s.macs, a.MAC)
	delete(s.ports, a.OFPort)
	delete(s.byKey, a.Key)
}
