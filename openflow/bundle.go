// SPDX-License-Identifier: Apache-2.0

package openflow

// BundleControl opens, closes, commits or discards a bundle; a switch answers with the type
// that follows.
type BundleControl struct {
	BundleID uint32
	Type     BundleControlType
	Flags    BundleFlags
}

// BundleControlType is a request for or an answer to a bundle.
type BundleControlType uint16

// Types.
const (
	BundleOpenRequest BundleControlType = iota
	BundleOpenReply
	BundleCloseRequest
	BundleCloseReply
	BundleCommitRequest
	BundleCommitReply
	BundleDiscardRequest
	BundleDiscardReply
)

// BundleFlags are properties of a bundle, the same in all of its messages.
type BundleFlags uint16

// Flags.
const (
	BundleAtomic BundleFlags = 1 << iota
	BundleOrdered
)

func (*BundleControl) msgType() uint8 { return typeBundleControl }

func (m *BundleControl) appendBody(b []byte) []byte {
	b = be.AppendUint32(b, m.BundleID)
	return be.AppendUint16(be.AppendUint16(b, uint16(m.Type)), uint16(m.Flags))
}

func decodeBundleControl(r *reader) Message {
	return &BundleControl{r.uint32(), BundleControlType(r.uint16()), BundleFlags(r.uint16())}
}

// BundleAdd adds a message to a bundle. The message carries the same transaction id as the
// BundleAdd, and so does an Error that refuses it.
type BundleAdd struct {
	BundleID uint32
	Flags    BundleFlags
	Message  Message // a FlowMod, GroupMod, PacketOut …
}

// bundleAddHeader is the length of what precedes the message within a BundleAdd.
const bundleAddHeader = HeaderLen + 8

func (*BundleAdd) msgType() uint8 { return typeBundleAdd }

func (m *BundleAdd) appendBody(b []byte) []byte {
	b = append(be.AppendUint32(b, m.BundleID), 0, 0)
	b = be.AppendUint16(b, uint16(m.Flags))
	start := len(b)
	b = append(b, Version, m.Message.msgType(), 0, 0, 0, 0, 0, 0)
	b = m.Message.appendBody(b)
	// A length that does not fit is refused by AppendMessage: the whole is longer still.
	be.PutUint16(b[start+2:], uint16(len(b)-start))
	return b
}

func decodeBundleAdd(r *reader) Message {
	m := &BundleAdd{BundleID: r.uint32()}
	r.skip(2)
	m.Flags = BundleFlags(r.uint16())
	h, err := ParseHeader(r.b)
	if r.err != nil || err != nil {
		r.fail("message within: %w", err)
		return m
	}
	if h.Type == typeBundleAdd {
		r.fail("a bundle message within a bundle message")
	}
	if h.Version != Version {
		r.fail("message of version %d within", h.Version)
	}
	r.skip(HeaderLen)
	body := r.next(int(h.Length) - HeaderLen)
	if r.err != nil {
		return m
	}
	if m.Message, err = decodeBody(h.Type, body); err != nil {
		r.fail("message of type %d within: %w", h.Type, err)
	}
	return m
}
