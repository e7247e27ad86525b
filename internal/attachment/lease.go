// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ipam"
)

// kindLease is the kind of the objects that record leases. An older release that reads the file
// leaves the kind alone, and may hand out their addresses once more.
const kindLease = "lease"

// Lease is what an interface that another CNI plugin makes has of the node's podCIDRs: addresses,
// and nothing else. No Port, no flow and no interface of Coelan's comes of it.
type Lease struct {
	Key
	// ConfName is the name in the CNI configuration; GC of one leaves the leases of others alone.
	ConfName string `json:"network"`
	// Pod is namespace/name, for messages; empty: the runtime has not said.
	Pod string `json:"pod,omitempty"`
	// Addresses carry the length of their podCIDR; Gateways has the gateway for each.
	Addresses []netip.Prefix `json:"addresses"`
	Gateways  []netip.Addr   `json:"gateways"`
	Created   time.Time      `json:"created"`
}

// holder names the lease for messages.
func (l Lease) holder() string {
	if l.Pod == "" {
		return "container " + l.Key.String()
	}
	return l.Pod + "/" + l.IfName
}

// places are those that the addresses take.
func (l Lease) places() []place {
	list := make([]place, len(l.Addresses))
	for i, p := range l.Addresses {
		list[i] = place{"", p.Addr()}
	}
	return list
}

// Lease records a lease with addresses of the podCIDRs: those of the Requested, or else one of each
// family. When it returns, they are on disk. What has a lease already gets the same one. Calls for
// one key must not overlap. Errors: *ipam.ExhaustedError, *TakenError, *WriteError, and one that
// wraps ErrExists; nothing is leased then.
func (s *Store) Lease(l Lease, podCIDRs []ipam.Range, asked Plan) (Lease, error) {
	have, data, err := s.chooseLease(&l, podCIDRs, asked)
	if err != nil || have {
		return l, err
	}
	if err := s.commit(saved(object{Kind: kindLease, Name: l.Key.String(), Data: data})); err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.freeLease(l)
		return Lease{}, err
	}
	return l, nil
}

// chooseLease picks addresses and keeps others from them; have says that there is a lease.
func (s *Store) chooseLease(l *Lease, podCIDRs []ipam.Range, asked Plan) (have bool, data []byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old, ok := s.leases[l.Key]; ok {
		*l = old.clone()
		return true, nil, nil
	}
	if _, ok := s.byKey[l.Key]; ok {
		return false, nil, fmt.Errorf("attachment %s: %w", l.Key, ErrExists)
	}
	a := Attachment{Spec: Spec{Key: l.Key, NetworkName: intent.DefaultNetworkName}}
	asked.Ranges = podCIDRs
	if err := s.chooseAddresses(&a, asked); err != nil {
		return false, nil, err
	}
	l.Addresses, l.Gateways, l.Created = a.Addresses, a.Gateways, time.Now().UTC().Truncate(time.Second)
	data, err = json.Marshal(l)
	if err != nil {
		return false, nil, err
	}
	s.reserveLease(l.clone(), len(asked.Addresses) == 0)
	return false, data, nil
}

func (l Lease) clone() Lease {
	l.Addresses, l.Gateways = slices.Clone(l.Addresses), slices.Clone(l.Gateways)
	return l
}

func (s *Store) reserveLease(l Lease, chosen bool) {
	s.leases[l.Key] = l
	for _, p := range l.places() {
		s.leased[p] = l.holder()
	}
	if chosen {
		s.cursors.set("", l.Addresses) // a released one comes last
	}
}

func (s *Store) freeLease(l Lease) {
	for _, p := range l.places() {
		delete(s.leased, p)
	}
	delete(s.leases, l.Key)
}

// applyLease follows an entry of kindLease; data is nil if there is none any more.
func (s *Store) applyLease(id string, data []byte) error {
	if data == nil {
		for key, l := range s.leases {
			if key.String() == id {
				s.freeLease(l)
			}
		}
		return nil
	}
	var l Lease
	if err := json.Unmarshal(data, &l); err != nil {
		return fmt.Errorf("lease %s: %w", id, err)
	}
	s.reserveLease(l, false)
	return nil
}

// EndLease gives the addresses of a lease back; that there is none is no error. The error is a
// *WriteError: the lease is still there then.
func (s *Store) EndLease(k Key) error {
	s.mu.RLock()
	_, ok := s.leases[k]
	s.mu.RUnlock()
	if !ok {
		return nil
	}
	return s.commit(forgotten(object{Kind: kindLease, Name: k.String()}))
}

// Leases lists all leases in the order of their keys.
func (s *Store) Leases() []Lease {
	s.mu.RLock()
	list := make([]Lease, 0, len(s.leases))
	for _, l := range s.leases {
		list = append(list, l.clone())
	}
	s.mu.RUnlock()
	slices.SortFunc(list, func(a, b Lease) int { return strings.Compare(a.Key.String(), b.Key.String()) })
	return list
}

// Withhold keeps addresses of the node's podCIDRs for the node itself: no attachment and no lease
// gets them. An error names attachments that have some already, which keep them.
func (s *Store) Withhold(addresses ...netip.Addr) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, a := range addresses {
		p := place{addr: a}
		if k, taken := s.addresses[p]; taken {
			errs = append(errs, fmt.Errorf("address %s is to be the node's own, and %s has it: recreate that pod", a,
				s.nameOf(k)))
			continue
		}
		s.leased[p] = "the node itself"
	}
	return errors.Join(errs...)
}
