// SPDX-License-Identifier: Apache-2.0

package bridge

import (
	"slices"

	"coelan.io/coelan/openflow"
)

// Rules is what one owner wants on a bridge.
type Rules struct {
	Flows  []openflow.Flow
	Groups []openflow.Group
	Meters []openflow.Meter
}

// Empty reports whether there is no rule at all.
func (r *Rules) Empty() bool {
	return r == nil || len(r.Flows) == 0 && len(r.Groups) == 0 && len(r.Meters) == 0
}

// Desired is all that should be on a bridge, by owner. An owner is whatever the
// rules were made for, for example "port/default/web-0". The zero value is not
// usable; it is not safe for concurrent use.
//
// A flow, a group or a meter belongs to one owner: if two want the same key,
// the owner that sorts first has it, and Sync reports the other (Conflict).
type Desired struct {
	owners map[string]*Rules
	// changed are the owners of the latest changes, the first of which has the number from.
	changed []string
	from    int
	// followed is what Follow was called with last, followedTo the number that its next change had.
	followed   *Desired
	followedTo int
}

// NewDesired returns one that wants an empty bridge.
func NewDesired() *Desired { return &Desired{owners: map[string]*Rules{}} }

// Set replaces all rules of an owner. The bridge keeps r and what it holds:
// they must not be changed afterward. Giving the same pointer again costs
// nothing.
func (d *Desired) Set(owner string, r *Rules) {
	d.change(owner)
	if r.Empty() {
		delete(d.owners, owner)
		return
	}
	d.owners[owner] = r
}

// Remove drops all rules of an owner.
func (d *Desired) Remove(owner string) {
	d.change(owner)
	delete(d.owners, owner)
}

// change remembers that an owner's rules are others, and removes what is so long ago
// that it costs no more to compare all owners.
func (d *Desired) change(owner string) {
	d.changed = append(d.changed, owner)
	if half := len(d.changed) / 2; half > len(d.owners)+64 {
		d.changed, d.from = slices.Clone(d.changed[half:]), d.from+half
	}
}

// now is the number that the next change will have.
func (d *Desired) now() int { return d.from + len(d.changed) }

// since are the owners that changed from the change with that number on; false if that
// is forgotten.
func (d *Desired) since(change int) (map[string]bool, bool) {
	if change < d.from {
		return nil, false
	}
	owners := make(map[string]bool, d.now()-change)
	for _, owner := range d.changed[change-d.from:] {
		owners[owner] = true
	}
	return owners, true
}

// Get returns the rules of an owner, nil if it has none.
func (d *Desired) Get(owner string) *Rules { return d.owners[owner] }

// Len is the number of owners.
func (d *Desired) Len() int { return len(d.owners) }

// Follow makes d want what o wants; rules are shared. Following the same o again costs what has
// changed of it meanwhile.
func (d *Desired) Follow(o *Desired) {
	owners, ok := map[string]bool(nil), d.followed == o
	if ok {
		owners, ok = o.since(d.followedTo)
	}
	if !ok {
		owners = ownersOf(d.owners, o.owners)
	}
	for owner := range owners {
		if rules := o.owners[owner]; d.owners[owner] != rules {
			d.Set(owner, rules)
		}
	}
	d.followed, d.followedTo = o, o.now()
}

// ownersOf are the owners that any of the maps has.
func ownersOf(all ...map[string]*Rules) map[string]bool {
	owners := map[string]bool{}
	for _, m := range all {
		for owner := range m {
			owners[owner] = true
		}
	}
	return owners
}
