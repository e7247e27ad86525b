// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"

	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/intent"
)

// A rule of a policy is a rule of Neutron for each of its peers at each of its ports, so a few
// kilobytes of prefixes and ports can ask for millions. The controller keeps each as a Resource of
// about 1 kB, compares it with what there is, and makes it by a call: 10,000 of a policy are some
// megabytes, and some minutes. Neutron's own quota is 100 rules of a project by default. A
// namespace has a bound of its own, since its users can make many policies.
const (
	maxRulesOfPolicy    = 10_000
	maxRulesOfNamespace = 20_000
)

// product is a rule of a policy as rules of Neutron: each peer at each port of the peer's family.
type product struct {
	peers []peer
	ports map[family][]port
}

func (f *firewall) productOf(r intent.Rule, space string) product {
	return product{f.peersOf(r, space), map[family][]port{ipv4: portsOf(r.Ports, ipv4), ipv6: portsOf(r.Ports, ipv6)}}
}

// size is how many rules of Neutron there are.
func (p product) size() (size int) {
	for _, from := range p.peers {
		size += len(p.ports[from.family])
	}
	return size
}

// allow adds the rules of Neutron that a rule of a policy makes to a group: none, and a problem, if
// they are too many. Without them the group lets through less.
func (f *firewall) allow(group resource.Ref, r intent.Rule, space string) {
	p := f.productOf(r, space)
	if !f.affords(r, space, p.size()) {
		return
	}
	for _, from := range p.peers {
		for _, at := range p.ports[from.family] {
			f.rule(group, r.Direction, from, at)
		}
	}
	f.toServices(group, r, space)
}

// affords reports whether there is room for this many more rules of Neutron, which are then counted
// as made. A policy has its bound in each space: the same rules are made in each.
func (f *firewall) affords(r intent.Rule, space string, size int) bool {
	policy, namespace := r.Policy.String()+" in "+space, r.Policy.Namespace
	switch {
	case f.made[policy]+size > maxRulesOfPolicy:
		f.tooMany(r, size, maxRulesOfPolicy, "a policy")
		return false
	case namespace != "" && f.made[namespace]+size > maxRulesOfNamespace:
		f.tooMany(r, size, maxRulesOfNamespace, "all policies of namespace "+namespace)
		return false
	}
	f.made[policy] += size
	f.made[namespace] += size
	return true
}

func (f *firewall) tooMany(r intent.Rule, size, most int, of string) {
	f.problem(r.Policy, "TooManyRules", fmt.Sprintf("rule %s takes %d rules of Neutron, one for each block and "+
		"selector at each port, and %s may have %d together: the rule allows nothing; name fewer blocks and ports, except fewer, or "+
		"use ranges of ports", partName(r), size, of, most))
}
