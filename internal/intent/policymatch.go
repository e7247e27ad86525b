// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
)

// Class is the number of all Peers with these groups, which are sorted: the first 64 bits of their SHA-256, never 0. Of a million
// sets of groups, two share a number with a probability of 1 to 30 million.
func Class(groups []string) uint64 {
	var b []byte
	for _, g := range groups {
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(g))), g...)
	}
	sum := sha256.Sum256(b)
	return max(1, binary.BigEndian.Uint64(sum[:]))
}

// Class is the number of those that have the Peer's groups.
func (p Peer) Class() uint64 { return Class(p.Groups) }

func classKey(class uint64) string { return fmt.Sprintf("%016x", class) }

// PortMatch is what a packet's protocol and port are compared with. A Rule's Ports are some of them.
type PortMatch struct {
	Kind     PortMatchKind
	Protocol uint8
	// Value and Mask of the port; of ICMP type and code, which may be AnyICMPCode.
	Value, Mask uint16
}

// PortMatchKind says what of a packet is compared.
type PortMatchKind uint8

// The kinds.
const (
	AllOfProtocol PortMatchKind = iota
	MaskedPort
	ICMPType
)

// Protocols.
const (
	protoICMP   = 1
	protoTCP    = 6
	protoUDP    = 17
	protoICMPv6 = 58
	protoSCTP   = 132
)

// String is the key of RulesAt.
func (m PortMatch) String() string {
	return fmt.Sprintf("%d/%d/%d/%#x", m.Kind, m.Protocol, m.Value, m.Mask)
}

// ParsePortMatch reads what String writes.
func ParsePortMatch(s string) (m PortMatch, err error) {
	if _, err := fmt.Sscanf(s, "%d/%d/%d/%v", &m.Kind, &m.Protocol, &m.Value, &m.Mask); err != nil {
		return m, fmt.Errorf("port match %q: %w", s, err)
	}
	return m, nil
}

// PortMatches are what the rule's Ports are compared with: it fits if one of them does. Without Ports there is none.
func (r Rule) PortMatches() []PortMatch {
	var all []PortMatch
	for _, p := range r.Ports {
		all = append(all, p.matches()...)
	}
	slices.SortFunc(all, PortMatch.compare)
	return slices.Compact(all)
}

func (m PortMatch) compare(o PortMatch) int {
	return slices.Compare([]int{int(m.Kind), int(m.Protocol), int(m.Value), int(m.Mask)}, []int{int(o.Kind), int(o.Protocol), int(o.Value), int(o.Mask)})
}

// matches is empty if nothing fits.
func (p PortRange) matches() []PortMatch {
	switch {
	case p.ICMP:
		if p.Protocol != protoICMP && p.Protocol != protoICMPv6 || p.First > 0xff || p.Last > 0xff && p.Last != AnyICMPCode {
			return nil
		}
		return []PortMatch{{ICMPType, p.Protocol, p.First, p.Last}}
	case p.First > p.Last:
		return nil
	case !p.hasPorts() || p.whole():
		return []PortMatch{{Kind: AllOfProtocol, Protocol: p.Protocol}}
	}
	var all []PortMatch
	for from, to := uint32(p.First), uint32(p.Last); from <= to; {
		// As many as from has zeros at the end, and as fit.
		size := uint32(1) << min(bits.TrailingZeros32(from|1<<16), bits.Len32(to-from+1)-1)
		all = append(all, PortMatch{MaskedPort, p.Protocol, uint16(from), uint16(0x10000 - size)})
		from += size
	}
	return all
}

func (p PortRange) hasPorts() bool {
	return p.Protocol == protoTCP || p.Protocol == protoUDP || p.Protocol == protoSCTP
}

func (p PortRange) whole() bool { return !p.hasPorts() || p.First == 0 && p.Last == 0xffff }

// blockKeys and matchKeys are what rules are found by.
func (r Rule) blockKeys() []string {
	keys := make([]string, len(r.Blocks))
	for i, b := range r.Blocks {
		keys[i] = b.String()
	}
	return keys
}

func (r Rule) matchKeys() []string {
	var keys []string
	for _, m := range r.PortMatches() {
		keys = append(keys, m.String())
	}
	return keys
}
