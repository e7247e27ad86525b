// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"errors"
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
	addresses map[place]Key      // of both
	macs      map[macPlace]Key
	ports     map[uint32]Key
	vlans     map[vlanPlace]Key
	held      map[place]string // the Port that each is held for; see Hold
	leases    map[Key]Lease    // on disk, or on the way there
	leased    map[place]string // what has each, for messages
	cursors   cursors
	slots     slots                        // see InSlots
	objects   map[string]map[string][]byte // by kind and name

	unknown map[Key]fields // of attachments, in which a newer release wrote them
	kept    []change       // entries of a newer release

	zones        func(Attachment) []ReleasedAddress // see KeepReleased
	releasedByID map[string]Released
	releasedAt   map[place]string // the ID
	releases     chan struct{}    // see Releases
}

// place is an address with where it is unique: a Network, or the node's podCIDRs, which is "".
type place struct {
	space string
	addr  netip.Addr
}

// macPlace is a MAC on a Network.
type macPlace struct {
	network string
	mac     intent.MAC
}

// vlanPlace is a VLAN on an attachment's Bridge.
type vlanPlace struct {
	bridge string
	vlan   uint16
}

// InSlots has attachments get addresses of the node's podCIDRs, and of its blocks of a Network, by
// ipam.Slots of these steps, as long as there are some: of all families at the same distance, and
// near the beginning, where what comes next can be known elsewhere. Of these, and of that many
// more, a pod gets rather one that a pod of its kind has had. It is called before the Store is
// used.
func (s *Store) InSlots(step, ofBlock, more int) {
	s.slots = slots{step: step, ofBlock: ofBlock, more: more, last: map[place]podName{}}
}

// Get returns the attachment of a key.
func (s *Store) Get(k Key) (Attachment, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	a, ok := s.byKey[k]
	return a.clone(), ok
}

// List returns all attachments in the order of their keys.
func (s *Store) List() []Attachment { return s.list(func(*Attachment) bool { return true }) }

func (s *Store) list(want func(*Attachment) bool) []Attachment {
	list := []Attachment{}
	s.mu.RLock()
	for _, a := range s.byKey {
		if want(&a) {
			list = append(list, a.clone())
		}
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
		a := c.Put.clone().modernized()
		if _, exists := s.byKey[a.Key]; exists {
			return fmt.Errorf("attachment %s is there twice", a.Key)
		}
		if other, taken := s.conflict(a); taken {
			return fmt.Errorf("attachments %s and %s have the same address, MAC or port", a.Key, other)
		}
		s.reserve(a)
		s.byKey[a.Key] = a
		if len(c.unknown) > 0 {
			s.unknown[a.Key] = c.unknown
		}
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
		s.setObject(kindNode, c.Save.Name, c.Save.Data)
	case c.Forget != "":
		delete(s.objects[kindNode], c.Forget)
	case c.SaveObject != nil:
		s.setObject(c.SaveObject.Kind, c.SaveObject.Name, c.SaveObject.Data)
		switch c.SaveObject.Kind {
		case kindReleased:
			return s.applyReleased(c.SaveObject.Name, c.SaveObject.Data)
		case kindLease:
			return s.applyLease(c.SaveObject.Name, c.SaveObject.Data)
		}
	case c.ForgetObject != nil:
		delete(s.objects[c.ForgetObject.Kind], c.ForgetObject.Name)
		switch c.ForgetObject.Kind {
		case kindReleased:
			return s.applyReleased(c.ForgetObject.Name, nil)
		case kindLease:
			return s.applyLease(c.ForgetObject.Name, nil)
		}
	case c.Format == formatVersion:
	case len(c.unknown) == 0:
		return errors.New("an entry that is empty")
	case c.Skip == skipKeep:
		s.kept = append(s.kept, c)
	case c.Skip != skipDrop:
		return &newerError{"an entry of kind " + strings.Join(slices.Sorted(maps.Keys(c.unknown)), ", ")}
	}
	return nil
}

// conflict returns another attachment that has an address, the MAC or the port.
func (s *Store) conflict(a Attachment) (Key, bool) {
	for _, p := range a.places() {
		if k, ok := s.addresses[p]; ok && k != a.Key {
			return k, true
		}
	}
	if k, ok := s.macs[macPlace{a.NetworkName, a.MAC}]; ok && k != a.Key {
		return k, true
	}
	k, ok := s.ports[a.OFPort]
	return k, ok && k != a.Key
}

// places are those that the attachment's addresses take.
func (a Attachment) places() []place {
	list := make([]place, 0, len(a.Addresses)+len(a.NodeAddresses))
	for _, p := range a.Addresses {
		list = append(list, place{a.space(), p.Addr()})
	}
	for _, p := range a.NodeAddresses {
		list = append(list, place{"", p.Addr()})
	}
	return list
}

// reserve keeps what the attachment has from others. A user's Port without a MAC takes none.
func (s *Store) reserve(a Attachment) {
	for _, p := range a.places() {
		s.addresses[p] = a.Key
	}
	if a.MAC != (intent.MAC{}) {
		s.macs[macPlace{a.NetworkName, a.MAC}] = a.Key
	}
	s.ports[a.OFPort] = a.Key
	if a.Bridge != "" {
		s.vlans[vlanPlace{a.Bridge, a.VLAN}] = a.Key
	}
}

// free undoes reserve and removes the attachment.
func (s *Store) free(a Attachment) {
	s.slots.note(a)
	for _, p := range a.places() {
		delete(s.addresses, p)
	}
	if a.MAC != (intent.MAC{}) {
		delete(s.macs, macPlace{a.NetworkName, a.MAC})
	}
	delete(s.ports, a.OFPort)
	delete(s.vlans, vlanPlace{a.Bridge, a.VLAN})
	delete(s.byKey, a.Key)
	delete(s.unknown, a.Key)
}

// nameOf names an attachment for people.
func (s *Store) nameOf(k Key) string {
	if a, ok := s.byKey[k]; ok {
		return a.PodRef()
	}
	return "an attachment under way (" + k.String() + ")"
}
