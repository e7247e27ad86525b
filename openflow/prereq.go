// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"fmt"
	"slices"
	"strings"
)

// prereq is what a match must hold before a field may be matched or set.
type prereq uint8

const (
	needNothing prereq = iota
	needVLAN
	needMPLS
	needIPv4
	needIPv6
	needIP
	needARP
	needTCP
	needUDP
	needSCTP
	needICMPv4
	needICMPv6
	needND
	needNDSolicit
	needNDAdvert
	needNDCode
	needCT
	needCT4
	needCT6
	needCTProto
	needNSH
)

// requirement says which values a field must have.
type requirement struct {
	field  Field
	values []uint64 // those accepted; if there is one only, NewMatch adds it; none: any
	next   prereq   // what is needed further
}

const (
	etherTypeRARP       = 0x8035
	etherTypeMPLSMcast  = 0x8848
	etherTypeNSH        = 0x894f
	icmpv6NeighborSol   = 135
	icmpv6NeighborAdver = 136
)

var requirements = [...]requirement{
	needMPLS:      {FieldEthType, []uint64{EthTypeMPLS, etherTypeMPLSMcast}, 0},
	needIPv4:      {FieldEthType, []uint64{EthTypeIPv4}, 0},
	needIPv6:      {FieldEthType, []uint64{EthTypeIPv6}, 0},
	needIP:        {FieldEthType, []uint64{EthTypeIPv4, EthTypeIPv6}, 0},
	needARP:       {FieldEthType, []uint64{EthTypeARP, etherTypeRARP}, 0},
	needNSH:       {FieldEthType, []uint64{etherTypeNSH}, 0},
	needTCP:       {FieldIPProto, []uint64{IPProtoTCP}, needIP},
	needUDP:       {FieldIPProto, []uint64{IPProtoUDP}, needIP},
	needSCTP:      {FieldIPProto, []uint64{IPProtoSCTP}, needIP},
	needICMPv4:    {FieldIPProto, []uint64{IPProtoICMP}, needIPv4},
	needICMPv6:    {FieldIPProto, []uint64{IPProtoICMPv6}, needIPv6},
	needND:        {FieldICMPv6Type, []uint64{icmpv6NeighborSol, icmpv6NeighborAdver}, needNDCode},
	needNDSolicit: {FieldICMPv6Type, []uint64{icmpv6NeighborSol}, needNDCode},
	needNDAdvert:  {FieldICMPv6Type, []uint64{icmpv6NeighborAdver}, needNDCode},
	needNDCode:    {FieldICMPv6Code, []uint64{0}, needICMPv6},
	needCT4:       {FieldEthType, []uint64{EthTypeIPv4}, needCT},
	needCT6:       {FieldEthType, []uint64{EthTypeIPv6}, needCT},
	needCTProto:   {FieldCTNWProto, nil, needCT},
}

// implied returns the values that p asks for without leaving a choice. An ARP field
// means ARP, not RARP.
func (p prereq) implied(yield func(FieldValue) bool) {
	for ; p != needNothing; p = requirements[p].next {
		switch {
		case p == needCT:
			return
		case p == needVLAN:
			yield(AnyVLAN())
			return
		}
		r := requirements[p]
		if len(r.values) == 1 || p == needARP {
			if !yield(r.field.Value(r.values[0])) {
				return
			}
		}
	}
}

// check reports what is missing for p among the fields of a match.
func (p prereq) check(fields []FieldValue) error {
	for ; p != needNothing; p = requirements[p].next {
		switch p {
		case needCT:
			return checkCTState(fields)
		case needVLAN:
			if v := find(fields, FieldVLANVID); v == nil || v.value.lo&vlanPresent == 0 {
				return fmt.Errorf("needs a vlan_vid that says that a tag is present")
			}
			return nil
		}
		r := requirements[p]
		v := find(fields, r.field)
		if v == nil || v.masked || r.values != nil && !slices.Contains(r.values, v.value.lo) {
			return fmt.Errorf("needs %s", r)
		}
	}
	return nil
}

// checkCTState reports whether ct_state makes sure that the packet's connection is valid:
// "+trk" alone does not, since an invalid packet is tracked too.
func checkCTState(fields []FieldValue) error {
	const known = CTNew | CTEst | CTRel | CTRpl | CTSNAT | CTDNAT
	if v := find(fields, FieldCTState); v != nil {
		set, mask := CTStateFlags(v.value.lo), CTStateFlags(v.mask.lo)
		if !v.masked {
			mask = ^CTStateFlags(0)
		}
		if set&known != 0 || set&CTTrk != 0 && mask&CTInv != 0 && set&CTInv == 0 {
			return nil
		}
	}
	return fmt.Errorf("needs ct_state=+trk-inv, or one of +new, +est, +rel, +rpl, +snat, +dnat")
}

// String prints the requirement such as "eth_type 0x800 or 0x86dd".
func (r requirement) String() string {
	var b strings.Builder
	b.WriteString(r.field.String())
	for i, v := range r.values {
		if i > 0 {
			b.WriteString(" or")
		}
		fmt.Fprintf(&b, " %#x", v)
	}
	return b.String()
}

// find returns the first value of field f.
func find(fields []FieldValue, f Field) *FieldValue {
	for i := range fields {
		if fields[i].field == f {
			return &fields[i]
		}
	}
	return nil
}
