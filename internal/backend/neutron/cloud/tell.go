// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"slices"

	"coelan.io/coelan/internal/backend/neutron/resource"
)

// toldKinds are the kinds that Found is told of.
var toldKinds = []resource.Kind{resource.Network, resource.Subnet, resource.Router, resource.Port, resource.FloatingIP}

// teller tells of what is there as it is wanted. An object that does not have its port yet is not
// told of it while a floating IP leads there that is to lead elsewhere: the pod would be reached
// from outside by an address of another one, which had the port before.
type teller struct {
	found func(resource.Resource, resource.Actual)
	want  *resource.Set
	have  *resource.Inventory
	due   map[resource.Ref]bool // what has a call in the plan
	// led is how many floating IPs lead to a port that are to lead elsewhere, by its id, and
	// withheld are the ports that are not told of for that.
	led      map[string]int
	withheld map[string]resource.Ref
}

// newTeller returns one for a plan.
func newTeller(
	found func(resource.Resource, resource.Actual), want *resource.Set, have *resource.Inventory, calls []resource.Call,
) *teller {
	t := &teller{
		found: found, want: want, have: have, due: map[resource.Ref]bool{}, led: map[string]int{},
		withheld: map[string]resource.Ref{},
	}
	for _, c := range calls {
		t.due[c.Ref] = true
		if c.Frees != "" {
			t.led[c.Frees]++
		}
	}
	return t
}

// all tells of what is there: of ports, those that need no call.
func (t *teller) all() {
	for _, kind := range toldKinds {
		for _, r := range t.want.All(kind) {
			if kind != resource.Port || !t.due[r.Ref] {
				t.of(r.Ref)
			}
		}
	}
}

// of tells of a resource that is as it is wanted, if it is one that is told of.
func (t *teller) of(ref resource.Ref) {
	r, wanted := t.want.Get(ref)
	a, there := t.have.Get(ref)
	if !wanted || !there || !slices.Contains(toldKinds, r.Kind) || r.Kind == resource.Port && r.Spare {
		return
	}
	a, placed := t.have.Placed(r, a)
	switch {
	case !placed:
	case r.Kind == resource.Port && (t.led[a.ID] > 0 || t.have.Exposed(a.ID)) && !t.want.Holds(r, a):
		t.withheld[a.ID] = ref
	default:
		t.found(r, a)
	}
}

// freed notes that a floating IP leads to a port no longer.
func (t *teller) freed(port string) {
	t.led[port]--
	if ref, waits := t.withheld[port]; waits && t.led[port] == 0 {
		delete(t.withheld, port)
		t.of(ref)
	}
}

// exposed says which ports are withheld for good: those of other programs, in place of which none
// is made.
func (t *teller) exposed() (problems []resource.Problem) {
	for _, r := range t.want.All(resource.Port) {
		a, _ := t.have.Get(r.Ref)
		if _, waits := t.withheld[a.ID]; waits && r.Optional && t.have.Exposed(a.ID) {
			problems = append(problems, resource.Problem{
				Object: r.Object, Reason: "FloatingIPNotDetached", Message: "port of Neutron: a floating IP of another object leads to " +
					"port " + a.ID + ", and Neutron does not take it away: openstack floating ip unset --port",
			})
		}
	}
	return problems
}
