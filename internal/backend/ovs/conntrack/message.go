// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Attributes and flags of linux/netfilter/nfnetlink_conntrack.h and
// linux/netfilter/nf_conntrack_common.h.
const (
	attrOrig, attrReply, attrMark, attrID, attrZone, attrFilter = 1, 2, 8, 12, 18, 25

	tupleIP, tupleProto = 1, 2

	ipSrc4, ipDst4, ipSrc6, ipDst6 = 1, 2, 3, 4

	protoNum, protoSrcPort, protoDstPort      = 1, 2, 3
	protoICMPID, protoICMPType, protoICMPCode = 4, 5, 6
	protoICMP6ID                              = 7 // and type, code

	filterOrig, filterReply = 1, 2

	byIPSrc, byProtoNum = 1 << 0, 1 << 3
)

// filter has the kernel dump a part of its table only. Zero values compare nothing.
type filter struct {
	family            uint8
	protocol          uint8
	origSrc, replySrc netip.Addr
}

// involving are the filters for the connections that an address began or answers.
func involving(a netip.Addr) []filter {
	family := uint8(unix.AF_INET)
	if a.Is6() {
		family = unix.AF_INET6
	}
	return []filter{{family: family, origSrc: a}, {family: family, replySrc: a}}
}

// encode gives the attributes of a request for a dump; none, if the filter compares nothing.
func (f filter) encode() ([]byte, error) {
	ae := netlink.NewAttributeEncoder()
	flags := func(a netip.Addr) (flags uint32) {
		if a.IsValid() {
			flags |= byIPSrc
		}
		return flags
	}
	orig, reply := flags(f.origSrc), flags(f.replySrc)
	if f.protocol != 0 {
		orig |= byProtoNum
	}
	if orig|reply == 0 {
		return nil, nil
	}
	tuple := func(typ uint16, flags uint32, src netip.Addr) {
		if flags == 0 {
			return
		}
		ae.Nested(typ, func(ae *netlink.AttributeEncoder) error {
			if flags&byIPSrc != 0 {
				ae.Nested(tupleIP, func(ae *netlink.AttributeEncoder) error {
					if src.Is4() {
						ae.Bytes(ipSrc4, src.AsSlice())
					} else {
						ae.Bytes(ipSrc6, src.AsSlice())
					}
					return nil
				})
			}
			if flags&byProtoNum != 0 {
				ae.Nested(tupleProto, func(ae *netlink.AttributeEncoder) error {
					ae.Uint8(protoNum, f.protocol)
					return nil
				})
			}
			return nil
		})
	}
	tuple(attrOrig, orig, f.origSrc)
	tuple(attrReply, reply, f.replySrc)
	ae.Nested(attrFilter, func(ae *netlink.AttributeEncoder) error {
		ae.Uint32(filterOrig, orig)
		ae.Uint32(filterReply, reply)
		return nil
	})
	return ae.Encode()
}

// entry is a connection with the attributes that name it to the kernel.
type entry struct {
	Connection
	family         uint8
	orig, zone, id []byte
}

// flushedWith says whether Flush of an address forgets the connection: a kernel before 5.8 does not
// filter.
func (e entry) flushedWith(a netip.Addr, zones []uint16) bool {
	if e.Orig.Src != a && e.Reply.Src != a {
		return false
	}
	return len(zones) == 0 && e.Zone != 0 || slices.Contains(zones, e.Zone)
}

// encode gives the attributes by which the kernel finds the connection.
func (e entry) encode() ([]byte, error) {
	ae := netlink.NewAttributeEncoder()
	ae.Bytes(netlink.Nested|attrOrig, e.orig)
	if e.zone != nil {
		ae.Bytes(attrZone, e.zone)
	}
	if e.id != nil {
		ae.Bytes(attrID, e.id)
	}
	return ae.Encode()
}

// parse reads what follows a message's netlink header.
func parse(data []byte) (entry, error) {
	const header = 4 // family, version, resource
	if len(data) < header {
		return entry{}, errors.New("a message is cut off")
	}
	e := entry{family: data[0]}
	err := each(data[header:], func(typ uint16, value []byte) error {
		var err error
		switch typ {
		case attrOrig:
			e.orig = slices.Clone(value)
			e.Orig, e.Protocol, err = parseTuple(value)
		case attrReply:
			e.Reply, _, err = parseTuple(value)
		case attrMark:
			e.Mark, err = number[uint32](value)
		case attrZone:
			e.zone = slices.Clone(value)
			e.Zone, err = number[uint16](value)
		case attrID:
			e.id = slices.Clone(value)
		}
		return err
	})
	return e, err
}

func parseTuple(data []byte) (t Tuple, protocol uint8, err error) {
	err = each(data, func(typ uint16, value []byte) error {
		switch typ {
		case tupleIP:
			return each(value, func(typ uint16, value []byte) error {
				a, ok := netip.AddrFromSlice(value)
				switch typ {
				case ipSrc4, ipSrc6:
					t.Src = a
				case ipDst4, ipDst6:
					t.Dst = a
				default:
					return nil
				}
				if !ok {
					return fmt.Errorf("an address has %d bytes", len(value))
				}
				return nil
			})
		case tupleProto:
			return each(value, func(typ uint16, value []byte) error {
				var err error
				switch typ {
				case protoNum:
					protocol, err = number[uint8](value)
				case protoSrcPort:
					t.SrcPort, err = number[uint16](value)
				case protoDstPort:
					t.DstPort, err = number[uint16](value)
				case protoICMPID, protoICMP6ID:
					t.ICMPID, err = number[uint16](value)
				case protoICMPType, protoICMP6ID + 1:
					t.ICMPType, err = number[uint8](value)
				case protoICMPCode, protoICMP6ID + 2:
					t.ICMPCode, err = number[uint8](value)
				}
				return err
			})
		}
		return nil
	})
	return t, protocol, err
}

// number reads an integer in network byte order.
func number[T uint8 | uint16 | uint32](b []byte) (T, error) {
	size := binary.Size(T(0))
	if len(b) < size {
		return 0, fmt.Errorf("a number has %d bytes instead of %d", len(b), size)
	}
	var n uint32
	for _, c := range b[:size] {
		n = n<<8 | uint32(c)
	}
	return T(n), nil //nolint:gosec // of that size
}

// each calls fn for the attributes in data. It allocates nothing: a table may have
// a million of connections.
func each(data []byte, fn func(typ uint16, value []byte) error) error {
	const header = 4
	for len(data) >= header {
		length, typ := int(binary.NativeEndian.Uint16(data)), binary.NativeEndian.Uint16(data[2:])
		if length < header || length > len(data) {
			return fmt.Errorf("an attribute of %d bytes where %d are left", length, len(data))
		}
		if err := fn(typ&^(netlink.Nested|netlink.NetByteOrder), data[header:length]); err != nil {
			return err
		}
		data = data[min(len(data), (length+3)&^3):]
	}
	return nil
}
