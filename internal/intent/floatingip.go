// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"iter"
	"net/netip"
)

// FloatingIP is an address of an external Network that stands for a Port, and the node of that
// answers for it; or for a Service, and one of the nodes that are connected to the Network does.
type FloatingIP struct {
	Name    string // the key: namespace/name
	Network string // name of the external Network
	Address netip.Addr
	// Port is the namespace/name of the Port, which need not exist; empty: the address stands for
	// none.
	Port string
	// Service is the namespace/name of the Service, which need not exist; empty: the address stands
	// for none.
	Service string
}

// ChosenAddress is an address of an external Network that this node has been chosen to answer for:
// that of a Service.
type ChosenAddress struct {
	Address netip.Addr // the key
}

// FloatingIPs are all of the cluster that take effect, by namespace/name.
func (s *State) FloatingIPs() Table[FloatingIP] { return s.floatingIPs }

// FloatingIPsOf are those that stand for the Port of that namespace/name.
func (s *State) FloatingIPsOf(port string) iter.Seq[FloatingIP] {
	return s.floatingIPs.by(floatingIPsByPort, port)
}

// FloatingIPsOfService are those that stand for the Service of that namespace/name.
func (s *State) FloatingIPsOfService(service string) iter.Seq[FloatingIP] {
	return s.floatingIPs.by(floatingIPsByService, service)
}

// ChosenAddresses are all that this node has been chosen to answer for.
func (s *State) ChosenAddresses() Table[ChosenAddress] { return s.chosen }

// ChosenFloatingIPs are those of Services that this node has been chosen to answer for.
func (s *State) ChosenFloatingIPs() iter.Seq[FloatingIP] {
	return func(yield func(FloatingIP) bool) {
		for c := range s.chosen.All() {
			for f := range s.FloatingIPsAt(c.Address) {
				if f.Service != "" && !yield(f) {
					return
				}
			}
		}
	}
}

// FloatingIPsAt are those with an address.
func (s *State) FloatingIPsAt(a netip.Addr) iter.Seq[FloatingIP] {
	return s.floatingIPs.by(floatingIPsByAddress, a.String())
}

// SetFloatingIP adds or replaces a FloatingIP.
func (tx *Tx) SetFloatingIP(f FloatingIP) { tx.floatingIPs = tx.floatingIPs.set(f) }

// DeleteFloatingIP removes the FloatingIP of that namespace/name.
func (tx *Tx) DeleteFloatingIP(name string) { tx.floatingIPs = tx.floatingIPs.delete(name) }

// ReplaceChosenAddresses makes these the only addresses that this node has been chosen to answer
// for.
func (tx *Tx) ReplaceChosenAddresses(list []ChosenAddress) { tx.chosen = replace(tx.chosen, list) }

func (c ChosenAddress) key() string                { return c.Address.String() }
func (c ChosenAddress) equal(o ChosenAddress) bool { return c == o }
func (c ChosenAddress) clone() ChosenAddress       { return c }

func (f FloatingIP) key() string             { return f.Name }
func (f FloatingIP) equal(o FloatingIP) bool { return f == o }
func (f FloatingIP) clone() FloatingIP       { return f }
