// SPDX-License-Identifier: Apache-2.0

package bridge

import (
	"errors"
	"fmt"
	"slices"

	"coelan.io/coelan/openflow"
)

func (f *Fake) groupMod(r fakeRules, m *openflow.GroupMod) error {
	if _, err := openflow.AppendMessage(nil, 0, &openflow.BundleAdd{Message: m}); err != nil {
		return err
	}
	g := m.Group
	have, exists := r.groups[g.ID]
	switch m.Command {
	case openflow.GroupDelete:
		return r.deleteGroup(&g)
	case openflow.GroupAdd:
		if exists {
			return fmt.Errorf("group %d exists", g.ID)
		}
	case openflow.GroupModify, openflow.GroupInsertBucket, openflow.GroupRemoveBucket:
		if !exists {
			return fmt.Errorf("group %d does not exist", g.ID)
		}
	case openflow.GroupAddOrModify:
	default:
		return fmt.Errorf("command %d is not known", m.Command)
	}
	if err := f.checkGroup(r, &g); err != nil {
		return err
	}
	g.Buckets = g.Numbered()
	if m.Command == openflow.GroupInsertBucket || m.Command == openflow.GroupRemoveBucket {
		if g.SelectionMethod != "" {
			return fmt.Errorf("group %d: a selection method with a change of buckets", g.ID)
		}
		buckets, err := changedBuckets(have.Buckets, m.Command, m.BucketID, g.Buckets)
		if err != nil {
			return fmt.Errorf("group %d: %w", g.ID, err)
		}
		switch g = have; {
		case m.Command == openflow.GroupInsertBucket && len(m.Group.Buckets) == 0:
			return fmt.Errorf("group %d: %w", g.ID, errNoBucket)
		case tabled(&g):
			return fmt.Errorf("group %d: %w", g.ID, errTabled)
		}
		g.Buckets = buckets
	}
	if err := g.Validate(); err != nil {
		return fmt.Errorf("%w: %w", errTooLong, err)
	}
	r.groups[g.ID] = g
	return nil
}

// changedBuckets is have after an insertion at, or a removal of, the bucket with
// number id or a reserved number.
func changedBuckets(have []openflow.Bucket, cmd openflow.GroupModCommand, id uint32,
	given []openflow.Bucket,
) ([]openflow.Bucket, error) {
	remove := cmd == openflow.GroupRemoveBucket
	if remove && len(given) > 0 {
		return nil, errors.New("a removal names its bucket by number, and gives none")
	}
	for _, b := range given {
		if slices.ContainsFunc(have, func(h openflow.Bucket) bool { return h.ID == b.ID }) {
			return nil, fmt.Errorf("bucket number %d is there", b.ID)
		}
	}
	at := slices.IndexFunc(have, func(h openflow.Bucket) bool { return h.ID == id })
	switch {
	case id == openflow.BucketAll && remove:
		return nil, nil
	case id == openflow.BucketFirst && remove, id == openflow.BucketLast && remove:
		if len(have) == 0 {
			return nil, nil
		}
		if at = 0; id == openflow.BucketLast {
			at = len(have) - 1
		}
	case id == openflow.BucketFirst:
		at = -1
	case id == openflow.BucketLast:
		at = len(have) - 1
	case at < 0:
		return nil, fmt.Errorf("bucket number %d does not exist", id)
	}
	if remove {
		return slices.Concat(have[:at], have[at+1:]), nil
	}
	return slices.Concat(have[:at+1], given, have[at+1:]), nil
}

func (r fakeRules) deleteGroup(g *openflow.Group) error {
	if g.SelectionMethod != "" || len(g.Buckets) > 0 {
		return errors.New("a group to delete is named by its number alone")
	}
	for id := range r.groups {
		if id == g.ID || g.ID == openflow.GroupAllGroups {
			delete(r.groups, id)
			r.deleteUsers(openflow.GroupAction{Group: id})
		}
	}
	return nil
}

// harmful is why Fake refuses what Open vSwitch accepts to its own harm or that
// of packets.
type harmful string

func (h harmful) Error() string { return string(h) }

const (
	// Version 3.1 aborts if a bundle that deletes a group fails at a later message,
	// because it puts the flows back before the group (assertion in
	// ofproto_rule_insert__).
	errInUse harmful = "flows still use it: delete them before it"
	// Packets would go to the new buckets alone, see tabled.
	errTabled harmful = "its selection method is not hash: it must be written whole"
	// Version 3.1 makes its list of buckets a circle and never answers again
	// (copy_buckets_for_insert_bucket).
	errNoBucket harmful = "an insertion of no bucket"
	// A dump would be garbled, or an abort, see openflow.Group.Validate.
	errTooLong harmful = "it would be too long"
)
