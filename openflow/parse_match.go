// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// matchParser collects the fields of a match. Names such as tp_dst stand for a field that
// depends on the protocol, so they are looked up at the end.
type matchParser struct {
	fields []FieldValue
	later  []struct{ name, value string }
}

// shorthands are words for an Ethernet type and an IP protocol.
var shorthands = map[string][]FieldValue{
	"ip":    {EthType(EthTypeIPv4)},
	"ipv6":  {EthType(EthTypeIPv6)},
	"arp":   {EthType(EthTypeARP)},
	"rarp":  {EthType(etherTypeRARP)},
	"mpls":  {EthType(EthTypeMPLS)},
	"mplsm": {EthType(etherTypeMPLSMcast)},
	"icmp":  {EthType(EthTypeIPv4), IPProto(IPProtoICMP)},
	"tcp":   {EthType(EthTypeIPv4), IPProto(IPProtoTCP)},
	"udp":   {EthType(EthTypeIPv4), IPProto(IPProtoUDP)},
	"sctp":  {EthType(EthTypeIPv4), IPProto(IPProtoSCTP)},
	"icmp6": {EthType(EthTypeIPv6), IPProto(IPProtoICMPv6)},
	"tcp6":  {EthType(EthTypeIPv6), IPProto(IPProtoTCP)},
	"udp6":  {EthType(EthTypeIPv6), IPProto(IPProtoUDP)},
	"sctp6": {EthType(EthTypeIPv6), IPProto(IPProtoSCTP)},
}

// fieldsByName finds fields by the names that are used in actions, in matches and by NXM.
var fieldsByName = func() map[string]Field {
	m := map[string]Field{
		"dl_src": FieldEthSrc, "dl_dst": FieldEthDst, "dl_type": FieldEthType, "ip_proto": FieldIPProto,
		"nw_src": FieldIPv4Src, "nw_dst": FieldIPv4Dst, "tunnel_id": FieldTunnelID, "ip_frag": FieldIPFrag,
		"ip_ecn": FieldIPECN, "dl_vlan_pcp": FieldVLANPCP, "nw_frag": FieldIPFrag, "ip_ttl": FieldIPTTL,
		"gtpu_flags": FieldTunGTPUFlags, "gtpu_msgtype": FieldTunGTPUMsgType,
	}
	for f := fieldNone + 1; f < numFields; f++ {
		m[f.info().name] = f
		m[f.info().nxm] = f
	}
	return m
}()

// dependent are the names that mean a field that depends on the protocol.
var dependent = map[string]bool{"tp_src": true, "tp_dst": true, "icmp_type": true, "icmp_code": true}

// item reads an item of a match, if it is one.
func (p *matchParser) item(item string) (known bool, err error) {
	if values, ok := shorthands[item]; ok {
		p.fields = append(p.fields, values...)
		return true, nil
	}
	name, value, _ := strings.Cut(item, "=")
	switch {
	case dependent[name]:
		p.later = append(p.later, struct{ name, value string }{name, value})
		return true, nil
	case name == "dl_vlan":
		value, err = offset(value, vlanPresent)
		name = "vlan_vid"
	}
	f := fieldsByName[name]
	if f == FieldInPort16 {
		f = FieldInPort
	}
	if f == fieldNone || err != nil {
		return false, err
	}
	v, err := parseFieldValue(f, value)
	p.fields = append(p.fields, v)
	return true, err
}

// offset adds n to a number in text.
func offset(s string, n uint64) (string, error) {
	v, err := strconv.ParseUint(s, 0, 16)
	if err != nil {
		return "", fmt.Errorf("%q is not a number of 16 bits", s)
	}
	return utoa(v | n), nil
}

// build returns the match.
func (p *matchParser) build() Match {
	m := NewMatch(p.fields...)
	if len(p.later) == 0 {
		return m
	}
	proto, _ := m.Get(FieldIPProto.All())
	et, _ := m.Get(FieldEthType.All())
	for _, l := range p.later {
		f := dependentField(l.name, uint8(proto), et == EthTypeIPv6)
		if v, err := parseFieldValue(f, l.value); err == nil {
			p.fields = append(p.fields, v)
		} else {
			p.fields = append(p.fields, FieldValue{})
		}
	}
	return NewMatch(p.fields...)
}

func dependentField(name string, proto uint8, v6 bool) Field {
	switch name {
	case "tp_src":
		return l4Field(proto, FieldTCPSrc)
	case "tp_dst":
		return l4Field(proto, FieldTCPDst)
	case "icmp_type":
		if v6 {
			return FieldICMPv6Type
		}
		return FieldICMPv4Type
	}
	if v6 {
		return FieldICMPv6Code
	}
	return FieldICMPv4Code
}

// parseFieldValue reads "value" or "value/mask" of field f.
func parseFieldValue(f Field, s string) (FieldValue, error) {
	var v FieldValue
	var err error
	switch f.info().format {
	case fmtIPv4, fmtIPv6:
		v, err = parseAddress(f, s)
	case fmtCTState:
		v, err = parseFlags(f, s, ctStateNames[:], 0xff)
	case fmtTCPFlags:
		v, err = parseFlags(f, s, tcpFlagNames[:], 0xfff)
	case fmtTunFlags:
		v, err = parseFlags(f, s, tunFlagNames[:], 0xffff)
	case fmtFrag:
		v, err = parseFrag(s)
	case fmtPacketType:
		var ns, typ uint64
		_, err = fmt.Sscanf(s, "(%v,%v)", &ns, &typ)
		v = f.Value(ns<<16 | typ)
	default:
		v, err = parseMasked(f, s)
	}
	if err != nil {
		return v, fmt.Errorf("%s=%s: %w", f, s, err)
	}
	if p := v.problem(); p != "" {
		return v, fmt.Errorf("%s=%s: %s", f, s, p)
	}
	return v, nil
}

// parseMasked reads numbers and Ethernet addresses.
func parseMasked(f Field, s string) (FieldValue, error) {
	if f.isTunMetadata() {
		return parseTunMetadata(f, s)
	}
	value, mask, masked := strings.Cut(s, "/")
	v := FieldValue{field: f, masked: masked}
	var err error
	if v.value, err = parseUint128(f, value); err == nil && masked {
		v.mask, err = parseUint128(f, mask)
		v.value = v.value.and(v.mask)
	}
	return v, err
}

// parseUint128 reads a number, an Ethernet address or a port's name.
func parseUint128(f Field, s string) (uint128, error) {
	if f.info().format == fmtMAC {
		mac, err := ParseMAC(s)
		return mac.num(), err
	}
	if f.info().format == fmtPort || f.info().format == fmtPort16 {
		port, err := parsePort(s)
		if f.info().format == fmtPort16 {
			port &= 0xffff
		}
		return uint128{0, uint64(port)}, err
	}
	if digits, ok := strings.CutPrefix(s, "0x"); ok && len(digits) > 16 && len(digits) <= 32 {
		n := len(digits) - 16
		hi, err := strconv.ParseUint(digits[:n], 16, 64)
		if err != nil {
			return uint128{}, err
		}
		lo, err := strconv.ParseUint(digits[n:], 16, 64)
		return uint128{hi, lo}, err
	}
	v, err := strconv.ParseUint(s, 0, 64)
	return uint128{0, v}, err
}

// parsePort reads a port's number or name.
func parsePort(s string) (uint32, error) {
	for port, name := range reservedPorts {
		if strings.EqualFold(s, name) {
			return port, nil
		}
	}
	var port uint32
	err := parseNum(s, &port)
	return port, err
}

// parseTunMetadata reads a tunnel option; the number of hexadecimal digits tells its length.
func parseTunMetadata(f Field, s string) (FieldValue, error) {
	if s == "" {
		return f.Bytes(nil, nil), nil
	}
	value, mask, masked := strings.Cut(s, "/")
	v, err := hexWords(value, 0)
	if err != nil || !masked {
		return f.Bytes(v, nil), err
	}
	m, err := hexWords(mask, len(v))
	if len(m) > len(v) {
		v, err = hexWords(value, len(m))
	}
	return f.Bytes(v, m), err
}

// hexWords reads hexadecimal digits into whole words of 4 bytes, at least size bytes.
func hexWords(s string, size int) ([]byte, error) {
	digits := strings.TrimPrefix(s, "0x")
	if digits == "" {
		return nil, fmt.Errorf("%q is not a number", s)
	}
	n := max((len(digits)+7)/8*8, 2*size)
	b, err := hex.DecodeString(strings.Repeat("0", n-len(digits)) + digits)
	if err == nil && len(b) > maxTunMetadata {
		err = fmt.Errorf("more than %d bytes", maxTunMetadata)
	}
	return b, err
}

// parseAddress reads an IP address with a prefix length or a mask. nw_src and such of a
// packet that is no IPv4 one stay without their field.
func parseAddress(f Field, s string) (FieldValue, error) {
	addr, mask, masked := strings.Cut(s, "/")
	a, err := netip.ParseAddr(addr)
	if err != nil {
		return FieldValue{}, err
	}
	v := ipValue(f, f, a)
	if a.Is4() != (f.info().format == fmtIPv4) {
		return FieldValue{}, fmt.Errorf("not an address of this family")
	}
	if !masked {
		return v, nil
	}
	v.masked = true
	if n, err := strconv.ParseUint(mask, 10, 8); err == nil && n <= uint64(a.BitLen()) {
		v.mask = ones(uint(n)).shl(uint(a.BitLen()) - uint(n))
	} else {
		m, err := netip.ParseAddr(mask)
		if err != nil {
			return v, err
		}
		v.mask = ipValue(f, f, m).value
	}
	v.value = v.value.and(v.mask)
	return v, nil
}

// parseFlags reads "+set-unset", "set|set" or a number.
func parseFlags(f Field, s string, names []string, all uint64) (FieldValue, error) {
	if n, err := strconv.ParseUint(s, 0, 32); err == nil {
		return f.Masked(n, all).normal(), nil
	}
	bit := func(name string) (uint64, error) {
		for i, n := range names {
			if n == name {
				return 1 << i, nil
			}
		}
		return 0, fmt.Errorf("unknown flag %q", name)
	}
	var value, mask uint64
	if s != "" && (s[0] == '+' || s[0] == '-') {
		for rest := s; rest != ""; {
			end := strings.IndexAny(rest[1:], "+-") + 1
			if end == 0 {
				end = len(rest)
			}
			b, err := bit(rest[1:end])
			if err != nil {
				return FieldValue{}, err
			}
			mask |= b
			if rest[0] == '+' {
				value |= b
			}
			rest = rest[end:]
		}
		return f.Masked(value, mask), nil
	}
	for name := range strings.SplitSeq(s, "|") {
		b, err := bit(name)
		if err != nil {
			return FieldValue{}, err
		}
		value |= b
	}
	return f.Masked(value, all).normal(), nil
}

func parseFrag(s string) (FieldValue, error) {
	switch s {
	case "no":
		return IPFrag(0, IPFragAny|IPFragLater), nil
	case "yes":
		return IPFrag(IPFragAny, IPFragAny), nil
	case "first":
		return IPFrag(IPFragAny, IPFragAny|IPFragLater), nil
	case "later":
		return IPFrag(IPFragAny|IPFragLater, IPFragAny|IPFragLater), nil
	case "not_later":
		return IPFrag(0, IPFragLater), nil
	}
	return FieldValue{}, fmt.Errorf("unknown kind of fragment")
}
