// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"errors"
	"fmt"
)

// Version is OpenFlow 1.5 on the wire, the only version that this package speaks.
const Version = 6

// HeaderLen is the length of a message's header.
const HeaderLen = 8

// MaxMessageLen is the length of the longest message.
const MaxMessageLen = 0xffff

// ErrTooLong is the error of a message that does not fit into MaxMessageLen.
var ErrTooLong = errors.New("openflow: message longer than 65535 bytes")

// Message is an OpenFlow message.
type Message interface {
	// msgType is the OpenFlow type number.
	msgType() uint8
	// appendBody appends what follows the header.
	appendBody(b []byte) []byte
}

// Types of messages, OpenFlow 1.5.1 section 7.1.1.
const (
	typeHello            = 0
	typeError            = 1
	typeEchoRequest      = 2
	typeEchoReply        = 3
	typeExperimenter     = 4
	typeFeaturesRequest  = 5
	typeFeatures         = 6
	typeGetConfigRequest = 7
	typeGetConfigReply   = 8
	typeSetConfig        = 9
	typePacketIn         = 10
	typeFlowRemoved      = 11
	typePortStatus       = 12
	typePacketOut        = 13
	typeFlowMod          = 14
	typeGroupMod         = 15
	typeMultipartRequest = 18
	typeMultipartReply   = 19
	typeBarrierRequest   = 20
	typeBarrierReply     = 21
	typeRoleRequest      = 24
	typeRoleReply        = 25
	typeSetAsync         = 28
	typeMeterMod         = 29
	typeBundleControl    = 33
	typeBundleAdd        = 34
)

// AppendMessage appends the wire form of m with transaction id xid. Its only error is
// ErrTooLong; b then comes back as it was.
func AppendMessage(b []byte, xid uint32, m Message) ([]byte, error) {
	start := len(b)
	b = append(b, Version, m.msgType(), 0, 0)
	b = be.AppendUint32(b, xid)
	b = m.appendBody(b)
	n := len(b) - start
	if n > MaxMessageLen {
		return b[:start], fmt.Errorf("%w: %d", ErrTooLong, n)
	}
	be.PutUint16(b[start+2:], uint16(n))
	if _, ok := m.(*BundleAdd); ok {
		// The message within carries the same transaction id.
		be.PutUint32(b[start+bundleAddHeader+4:], xid)
	}
	return b, nil
}

// Header is the header of every message.
type Header struct {
	Version uint8
	Type    uint8
	Length  uint16 // of the whole message
	XID     uint32
}

// ParseHeader reads the header at the start of b. Its errors are a b of less than
// HeaderLen bytes and a length that is less than that.
func ParseHeader(b []byte) (Header, error) {
	if len(b) < HeaderLen {
		return Header{}, errShort
	}
	h := Header{b[0], b[1], be.Uint16(b[2:]), be.Uint32(b[4:])}
	if h.Length < HeaderLen {
		return h, fmt.Errorf("openflow: message of %d bytes", h.Length)
	}
	return h, nil
}

// Decode reads one whole message. The result does not refer to b. Types that this package
// does not know come as *Unknown; what cannot be read is an error that says where.
func Decode(b []byte) (xid uint32, m Message, err error) {
	h, err := ParseHeader(b)
	if err != nil {
		return 0, nil, err
	}
	// A Hello comes in the greatest version that the switch has. Open vSwitch sends some
	// errors, such as that of a flow monitor, in version 1; their form is the same.
	if h.Version != Version && h.Type != typeHello && h.Type != typeError {
		return h.XID, nil, fmt.Errorf("openflow: message of version %d, not %d", h.Version, Version)
	}
	if int(h.Length) != len(b) {
		return h.XID, nil, fmt.Errorf("openflow: message of %d bytes says that it has %d", len(b), h.Length)
	}
	m, err = decodeBody(h.Type, b[HeaderLen:])
	if err != nil {
		return h.XID, nil, fmt.Errorf("openflow: message of type %d: %w", h.Type, err)
	}
	return h.XID, m, nil
}

// decodeBody reads what follows a header.
func decodeBody(typ uint8, b []byte) (Message, error) {
	if int(typ) < len(decoders) && decoders[typ] != nil {
		r := &reader{b: b}
		m := decoders[typ](r)
		return m, r.done()
	}
	return &Unknown{Type: typ, Body: append([]byte(nil), b...)}, nil
}

// decoders read the bodies of messages, by their type. It is filled in by init, since
// that of BundleAdd needs it.
var decoders [typeBundleAdd + 1]func(*reader) Message

func init() {
	decoders = [...]func(*reader) Message{
		typeHello:            decodeHello,
		typeError:            decodeError,
		typeEchoRequest:      func(r *reader) Message { return &EchoRequest{r.rest()} },
		typeEchoReply:        func(r *reader) Message { return &EchoReply{r.rest()} },
		typeExperimenter:     decodeExperimenter,
		typeFeaturesRequest:  func(*reader) Message { return &FeaturesRequest{} },
		typeFeatures:         decodeFeatures,
		typeGetConfigRequest: func(*reader) Message { return &GetConfigRequest{} },
		typeGetConfigReply:   func(r *reader) Message { return &GetConfigReply{SwitchConfig{r.uint16(), r.uint16()}} },
		typeSetConfig:        func(r *reader) Message { return &SetConfig{SwitchConfig{r.uint16(), r.uint16()}} },
		typePacketIn:         decodePacketIn,
		typeFlowRemoved:      decodeFlowRemoved,
		typePortStatus:       decodePortStatus,
		typePacketOut:        decodePacketOut,
		typeFlowMod:          decodeFlowMod,
		typeGroupMod:         decodeGroupMod,
		typeMultipartRequest: decodeMultipartRequest,
		typeMultipartReply:   decodeMultipartReply,
		typeBarrierRequest:   func(*reader) Message { return &BarrierRequest{} },
		typeBarrierReply:     func(*reader) Message { return &BarrierReply{} },
		typeRoleRequest:      func(r *reader) Message { m := decodeRole(r); return &m },
		typeRoleReply:        func(r *reader) Message { m := RoleReply(decodeRole(r)); return &m },
		typeSetAsync:         decodeSetAsync,
		typeMeterMod:         decodeMeterMod,
		typeBundleControl:    decodeBundleControl,
		typeBundleAdd:        decodeBundleAdd,
	}
}
