// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"coelan.io/coelan/internal/intent"
)

// membership is which groups a Port is in.
type membership struct {
	groups []groupSpec
	closed bool
	// egressIsolated says that a NetworkPolicy isolates the Port in the direction Egress, and that
	// the group of its node's isolated Ports says what that leaves.
	egressIsolated bool
}

func (m membership) governed() bool { return m.closed || len(m.groups) > 0 }

// groupSpec is what a group is made of: one policy, or all that is about its Ports if that depends
// on each other.
type groupSpec struct {
	space   string
	audited bool
	policy  intent.PolicyRef
	// part is the ID of the only rule, for a rule that is for some of the policy's Ports only.
	part string
	// ingress and egress say in which directions a NetworkPolicy isolates, or a SecurityGroup
	// denies what it does not allow.
	ingress, egress bool

	// Without a policy:
	rules         string // IDs, each with a line end
	securityGroup bool
	isolating     string // names of policies, for people
	node          string // with egress isolation: the Ports' node
}

func (g groupSpec) key() string {
	key := fmt.Sprintf("%s %s %v%v%v", g.policy, g.space, when(g.audited, "audited "), when(g.ingress, "in "),
		when(g.egress, "out "))
	if g.part != "" {
		key += "part " + g.part
	}
	if g.policy == (intent.PolicyRef{}) {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %v %q %q", key, g.node, g.securityGroup, g.isolating, g.rules))
		return "together " + hex.EncodeToString(sum[:16])
	}
	return strings.TrimSpace(key)
}

func when(is bool, text string) string {
	if is {
		return text
	}
	return ""
}

// ruleIDs are those of the group's rules in a State.
func (g groupSpec) ruleIDs(s *intent.State) []string {
	switch {
	case g.policy == (intent.PolicyRef{}):
		return strings.FieldsFunc(g.rules, func(r rune) bool { return r == '\n' })
	case g.part != "":
		return []string{g.part}
	}
	var list []string
	for r := range s.RulesOfPolicy(g.policy) {
		if !forSome(r) {
			list = append(list, r.ID)
		}
	}
	return list
}

// forSome reports whether a rule is for some of its policy's Ports: those that have a container
// port of a name.
func forSome(r intent.Rule) bool {
	whole := fmt.Sprintf("%s/%s/%s/ingress/%d", r.Policy.Kind, r.Policy.Namespace, r.Policy.Name, r.Number)
	return r.Direction == intent.Ingress && r.ID != whole
}

// primary is the name of a pod's first interface, which alone policies but SecurityGroups are
// about.
const primary = "eth0"

// memberOf finds the groups of a Port.
func memberOf(s *intent.State, p intent.Port) membership {
	subject, ok := s.Subjects().Get(p.SubjectKey())
	if !ok || subject.Closed != "" {
		return membership{closed: true}
	}
	applies := p.Interface == "" || p.Interface == primary
	var rules []intent.Rule
	for _, id := range subject.Rules {
		r, known := s.Rules().Get(id)
		if !known {
			return membership{closed: true}
		}
		if applies || r.Tier == intent.SecurityGroupTier {
			rules = append(rules, r)
		}
	}
	if !applies {
		subject.IngressIsolation, subject.EgressIsolation = nil, nil
	}
	base := groupSpec{space: spaceOf(s, p.Network), audited: p.Audited}
	if interact(rules, subject) {
		return together(base, rules, subject, p.Node)
	}
	return apart(base, rules, subject)
}

// interact reports whether the policies of a Port depend on each other: what SecurityGroups allow,
// others have to allow as well; and what a rule passes on, later ones of its tier do not decide.
func interact(rules []intent.Rule, subject intent.Subject) bool {
	others := len(subject.IngressIsolation)+len(subject.EgressIsolation) > 0
	for _, r := range rules {
		others = others || r.Tier != intent.SecurityGroupTier
		passes := r.Tier == intent.AdminTier && r.Action == intent.Pass
		if passes && slices.ContainsFunc(rules, func(o intent.Rule) bool {
			return o.Tier == r.Tier && o.Direction == r.Direction && o.Action != intent.Pass && compareRules(r, o) < 0
		}) {
			return true
		}
	}
	return others && len(subject.SecurityGroups) > 0
}

// compareRules orders the rules of a tier as they are asked: the stricter one first where two
// policies have the same priority.
func compareRules(a, b intent.Rule) int {
	return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Number, b.Number),
		cmp.Compare(strictness(a.Action), strictness(b.Action)), cmp.Compare(a.ID, b.ID))
}

func strictness(a intent.Action) int {
	return slices.Index([]intent.Action{intent.Deny, intent.Pass, intent.Allow}, a)
}

// apart are the groups of a Port with policies that do not depend on each other.
func apart(base groupSpec, rules []intent.Rule, subject intent.Subject) membership {
	var m membership
	add := func(g groupSpec) {
		if !slices.Contains(m.groups, g) {
			m.groups = append(m.groups, g)
		}
	}
	whole := func(ref intent.PolicyRef) groupSpec {
		g := base
		g.policy = ref
		g.ingress = slices.Contains(subject.IngressIsolation, ref) || ref.Kind == intent.SecurityGroup
		g.egress = slices.Contains(subject.EgressIsolation, ref) || ref.Kind == intent.SecurityGroup
		return g
	}
	for _, r := range rules {
		g := whole(r.Policy)
		if forSome(r) {
			g.part, g.ingress, g.egress = r.ID, false, false
		}
		add(g)
	}
	for _, refs := range [][]intent.PolicyRef{
		subject.IngressIsolation, subject.EgressIsolation, subject.SecurityGroups,
	} {
		for _, ref := range refs {
			add(whole(ref))
		}
	}
	m.egressIsolated = len(subject.EgressIsolation) > 0
	return m
}

// together is the only group of a Port with policies that depend on each other.
func together(base groupSpec, rules []intent.Rule, subject intent.Subject, node string) membership {
	g := base
	for _, r := range rules {
		g.rules += r.ID + "\n"
	}
	g.securityGroup = len(subject.SecurityGroups) > 0
	g.ingress, g.egress = len(subject.IngressIsolation) > 0, len(subject.EgressIsolation) > 0
	if g.egress {
		g.node = node
	}
	var isolating []string
	for _, refs := range [][]intent.PolicyRef{
		subject.SecurityGroups, subject.IngressIsolation, subject.EgressIsolation,
	} {
		for _, ref := range refs {
			isolating = append(isolating, ref.String())
		}
	}
	slices.Sort(isolating)
	g.isolating = strings.Join(slices.Compact(isolating), ", ")
	return membership{groups: []groupSpec{g}}
}
