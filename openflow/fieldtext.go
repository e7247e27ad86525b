// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"encoding/hex"
	"fmt"
	"math/bits"
	"net/netip"
	"strconv"
	"strings"
)

// String prints v as "name=value" or "name=value/mask".
func (v FieldValue) String() string { return v.field.String() + "=" + v.text() }

// text prints the value and mask as ovs-ofctl does in actions.
func (v FieldValue) text() string {
	if v.field.isTunMetadata() {
		return v.tunMetadataText()
	}
	v = v.normal()
	info := v.field.info()
	switch info.format {
	case fmtMAC:
		return withMask(v, macText)
	case fmtIPv4, fmtIPv6:
		return v.prefixText(info.format == fmtIPv4)
	case fmtFrag:
		return fragText(v.value.lo, v.fullMask().lo)
	case fmtCTState:
		return flagsText(v.value.lo, v.fullMask().lo, 0xff, ctStateNames[:])
	case fmtTCPFlags:
		return flagsText(v.value.lo, v.fullMask().lo, 0xfff, tcpFlagNames[:])
	case fmtTunFlags:
		return flagsText(v.value.lo, v.fullMask().lo, 0xffff, tunFlagNames[:])
	case fmtPacketType:
		return fmt.Sprintf("(%d,%#x)", v.value.lo>>16, v.value.lo&0xffff)
	case fmtPort, fmtPort16:
		if !v.masked {
			p := v.value
			if info.format == fmtPort16 {
				p = port32(p)
			}
			return PortName(uint32(p.lo))
		}
	case fmtDec:
		s := strconv.FormatUint(v.value.lo, 10)
		if v.masked {
			s += "/" + hexOf(v.mask)
		}
		return s
	}
	return withMask(v, hexText)
}

// withMask prints value and mask.
func withMask(v FieldValue, text func(uint128) string) string {
	if !v.masked {
		return text(v.value)
	}
	return text(v.value) + "/" + text(v.mask)
}

// hexText prints v in hexadecimal, 0 without 0x.
func hexText(v uint128) string {
	if v.isZero() {
		return "0"
	}
	return hexOf(v)
}

func macText(v uint128) string {
	var m MAC
	be.PutUint16(m[:], uint16(v.lo>>32))
	be.PutUint32(m[2:], uint32(v.lo))
	return m.String()
}

// tunMetadataText prints a tunnel option's value, "" if only its presence counts.
func (v FieldValue) tunMetadataText() string {
	if v.size == 0 && v.masked {
		return ""
	}
	if v.long == "" {
		return withMask(v, hexText)
	}
	s := longHex(v.long[:v.size])
	if v.masked {
		s += "/" + longHex(v.long[v.size:])
	}
	return s
}

func longHex(s string) string {
	digits := strings.TrimLeft(hex.EncodeToString([]byte(s)), "0")
	if digits == "" {
		return "0"
	}
	return "0x" + digits
}

// Addr returns the address that v holds, if its field is one of an IP address.
func (v FieldValue) Addr() (addr netip.Addr, ok bool) {
	switch v.field.info().format {
	case fmtIPv4:
		return ipv4Of(v.value), true
	case fmtIPv6:
		return ipv6Of(v.value), true
	}
	return addr, false
}

func ipv4Of(v uint128) netip.Addr {
	var a [4]byte
	be.PutUint32(a[:], uint32(v.lo))
	return netip.AddrFrom4(a)
}

func ipv6Of(v uint128) netip.Addr {
	var a [16]byte
	be.PutUint64(a[:], v.hi)
	be.PutUint64(a[8:], v.lo)
	return netip.AddrFrom16(a)
}

// prefixText prints an address with the length of its mask or, if that has gaps,
// with the mask itself.
func (v FieldValue) prefixText(v4 bool) string {
	of, width := ipv6Of, 128
	if v4 {
		of, width = ipv4Of, 32
	}
	s := of(v.value).String()
	if !v.masked {
		return s
	}
	n := bits.OnesCount64(v.mask.hi) + bits.OnesCount64(v.mask.lo)
	if v.mask == ones(uint(n)).shl(uint(width-n)) {
		return s + "/" + strconv.Itoa(n)
	}
	return s + "/" + of(v.mask).String()
}

func fragText(v, mask uint64) string {
	switch {
	case mask == IPFragAny && v == 0:
		return "no"
	case mask == IPFragAny:
		return "yes"
	case mask == IPFragLater && v == 0:
		return "not_later"
	case v == 0:
		return "no"
	case v == IPFragAny:
		return "first"
	case v&IPFragLater != 0:
		return "later"
	}
	return "<error>"
}

var (
	ctStateNames = [...]string{"new", "est", "rel", "rpl", "inv", "trk", "snat", "dnat"}
	tcpFlagNames = [...]string{"fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns", "[200]", "[400]", "[800]"}
	tunFlagNames = [...]string{"oam"}
)

// flagsText prints "+set-unset", or "set|set" if the mask is all.
func flagsText(v, mask, all uint64, names []string) string {
	if mask&all == all {
		return joinFlags(v, names)
	}
	if mask == 0 {
		return "0/0"
	}
	var s strings.Builder
	for ; mask != 0; mask &= mask - 1 {
		i := bits.TrailingZeros64(mask)
		if v>>i&1 != 0 {
			s.WriteByte('+')
		} else {
			s.WriteByte('-')
		}
		if i < len(names) {
			s.WriteString(names[i])
		} else {
			s.WriteString("[Unknown]")
		}
	}
	return s.String()
}

// joinFlags prints the names of the bits that are set in v, with | between.
func joinFlags(v uint64, names []string) string {
	if v == 0 {
		return "0"
	}
	var set []string
	for i, name := range names {
		if v>>i&1 != 0 {
			set = append(set, name)
		}
	}
	if rest := v >> len(names) << len(names); rest != 0 {
		set = append(set, fmt.Sprintf("%#x", rest))
	}
	return strings.Join(set, "|")
}

// PortName prints an OpenFlow port as ovs-ofctl does: its number, or such as LOCAL.
func PortName(port uint32) string {
	if name := reservedPorts[port]; name != "" {
		return name
	}
	return strconv.FormatUint(uint64(port), 10)
}

var reservedPorts = map[uint32]string{
	PortUnset:      "UNSET",
	PortInPort:     "IN_PORT",
	PortTable:      "TABLE",
	PortNormal:     "NORMAL",
	PortFlood:      "FLOOD",
	PortAll:        "ALL",
	PortController: "CONTROLLER",
	PortLocal:      "LOCAL",
	PortAny:        "ANY",
}

// hexOf prints v in hexadecimal.
func hexOf(v uint128) string {
	if v.hi == 0 {
		return fmt.Sprintf("%#x", v.lo)
	}
	return fmt.Sprintf("0x%x%016x", v.hi, v.lo)
}
