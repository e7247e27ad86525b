// SPDX-License-Identifier: Apache-2.0

package openflow

// Version is OpenFlow 1.5 on the wire, the only version that this package speaks.
const Version = 6

// HeaderLen is the length of a message's header.
const HeaderLen = 8

// MaxMessageLen is the length of the longest message.
const MaxMessageLen = 0xffff

// Message is an OpenFlow message. Its String is meant for logs.
type Message interface {
	// msgType is the OpenFlow type number.
	msgType() uint8
	// appendBody appends what follows the header.
	appendBody(b []byte) []byte
}

// AppendMessage appends the wire form of m with transaction id xid. Its only error is a message
// longer than MaxMessageLen; b then comes back as it was.
func AppendMessage(b []byte, xid uint32, m Message) ([]byte, error) { return b, nil }

// Header is the header of every message.
type Header struct {
	Version uint8
	Type    uint8
	Length  uint16 // of the whole message
	XID     uint32
}

// ParseHeader reads the header at the start of b, which must hold HeaderLen bytes.
func ParseHeader(b []byte) (Header, error) { return Header{}, nil }

// Decode reads one whole message. The result does not refer to b. Types that this package does not know come
// as *Unknown; what cannot be read is an error that says where.
func Decode(b []byte) (xid uint32, m Message, err error) { return 0, nil, nil }
