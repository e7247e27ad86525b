// SPDX-License-Identifier: Apache-2.0

package resource

// portID is the attribute that says which port a floating IP leads to.
const portID = "port_id"

// leadsTo is the id of the port that a floating IP leads to; empty: none, or it is something else.
func leadsTo(r Ref, a Actual) string {
	if r.Kind != FloatingIP {
		return ""
	}
	return text(a.Attributes[portID])
}

// strays is the id of the port that a floating IP leads to, and is not to; empty: there is none.
func (p *planner) strays(r Resource, a Actual) string {
	at := leadsTo(r.Ref, a)
	if at == p.resolved(r.Mutable[portID]) {
		return ""
	}
	return at
}

// Expose notes that a floating IP may lead to a port whatever is wanted: Neutron refuses to change
// that, or it is not known what a call has done. An object that is to get the port gets another
// one, made in its place: it would be reached from outside by an address that is not its own.
func (i *Inventory) Expose(port string) { i.exposed[port] = true }

// Exposed reports whether Expose was called for a port.
func (i *Inventory) Exposed(port string) bool { return i.exposed[port] }
