// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"slices"

	"coelan.io/coelan/internal/intent"
)

// View is all that a node has to know of policies. Its values share memory with the Engine and with
// other Views: they are not to be changed, and stay as they are when the Engine goes on.
type View struct {
	Rules    []intent.Rule    // that some Subject has, by ID
	Subjects []intent.Subject // of the Endpoints on the node, by Key
	Peers    []intent.Peer    // that are in some Rule's Groups, by Space and Address
}

// Delta leads from an older View of a node to the present one: what is in View is new or has
// changed, what the other fields name is gone. After several changes, a Delta may contain unchanged
// items, or deletions of items that the node never had.
type Delta struct {
	View
	RemovedRules    []string // by ID, sorted
	RemovedSubjects []string // by Key, sorted
	RemovedPeers    []string // by intent.PeerKey, sorted
}

// Apply makes the change to what a node knows.
func (d Delta) Apply(tx *intent.Tx) {
	for _, id := range d.RemovedRules {
		tx.DeleteRule(id)
	}
	for _, key := range d.RemovedSubjects {
		tx.DeleteSubject(key)
	}
	for _, key := range d.RemovedPeers {
		tx.DeletePeer(key)
	}
	for _, r := range d.Rules {
		tx.SetRule(r)
	}
	for _, s := range d.Subjects {
		tx.SetSubject(s)
	}
	for _, p := range d.Peers {
		tx.SetPeer(p)
	}
}

// Empty says that nothing has changed.
func (d Delta) Empty() bool {
	return len(d.Rules)+len(d.Subjects)+len(d.Peers)+len(d.RemovedRules)+len(d.RemovedSubjects)+len(d.RemovedPeers) == 0
}

// sort puts everything in the order that the fields promise.
func (d *Delta) sort() {
	d.View.sort()
	slices.Sort(d.RemovedRules)
	slices.Sort(d.RemovedSubjects)
	slices.Sort(d.RemovedPeers)
}

func (v *View) sort() {
	slices.SortFunc(v.Rules, func(a, b intent.Rule) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(v.Subjects, func(a, b intent.Subject) int { return cmp.Compare(a.Key, b.Key) })
	slices.SortFunc(v.Peers, func(a, b intent.Peer) int {
		return cmp.Or(cmp.Compare(a.Space, b.Space), a.Address.Compare(b.Address))
	})
}
