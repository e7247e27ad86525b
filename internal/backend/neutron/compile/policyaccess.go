// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/intent"
)

// access is what a Port is allowed in one direction: everything, or what the rules allow.
type access struct {
	open  bool
	rules []intent.Rule
	// ownNode says that it may send to its own node as well.
	ownNode bool
}

// subject is what there is to know of a Port's policies in a direction.
type subject struct {
	direction intent.Direction
	rules     []intent.Rule // of all tiers
	isolated  bool
	groups    []intent.PolicyRef // SecurityGroups
	where     string             // the Port's space
}

// primary is the name of a pod's first interface, which alone policies but SecurityGroups are
// about.
const primary = "eth0"

// access is what a Port is allowed in each direction: nothing while its policies are not known.
func (f *firewall) access(p intent.Port) (in, out access) {
	s, ok := f.state.Subjects().Get(p.SubjectKey())
	if !ok || s.Closed != "" {
		return access{}, access{}
	}
	applies := p.Interface == "" || p.Interface == primary
	var rules []intent.Rule
	for _, id := range s.Rules {
		r, known := f.state.Rules().Get(id)
		if !known {
			return access{}, access{}
		}
		if applies || r.Tier == intent.SecurityGroupTier {
			rules = append(rules, r)
		}
	}
	if !applies {
		s.IngressIsolation, s.EgressIsolation = nil, nil
	}
	if p.Audited {
		for _, ref := range slices.Concat(s.IngressIsolation, s.EgressIsolation, s.SecurityGroups) {
			f.problem(ref, "AuditUnsupported", "Neutron does not log what is denied: "+
				"remove the annotation of the namespaces of its Ports")
		}
	}
	slices.SortFunc(rules, compareRules)
	where := f.spaceOf(p.Network)
	in = f.both(subject{intent.Ingress, rules, len(s.IngressIsolation) > 0, s.SecurityGroups, where})
	out = f.both(subject{intent.Egress, rules, len(s.EgressIsolation) > 0, s.SecurityGroups, where})
	return in, out
}

// compareRules orders the rules of a tier as they are asked: the stricter one first where two
// policies have the same priority.
func compareRules(a, b intent.Rule) int {
	strictness := []intent.Action{intent.Deny, intent.Pass, intent.Allow}
	return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Number, b.Number),
		cmp.Compare(slices.Index(strictness, a.Action), slices.Index(strictness, b.Action)), cmp.Compare(a.ID, b.ID))
}

// problem says what Neutron does not do of a policy, once.
func (f *firewall) problem(ref intent.PolicyRef, reason, message string) {
	p := resource.Problem{Object: ref.String(), Reason: reason, Message: message}
	if !f.reported[p] {
		f.reported[p] = true
		f.set.Problems = append(f.set.Problems, p)
	}
}

// of are the rules of a tier that fit something.
func (f *firewall) of(s subject, t intent.Tier) (list []intent.Rule) {
	for _, r := range s.rules {
		if r.Tier == t && r.Direction == s.direction && f.fits(r, s.where) {
			list = append(list, r)
		}
	}
	return list
}

// fits reports whether a rule may fit anything in a space.
func (f *firewall) fits(r intent.Rule, space string) bool {
	return r.AnyPeer || len(r.Groups) > 0 && space != "" || slices.ContainsFunc(r.Blocks, func(b netip.Prefix) bool {
		return slices.Contains(f.families, familyOf(b.Addr()))
	})
}

// all reports whether a rule fits everything.
func (f *firewall) all(r intent.Rule) bool {
	every := r.AnyPeer || !slices.ContainsFunc(f.families, func(fam family) bool {
		return !slices.ContainsFunc(r.Blocks, func(b netip.Prefix) bool {
			return b.Bits() == 0 && familyOf(b.Addr()) == fam
		})
	})
	return every && len(r.Ports) == 0
}

// both is what a Port's SecurityGroups and its other policies both allow. Neutron allows what any
// group of a port allows, so the Port is closed if neither side allows everything.
func (f *firewall) both(s subject) access {
	others := f.policies(s)
	groups := f.of(s, intent.SecurityGroupTier)
	switch {
	case len(s.groups) == 0, slices.ContainsFunc(groups, f.all):
		return others
	case others.open:
		return access{rules: groups}
	}
	if len(groups) > 0 && (len(others.rules) > 0 || others.ownNode) {
		for _, ref := range s.groups {
			f.problem(ref, "CombinationUnsupported", fmt.Sprintf("Neutron cannot allow only what both a SecurityGroup and "+
				"another policy allow: Ports that have both are closed in the direction %s; use one of the two",
				directionName(s.direction)))
		}
	}
	return access{}
}

// policies is what the policies beside SecurityGroups allow.
func (f *firewall) policies(s subject) access {
	behind := f.behindAdmin(s)
	list, end := f.of(s, intent.AdminTier), behind
	var allowed []intent.Rule
	passed := false // that something goes on to policies that do not let everything pass
	for _, r := range list {
		switch {
		case r.Action == intent.Deny:
			if !f.all(r) || passed {
				f.closes(r)
			}
			return access{rules: allowed}
		case r.Action == intent.Pass && f.all(r):
			return union(allowed, end)
		case r.Action == intent.Pass && !behind.open:
			passed = true
		case passed:
			f.problem(r.Policy, "OrderUnsupported", fmt.Sprintf("security groups of Neutron have no order: rule %s, which "+
				"comes after one that passes, has no effect", partName(r)))
		default:
			allowed = append(allowed, r)
		}
	}
	return union(allowed, end)
}

// union is what rules allow, and what is allowed behind them.
func union(allowed []intent.Rule, behind access) access {
	if !behind.open {
		behind.rules = slices.Concat(allowed, behind.rules)
	}
	return behind
}

// behindAdmin is what NetworkPolicies allow of a Port that they isolate, and else what the Baseline
// tier allows.
func (f *firewall) behindAdmin(s subject) access {
	if s.isolated {
		return access{rules: f.of(s, intent.NetworkPolicyTier), ownNode: s.direction == intent.Egress}
	}
	var allowed []intent.Rule
	for _, r := range f.of(s, intent.BaselineTier) {
		if r.Action == intent.Deny {
			if !f.all(r) {
				f.closes(r)
			}
			return access{rules: allowed}
		}
		allowed = append(allowed, r)
	}
	return access{open: true}
}

// closes says that a rule denies more than it should.
func (f *firewall) closes(r intent.Rule) {
	f.problem(r.Policy, "DenyUnsupported", fmt.Sprintf("security groups of Neutron only allow: in place of what rule %s "+
		"denies, all that no rule before it allows is closed; let the last rule deny everything, or use NetworkPolicies",
		partName(r)))
}
