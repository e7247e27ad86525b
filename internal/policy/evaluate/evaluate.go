// SPDX-License-Identifier: Apache-2.0

// Package evaluate decides about one connection by policies, with the same result as the flows of
// package pipeline, directly from the intent and rule by rule. It does no I/O.
package evaluate

import (
	"cmp"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"

	"coelan.io/coelan/internal/intent"
)

// Connection is what policies see of one's first packet: the real endpoints, and the Space that the
// addresses mean something in (see intent.Peer).
type Connection struct {
	Space               string
	Source, Destination netip.Addr
	Protocol            uint8
	// Port is the receiver's; of ICMP the type in the upper and the code in the lower eight bits.
	Port uint16
	// Host says that a process of the Port's own node sends it, and not through a Service from
	// outside: policies of Ingress let it pass.
	Host bool
}

// ICMP is the Port of an ICMP message.
func ICMP(kind, code uint8) uint16 { return uint16(kind)<<8 | uint16(code) }

// Verdict is the outcome in one direction.
type Verdict struct {
	Allowed bool
	// Tier that decided; 0: none did.
	Tier intent.Tier
	// Rule that decided; its ID is empty if none did: nothing allows or
	// nothing forbids the connection.
	Rule intent.Rule
	// Reason says why, in a form that continues "allowed: " or "denied: ".
	Reason string
}

// Egress is the verdict on a connection that a Port of this node begins, Ingress on one to it.
func Egress(s *intent.State, p intent.Port, c Connection) Verdict {
	return judge(s, p, c, intent.Egress)
}

// Ingress is the verdict on a connection to a Port of this node.
func Ingress(s *intent.State, p intent.Port, c Connection) Verdict {
	return judge(s, p, c, intent.Ingress)
}

// Texts of verdicts that no policy is named in.
const (
	Off       = "policies are not enforced"
	OwnNode   = "it is the Port's own node"
	Unknown   = "policies of the Port are not known yet"
	nothing   = "no policy forbids it"
	itself    = "a Port may always reach itself"
	notJudged = "multicast is not judged"
)

func judge(s *intent.State, p intent.Port, c Connection, d intent.Direction) Verdict {
	peer := c.Destination
	if d == intent.Ingress {
		peer = c.Source
	}
	switch {
	case s.Local().PolicyMode != intent.EnforcedPolicies:
		return Verdict{Allowed: true, Reason: Off}
	case c.Destination.IsMulticast():
		return Verdict{Allowed: true, Reason: notJudged}
	case d == intent.Ingress && c.Host:
		return Verdict{Allowed: true, Reason: OwnNode}
	case c.Source == c.Destination:
		return Verdict{Allowed: true, Reason: itself}
	}
	subject, ok := s.Subjects().Get(p.SubjectKey())
	switch {
	case !ok:
		return Verdict{Reason: Unknown}
	case subject.Closed != "":
		return Verdict{Reason: subject.Closed}
	}
	for _, id := range subject.Rules {
		if _, ok := s.Rules().Get(id); !ok {
			return Verdict{Reason: Unknown}
		}
	}
	j := judgement{state: s, subject: subject, peer: peer, connection: c, direction: d}
	if v, done := j.securityGroups(); done {
		return v
	}
	if !PoliciesApply(p) {
		return Verdict{Allowed: true, Reason: nothing}
	}
	return j.policies()
}

// PoliciesApply reports whether NetworkPolicies and ClusterNetworkPolicies are about the Port:
// those of pods' first interfaces and those that are no pod's.
func PoliciesApply(p intent.Port) bool { return p.Interface == "" || p.Interface == primary }

// primary is the name of a pod's first interface.
const primary = "eth0"

type judgement struct {
	state      *intent.State
	subject    intent.Subject
	peer       netip.Addr
	connection Connection
	direction  intent.Direction
}

// securityGroups decides unless a rule of the Port's groups allows the connection, or it has none.
func (j judgement) securityGroups() (v Verdict, done bool) {
	if len(j.subject.SecurityGroups) == 0 {
		return v, false
	}
	for range j.fitting(intent.SecurityGroupTier) {
		return v, false
	}
	return Verdict{Tier: intent.SecurityGroupTier, Reason: NoneAllows(j.subject.SecurityGroups)}, true
}

// policies goes through the tiers after the SecurityGroups'.
func (j judgement) policies() Verdict {
	if v, done := j.ordered(intent.AdminTier); done {
		return v
	}
	isolation := j.subject.IngressIsolation
	if j.direction == intent.Egress {
		isolation = j.subject.EgressIsolation
	}
	switch {
	case j.direction == intent.Egress && j.ownNode():
		if len(isolation) > 0 {
			return Verdict{Allowed: true, Tier: intent.NetworkPolicyTier, Reason: OwnNode}
		}
	case len(isolation) > 0:
		for r := range j.fitting(intent.NetworkPolicyTier) {
			return decided(r)
		}
		return Verdict{Tier: intent.NetworkPolicyTier, Reason: NoneAllows(isolation)}
	}
	if v, done := j.ordered(intent.BaselineTier); done {
		return v
	}
	return Verdict{Allowed: true, Reason: nothing}
}

// ordered takes the first rule that fits; one that passes decides nothing.
func (j judgement) ordered(t intent.Tier) (v Verdict, done bool) {
	rules := slices.SortedFunc(j.fitting(t), func(a, b intent.Rule) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Number, b.Number),
			cmp.Compare(strictness(a.Action), strictness(b.Action)), cmp.Compare(a.ID, b.ID))
	})
	if len(rules) == 0 || rules[0].Action == intent.Pass {
		return v, false
	}
	return decided(rules[0]), true
}

// strictness orders actions: the stricter one wins where two policies have the same priority.
func strictness(a intent.Action) int {
	return slices.Index([]intent.Action{intent.Deny, intent.Pass, intent.Allow}, a)
}

func decided(r intent.Rule) Verdict {
	return Verdict{Allowed: r.Action != intent.Deny, Tier: r.Tier, Rule: r,
		Reason: fmt.Sprintf("%s, rule %d", r.Policy, r.Number)}
}

// NoneAllows is why what no rule of any of these policies allows is denied.
func NoneAllows(policies []intent.PolicyRef) string {
	var b strings.Builder
	for i, p := range policies {
		switch {
		case i == 0:
			b.WriteString("no rule of " + p.String())
		case p.Kind == policies[i-1].Kind && p.Namespace != "":
			b.WriteString(", " + p.Namespace + "/" + p.Name)
		default:
			b.WriteString(", " + p.String())
		}
	}
	return b.String() + " allows it"
}

// fitting yields the rules of a tier that the connection fits.
func (j judgement) fitting(t intent.Tier) iter.Seq[intent.Rule] {
	return func(yield func(intent.Rule) bool) {
		for _, id := range j.subject.Rules {
			r, ok := j.state.Rules().Get(id)
			if ok && r.Tier == t && r.Direction == j.direction && j.hasPeer(r) && hasPort(r.Ports, j.connection) &&
				!yield(r) {
				return
			}
		}
	}
}

func (j judgement) hasPeer(r intent.Rule) bool {
	if r.AnyPeer || slices.ContainsFunc(r.Blocks, func(b netip.Prefix) bool { return b.Contains(j.peer) }) {
		return true
	}
	p, _ := j.state.Peers().Get(intent.PeerKey(j.connection.Space, j.peer))
	return slices.ContainsFunc(p.Groups, func(g string) bool { return slices.Contains(r.Groups, g) })
}

func hasPort(ports []intent.PortRange, c Connection) bool {
	return len(ports) == 0 || slices.ContainsFunc(ports, func(p intent.PortRange) bool {
		return PortMatches(p, c.Protocol, c.Port)
	})
}

// PortMatches reports whether a connection of that protocol to that Port (see Connection) is in the
// range.
func PortMatches(p intent.PortRange, protocol uint8, port uint16) bool {
	switch {
	case p.Protocol != protocol:
		return false
	case p.ICMP:
		return p.First == port>>8 && (p.Last == intent.AnyICMPCode || p.Last == port&0xff)
	case p.First == 0 && p.Last == 0xffff:
		return true
	}
	return p.First <= port && port <= p.Last
}

// ownNode says whether the destination is one of the node's own addresses, as the cluster has them.
func (j judgement) ownNode() bool {
	if j.connection.Space != intent.DefaultRouterName {
		return false
	}
	n, ok := j.state.LocalNode()
	return ok && OfNode(n, j.connection.Destination)
}

// OfNode says whether an address is a node's own or its gateway's.
func OfNode(n intent.Node, a netip.Addr) bool {
	return slices.Contains(n.Addresses, a) || slices.ContainsFunc(n.Subnets, func(s intent.Subnet) bool {
		return s.Gateway == a
	})
}
