// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/internal/backend/ovn/nb"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/reserved"
)

// maxACLName is the length of an ACL's name, hashDigits how much of a hash tells names apart that
// were cut.
const (
	maxACLName = 63
	hashDigits = 8
)

// aclName is the name by which logs say what denied a packet.
func aclName(text string) string {
	if len(text) <= maxACLName {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	return text[:maxACLName-hashDigits-1] + "~" + hex.EncodeToString(sum[:hashDigits/2])
}

// acls are those of one Port_Group, or of a switch.
type acls struct {
	kind    *policyKind
	unit    *nb.Unit
	group   nb.Ref
	name    string // of the group, as matches have it; empty: of a switch
	audited bool
}

// add adds an ACL. What is denied is logged where that is asked for.
func (a acls) add(key string, d intent.Direction, priority int, match string, allow bool, by string) {
	at := directedBy(d)
	ports := ""
	if a.name != "" {
		ports = at.port + " == " + a.name
	}
	row := &nb.ACL{
		Name: ptr(aclName(by)), Priority: priority, Direction: at.direction, Options: at.options,
		Match: and(ports, match), Action: "drop",
		ExternalIDs: map[string]string{"coelan.io/policy": by},
	}
	if allow {
		row.Action = "allow-related"
	} else if a.audited {
		row.Log, row.Severity, row.Meter = true, ptr("info"), ptr(a.kind.meter())
	}
	of := a.group.Key
	if a.name == "" {
		of = "Policy/" + unitSwitch + of
	}
	a.unit.AddTo(a.group, "acls", nb.Key(of, at.direction, key), row)
}

func ruleName(r intent.Rule) string {
	direction := "ingress"
	if r.Direction == intent.Egress {
		direction = "egress"
	}
	return fmt.Sprintf("%s %s %d", r.Policy, direction, r.Number)
}

// group adds a Port_Group with its ACLs.
func (k *policyKind) group(s *intent.State, key string, u *nb.Unit) {
	g := k.groups[key]
	if g == nil {
		return
	}
	ref := groupRef(key)
	a := acls{kind: k, unit: u, group: ref, name: k.portGroup(u, ref), audited: g.audited}
	var rules []intent.Rule
	for _, id := range g.rules {
		if r, ok := s.Rules().Get(id); ok {
			rules = append(rules, r)
		}
	}
	if g.policy == (intent.PolicyRef{}) {
		k.together(s, g.groupSpec, rules, a)
		return
	}
	for _, r := range rules {
		match := k.matchOf(r, g.space)
		if match == "" || r.Tier == intent.AdminTier && r.Action == intent.Pass {
			continue
		}
		priority, crowded := k.ranks.priority(r)
		if crowded {
			u.Problem(g.policy.String(), reasonUnsupported, fmt.Sprintf("OVN has room for %d different priorities of"+
				" a tier: give the policy one that another has", maxRanks))
		}
		a.add(r.ID, r.Direction, priority, match, r.Action != intent.Deny, ruleName(r))
	}
	priority := priorityIsolated
	if g.policy.Kind == intent.SecurityGroup {
		priority = priorityNoGroup
	}
	if g.ingress {
		a.add("rest", intent.Ingress, priority, "ip", false, g.policy.String()+" ingress")
	}
	if g.egress {
		a.add("rest", intent.Egress, priority, "ip", false, g.policy.String()+" egress")
	}
}

// verdict is what becomes of what fits a match, unless an earlier one decides.
type verdict struct {
	match string
	allow bool
	by    string
}

// maxVerdicts is how many ACLs a direction of a group of policies that depend on each other may
// have. Ports with more are closed.
const maxVerdicts = 2000

// together adds the ACLs of policies that depend on each other, one after the other.
func (k *policyKind) together(s *intent.State, g groupSpec, rules []intent.Rule, a acls) {
	for _, d := range []intent.Direction{intent.Ingress, intent.Egress} {
		list := k.verdicts(s, g, d, rules)
		if len(list) > maxVerdicts {
			a.unit.Problem(rules[0].Policy.String(), reasonUnsupported, fmt.Sprintf("its rules and those of other"+
				" policies come to %d ACLs, which are more than %d: what they select is closed; use fewer rules",
				len(list), maxVerdicts))
			list = []verdict{{"ip", false, g.isolating + " too many rules"}}
		}
		for i, v := range list {
			a.add(strconv.Itoa(i), d, priorityTogether-i, v.match, v.allow, v.by)
		}
	}
}

// verdicts are the verdicts in a direction, in order; what none fits is allowed.
func (k *policyKind) verdicts(s *intent.State, g groupSpec, d intent.Direction, rules []intent.Rule) []verdict {
	var groups, admin, allowed, baseline []verdictOf
	sorted := slices.Clone(rules)
	slices.SortFunc(sorted, compareRules)
	for _, r := range sorted {
		match := k.matchOf(r, g.space)
		if r.Direction != d || match == "" {
			continue
		}
		v := verdictOf{verdict{match, r.Action != intent.Deny, ruleName(r)}, r.Action == intent.Pass}
		switch r.Tier {
		case intent.SecurityGroupTier:
			groups = append(groups, v)
		case intent.AdminTier:
			admin = append(admin, v)
		case intent.NetworkPolicyTier:
			allowed = append(allowed, v)
		case intent.BaselineTier:
			baseline = append(baseline, v)
		}
	}
	isolated := g.ingress
	if d == intent.Egress {
		isolated = g.egress
	}
	// later is what the tiers behind Admin decide, of what fits a match.
	later := func(of, by string) (list []verdict) {
		if !isolated {
			for _, v := range baseline {
				list = append(list, verdict{and(of, v.match), v.allow, v.by})
			}
			if of != "" {
				list = append(list, verdict{of, true, by})
			}
			return list
		}
		if d == intent.Egress {
			if own := k.ofNode(s, g.node); own != "" {
				list = append(list, verdict{and(of, own), true, "own node"})
			}
		}
		for _, v := range allowed {
			list = append(list, verdict{and(of, v.match), true, v.by})
		}
		return append(list, verdict{and(of, "ip"), false, g.isolating})
	}
	var list []verdict
	for _, v := range admin {
		if v.pass {
			list = append(list, later(v.match, v.by)...)
		} else {
			list = append(list, v.verdict)
		}
	}
	list = append(list, later("", "")...)
	if !g.securityGroup {
		return list
	}
	// What others allow, or none decides, a SecurityGroup has to allow as well.
	var both []verdict
	for _, v := range append(list, verdict{"", true, ""}) {
		if !v.allow {
			both = append(both, v)
			continue
		}
		for _, of := range groups {
			both = append(both, verdict{and(v.match, of.match), true, of.by})
		}
	}
	return append(both, verdict{"ip", false, g.isolating})
}

type verdictOf struct {
	verdict
	pass bool
}

// node adds the groups of a node's Ports: its own processes reach them, and those that are isolated
// reach it.
func (k *policyKind) node(s *intent.State, name string, u *nb.Unit) {
	n, ok := s.Nodes().Get(name)
	if !ok || !enforced(s) {
		return
	}
	all, isolated := nodePortsRef(name), isolatedAtRef(name)
	own := names.ManagementAddresses(n)
	a := acls{kind: k, unit: u, group: all, name: k.portGroup(u, all)}
	var from []string
	for _, is4 := range []bool{true, false} {
		if list := addressesText(own, is4); list != "" {
			from = append(from, familyOf(is4)+".src == {"+list+"}")
		}
	}
	if len(from) > 0 {
		a.add("own node", intent.Ingress, priorityNode, and(or(from), unforwarded()), true, "own node")
	}
	a = acls{kind: k, unit: u, group: isolated, name: k.portGroup(u, isolated)}
	if match := k.ofNode(s, name); match != "" {
		a.add("own node", intent.Egress, priorityAllow, match, true, "own node")
	}
}

// unforwarded fits what the kernel does not forward: a client that it does has the node's address,
// too, and a TTL of at most reserved.ForwardedTTL. OVN tests this field for equality alone, so
// these are what packets begin with, Linux' own first, and what up to three routers leave of that.
func unforwarded() string {
	return "ip.ttl == {64, 63, 62, 61, 128, 127, 126, 125, 255, 254, 253, 252}"
}

func familyOf(is4 bool) string {
	if is4 {
		return "ip4"
	}
	return "ip6"
}

// ofNode fits what is for a node's own addresses, and for the gateways of its subnets.
func (k *policyKind) ofNode(s *intent.State, name string) string {
	n, _ := s.Nodes().Get(name)
	list := slices.Concat(n.Addresses, names.ManagementAddresses(n))
	for _, sub := range n.Subnets {
		list = append(list, sub.Gateway)
	}
	var to []string
	for _, is4 := range []bool{true, false} {
		if text := addressesText(list, is4); text != "" {
			to = append(to, familyOf(is4)+".dst == {"+text+"}")
		}
	}
	return or(to)
}

// meter is the name of the Meter of what is logged.
func (k *policyKind) meter() string { return k.cluster.Set("meter", unitBase) }

// logged is how many denied packets a second are logged of each ACL.
const logged = 10

// unjudged adds what policies do not judge on a switch.
func (k *policyKind) unjudged(s *intent.State, key string, u *nb.Unit) {
	if name, node, _ := strings.Cut(key, "@"); enforced(s) && hasSwitch(s, name, node) {
		acls{kind: k, unit: u, group: switchRef(name, node)}.unjudged()
	}
}

// unjudged adds that multicast and DHCP are not judged, and that a Port may always reach itself,
// also by a Service.
func (a acls) unjudged() {
	const multicast = "(ip4.dst == 224.0.0.0/4 || ip6.dst == ff00::/8)"
	for _, d := range []intent.Direction{intent.Ingress, intent.Egress} {
		a.add("multicast", d, priorityExempt, multicast, true, "multicast")
	}
	a.add("dhcp", intent.Egress, priorityExempt,
		"ip4.dst == 255.255.255.255 && udp.src == 68 && udp.dst == 67", true, "DHCP")
	a.add("itself", intent.Ingress, priorityExempt, fmt.Sprintf("(ip4.src == %s || ip6.src == %s)",
		reserved.NodeLocalIPv4[0], reserved.NodeLocalIPv6[0]), true, "itself")
}

// base adds what holds on switches of other systems, where only Ports are ours, and Ports that are
// closed.
func (k *policyKind) base(s *intent.State, u *nb.Unit) {
	if !enforced(s) {
		return
	}
	acls{kind: k, unit: u, group: adoptedRef, name: k.portGroup(u, adoptedRef)}.unjudged()
	a := acls{kind: k, unit: u, group: closedRef, name: k.portGroup(u, closedRef)}
	for _, d := range []intent.Direction{intent.Ingress, intent.Egress} {
		a.add("closed", d, priorityClosed, "ip", false, "policies of the Port are not known")
	}
	band := u.Add(nb.Key("Policy/"+unitBase, "band"), &nb.MeterBand{Action: "drop", Rate: logged})
	u.Add("Policy/"+unitBase, &nb.Meter{Name: k.meter(), Unit: "pktps", Fair: ptr(true), Bands: []string{band.Key}})
}
