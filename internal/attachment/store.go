// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"

	"coelan.io/coelan/internal/intent"
)

// Store is the durable set of this node's attachments. Reads are served from
// memory; every change is on disk (fsync) before the call that makes it returns,
// and is not made at all if that fails. Its methods are safe for concurrent use.
type Store struct {
	path string
	lock *os.File

	queueMu    sync.Mutex
	queue      []*write
	committing bool

	diskMu      sync.Mutex
	journal     *journal // nil when closed
	compactSize int64    // of the file when it was last replaced

	mu        sync.RWMutex
	byKey     map[Key]Attachment // on disk
	pending   map[Key]bool       // on the way there, or from there
	addresses map[netip.Addr]Key // of both
	macs      map[intent.MAC]Key
	ports     map[uint32]Key
	cursors   cursors
	nodes     map[string][]byte
}

// cursors are what was handed out last: the next search begins after it, so that
// what was released is handed out as late as can be.
type cursors struct {
	Addresses map[netip.Prefix]netip.Addr `json:"addresses"` // by podCIDR
	Port      uint32                      `json:"port"`
}

func (c cursors) clone() cursors {
	c.Addresses = maps.Clone(c.Addresses)
	return c
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

// apply makes a change that is on disk in memory. An error says that the change
// cannot follow those before it.
func (s *Store) apply(c change) error {
	switch {
	case c.Put != nil:
		a := c.Put.clone()
		if _, exists := s.byKey[a.Key]; exists {
			return fmt.Errorf("attachment %s is there twice", a.Key)
		}
		if other, taken := s.conflict(a); taken {
			return fmt.Errorf("attachments %s and %s have the same address, MAC or port", a.Key, other)
		}
		s.reserve(a)
		s.byKey[a.Key] = a
		s.moveCursors(a)
	case c.Delete != nil:
		a, exists := s.byKey[*c.Delete]
		if !exists {
			return fmt.Errorf("attachment %s is removed and was not there", *c.Delete)
		}
		s.free(a)
	case c.Cursors != nil:
		s.cursors = c.Cursors.clone()
	case c.Save != nil:
		s.nodes[c.Save.Name] = c.Save.Data
	case c.Forget != "":
		delete(s.nodes, c.Forget)
	case c.Format == formatVersion:
	default:
		return fmt.Errorf("an entry that this release does not know (its format is %d)", formatVersion)
	}
	return nil
}

// conflict returns another attachment that has an address, the MAC or the port.
func (s *Store) conflict(a Attachment) (Key, bool) {
	for _, p := range a.Addresses {
		if k, ok := s.addresses[p.Addr()]; ok && k != a.Key {
			return k, true
		}
	}
	if k, ok := s.macs[a.MAC]; ok && k != a.Key {
		return k, true
	}
	k, ok := s.ports[a.OFPort]
	return k, ok && k != a.Key
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

// moveCursors lets the next search begin after what the attachment has. The cursors
// of podCIDRs that it has no address from are forgotten: the node lost them.
func (s *Store) moveCursors(a Attachment) {
	s.cursors = cursors{Addresses: make(map[netip.Prefix]netip.Addr, len(a.Addresses)), Port: a.OFPort}
	for _, p := range a.Addresses {
		s.cursors.Addresses[p.Masked()] = p.Addr()
	}
}
