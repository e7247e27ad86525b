// SPDX-License-Identifier: Apache-2.0

package resource

import "maps"

// Trunk is that of the port by which a machine of OpenStack is plugged that is a node. Packets of
// other ports that are on it leave the machine, and come to it, in a VLAN each.
type Trunk struct {
	ID string
	// Reason and Why say why ports cannot be put on it, as a Problem does; empty: they can.
	Reason, Why string
}

// Subport is a port's place on a trunk.
type Subport struct {
	Trunk string // its id
	VLAN  int
}

// SetTrunk adds what there is of the trunk of a node.
func (i *Inventory) SetTrunk(node string, t Trunk) { i.trunks[node] = t }

// Trunks are those of nodes that were looked for, by the nodes' names.
func (i *Inventory) Trunks() map[string]Trunk { return maps.Clone(i.trunks) }

// SetSubport notes that a port, be it another program's, is on a trunk.
func (i *Inventory) SetSubport(port string, s Subport) { i.subports[port] = s }

// RemoveSubport notes that a port is on no trunk.
func (i *Inventory) RemoveSubport(port string) { delete(i.subports, port) }

// VLANs are those that ports on a trunk have.
func (i *Inventory) VLANs(trunk string) map[int]bool {
	used := map[int]bool{}
	for _, s := range i.subports {
		if s.Trunk == trunk {
			used[s.VLAN] = true
		}
	}
	return used
}

// Subport is the place of a port; false: it is on no trunk.
func (i *Inventory) Subport(port string) (Subport, bool) {
	at, on := i.subports[port]
	return at, on
}

// Placed is a port with its VLAN; false: it is not on the trunk that it is wanted on.
func (i *Inventory) Placed(r Resource, a Actual) (Actual, bool) {
	if r.Trunk == "" {
		return a, true
	}
	at, on := i.subports[a.ID]
	a.VLAN = at.VLAN
	return a, on && at.Trunk == i.trunks[r.Trunk].ID
}

// leave adds calls that take ports off trunks which go, or are wanted elsewhere: Neutron deletes no
// port that is on one. Borrowed ones that the program has put there which made them stay.
func (p *planner) leave(calls []Call) []Call {
	add := func(r Ref, a Actual) {
		if at, on := p.have.subports[a.ID]; on && (!borrowed(r) || a.Device != "") {
			calls = append(calls, Call{Operation: Leave, Ref: r, ID: a.ID, Trunk: at.Trunk})
		}
	}
	for _, r := range sortedRefs(p.have.resources, Port) {
		a := p.have.resources[r]
		to, wanted := p.want.Get(r)
		if next, renamed := p.leaving[r]; renamed {
			to, wanted = p.want.resources[next], true
		}
		if _, placed := p.have.Placed(to, a); !wanted || p.replaced[to.Ref] || !placed || to.Trunk == "" {
			add(r, a)
		}
	}
	for _, r := range sortedRefs(p.have.surplus, Port) {
		for _, a := range p.have.surplus[r] {
			add(r, a)
		}
	}
	return calls
}

// unbind has a port for a trunk not be bound to its node, as it is if it was made before the node
// said that it is a machine: OVN would have an ovn-controller of the node connect it, and there is
// none. Neutron may bind it to the host below the machine.
func unbind(r Resource, a Actual, changes Attributes) {
	const host = "binding:host_id"
	if r.Trunk != "" && a.Attributes[host] == r.Trunk {
		changes[host] = ""
	}
}

// join are the calls that put ports on their trunks: those of objects, and those of spare ports.
func (p *planner) join() (now, later []Call) {
	for _, r := range p.want.All(Port) {
		trunk := p.have.trunks[r.Trunk]
		a, there := p.get(r.Ref)
		if r.Trunk == "" || trunk.Reason != "" || trunk.ID == "" || !there && r.Optional {
			continue
		}
		if p.replaced[r.Ref] {
			a, there = Actual{}, false
		}
		if _, placed := p.have.Placed(r, a); there && placed {
			continue
		}
		c := Call{Operation: Join, Ref: r.Ref, Object: r.Object, ID: a.ID, Trunk: trunk.ID, Spare: r.Spare}
		if r.Spare {
			later = append(later, c)
		} else {
			now = append(now, c)
		}
	}
	return now, later
}
