// SPDX-License-Identifier: Apache-2.0

package openflow

// GroupMod adds, changes or deletes a group.
type GroupMod struct {
	Command GroupModCommand
	Group   Group
	// BucketID is, for GroupInsertBucket, the bucket after which the new ones go, and
	// for GroupRemoveBucket the one that goes. Of other commands it stays 0.
	BucketID uint32
}

// GroupModCommand says what a GroupMod does.
type GroupModCommand uint16

// Commands.
const (
	GroupAdd    GroupModCommand = 0
	GroupModify GroupModCommand = 1
	GroupDelete GroupModCommand = 2
	// GroupInsertBucket has no SelectionMethod and the group's Type, of which depends how
	// weights are read. Open vSwitch before 3.2.6, 3.3.5, 3.4.3, 3.5.1 and 3.6 sends no
	// packet to the older buckets of a select group after it, unless the method is "hash".
	// Version 3.1 hangs if there is no bucket to insert.
	GroupInsertBucket GroupModCommand = 3
	GroupRemoveBucket GroupModCommand = 5
	GroupAddOrModify  GroupModCommand = 0x8000 // Open vSwitch's own
)

// The greatest number of a bucket, and reserved ones for GroupMod.BucketID.
const (
	BucketMax   uint32 = 0xffffff00
	BucketFirst uint32 = 0xfffffffd
	BucketLast  uint32 = 0xfffffffe
	BucketAll   uint32 = 0xffffffff
)

// AddGroup returns the message that adds g; it is refused if there is a group with its ID.
func AddGroup(g Group) *GroupMod { return &GroupMod{Command: GroupAdd, Group: g} }

// DeleteGroup returns the message that deletes group id, or GroupAllGroups, and the
// flows that use it.
func DeleteGroup(id uint32) *GroupMod { return &GroupMod{Command: GroupDelete, Group: Group{ID: id}} }

// groupModLen is the length of a GroupMod without buckets and properties.
const groupModLen = HeaderLen + 16

func (*GroupMod) msgType() uint8 { return typeGroupMod }

// movesBuckets reports whether BucketID counts.
func (c GroupModCommand) movesBuckets() bool { return c == GroupInsertBucket || c == GroupRemoveBucket }

func (m *GroupMod) appendBody(b []byte) []byte {
	b = be.AppendUint16(b, uint16(m.Command))
	b = append(b, byte(m.Group.Type), 0)
	b = be.AppendUint32(b, m.Group.ID)
	lenAt := len(b)
	bucket := BucketAll
	if m.Command.movesBuckets() {
		bucket = m.BucketID
	}
	b = be.AppendUint32(append(b, 0, 0, 0, 0), bucket)
	b, n := m.Group.appendBuckets(b)
	be.PutUint16(b[lenAt:], uint16(n))
	return m.Group.appendProps(b)
}

func decodeGroupMod(r *reader) Message {
	m := &GroupMod{Command: GroupModCommand(r.uint16())}
	m.Group.Type = GroupType(r.uint8())
	r.skip(1)
	m.Group.ID = r.uint32()
	n := int(r.uint16())
	r.skip(2)
	if bucket := r.uint32(); m.Command.movesBuckets() {
		m.BucketID = bucket
	}
	buckets := r.sub(n)
	m.Group.decodeBuckets(&buckets)
	if buckets.err != nil {
		r.err = buckets.err
	}
	m.Group.decodeProps(r)
	return m
}
