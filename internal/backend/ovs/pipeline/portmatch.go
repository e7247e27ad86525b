// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"fmt"
	"math/bits"
	"slices"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// portMatch is what a packet's protocol and port are compared with. A Rule's Ports
// are some of them.
type portMatch struct {
	Kind     portMatchKind
	Protocol uint8
	// Value and Mask of the port; of ICMP type and code, which may be intent.AnyICMPCode.
	Value, Mask uint16
}

// portMatchKind says what of a packet is compared.
type portMatchKind uint8

// The kinds.
const (
	allOfProtocol portMatchKind = iota
	maskedPort
	icmpType
)

// String is what rules are found by.
func (m portMatch) String() string {
	return fmt.Sprintf("%d/%d/%d/%#x", m.Kind, m.Protocol, m.Value, m.Mask)
}

// parsePortMatch reads what String writes.
func parsePortMatch(s string) (m portMatch, err error) {
	if _, err := fmt.Sscanf(s, "%d/%d/%d/%v", &m.Kind, &m.Protocol, &m.Value, &m.Mask); err != nil {
		return m, fmt.Errorf("port match %q: %w", s, err)
	}
	return m, nil
}

// portMatches are what the rule's Ports are compared with: it fits if one of them does. Without
// Ports there is none.
func portMatches(r intent.Rule) []portMatch {
	var all []portMatch
	for _, p := range r.Ports {
		all = append(all, matchesOf(p)...)
	}
	slices.SortFunc(all, portMatch.compare)
	return slices.Compact(all)
}

func (m portMatch) compare(o portMatch) int {
	return slices.Compare([]int{int(m.Kind), int(m.Protocol), int(m.Value), int(m.Mask)},
		[]int{int(o.Kind), int(o.Protocol), int(o.Value), int(o.Mask)})
}

// matchesOf is empty if nothing fits.
func matchesOf(p intent.PortRange) []portMatch {
	switch {
	case p.ICMP:
		if p.Protocol != openflow.IPProtoICMP && p.Protocol != openflow.IPProtoICMPv6 || p.First > 0xff ||
			p.Last > 0xff && p.Last != intent.AnyICMPCode {
			return nil
		}
		return []portMatch{{icmpType, p.Protocol, p.First, p.Last}}
	case p.First > p.Last:
		return nil
	case !hasPorts(p) || p.First == 0 && p.Last == 0xffff:
		return []portMatch{{Kind: allOfProtocol, Protocol: p.Protocol}}
	}
	var all []portMatch
	for from, to := uint32(p.First), uint32(p.Last); from <= to; {
		// As many as from has zeros at the end, and as fit.
		size := uint32(1) << min(bits.TrailingZeros32(from|1<<16), bits.Len32(to-from+1)-1)
		all = append(all, portMatch{maskedPort, p.Protocol, uint16(from), uint16(0x10000 - size)})
		from += size
	}
	return all
}

func hasPorts(p intent.PortRange) bool {
	return p.Protocol == openflow.IPProtoTCP || p.Protocol == openflow.IPProtoUDP || p.Protocol == openflow.IPProtoSCTP
}
