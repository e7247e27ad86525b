// SPDX-License-Identifier: Apache-2.0

package bridge

import (
	"maps"

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
}

// NewDesired returns one that wants an empty bridge.
func NewDesired() *Desired { return &Desired{owners: map[string]*Rules{}} }

// Set replaces all rules of an owner. The bridge keeps r and what it holds:
// they must not be changed afterwards. Giving the same pointer again costs
// nothing.
func (d *Desired) Set(owner string, r *Rules) {
	if r.Empty() {
		delete(d.owners, owner)
		return
	}
	d.owners[owner] = r
}

// Remove drops all rules of an owner.
func (d *Desired) Remove(owner string) { delete(d.owners, owner) }

// Get returns the rules of an owner, nil if it has none.
func (d *Desired) Get(owner string) *Rules { return d.owners[owner] }

// Len is the number of owners.
func (d *Desired) Len() int { return len(d.owners) }

// Clone returns a copy that can change independently; rules are shared.
func (d *Desired) Clone() *Desired { return &Desired{owners: maps.Clone(d.owners)} }
