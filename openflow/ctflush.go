// SPDX-License-Identifier: Apache-2.0

package openflow

import "net/netip"

// CTFlush forgets the connections that match. Zero values compare nothing.
type CTFlush struct {
	Zone  *uint16 // nil: any
	Proto uint8   // IP protocol; 0: any
	Orig  CTTuple // the direction in which the connection began
	Reply CTTuple
}

// CTTuple is what CTFlush compares of one direction of a connection. Ports are those of
// TCP, UDP and SCTP; the ICMP values, those of ICMP, where they always count together.
type CTTuple struct {
	Src, Dst           netip.Addr
	SrcPort, DstPort   uint16
	ICMPID             uint16
	ICMPType, ICMPCode uint8
}

// Properties of NXT_CT_FLUSH and, nested in the first two, of a tuple, from nicira-ext.h.
const (
	ctOrig = iota
	ctReply
	ctZone
)

const (
	tupleSrc = iota
	tupleDst
	tupleSrcPort
	tupleDstPort
	tupleICMPID
	tupleICMPType
	tupleICMPCode
)

func (*CTFlush) msgType() uint8 { return typeExperimenter }

func (m *CTFlush) appendBody(b []byte) []byte {
	b = append(appendNicira(b, nxtCTFlush), m.Proto, 0, 0, 0, 0, 0, 0, 0)
	b = m.Orig.appendTo(b, ctOrig, m.Proto)
	b = m.Reply.appendTo(b, ctReply, m.Proto)
	if m.Zone != nil {
		b = appendProp16(b, ctZone, *m.Zone)
	}
	return b
}

// appendTo appends t as a property with nested ones, nothing if it compares nothing.
func (t *CTTuple) appendTo(b []byte, typ uint16, proto uint8) []byte {
	start := len(b)
	b = append(beginProp(b, typ), 0, 0, 0, 0)
	empty := len(b)
	addr := func(typ uint16, a netip.Addr) {
		if a.IsValid() {
			a16 := a.As16()
			n := len(b)
			b = append(beginProp(b, typ), a16[:]...)
			b = endProp(b, n)
		}
	}
	addr(tupleSrc, t.Src)
	addr(tupleDst, t.Dst)
	if proto == IPProtoICMP || proto == IPProtoICMPv6 {
		b = appendProp16(b, tupleICMPID, t.ICMPID)
		b = appendProp(b, tupleICMPType, []byte{t.ICMPType})
		b = appendProp(b, tupleICMPCode, []byte{t.ICMPCode})
	} else {
		if t.SrcPort != 0 {
			b = appendProp16(b, tupleSrcPort, t.SrcPort)
		}
		if t.DstPort != 0 {
			b = appendProp16(b, tupleDstPort, t.DstPort)
		}
	}
	if len(b) == empty {
		return b[:start]
	}
	return endProp(b, start)
}

func decodeCTFlush(r *reader) Message {
	m := &CTFlush{Proto: r.uint8()}
	r.skip(7)
	for r.left() > 0 {
		p := r.prop()
		var err error
		switch p.typ {
		case ctOrig:
			err = m.Orig.decode(p)
		case ctReply:
			err = m.Reply.decode(p)
		case ctZone:
			var zone uint16
			zone, err = p.uint16()
			m.Zone = &zone
		}
		if err != nil {
			r.fail("ct flush: %w", err)
		}
	}
	return m
}

func (t *CTTuple) decode(p prop) error {
	r := reader{b: p.value}
	r.skip(4)
	for r.left() > 0 {
		p := r.prop()
		var err error
		switch p.typ {
		case tupleSrc:
			t.Src, err = p.addr()
		case tupleDst:
			t.Dst, err = p.addr()
		case tupleSrcPort:
			t.SrcPort, err = p.uint16()
		case tupleDstPort:
			t.DstPort, err = p.uint16()
		case tupleICMPID:
			t.ICMPID, err = p.uint16()
		case tupleICMPType:
			t.ICMPType, err = p.uint8()
		case tupleICMPCode:
			t.ICMPCode, err = p.uint8()
		}
		if err != nil {
			return err
		}
	}
	return r.err
}

// addr reads an address, an IPv4 one mapped into IPv6.
func (p prop) addr() (netip.Addr, error) {
	if len(p.value) < 16 {
		return netip.Addr{}, errShort
	}
	return netip.AddrFrom16([16]byte(p.value)).Unmap(), nil
}
