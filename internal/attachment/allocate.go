// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"fmt"
	"net/netip"
	"time"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ipam"
)

// Request is what an attachment needs to come into being.
type Request struct {
	Key
	Network                       string // name in the CNI configuration
	PodUID, PodNamespace, PodName string
	Netns                         string
	NetworkID                     intent.NetworkID
	MTU                           int
	Ranges                        []ipam.Range // one address from each, the first decides the MAC
}

// Allocate gives the request one free address of every range, a MAC, a port number
// and a host interface name, and records them. When it returns, they are on disk.
// Errors: ErrExists, *ipam.ExhaustedError, ErrNoPort, *WriteError; nothing is
// allocated then.
func (s *Store) Allocate(r Request) (Attachment, error) {
	a, err := s.choose(r)
	if err != nil {
		return Attachment{}, fmt.Errorf("attachment %s: %w", r.Key, err)
	}
	err = s.commit(change{Put: &a})
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pending, a.Key)
	if err != nil {
		s.free(a)
		return Attachment{}, err
	}
	return a.clone(), nil
}

// choose picks what the attachment gets and keeps others from it.
func (s *Store) choose(r Request) (Attachment, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.byKey[r.Key]; ok || s.pending[r.Key] {
		return Attachment{}, ErrExists
	}
	a := Attachment{
		Key: r.Key, Network: r.Network,
		PodUID: r.PodUID, PodNamespace: r.PodNamespace, PodName: r.PodName, Netns: r.Netns,
		HostInterface: HostInterface(r.Key),
		NetworkID:     r.NetworkID, MTU: r.MTU, Created: time.Now().UTC().Truncate(time.Second),
	}
	for i, rng := range r.Ranges {
		addr, err := rng.Next(s.cursors.Addresses[rng.Prefix()], func(addr netip.Addr) bool {
			_, taken := s.addresses[addr]
			// Two IPv6 addresses can hash to one MAC: the second is passed over.
			if _, sameMAC := s.macs[intent.PodMAC(addr)]; i == 0 && sameMAC {
				return true
			}
			return taken
		})
		if err != nil {
			return Attachment{}, err
		}
		a.Addresses = append(a.Addresses, rng.WithLength(addr))
		a.Gateways = append(a.Gateways, rng.Gateway())
	}
	a.MAC = intent.PodMAC(a.Addresses[0].Addr())
	port, err := s.nextPort()
	if err != nil {
		return Attachment{}, err
	}
	a.OFPort = port
	s.pending[a.Key] = true
	s.reserve(a)
	s.moveCursors(a)
	return a, nil
}

// nextPort is the first free port number after the last one handed out.
func (s *Store) nextPort() (uint32, error) {
	const count = intent.LastPodPort - intent.FirstPodPort + 1
	if len(s.ports) >= int(count) {
		return 0, ErrNoPort
	}
	port := s.cursors.Port
	for {
		if port++; port < intent.FirstPodPort || port > intent.LastPodPort {
			port = intent.FirstPodPort
		}
		if _, taken := s.ports[port]; !taken {
			return port, nil
		}
	}
}

// Release forgets an attachment and frees what it had. It returns false if there
// is none of that key, or one that is being released by another call. On a
// *WriteError it is still there.
func (s *Store) Release(k Key) (bool, error) {
	s.mu.Lock()
	if _, ok := s.byKey[k]; !ok || s.pending[k] {
		s.mu.Unlock()
		return false, nil
	}
	s.pending[k] = true
	s.mu.Unlock()

	err := s.commit(change{Delete: &k})
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pending, k)
	return true, err
}
