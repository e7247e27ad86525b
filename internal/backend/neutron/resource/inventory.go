// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
)

// Actual is a resource that is there.
type Actual struct {
	ID         string
	Attributes Attributes // as decoded from JSON
	// VLAN is that of a port on a trunk: see Inventory.Placed.
	VLAN int
	Owed
}

// Inventory is what there is of a cluster. Of several resources with one Ref, which a call leaves
// that is repeated because its answer was lost, the oldest is the one; the others are surplus.
type Inventory struct {
	// Own is the id of the cluster's own project.
	Own       string
	resources map[Ref]Actual
	surplus   map[Ref][]Actual
	loans     map[Ref]Loan
	offers    []offer
	asked     []offer // of Claims of objects
	// looked are the answers about all that are to be taken, also while others are asked about.
	looked map[Ref]offer
	// trunks are by the names of nodes, subports by the ids of ports.
	trunks   map[string]Trunk
	subports map[string]Subport
	exposed  map[string]bool // see Expose
	foreign  map[Ref][]netip.Prefix
	// BGPVPNs says whether Neutron has them.
	BGPVPNs Extension
}

// Extension says whether an extension of Neutron's API can be used.
type Extension struct {
	Missing bool // Neutron does not have it
	// Reason and Why say why it cannot be used although it is there, as a Problem does; empty: it
	// can.
	Reason, Why string
}

// Usable reports whether it can.
func (e Extension) Usable() bool { return !e.Missing && e.Reason == "" }

// NewInventory returns an empty Inventory.
func NewInventory() *Inventory {
	return &Inventory{
		resources: map[Ref]Actual{}, surplus: map[Ref][]Actual{}, loans: map[Ref]Loan{},
		trunks: map[string]Trunk{}, subports: map[string]Subport{}, looked: map[Ref]offer{},
		exposed: map[string]bool{}, foreign: map[Ref][]netip.Prefix{},
	}
}

// Put adds what has been found.
func (i *Inventory) Put(r Ref, a Actual) {
	before, there := i.resources[r]
	if there && before.ID != a.ID {
		if older(before, a) {
			before, a = a, before
		}
		i.surplus[r] = append(i.surplus[r], before)
	}
	i.resources[r] = a
}

// older reports whether a was made before b.
func older(a, b Actual) bool {
	created := func(x Actual) string { s, _ := x.Attributes["created_at"].(string); return s }
	return cmp.Or(cmp.Compare(created(a), created(b)), cmp.Compare(a.ID, b.ID)) < 0
}

// ProjectOf is the project that a resource is in, as Refs have it.
func (i *Inventory) ProjectOf(a Actual) string {
	project, _ := a.Attributes["project_id"].(string)
	return i.Named(project)
}

// Named is the project of an id, as Refs have it.
func (i *Inventory) Named(project string) string {
	if project == i.Own {
		return ""
	}
	return project
}

// Set replaces what there is with a Ref.
func (i *Inventory) Set(r Ref, a Actual) {
	i.resources[r] = a
	delete(i.looked, r)
}

// Get is what there is with a Ref.
func (i *Inventory) Get(r Ref) (Actual, bool) {
	a, ok := i.resources[r]
	if loan, lent := i.loans[r]; lent && !ok {
		return loan.Actual, loan.Refused == ""
	}
	return a, ok
}

// PutForeign adds a subnet that is not the cluster's to a router that is, by which its hosts
// answer.
func (i *Inventory) PutForeign(router Ref, subnet netip.Prefix) {
	i.foreign[router] = append(i.foreign[router], subnet)
}

// Foreign are the subnets that PutForeign has added to a router, in order.
func (i *Inventory) Foreign(router Ref) []netip.Prefix {
	return slices.SortedFunc(slices.Values(i.foreign[router]), netip.Prefix.Compare)
}

// All are the Refs of what there is of a kind, by key.
func (i *Inventory) All(k Kind) []Ref { return sortedRefs(i.resources, k) }

// Counts are how many resources there are of each kind.
func (i *Inventory) Counts() map[Kind]int {
	counts := map[Kind]int{}
	for r := range i.resources {
		counts[r.Kind]++
	}
	return counts
}

// Remove forgets a resource that is gone.
func (i *Inventory) Remove(r Ref, id string) {
	if i.resources[r].ID == id {
		delete(i.resources, r)
		return
	}
	i.surplus[r] = slices.DeleteFunc(i.surplus[r], func(a Actual) bool { return a.ID == id })
	if len(i.surplus[r]) == 0 {
		delete(i.surplus, r)
	}
}

// RemoveRules forgets the rules of a security group, which go with it, and those that have it as
// their peer.
func (i *Inventory) RemoveRules(group string) {
	for r, a := range i.resources {
		if r.Kind == SecurityGroupRule &&
			(a.Attributes["security_group_id"] == group || a.Attributes["remote_group_id"] == group) {
			delete(i.resources, r)
		}
	}
}

// sortedRefs are the Refs of a kind in a map, by key.
func sortedRefs[T any](of map[Ref]T, k Kind) []Ref {
	var list []Ref
	for r := range maps.Keys(of) {
		if r.Kind == k {
			list = append(list, r)
		}
	}
	sortByKey(list, func(r Ref) string { return r.Key + " " + r.Project })
	return list
}

func sortByKey[T any](list []T, key func(T) string) {
	slices.SortFunc(list, func(a, b T) int { return cmp.Compare(key(a), key(b)) })
}
