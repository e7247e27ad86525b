// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/translate"
)

// SecurityGroupRef names a SecurityGroup.
func SecurityGroupRef(namespace, name string) intent.PolicyRef {
	return intent.PolicyRef{Kind: intent.SecurityGroup, Namespace: namespace, Name: name}
}

// SecurityGroup translates one. The API server refuses most of what is a problem here; one with
// older definitions may not. A rule that cannot be read allows nothing. Both directions are one
// list, which rules are numbered by.
func SecurityGroup(o *v1alpha1.SecurityGroup) (policy.Policy, []translate.Problem) {
	t := &policyReader{object: "securitygroup " + o.Namespace + "/" + o.Name}
	p := policy.Policy{Ref: SecurityGroupRef(o.Namespace, o.Name), Tier: intent.SecurityGroupTier}
	for i, r := range o.Spec.Rules {
		field := fmt.Sprintf("spec.rules[%d]", i)
		rule := policy.Rule{Number: i + 1, Action: intent.Allow, Direction: intent.Ingress}
		switch r.Direction {
		case v1alpha1.RuleIngress:
		case v1alpha1.RuleEgress:
			rule.Direction = intent.Egress
		default:
			t.report(translate.Malformed, field+".direction", string(r.Direction),
				"is not Ingress or Egress"+nothing+"; correct it")
			continue
		}
		before := len(t.problems)
		t.groupRule(field, o.Namespace, r, &rule)
		if len(t.problems) > before {
			rule.Closed = t.problems[before].Error()
		}
		p.Rules = append(p.Rules, rule)
	}
	return p, t.problems
}

const nothing = "; the rule allows nothing"

// MissingGroups are the remote groups of a SecurityGroup that do not exist, and so have no members.
func MissingGroups(o *v1alpha1.SecurityGroup, exists func(intent.PolicyRef) bool) []translate.Problem {
	t := &policyReader{object: "securitygroup " + o.Namespace + "/" + o.Name}
	for i, r := range o.Spec.Rules {
		if r.RemoteGroup == "" || r.RemoteIPPrefix != "" {
			continue
		}
		namespace, name, _ := strings.Cut(remoteGroup(o.Namespace, r.RemoteGroup), "/")
		if !exists(SecurityGroupRef(namespace, name)) {
			t.report(translate.NotFound, fmt.Sprintf("spec.rules[%d].remoteGroup", i), r.RemoteGroup,
				"is not the name of a SecurityGroup"+nothing+"; create the group, or name another")
		}
	}
	return t.problems
}

// remoteGroup is namespace/name of a group that a SecurityGroup of the namespace names.
func remoteGroup(namespace, name string) string {
	if strings.Contains(name, "/") {
		return name
	}
	return namespace + "/" + name
}

func (t *policyReader) groupRule(field, namespace string, r v1alpha1.SecurityGroupRule, rule *policy.Rule) {
	family, all := policy.IPv4, netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	switch r.EtherType {
	case v1alpha1.EtherIPv4, "":
	case v1alpha1.EtherIPv6:
		family, all = policy.IPv6, netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	default:
		t.report(translate.Malformed, field+".etherType", string(r.EtherType),
			"is not IPv4 or IPv6"+nothing+"; correct it")
		return
	}
	switch {
	case r.RemoteIPPrefix != "" && r.RemoteGroup != "":
		t.report(translate.Malformed, field, "",
			"remoteIPPrefix and remoteGroup exclude each other"+nothing+"; make two rules of it")
	case r.RemoteIPPrefix != "":
		prefix, ok := parseBlock(r.RemoteIPPrefix)
		if !ok || !family.Has(prefix.Addr()) {
			t.report(translate.Malformed, field+".remoteIPPrefix", r.RemoteIPPrefix,
				"is not a CIDR of the rule's etherType"+nothing+"; correct it")
			return
		}
		rule.Blocks = []netip.Prefix{prefix}
	case r.RemoteGroup != "":
		rule.Peers = []policy.Selector{{SecurityGroup: remoteGroup(namespace, r.RemoteGroup), Family: family}}
	default:
		rule.Blocks = []netip.Prefix{all}
	}
	t.groupPorts(field, family, r, rule)
}

// groupProtocols are those that have names, but for ICMP, which is another one in each family.
var groupProtocols = map[string]uint8{
	"tcp": uint8(intent.TCP), "udp": uint8(intent.UDP), "sctp": uint8(intent.SCTP),
	"ah": 51, "dccp": 33, "egp": 8, "esp": 50, "gre": 47, "igmp": 2, "ipip": 4, "ospf": 89, "pgm": 113, "rsvp": 46,
	"udplite": 136, "vrrp": 112,
}

// The protocols that have types and codes in place of ports.
const (
	icmp4 = 1
	icmp6 = 58
)

// groupProtocol is the number of a protocol in a family of addresses; 0 stands for all, as
// it does in Neutron.
func groupProtocol(text string, family policy.Family) (uint8, bool) {
	switch text {
	case "", "any":
		return 0, true
	case "icmp":
		if family == policy.IPv6 {
			return icmp6, true
		}
		return icmp4, true
	case "icmpv6", "ipv6-icmp":
		return icmp6, family == policy.IPv6
	}
	if number, known := groupProtocols[text]; known {
		return number, true
	}
	number, err := strconv.ParseUint(text, 10, 8)
	foreign := family == policy.IPv4 && number == icmp6 || family == policy.IPv6 && number == icmp4
	return uint8(number), err == nil && !foreign
}

func (t *policyReader) groupPorts(field string, family policy.Family, r v1alpha1.SecurityGroupRule, rule *policy.Rule) {
	protocol, ok := groupProtocol(r.Protocol, family)
	if !ok {
		t.report(translate.Malformed, field+".protocol", r.Protocol,
			"is not a protocol of the rule's etherType"+nothing+"; it is a name such as tcp, or a number up to 255")
		return
	}
	ported := protocol == uint8(intent.TCP) || protocol == uint8(intent.UDP) || protocol == uint8(intent.SCTP)
	icmp := protocol == icmp4 || protocol == icmp6
	first, last := r.PortRangeMin, r.PortRangeMax
	ports := allPorts(protocol)
	switch {
	case first == nil && last == nil:
	case first == nil:
		t.report(translate.Malformed, field+".portRangeMax", fmt.Sprint(*last),
			"needs portRangeMin"+nothing+"; set both")
		return
	case ported:
		if last == nil || !translate.IsPort(*first) || !translate.IsPort(*last) || *last < *first {
			t.report(translate.Malformed, field+".portRangeMin", fmt.Sprint(*first),
				"and portRangeMax are not the first and the last port of a range"+nothing+"; correct them")
			return
		}
		ports.First, ports.Last = uint16(*first), uint16(*last) //nolint:gosec // 1 to 65535
	case icmp:
		if *first < 0 || *first > maxICMP || last != nil && (*last < 0 || *last > maxICMP) {
			t.report(translate.Malformed, field+".portRangeMin", fmt.Sprint(*first),
				"and portRangeMax are not a type and a code of ICMP"+nothing+"; both are 0 to 255")
			return
		}
		ports.ICMP, ports.First, ports.Last = true, uint16(*first), intent.AnyICMPCode //nolint:gosec // 0 to 255
		if last != nil {
			ports.Last = uint16(*last) //nolint:gosec // 0 to 255
		}
	default:
		t.report(translate.Malformed, field+".portRangeMin", fmt.Sprint(*first),
			"is for protocols with ports, and for ICMP"+nothing+"; leave it out, or name the protocol")
		return
	}
	if rule.AnyPort = protocol == 0; !rule.AnyPort {
		rule.Ports = []policy.Port{{PortRange: ports}}
	}
}

// maxICMP is the largest type or code.
const maxICMP = 255
