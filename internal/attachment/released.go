// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"coelan.io/coelan/internal/ipam"
)

// kindReleased is the kind of the objects that record addresses of attachments that are gone. An
// older release that reads the file leaves the kind alone.
const kindReleased = "released-addresses"

// Released are addresses of an attachment that is gone. They are not handed out before Free is
// called: the datapath may still know connections of the attachment.
type Released struct {
	// ID names them.
	ID string `json:"-"`
	// Was is what had them, for messages: namespace/pod/interface, or namespace/name of a Port.
	Was       string            `json:"was"`
	At        time.Time         `json:"at"`
	Addresses []ReleasedAddress `json:"addresses"`
}

// ReleasedAddress is one of them.
type ReleasedAddress struct {
	Address netip.Addr `json:"address"`
	// Space is where the address is unique: the name of a Network with blocks;
	// empty: the node's podCIDRs.
	Space string `json:"space,omitempty"`
	// Zones are the conntrack zones in which connections of the address may be
	// known; none: any zone.
	Zones []uint16 `json:"zones,omitempty"`
}

// KeepReleased has Release keep addresses from others until Free is called for them. zones returns
// the conntrack zones of an attachment's addresses. It must be called before the first Release;
// without it addresses are free at once.
func (s *Store) KeepReleased(zones func(Attachment) []ReleasedAddress) { s.zones = zones }

// released is the entry that records what an attachment had.
func (s *Store) released(a Attachment) (change, bool) {
	if s.zones == nil {
		return change{}, false
	}
	now := time.Now().UTC()
	r := Released{Was: a.PodRef(), At: now.Truncate(time.Second), Addresses: s.zones(a.clone())}
	if len(r.Addresses) == 0 {
		return change{}, false
	}
	data, err := json.Marshal(r)
	if err != nil {
		// Not reached: plain values.
		panic(fmt.Sprintf("attachment: addresses of %s: %v", a.Key, err))
	}
	// A user's Port has the same key each time.
	return saved(object{Kind: kindReleased, Name: fmt.Sprintf("%s@%d", a.Key, now.UnixNano()), Data: data}), true
}

// places are those that the addresses take.
func (r Released) places() []place {
	list := make([]place, len(r.Addresses))
	for i, a := range r.Addresses {
		list[i] = place{a.Space, a.Address}
	}
	return list
}

// applyReleased follows an entry of kindReleased; data is nil if the addresses are free now.
func (s *Store) applyReleased(id string, data []byte) error {
	if data == nil {
		for _, p := range s.releasedByID[id].places() {
			if s.releasedAt[p] == id {
				delete(s.releasedAt, p)
			}
		}
		delete(s.releasedByID, id)
		s.announceReleases()
		return nil
	}
	var r Released
	if err := json.Unmarshal(data, &r); err != nil {
		return fmt.Errorf("released addresses %s: %w", id, err)
	}
	r.ID = id
	s.releasedByID[id] = r
	for _, p := range r.places() {
		s.releasedAt[p] = id
	}
	s.announceReleases()
	return nil
}

// Released lists the addresses that are kept, oldest first. Those that an attachment has are left
// out: a release that knew nothing of kept addresses has handed them out.
func (s *Store) Released() []Released {
	s.mu.RLock()
	defer s.mu.RUnlock()
	list := make([]Released, 0, len(s.releasedByID))
	for _, r := range s.releasedByID {
		r.Addresses = slices.DeleteFunc(slices.Clone(r.Addresses), func(a ReleasedAddress) bool {
			_, used := s.addresses[place{a.Space, a.Address}]
			return used
		})
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b Released) int {
		return cmp.Or(a.At.Compare(b.At), strings.Compare(a.ID, b.ID))
	})
	return list
}

// Releases returns a channel that is closed when addresses are released or freed after the call.
func (s *Store) Releases() <-chan struct{} {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.releases
}

// Free lets others have released addresses. The error is a *WriteError: they are still kept then.
func (s *Store) Free(ids ...string) error {
	var changes []change
	s.mu.RLock()
	for _, id := range ids {
		if _, ok := s.releasedByID[id]; ok {
			changes = append(changes, forgotten(object{Kind: kindReleased, Name: id}))
		}
	}
	s.mu.RUnlock()
	if len(changes) == 0 {
		return nil
	}
	return s.commit(changes...)
}

// announceReleases wakes up what waits for Releases. The caller holds mu.
func (s *Store) announceReleases() {
	close(s.releases)
	s.releases = make(chan struct{})
}

// AllocateAllWhenFree is AllocateAll that waits, until ctx ends, for addresses that are kept
// because their last attachment has just gone, if it needs one of these.
func (s *Store) AllocateAllWhenFree(ctx context.Context, plans ...Plan) ([]Attachment, error) {
	for {
		changed := s.Releases()
		list, err := s.AllocateAll(plans...)
		if err == nil || !s.lacksReleased(err, plans) {
			return list, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, err
		}
	}
}

// lacksReleased reports whether a plan failed for want of addresses that are released
// and not free yet.
func (s *Store) lacksReleased(err error, plans []Plan) bool {
	var taken *TakenError
	if errors.As(err, &taken) {
		return taken.Released
	}
	var failed *AllocationError
	var exhausted *ipam.ExhaustedError
	if !errors.As(err, &failed) || !errors.As(err, &exhausted) {
		return false
	}
	plan := plans[failed.Index]
	space := plan.space()
	s.mu.RLock()
	defer s.mu.RUnlock()
	for p := range s.releasedAt {
		// Node addresses are of the node's podCIDRs, for every Network.
		if p.space != space && (p.space != "" || len(plan.NodeRanges) == 0) {
			continue
		}
		if slices.ContainsFunc(exhausted.CIDRs, func(c netip.Prefix) bool { return c.Contains(p.addr) }) {
			return true
		}
	}
	return false
}
