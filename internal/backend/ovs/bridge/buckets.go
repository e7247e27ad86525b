// SPDX-License-Identifier: Apache-2.0

package bridge

import (
	"cmp"
	"slices"

	"coelan.io/coelan/openflow"
)

// A group changes bucket by bucket, where Open vSwitch can: it applies
// INSERT_BUCKET to every select group, but before 3.2.6, 3.3.5, 3.4.3, 3.5.1 and
// 3.6 it then chooses among the inserted buckets alone, since it makes the table
// of dp_hash before it copies the others (ofproto-dpif.c group_construct). After
// REMOVE_BUCKET it makes none, so that each connection costs an upcall. So
// select groups are written whole, unless their method is "hash".
//
// That costs little: dp_hash has at most 256 slots (the sum of weights by the
// least of them, up to a power of 2). For a group that needs more Open vSwitch
// falls back to what "hash" without fields does: a choice by number of bucket
// and a hash of the packet, of which each connection makes an upcall and a
// megaflow.

// tabled reports whether a switch chooses from a table that only a group mod
// with all of the group's buckets fills.
func tabled(g *openflow.Group) bool {
	return g.Type == openflow.GroupSelect && g.SelectionMethod != "hash"
}

// changeGroup turns have into want, which differ: by removal and insertion of
// buckets, or whole if they are not all that differs or more go than stay.
func changeGroup(have, want *openflow.Group) []*openflow.GroupMod {
	h, w := *have, *want
	h.Buckets, w.Buckets = nil, nil
	whole := []*openflow.GroupMod{{Command: openflow.GroupModify, Group: *want}}
	if tabled(want) || want.Type == openflow.GroupFastFailover || !h.Equal(&w) {
		return whole
	}
	old := make(map[uint32]openflow.Bucket, len(have.Buckets))
	for _, b := range have.Numbered() {
		old[b.ID] = b
	}
	var added []openflow.Bucket
	for _, b := range want.Numbered() {
		if was, ok := old[b.ID]; ok && was.Equal(&b) {
			delete(old, b.ID)
		} else {
			added = append(added, b)
		}
	}
	if stay := len(want.Buckets) - len(added); len(old) > stay {
		// Each removal costs a switch a copy of the group.
		return whole
	}
	var mods []*openflow.GroupMod
	bare := openflow.Group{ID: want.ID, Type: want.Type}
	for _, b := range have.Numbered() {
		if _, goes := old[b.ID]; goes {
			mods = append(mods, &openflow.GroupMod{Command: openflow.GroupRemoveBucket, Group: bare, BucketID: b.ID})
		}
	}
	if len(added) == 0 {
		return mods
	}
	bare.Buckets = added
	return append(mods, &openflow.GroupMod{Command: openflow.GroupInsertBucket, Group: bare,
		BucketID: openflow.BucketLast})
}

// badGroup finds a group that must not reach a switch, which would not refuse
// all of them; see openflow.Group.Validate.
func (p *plan) badGroup() error {
	for _, g := range slices.Concat(p.groups.added, p.groups.changed) {
		if err := g.spec.Validate(); err != nil {
			return &Refused{Owner: g.owner, Rule: groupText(g.spec), Err: err}
		}
	}
	return nil
}

// groupText prints g with its buckets in the order of their numbers, where their
// order on a switch is history.
func groupText(g *openflow.Group) string {
	h := *g
	if h.Buckets = slices.Clone(g.Numbered()); g.Type != openflow.GroupFastFailover {
		slices.SortFunc(h.Buckets, func(a, b openflow.Bucket) int { return cmp.Compare(a.ID, b.ID) })
	}
	return h.String()
}
