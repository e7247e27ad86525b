// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"fmt"
	"net/netip"
	"slices"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy/evaluate"
	"coelan.io/coelan/openflow"
)

// policySubjectFeature finds how the Port that sends, and then the one that receives, is governed:
// by no policy, by those of the tables that follow, or it is closed.
var policySubjectFeature = &feature{
	number: 21,
	name:   "policy-subject",
	tables: []Table{egressSubject, ingressSubject},
	needed: (*rules).policed,
	local: func(r *rules) {
		r.on(egressSubject, 10, from(fromGateway)).goTo(egressTables.end)
		if !r.native() {
			// The host's kernel sends it back as the Port's, with the endpoint as destination.
			// Where that is no Port, only Ports that are closed are kept from it.
			r.on(egressSubject, 300, toService).goTo(policyVerdict)
		}
		// The gateway, the tunnel, uplinks and nowhere are no Ports.
		r.on(ingressSubject, 10, regOutput.Field.Masked(0, 0xffff_fff0)).goTo(ingressTables.end)
		r.on(ingressSubject, 10, toPort(nowhere)).goTo(ingressTables.end)
		r.on(egressSubject, 0).decide(closedPort(intent.Egress, "", evaluate.Unknown), egressTables.end)
		r.on(ingressSubject, 0).decide(closedPort(intent.Ingress, "", evaluate.Unknown), ingressTables.end)
	},
	port: (*rules).govern,
}

// Which tables a Port has rules in, in regSubject, and whether NetworkPolicies isolate it. What is
// above is always 0.
const (
	inGroup uint64 = 1 << (16 + iota)
	inAdmin
	inAdminLater
	inPolicy
	isolatedBit
)

// firstSpare is the first bit of regSubject that is always 0, of spareBits.
const (
	firstSpare = 21
	spareBits  = 32 - firstSpare
)

// isPort matches the Port that is judged.
func (r *rules) isPort(p intent.Port) openflow.FieldValue {
	return regSubject.Masked(uint64(r.number(p)), 0xffff)
}

func closedPort(d intent.Direction, port, why string) Verdict {
	return Verdict{Action: intent.Deny, Direction: d, Port: port, Closed: why}
}

// govern emits how a Port of this node is governed.
func (r *rules) govern(p intent.Port) {
	r.dependOn(unitKey{kindSubject, p.SubjectKey()})
	subject, _ := r.state.Subjects().Get(p.SubjectKey())
	for _, id := range subject.Rules {
		r.dependencies = append(r.dependencies, unitKey{kindShape, id})
		if _, ok := r.state.Rules().Get(id); !ok {
			r.problem("it is closed: rule %s is not known", id)
			break
		}
	}
	rules, closed := judgedOf(r.state, p)
	for _, d := range []intent.Direction{intent.Egress, intent.Ingress} {
		if closed != "" {
			for _, w := range r.packetsOf(p, d, 400) {
				w.decide(closedPort(d, p.ID, closed), policyVerdict)
			}
			continue
		}
		g := governed{r: r, port: p, direction: d, tables: tablesOf(d)}
		g.securityGroups(subject, rules)
		if evaluate.PoliciesApply(p) {
			g.policies(subject, rules)
		}
		for _, w := range r.packetsOf(p, d, 100) {
			g.enter(w)
		}
		g.evasions()
	}
}

// linkLocal are the addresses that each IPv6 port has beside its own.
var linkLocal = netip.MustParsePrefix("fe80::/10")

// evasions denies packets that rules would judge by an address that does not
// identify the other end.
func (g *governed) evasions() {
	n, _, ok := g.r.lookup(g.port.Network)
	if g.bits == 0 || !ok || n.Physical != "" { // on the wire addresses are all that is known
		return
	}
	deny := func(why string, priority uint16, match ...openflow.FieldValue) {
		g.r.on(g.tables.subject, priority, match...).decide(closedPort(g.direction, g.port.ID, why), g.tables.end)
	}
	const nameless = "no policy names a link-local address"
	if g.direction == intent.Ingress {
		deny(nameless, 200, toPort(g.r.number(g.port)), openflow.IPSrc(linkLocal))
		return
	}
	in := openflow.InPort(g.r.number(g.port))
	deny(nameless, 200, in, openflow.IPDst(linkLocal), notToOwnNode)
	deny("the packet goes to a port that does not have the address that it is for", 250, in, notToOwner)
}

// packetsOf begins the flows for what a Port sends or receives. Without the bridge's Services, what
// the kernel sends as the Port was the Port's, for a Service.
func (r *rules) packetsOf(p intent.Port, d intent.Direction, priority uint16) []flow {
	if d == intent.Ingress {
		return []flow{r.on(ingressSubject, priority, toPort(r.number(p)))}
	}
	flows := []flow{r.on(egressSubject, priority, openflow.InPort(r.number(p)))}
	if r.native() {
		return flows
	}
	for _, a := range r.clusterAddresses(p) {
		flows = append(flows, r.on(egressSubject, priority, from(fromGateway), openflow.IPSrc(a)))
	}
	return flows
}

// clusterAddresses are those by which the node's kernel knows a Port.
func (r *rules) clusterAddresses(p intent.Port) []netip.Addr {
	n, rt, ok := r.lookup(p.Network)
	switch {
	case !ok || n.Physical != "":
		return p.NodeAddresses
	case rt.Private() && !n.FromNodes():
		return p.NodeAddresses
	}
	return p.Addresses
}

// Closed says why Ports of the node of that name are closed, by their IDs. Others are not.
func Closed(s *intent.State, node string) map[string]string {
	known, why := emptySnapshot().at(s), map[string]string{}
	for p := range s.PortsAt(node) {
		if _, closed := judgedOf(known, p); closed != "" {
			why[p.ID] = closed
		}
	}
	return why
}

// judgedOf are a Port's rules, as they are judged, or why it is closed: one is not known,
// or cannot be judged.
func judgedOf(s *snapshot, p intent.Port) (all []judged, closed string) {
	subject, known := s.Subjects().Get(p.SubjectKey())
	switch {
	case !known:
		return nil, evaluate.Unknown
	case subject.Closed != "":
		return nil, subject.Closed
	}
	all = make([]judged, 0, len(subject.Rules))
	for _, id := range subject.Rules {
		rule, ok := s.Rules().Get(id)
		if !ok {
			return nil, evaluate.Unknown
		}
		j, problem := judge(s, rule)
		if problem != "" {
			return nil, fmt.Sprintf("%s, rule %d, cannot be enforced", rule.Policy, rule.Number)
		}
		all = append(all, j)
	}
	return all, ""
}

// governed is a Port that is being compiled in one direction.
type governed struct {
	r         *rules
	port      intent.Port
	direction intent.Direction
	tables    policyTables
	bits      uint64
	classes   bool // a rule asks for the class of the peer
}

// enter ends the flow that leads to the first table that the Port has rules in.
func (g *governed) enter(w flow) {
	if g.bits == 0 {
		w.goTo(g.tables.end)
		return
	}
	w = w.set(regSubject.Value(g.bits | uint64(g.r.number(g.port))))
	if g.classes {
		w = w.set(regClass.Value(0)).do(openflow.Resubmit(g.tables.peer.ID))
	}
	switch {
	case g.bits&inGroup != 0:
		w.goTo(g.tables.group)
	case g.bits&inAdmin != 0:
		w.goTo(g.tables.admin)
	case g.bits&inAdminLater != 0:
		w.goTo(g.tables.adminLater)
	default:
		w.goTo(g.tables.policy)
	}
}

// securityGroups denies what no rule of the Port's groups allows.
func (g *governed) securityGroups(s intent.Subject, rules []judged) {
	if len(s.SecurityGroups) == 0 {
		return
	}
	g.bits |= inGroup
	g.rules(rules, intent.SecurityGroupTier)
	g.denies(g.tables.group, groupDenies, intent.SecurityGroupTier, s.SecurityGroups)
}

// policies has the Port governed by ClusterNetworkPolicies and NetworkPolicies.
func (g *governed) policies(s intent.Subject, rules []judged) {
	g.rules(rules, intent.AdminTier)
	isolation := s.IngressIsolation
	if g.direction == intent.Egress {
		isolation = s.EgressIsolation
	}
	if len(isolation) == 0 {
		g.rules(rules, intent.BaselineTier)
		return
	}
	g.bits |= inPolicy | isolatedBit
	g.rules(rules, intent.NetworkPolicyTier)
	g.denies(g.tables.policy, policyDenies, intent.NetworkPolicyTier, isolation)
}

func (g *governed) denies(t Table, priority uint16, tier intent.Tier, policies []intent.PolicyRef) {
	v := Verdict{Action: intent.Deny, Direction: g.direction, Tier: tier, Policies: slices.Clone(policies),
		Port: g.port.ID}
	g.r.on(t, priority, g.r.isPort(g.port)).decide(v, g.tables.end)
}

// rules emits the Port's clause of the rules of a tier. Where one fits all of the Port's packets it
// decides at once, and others of the same priority, which would decide the same, do not count.
func (g *governed) rules(all []judged, tier intent.Tier) {
	var list []*judged
	for i := range all {
		if j := &all[i]; j.rule.Tier == tier && j.rule.Direction == g.direction && !fitsNothing(j.rule) {
			list = append(list, j)
		}
	}
	for stage, list := range byStage(list) {
		switch stage.table.ID {
		case g.tables.admin.ID:
			g.bits |= inAdmin
		case g.tables.adminLater.ID:
			g.bits |= inAdminLater
		case g.tables.policy.ID:
			g.bits |= inPolicy
		}
		if i := slices.IndexFunc(list, func(j *judged) bool { return j.clauses == 1 }); i >= 0 {
			g.r.on(stage.table, stage.priority, g.r.isPort(g.port)).decide(list[i].verdict(g.port.ID), list[i].next)
			continue
		}
		actions := make([]openflow.Action, len(list))
		for i, j := range list {
			g.classes = g.classes || len(j.rule.Groups) > 0
			actions[i] = openflow.Conjunction(j.id, 1, j.clauses)
		}
		g.r.satisfies(stage, actions, g.r.isPort(g.port))
	}
}
