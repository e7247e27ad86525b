// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Group is a set of buckets of actions, one or all of which a packet meets.
type Group struct {
	ID      uint32
	Type    GroupType
	Buckets []Bucket
	// SelectionMethod of a select group: "" (the switch's default), "hash" or "dp_hash".
	SelectionMethod string
	// SelectionParam is the hash's basis; of dp_hash the upper half chooses the algorithm.
	SelectionParam uint64
	// SelectionFields are, for "hash", the fields to hash: see HashOn.
	SelectionFields []FieldValue
}

// Bucket is an action set of a group: of its output, group, resubmit and ct only one runs,
// that of the highest class, so a ct together with an output is lost silently.
type Bucket struct {
	// ID tells buckets of a group apart, up to BucketMax. If all have 0, they are
	// numbered by their position.
	ID         uint32
	Weight     uint16 // of select groups; 0: never chosen
	WatchPort  uint32 // of fast failover; 0: none
	WatchGroup uint32 // of fast failover; 0: none
	Actions    []Action
}

// HashOn returns fields as Group.SelectionFields, all bits of each.
func HashOn(fields ...Field) []FieldValue {
	values := make([]FieldValue, len(fields))
	for i, f := range fields {
		values[i] = FieldValue{field: f, value: ones(uint(f.Width()))}
	}
	return values
}

// GroupType says how a group uses its buckets.
type GroupType uint8

// Group types.
const (
	GroupAll GroupType = iota
	GroupSelect
	GroupIndirect
	GroupFastFailover
)

var groupTypeNames = []string{"all", "select", "indirect", "ff"}

// String prints the type as ovs-ofctl does.
func (t GroupType) String() string { return nameOf(groupTypeNames, t) }

// Reserved group numbers.
const (
	GroupMax       uint32 = 0xffffff00 // the greatest number that a group can have
	GroupAllGroups uint32 = 0xfffffffc // in a GroupDelete or a request: every group
	GroupNone      uint32 = 0xffffffff
)

// Properties of a bucket, OpenFlow 1.5.1 section 7.3.4.3.
const (
	bucketWeight = iota
	bucketWatchPort
	bucketWatchGroup
)

// Netronome's property of a group that chooses how a bucket is selected, from netronome-ext.h.
const (
	propExperimenter  = 0xffff
	vendorNetronome   = 0x0000154d
	ntrSelection      = 1
	ntrMethodLen      = 16
	ntrSelectionFixed = 36 // bytes of the value before the fields
)

// Equal reports whether g and h are the same group with the same effect: what a switch
// dumps is Equal to what was sent. The order of buckets counts for fast failover only.
func (g *Group) Equal(h *Group) bool {
	if g.ID != h.ID || g.Type != h.Type || len(g.Buckets) != len(h.Buckets) {
		return false
	}
	if g.sameBytes(h) || g.Type == GroupFastFailover {
		return g.sameBytes(h)
	}
	x, y := g.byNumber(), h.byNumber()
	return x.sameBytes(&y)
}

func (g *Group) sameBytes(h *Group) bool {
	var stack [1024]byte
	b := g.appendTo(stack[:0])
	n := len(b)
	b = h.appendTo(b)
	return bytes.Equal(b[:n], b[n:])
}

// Numbered returns the buckets with the numbers that they have on a switch.
func (g *Group) Numbered() []Bucket {
	if slices.ContainsFunc(g.Buckets, func(k Bucket) bool { return k.ID != 0 }) {
		return g.Buckets
	}
	buckets := slices.Clone(g.Buckets)
	for i := range buckets {
		buckets[i].ID = uint32(i)
	}
	return buckets
}

// byNumber is g with its buckets in the order of their numbers.
func (g Group) byNumber() Group {
	g.Buckets = slices.Clone(g.Numbered())
	slices.SortStableFunc(g.Buckets, func(x, y Bucket) int { return cmp.Compare(x.ID, y.ID) })
	return g
}

// Equal reports whether k and l are the same bucket of select groups.
func (k *Bucket) Equal(l *Bucket) bool {
	var stack [256]byte
	b := k.appendTo(stack[:0], k.ID, GroupSelect)
	n := len(b)
	b = l.appendTo(b, l.ID, GroupSelect)
	return bytes.Equal(b[:n], b[n:])
}

// appendTo appends what identifies g's effect: buckets and properties.
func (g *Group) appendTo(b []byte) []byte {
	b, n := g.appendBuckets(b)
	return g.appendProps(be.AppendUint32(b, uint32(n)))
}

// wireLen is the length of what appendTo appends.
func (g *Group) wireLen() int {
	buf := wireBuffers.Get().(*[]byte)
	defer wireBuffers.Put(buf)
	*buf = g.appendTo((*buf)[:0])
	return len(*buf)
}

// appendBuckets appends the buckets and returns their length.
func (g *Group) appendBuckets(b []byte) ([]byte, int) {
	start := len(b)
	numbered := slices.ContainsFunc(g.Buckets, func(k Bucket) bool { return k.ID != 0 })
	for i := range g.Buckets {
		id := g.Buckets[i].ID
		if !numbered {
			id = uint32(i)
		}
		b = g.Buckets[i].appendTo(b, id, g.Type)
	}
	return b, len(b) - start
}

func (k *Bucket) appendTo(b []byte, id uint32, t GroupType) []byte {
	start := len(b)
	b = be.AppendUint32(append(b, 0, 0, 0, 0), id)
	actions := len(b)
	b = appendActions(b, k.Actions)
	be.PutUint16(b[start+2:], uint16(len(b)-actions))
	if t == GroupSelect || k.Weight != 0 {
		b = appendProp16(b, bucketWeight, k.Weight)
	}
	if k.WatchPort != 0 {
		b = appendProp32(b, bucketWatchPort, k.WatchPort)
	}
	if k.WatchGroup != 0 {
		b = appendProp32(b, bucketWatchGroup, k.WatchGroup)
	}
	be.PutUint16(b[start:], uint16(len(b)-start))
	return b
}

func (g *Group) appendProps(b []byte) []byte {
	if g.SelectionMethod == "" {
		return b
	}
	start := len(b)
	b = beginProp(b, propExperimenter)
	b = be.AppendUint32(b, vendorNetronome)
	b = be.AppendUint32(b, ntrSelection)
	b = appendZeros(b, 4)
	b = appendText(b, g.SelectionMethod, ntrMethodLen)
	b = be.AppendUint64(b, g.SelectionParam)
	fields := slices.Clone(g.SelectionFields)
	slices.SortFunc(fields, func(x, y FieldValue) int { return int(x.field) - int(y.field) })
	for i := range fields {
		fields[i].masked = false
		b = appendOXM(b, &fields[i])
	}
	return endProp(b, start)
}

// decodeBuckets reads buckets up to the end of r.
func (g *Group) decodeBuckets(r *reader) {
	for r.left() > 0 {
		n, actionsLen := int(r.uint16()), int(r.uint16())
		if n < 8 && r.err == nil {
			r.fail("bucket of %d bytes", n)
		}
		k := Bucket{ID: r.uint32()}
		if g.Type == GroupSelect {
			k.Weight = 1 // OpenFlow's default
		}
		body := r.sub(n - 8)
		actions := body.sub(actionsLen)
		k.Actions = actions.actions()
		if actions.err != nil {
			body.err = actions.err
		}
		for body.left() > 0 {
			if err := k.decodeProp(body.prop()); err != nil {
				body.err = err
			}
		}
		if body.err != nil {
			r.fail("bucket: %w", body.err)
			return
		}
		g.Buckets = append(g.Buckets, k)
	}
}

func (k *Bucket) decodeProp(p prop) (err error) {
	switch p.typ {
	case bucketWeight:
		k.Weight, err = p.uint16()
	case bucketWatchPort:
		k.WatchPort, err = p.uint32()
		k.WatchPort = zeroIfAny(k.WatchPort)
	case bucketWatchGroup:
		k.WatchGroup, err = p.uint32()
		k.WatchGroup = zeroIfAny(k.WatchGroup)
	}
	return err
}

// decodeProps reads a group's properties up to the end of r.
func (g *Group) decodeProps(r *reader) {
	for r.left() > 0 {
		p := r.prop()
		v := reader{b: p.value, err: r.err}
		if p.typ != propExperimenter || v.uint32() != vendorNetronome || v.uint32() != ntrSelection {
			continue
		}
		v.skip(4)
		g.SelectionMethod, g.SelectionParam = v.text(ntrMethodLen), v.uint64()
		for v.left() > 0 {
			f, rest, err := parseOXM(v.b)
			if err != nil {
				v.err = err
				break
			}
			v.b = rest
			if f.field != fieldNone {
				g.SelectionFields = append(g.SelectionFields, f)
			}
		}
		if v.err != nil {
			r.fail("selection method: %w", v.err)
		}
	}
}

// String prints g as "ovs-ofctl --no-names dump-groups" does.
func (g Group) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "group_id=%d,type=%s", g.ID, g.Type)
	if g.SelectionMethod != "" {
		s.WriteString(",selection_method=" + g.SelectionMethod)
		if g.SelectionParam != 0 {
			fmt.Fprintf(&s, ",selection_method_param=%d", g.SelectionParam)
		}
		s.WriteString(g.selectionFieldsText())
	}
	for i := range g.Buckets {
		s.WriteString(",bucket=" + g.Buckets[i].text(g.Type))
	}
	return s.String()
}

// selectionFieldsText prints the fields to hash, with their mask if it is not all of the field.
func (g *Group) selectionFieldsText() string {
	var names []string
	for _, v := range g.SelectionFields {
		name := v.field.String()
		if v.value != ones(v.width()) {
			name += "=" + v.text()
		}
		names = append(names, name)
	}
	switch len(names) {
	case 0:
		return ""
	case 1:
		return ",fields=" + names[0]
	}
	return ",fields(" + strings.Join(names, ",") + ")"
}

func (k *Bucket) text(t GroupType) string {
	s := []string{"bucket_id:" + utoa(k.ID)}
	usual := uint16(0)
	if t == GroupSelect {
		usual = 1
	}
	if k.Weight != usual {
		s = append(s, "weight:"+utoa(k.Weight))
	}
	if k.WatchPort != 0 {
		s = append(s, "watch_port:"+PortName(k.WatchPort))
	}
	if k.WatchGroup != 0 {
		s = append(s, "watch_group:"+utoa(k.WatchGroup))
	}
	return strings.Join(append(s, "actions="+ActionsString(k.Actions)), ",")
}
