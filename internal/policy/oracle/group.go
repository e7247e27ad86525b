// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"coelan.io/coelan/api/v1alpha1"
)

// securityGroups denies what no rule of any of the end's groups allows; what is allowed goes on to
// the next tier. An end in a group that refers to a missing group is closed.
func (c *Cluster) securityGroups(direction string, subject, peer End, k Connection) (v Verdict, done bool) {
	names := subject.groups()
	if len(names) == 0 {
		return v, false
	}
	var groups []string
	allowed := false
	for _, name := range names {
		i := slices.IndexFunc(c.SecurityGroups, func(g *v1alpha1.SecurityGroup) bool {
			return g.Namespace+"/"+g.Name == name
		})
		if i < 0 {
			return Verdict{}, true
		}
		groups = append(groups, "SecurityGroup "+name)
		for _, r := range c.SecurityGroups[i].Spec.Rules {
			allowed = allowed || strings.EqualFold(string(r.Direction), direction) &&
				groupPeer(c.SecurityGroups[i].Namespace, r, peer) && groupProtocol(r, k)
		}
	}
	if allowed {
		return v, false
	}
	return Verdict{Tier: SecurityGroups, By: groups}, true
}

// groupPeer says whether the other end is a rule's: of its family always, and all interfaces of
// those that name a remote group.
func groupPeer(namespace string, r v1alpha1.SecurityGroupRule, e End) bool {
	if e.Address.Is4() != (cmp.Or(r.EtherType, v1alpha1.EtherIPv4) == v1alpha1.EtherIPv4) {
		return false
	}
	switch {
	case r.RemoteIPPrefix != "":
		return contains(r.RemoteIPPrefix, e.Address)
	case r.RemoteGroup != "":
		group := r.RemoteGroup
		if !strings.Contains(group, "/") {
			group = namespace + "/" + group
		}
		return e.PoliciesApply() && slices.Contains(e.groups(), group)
	}
	return true
}

func groupProtocol(r v1alpha1.SecurityGroupRule, k Connection) bool {
	numbers := map[string]uint8{"tcp": TCP, "udp": UDP, "sctp": SCTP, "icmp": ICMP, "icmpv6": ICMPv6,
		"ipv6-icmp": ICMPv6, "gre": 47}
	number := numbers[r.Protocol]
	switch {
	case r.Protocol == "" || r.Protocol == "any" || r.Protocol == "0":
		return true
	case r.Protocol == "icmp" && r.EtherType == v1alpha1.EtherIPv6:
		number = ICMPv6
	case number == 0:
		n, err := strconv.ParseUint(r.Protocol, 10, 8)
		if err != nil {
			return false
		}
		number = uint8(n)
	}
	switch {
	case number != k.Protocol:
		return false
	case r.PortRangeMin == nil:
		return true
	case number == ICMP || number == ICMPv6:
		return *r.PortRangeMin == int32(k.Type) && (r.PortRangeMax == nil || *r.PortRangeMax == int32(k.Code))
	}
	return *r.PortRangeMin <= int32(k.Port) && int32(k.Port) <= *r.PortRangeMax
}
