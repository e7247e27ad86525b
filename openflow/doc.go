// SPDX-License-Identifier: Apache-2.0

// Package openflow speaks OpenFlow 1.5 with the Nicira extensions to Open vSwitch.
//
// It has two layers. The codec turns flows, groups, meters and all messages into bytes and
// back, byte for byte as Open vSwitch's own tools do, and into the text that ovs-ofctl prints.
// On it stands the connection: Dial and Conn, with bundles, dumps, barriers and errors by
// message.
//
// # Fields, values, matches
//
// A Field is one of those that Open vSwitch knows, such as FieldIPv4Dst or FieldReg3. A
// Subfield is a run of its bits: FieldReg0.Bits(0, 3), FieldReg3.All(). A FieldValue assigns
// a value, under a mask if only some bits count. Functions named after the field make one from
// a Go value (EthDst, IPDst, L4Dst, CTState …; addresses and prefixes are netip's, of both
// families); for others there are Field.Value, Field.Masked and Subfield.Value. A FieldValue
// serves both to match and to set:
//
//	source := openflow.FieldReg0.Bits(0, 3)
//	match := openflow.NewMatch(source.Value(1), openflow.IPDst(prefix))
//	action := openflow.SetField(source.Value(2))
//
// NewMatch adds the prerequisites that follow without a choice: IPDst of an IPv6 prefix says
// that eth_type is 0x86dd. A Match is a comparable value in canonical form, so that it can be
// part of a map's key, and that what a switch dumps equals what was sent.
//
// # Flows
//
// A Flow is plain data. Its Key tells it apart on a switch, Equal compares the whole. Actions
// come from functions (Output, SetField, Move, Resubmit …) or are structs that are used by
// value where there are many options (CT, Learn, Controller):
//
//	flow := openflow.Flow{
//		Table: 10, Priority: 100, Cookie: 7,
//		Match:   openflow.NewMatch(openflow.IPDst(prefix)),
//		Actions: []openflow.Action{openflow.DecTTL(), openflow.Output(3)},
//		Goto:    20,
//	}
//
// Nothing is checked while flows are built: a value that is too large or of the wrong family is
// encoded in a form that every switch refuses, so that it cannot turn into a wider match.
// Flow.Validate says beforehand, in words, what a switch would refuse with a number. String prints
// a flow as ovs-ofctl does, and ParseFlow reads that.
//
// # Messages
//
// AppendMessage and Decode convert between a Message and its wire form. Decoding is safe with
// bytes from anywhere: it allocates no more than a small multiple of them. What the package
// does not know is kept as UnknownAction, Unknown or UnknownMultipart and encoded as it came.
// A switch's refusal is an *Error. Its Name is that of the OpenFlow specification.
//
// # What to know about Open vSwitch
//
//   - A field of conntrack's tuple (ct_nw_dst …) and resubmit(,table,ct) need a ct_state that
//     excludes invalid packets: +trk alone is refused, +trk-inv or +est is not.
//   - A group's bucket is an action set: of ct, resubmit, output and group only one runs.
//   - A group that is longer than a message can be made by insertions, but not dumped: the answer
//     is garbled, or the switch aborts. Group.Validate knows the limit.
//   - Versions before 3.2.6, 3.3.5, 3.4.3, 3.5.1 and 3.6 take a GroupInsertBucket for the whole of
//     a select group when they choose a bucket, unless SelectionMethod is "hash". They hang on one
//     without buckets (seen with 3.1).
//   - dp_hash has 256 slots, of which a group needs as many as the sum of its weights is times the
//     least, up to a power of 2. With more, each connection costs an upcall. A dp_hash group in a
//     bucket of another one sees the same hash: most of its buckets are never chosen.
//   - A tun_metadata field is refused until a TLVTableMod has mapped it to an option. Give values
//     of the option's full length (Field.Bytes), and no mask rather than one of all bits: the
//     switch drops such a mask, and then its dump differs from what was sent.
//   - A packet-in of a paused pipeline carries neither cookie nor table; use Userdata.
//   - The input port has two fields in actions: FieldInPort with 32 bits, and FieldInPort16
//     (NXM_OF_IN_PORT), which ovs-ofctl means by in_port. In matches they are the same.
//   - Some errors come in OpenFlow 1.0's form, with transaction id 0: that of a FlowMonitorRequest
//     does.
//
// Sources are OpenFlow 1.5.1, and of Open vSwitch nicira-ext.h, meta-flow.h, ofp-actions.c and
// ofp-msgs.h. The golden files in testdata were recorded from Open vSwitch 3.1.
package openflow
