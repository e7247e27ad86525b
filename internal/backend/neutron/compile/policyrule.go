// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/intent"
)

// peer is the other side of a rule of a security group: a prefix, the members of a group, or any.
type peer struct {
	family family
	prefix string
	group  resource.Ref
}

func blockPeer(b netip.Prefix) peer {
	p := peer{family: familyOf(b.Addr())}
	if b.Bits() > 0 {
		p.prefix = b.String()
	}
	return p
}

func addressPeer(a netip.Addr) peer { return blockPeer(netip.PrefixFrom(a, a.BitLen())) }

// text is what tells peers apart.
func (p peer) text() string {
	switch {
	case p.prefix != "":
		return p.prefix
	case p.group != resource.Ref{}:
		return p.group.Key
	}
	return "any"
}

// port is a range of the receiver's ports, or of types of ICMP; the zero value is all of all
// protocols.
type port struct {
	protocol    string
	first, last any // numbers, or nil
}

func (p port) text() string {
	switch {
	case p.protocol == "":
		return "any"
	case p.first == nil:
		return p.protocol
	case p.last == nil:
		return fmt.Sprint(p.protocol, " ", p.first)
	}
	return fmt.Sprint(p.protocol, " ", p.first, "-", p.last)
}

// rule adds a rule to a group. Its key is made of all that it says: Neutron takes no two that say
// the same.
func (f *firewall) rule(group resource.Ref, d intent.Direction, of peer, at port) {
	owner, _ := f.set.Get(group)
	fixed := resource.Attributes{
		"security_group_id": group, "direction": directionName(d), "ethertype": string(of.family), "protocol": nil,
		"port_range_min": at.first, "port_range_max": at.last, "remote_ip_prefix": nil, "remote_group_id": nil,
	}
	if at.protocol != "" {
		fixed["protocol"] = at.protocol
	}
	if of.prefix != "" {
		fixed["remote_ip_prefix"] = of.prefix
	}
	if of.group != (resource.Ref{}) {
		fixed["remote_group_id"] = of.group
	}
	f.set.Add(resource.Resource{
		Ref: resource.Ref{Kind: resource.SecurityGroupRule, Key: resource.Key(
			group.Key, directionName(d), string(of.family), at.text(), of.text(),
		), Project: group.Project},
		Object: owner.Object, Fixed: fixed,
	})
}

// peersOf are the peers of a rule in a space. A group that has Ports is a security group without
// rules, which they are members of; addresses of nodes are no Ports, and some are not all that
// their Port has.
func (f *firewall) peersOf(r intent.Rule, space string) (list []peer) {
	for _, fam := range f.families {
		if r.AnyPeer {
			list = append(list, peer{family: fam})
		}
		for _, group := range r.Groups {
			if space == "" {
				continue
			}
			k := memberKey{space, group, fam}
			list = append(list, peer{family: fam, group: f.memberGroup(r.Policy, k)})
			for _, a := range f.single[k] {
				list = append(list, addressPeer(a))
			}
		}
	}
	for _, b := range r.Blocks {
		if slices.Contains(f.families, familyOf(b.Addr())) {
			for _, p := range f.withoutServices(r, b) {
				list = append(list, blockPeer(p))
			}
		}
	}
	if space != intent.DefaultRouterName || len(r.Groups) == 0 {
		return list
	}
	for a := range f.nodes {
		known, _ := f.state.Peers().Get(intent.PeerKey(space, a))
		if slices.ContainsFunc(known.Groups, func(g string) bool { return slices.Contains(r.Groups, g) }) {
			list = append(list, addressPeer(a))
		}
	}
	return list
}

// memberGroup is the security group of the Ports in a group of intent.
func (f *firewall) memberGroup(user intent.PolicyRef, k memberKey) resource.Ref {
	ref, made := f.members[k]
	if !made {
		parts := append([]string{string(k.family)}, inSpace(k.space)...)
		ref = groupRef("Peers/"+k.group, parts...)
		f.group(ref, user.String(), "peers-"+resource.Key(k.group, parts...))
		f.members[k] = ref
	}
	return ref
}

// The protocols of ICMP.
const (
	protocolICMP   = 1
	protocolICMPv6 = 58
)

// portsOf are a rule's ports in a family.
func portsOf(ports []intent.PortRange, of family) (list []port) {
	if len(ports) == 0 {
		return []port{{}}
	}
	for _, p := range ports {
		if (p.Protocol == protocolICMP && of == ipv6) || (p.Protocol == protocolICMPv6 && of == ipv4) {
			continue
		}
		if at, ok := portOf(p); ok {
			list = append(list, at)
		}
	}
	return list
}

// portOf is a range as Neutron has it; false if it has none such: port 0 alone.
func portOf(p intent.PortRange) (port, bool) {
	at := port{protocol: protocolName(p.Protocol)}
	switch {
	case p.ICMP:
		at.first = int(p.First)
		if p.Last != intent.AnyICMPCode {
			at.last = int(p.Last)
		}
	case p.First == 0 && p.Last == 0xffff || !hasPorts(p.Protocol):
	case p.Last == 0:
		return port{}, false
	default:
		at.first, at.last = max(int(p.First), 1), int(p.Last)
	}
	return at, true
}

func hasPorts(protocol uint8) bool {
	return slices.Contains([]intent.Protocol{intent.TCP, intent.UDP, intent.SCTP}, intent.Protocol(protocol))
}

// protocolName is how Neutron's answers call a protocol that was given by this name.
func protocolName(protocol uint8) string {
	switch intent.Protocol(protocol) {
	case intent.TCP:
		return "tcp"
	case intent.UDP:
		return "udp"
	case intent.SCTP:
		return "sctp"
	case protocolICMP:
		return "icmp"
	case protocolICMPv6:
		return "ipv6-icmp"
	}
	return strconv.Itoa(int(protocol))
}
