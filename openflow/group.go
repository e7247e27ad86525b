// SPDX-License-Identifier: Apache-2.0

package openflow

// GroupType says how a group uses its buckets.
type GroupType uint8

// Group types.
const (
	GroupAll GroupType = iota
	GroupSelect
	GroupIndirect
	GroupFastFailover
)

// Reserved group numbers.
const (
	GroupMax       uint32 = 0xffffff00
	GroupAllGroups uint32 = 0xfffffffc // in a GroupDelete: every group
	GroupNone      uint32 = 0xffffffff
)

// Group is a set of buckets of actions, one or all of which a packet meets.
type Group struct {
	ID      uint32
	Type    GroupType
	Buckets []Bucket
	// SelectionMethod of a select group: "" (the switch's default), "hash" or "dp_hash".
	SelectionMethod string
	SelectionParam  uint64 // dp_hash: basis, and which hash
	SelectionFields Match  // hash: the fields to hash; masks say which bits
}

// Bucket is an action set of a group: of output, group, resubmit and ct, only one runs.
type Bucket struct {
	ID         uint32
	Weight     uint16 // of select groups; 0: never chosen
	WatchPort  uint32 // of fast failover; 0: none
	WatchGroup uint32 // of fast failover; 0: none
	Actions    []Action
}

// Equal reports whether g and h are the same group with the same effect.
func (g *Group) Equal(h *Group) bool { return false }

// String prints g as "ovs-ofctl dump-groups" does.
func (g *Group) String() string { return "" }

// GroupModCommand says what a GroupMod does.
type GroupModCommand uint16

// Commands.
const (
	GroupAdd          GroupModCommand = 0
	GroupModify       GroupModCommand = 1
	GroupDelete       GroupModCommand = 2
	GroupInsertBucket GroupModCommand = 3
	GroupRemoveBucket GroupModCommand = 5
	GroupAddOrModify  GroupModCommand = 0x8000 // Open vSwitch's own
)

// Reserved bucket numbers, for GroupMod.BucketID.
const (
	BucketFirst uint32 = 0xfffffffd
	BucketLast  uint32 = 0xfffffffe
	BucketAll   uint32 = 0xffffffff
)

// GroupMod adds, changes or deletes a group.
type GroupMod struct {
	Command GroupModCommand
	Group   Group
	// BucketID is, for GroupInsertBucket, the bucket after which the new ones go, and
	// for GroupRemoveBucket the one that goes.
	BucketID uint32
}
