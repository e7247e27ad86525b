// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"iter"
	"net/netip"
)

// FloatingIP is an address of an external Network that stands for a Port. The node with the Port
// answers for it.
type FloatingIP struct {
	Name    string // the key: namespace/name
	Network string // name of the external Network
	Address netip.Addr
	// Port is the namespace/name of the Port, which need not exist; empty: the address stands for
	// none.
	Port string
}

// FloatingIPs are all of the cluster that take effect, by namespace/name.
func (s *State) FloatingIPs() Table[FloatingIP] { return s.floatingIPs }

// FloatingIPsOf are those that stand for the Port of that namespace/name.
func (s *State) FloatingIPsOf(port string) iter.Seq[FloatingIP] {
	return s.floatingIPs.by(floatingIPsByPort, port)
}

// FloatingIPsAt are those with an address.
func (s *State) FloatingIPsAt(a netip.Addr) iter.Seq[FloatingIP] {
	return s.floatingIPs.by(floatingIPsByAddress, a.String())
}

// SetFloatingIP adds or replaces a FloatingIP.
func (tx *Tx) SetFloatingIP(f FloatingIP) { tx.floatingIPs = tx.floatingIPs.set(f) }

// DeleteFloatingIP removes the FloatingIP of that namespace/name.
func (tx *Tx) DeleteFloatingIP(name string) { tx.floatingIPs = tx.floatingIPs.delete(name) }

func (f FloatingIP) key() string             { return f.Name }
func (f FloatingIP) equal(o FloatingIP) bool { return f == o }
func (f FloatingIP) clone() FloatingIP       { return f }
