// SPDX-License-Identifier: Apache-2.0

package guestleases

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/dhcp/snoop"
	"coelan.io/coelan/internal/intent"
)

// kindLease is the kind of the objects that leases are stored as, by their attachments' keys.
const kindLease = "guestlease"

// record is a lease as it is stored.
type record struct {
	attachment.Key
	Lease snoop.Lease `json:"lease"`
}

// change gives a machine another lease than it had, or the same for another time. It returns when
// the machine may use it; false: it may not.
func (l *Leases) change(ctx context.Context, m *machine, lease snoop.Lease) bool {
	log := l.Log.With("port", m.at.PortKey(), "address", lease.Address)
	at, err := l.Store.Readdress(m.at.Key, prefixes(lease))
	var taken *attachment.TakenError
	switch {
	case errors.As(err, &taken) && taken.Released:
		log.Debug("the address of a machine is not free again yet; the machine asks again")
		return false
	case errors.As(err, &taken):
		log.Warn("a DHCP server has given a machine an address that another Port of this node has", "err", err)
		l.warn(m, fmt.Sprintf("a DHCP server gives it %s, but %v", lease.Address.Addr(), err))
		return false
	case errors.Is(err, attachment.ErrGone):
		return false
	case err != nil:
		log.Error("cannot note the address of a machine; it asks again", "err", err)
		return false
	}
	was := m.binding.Lease
	m.binding.Lease = lease
	l.save(m)
	l.Leased(m.leased())
	if was.Address == lease.Address {
		return true
	}
	log.Info("a machine has another address by DHCP", "had", was.Address)
	if err = l.Connect(ctx, at); err != nil {
		log.Warn("the flows of a machine's address are not there yet", "err", err)
	}
	l.Changed()
	return err == nil
}

func prefixes(lease snoop.Lease) []netip.Prefix {
	if !lease.Address.IsValid() {
		return nil
	}
	return []netip.Prefix{lease.Address}
}

// expire withdraws the leases that are over, and says when the next one is; the zero time: none is.
func (l *Leases) expire(ctx context.Context, now time.Time) (next time.Time) {
	l.mu.Lock()
	var over []*machine
	for _, m := range l.machines {
		at := m.binding.Lease.Expires
		switch {
		case !m.binding.Lease.Address.IsValid():
		case !now.Before(at):
			over = append(over, m)
		case next.IsZero() || at.Before(next):
			next = at
		}
	}
	l.mu.Unlock()
	for _, m := range over {
		had := m.binding.Lease.Address.Addr()
		bounded, cancel := context.WithTimeout(ctx, stepTimeout)
		l.change(bounded, m, snoop.Lease{})
		cancel()
		if m.binding.Lease.Address.IsValid() {
			next = now.Add(stepTimeout) // the disk is full, or the Port is about to go
			continue
		}
		l.warn(m, fmt.Sprintf(
			"its lease of %s has expired: the machine may send from no address until a DHCP server gives it one", had))
	}
	return next
}

// watchSilence warns, once, of machines that servers have not answered for some time, and says when
// there may be the next one; the zero time: none.
func (l *Leases) watchSilence(now time.Time) (next time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range l.machines {
		if m.unanswered.IsZero() || m.silent {
			continue
		}
		if at := m.unanswered.Add(silence); now.Before(at) {
			next = earlier(next, at)
			continue
		}
		m.silent = true
		which, problem := l.Servers(m.at.NetworkName, m.at.PortKey())
		message := fmt.Sprintf("no %s has answered for %v what the machine asks", which, silence)
		if problem != "" {
			message += ": " + problem
		}
		l.warn(m, message)
	}
	return next
}

// earlier is the first of two times; the zero time is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func (l *Leases) warn(m *machine, message string) {
	l.Events.PortWarning(m.at.PodNamespace, m.at.PortName, m.at.PodUID, v1alpha1.ReasonNoLease, message)
}

// leased is what the machine has; without an address: nothing.
func (m *machine) leased() backend.Lease {
	have := backend.Lease{
		Port: intent.Port{
			ID: m.at.Key.String(), Namespace: m.at.PodNamespace, Pod: m.at.PodName, UID: m.at.PodUID,
			Object: m.at.PortName, Network: m.at.NetworkName, MAC: m.at.MAC,
		},
		HostName: m.binding.Lease.HostName, Duration: time.Until(m.binding.Lease.Expires),
	}
	if a := m.binding.Lease.Address; a.IsValid() {
		have.Addresses = []netip.Addr{a.Addr()}
	}
	return have
}

// save writes a machine's lease to disk. Without it, an agent that starts anew withdraws the
// address until the machine asks again.
func (l *Leases) save(m *machine) {
	data, err := json.Marshal(record{m.at.Key, m.binding.Lease})
	switch {
	case err != nil:
	case m.binding.Lease.Address.IsValid():
		err = l.Store.ChangeObjects(kindLease, map[string][]byte{m.at.Key.String(): data}, nil)
	default:
		err = l.forget(m.at.Key)
	}
	if err != nil {
		l.Log.Error("cannot save the lease of a machine", "port", m.at.PortKey(), "err", err)
	}
}

func (l *Leases) forget(k attachment.Key) error {
	return l.Store.ChangeObjects(kindLease, nil, []string{k.String()})
}

// load reads what the last run has written, and withdraws addresses without a valid lease.
func (l *Leases) load(now time.Time) error {
	leases := map[attachment.Key]snoop.Lease{}
	for name, data := range l.Store.Objects(kindLease) {
		var r record
		if err := json.Unmarshal(data, &r); err != nil {
			return fmt.Errorf("lease of %s: %w", name, err)
		}
		at, attached := l.Store.Get(r.Key)
		if !attached || !slices.Equal(at.Addresses, prefixes(r.Lease)) || !now.Before(r.Lease.Expires) {
			if err := l.forget(r.Key); err != nil {
				return err
			}
			continue
		}
		leases[r.Key] = r.Lease
	}
	for _, at := range l.Store.List() {
		if !at.IsPort() || !at.Leased {
			continue
		}
		m := newMachine(at)
		m.binding.Lease = leases[at.Key]
		l.machines[at.Key] = m
		if _, err := l.Store.Readdress(at.Key, prefixes(m.binding.Lease)); err != nil {
			return fmt.Errorf("port %s: %w", at.PortKey(), err)
		}
	}
	return nil
}
