// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"strings"

	"coelan.io/coelan/internal/intent"
)

// The protocols with names in OVN's language of matches.
const (
	protocolICMP   = 1
	protocolICMPv6 = 58
)

// directed is what a direction is called in OVN's language.
type directed struct {
	direction string // of the ACL
	port      string // the Port's own side
	peer      string // the address of the other side
	options   map[string]string
}

// directedBy is for rules of a direction. What a Port sends is judged behind Services, as for the
// endpoint that was chosen.
func directedBy(d intent.Direction) directed {
	if d == intent.Egress {
		return directed{"from-lport", "inport", "dst", map[string]string{"apply-after-lb": "true"}}
	}
	return directed{"to-lport", "outport", "src", nil}
}

// matchOf is what a rule fits in a space; "" if nothing.
func (k *policyKind) matchOf(r intent.Rule, space string) string {
	peers := k.peersOf(r, space, directedBy(r.Direction).peer)
	if peers == "" {
		return ""
	}
	return and(peers, portsOf(r.Ports))
}

// peersOf is the addresses of a rule's peers.
func (k *policyKind) peersOf(r intent.Rule, space, side string) string {
	if r.AnyPeer {
		return "ip"
	}
	var either []string
	for _, is4 := range []bool{true, false} {
		family := "ip6"
		if is4 {
			family = "ip4"
		}
		var terms []string
		all := false
		for _, group := range r.Groups {
			if space != "" {
				terms = append(terms, "$"+k.setName(setKey(space, group), is4))
			}
		}
		for _, b := range r.Blocks {
			if b.Addr().Is4() == is4 {
				all = all || b.Bits() == 0
				terms = append(terms, b.String())
			}
		}
		switch {
		case all:
			either = append(either, family)
		case len(terms) > 0:
			either = append(either, fmt.Sprintf("%s.%s == {%s}", family, side, strings.Join(terms, ", ")))
		}
	}
	return or(either)
}

// portsOf is the receiver's ports; "" for all.
func portsOf(ports []intent.PortRange) string {
	var any []string
	for _, p := range ports {
		any = append(any, portOf(p))
	}
	return or(any)
}

func portOf(p intent.PortRange) string {
	if p.ICMP {
		name := "icmp4"
		if p.Protocol == protocolICMPv6 {
			name = "icmp6"
		}
		text := fmt.Sprintf("%s.type == %d", name, p.First)
		if p.Last != intent.AnyICMPCode {
			text = fmt.Sprintf("(%s && %s.code == %d)", text, name, p.Last)
		}
		return text
	}
	name := ""
	switch intent.Protocol(p.Protocol) {
	case intent.TCP:
		name = "tcp"
	case intent.UDP:
		name = "udp"
	case intent.SCTP:
		name = "sctp"
	case protocolICMP:
		return "icmp4"
	case protocolICMPv6:
		return "icmp6"
	default:
		return fmt.Sprintf("ip.proto == %d", p.Protocol)
	}
	switch {
	case p.First == 0 && p.Last == 0xffff:
		return name
	case p.First == p.Last:
		return fmt.Sprintf("%s.dst == %d", name, p.First)
	}
	return fmt.Sprintf("(%s.dst >= %d && %s.dst <= %d)", name, p.First, name, p.Last)
}

func or(terms []string) string {
	if len(terms) < 2 {
		return strings.Join(terms, "")
	}
	return "(" + strings.Join(terms, " || ") + ")"
}

// and leaves out terms that say nothing.
func and(terms ...string) string {
	var list []string
	for _, t := range terms {
		if t != "" {
			list = append(list, t)
		}
	}
	return strings.Join(list, " && ")
}
