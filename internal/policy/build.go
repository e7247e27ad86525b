// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"maps"
	"net/netip"
	"reflect"
	"slices"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ipam"
)

// policy is one of them as the Engine has it.
type policy struct {
	Policy
	governs []*selector // what its Subjects are
	denies  []*selector // peers that it denies something, or would by a rule before which they pass
	watches []*watch
	parts   []*part // that are for all subjects
	named   []namedRule
}

// part is a Rule as nodes get it: one of a policy's, or what becomes of it for one port that
// a name stands for.
type part struct {
	rule   intent.Rule
	groups []*group           // the same as the rule's Groups
	users  multiset[*watcher] // of nodes that need it, once for each identity there
}

// namedRule is the parts of an ingress rule for subjects that have container ports of
// one of the names.
type namedRule struct {
	ports []Port
	parts map[resolved]*part
}

// concerns says whether an identity that the policy governs is another one for it.
func (p *policy) concerns(c *identity) bool {
	isolates := p.Tier == intent.NetworkPolicyTier && (p.Ingress || p.Egress)
	return isolates || p.Tier == intent.SecurityGroupTier || len(p.parts) > 0 || len(p.appendParts(nil, c)) > 0
}

// sameFor says that both have the same parts for an identity that was there before. A port that a
// name stands for only now is that of another identity, which is checked anyway.
func (n namedRule) sameFor(o namedRule) bool {
	if !slices.Equal(n.ports, o.ports) {
		return false
	}
	for at, p := range n.parts {
		if other := o.parts[at]; other != nil && other != p {
			return false
		}
	}
	return true
}

// appendParts appends the parts that are for an identity.
func (p *policy) appendParts(parts []*part, c *identity) []*part {
	parts = append(parts, p.parts...)
	for _, n := range p.named {
		var all []resolved
		for _, port := range n.ports {
			all = append(all, resolve(c.ports, port)...)
		}
		slices.SortFunc(all, resolved.compare)
		for _, at := range slices.Compact(all) {
			parts = append(parts, n.parts[at])
		}
	}
	return parts
}

// all are the policy's parts.
func (p *policy) all() []*part {
	all := slices.Clone(p.parts)
	for _, n := range p.named {
		for _, part := range n.parts {
			all = append(all, part)
		}
	}
	return all
}

// build makes a policy what it is to be, or ends it if that is nil. What is no longer needed is
// dropped later, when no node needs it.
func (e *Engine) build(ref intent.PolicyRef, to *Policy) {
	p := e.policies[ref]
	if p == nil {
		if to == nil {
			return
		}
		p = &policy{}
		e.policies[ref] = p
	}
	was := *p
	*p = policy{}
	if to == nil {
		delete(e.policies, ref)
	} else {
		b := builder{Engine: e, policy: p}
		if parts := was.all(); len(parts) > 0 {
			b.old = make(map[string]*part, len(parts))
			for _, part := range parts {
				b.old[part.rule.ID] = part
			}
		}
		p.Policy = *to
		b.build()
		for _, left := range b.old {
			e.dropLater(left)
		}
	}
	if to == nil {
		for _, part := range was.all() {
			e.dropLater(part)
		}
	}
	for _, w := range e.everywhere.watchers {
		w.follow(e, was.all(), p.all())
	}
	if len(p.denies) > 0 {
		e.deniers[p] = struct{}{}
	} else {
		delete(e.deniers, p)
	}
	e.regovern(&was, p)
	for _, w := range was.watches {
		e.drops = append(e.drops, func() { e.unwatch(w, p) })
	}
	for _, s := range slices.Concat(was.governs, was.denies) {
		e.drops = append(e.drops, func() { e.drop(s) })
	}
}

// regovern has the subjects that a policy had and has be governed anew, if it is not
// the same for them.
func (e *Engine) regovern(was, is *policy) {
	same := was.Ingress == is.Ingress && was.Egress == is.Egress && was.Tier == is.Tier &&
		slices.Equal(was.parts, is.parts) && slices.EqualFunc(was.named, is.named, namedRule.sameFor)
	for _, s := range was.governs {
		s.governing = without(s.governing, is)
		if !same || !slices.Contains(is.governs, s) {
			for c := range s.identities.all() {
				e.stale(c)
			}
		}
	}
	for _, s := range is.governs {
		s.governing = append(s.governing, is)
		if !same || !slices.Contains(was.governs, s) {
			for c := range s.identities.all() {
				e.stale(c)
			}
		}
	}
}

func (e *Engine) dropLater(p *part) {
	for _, g := range p.groups {
		e.drops = append(e.drops, func() { e.dropGroup(g) })
	}
}

// builder makes a policy's parts.
type builder struct {
	*Engine
	*policy
	old map[string]*part // by ID; those that are used again are taken out
}

func (b *builder) build() {
	subjects := b.policy.subjects()
	for _, spec := range subjects {
		s := b.selector(spec)
		switch {
		case s == nil || s.Nodes != nil:
		case slices.Contains(b.governs, s):
		default:
			b.governs = append(b.governs, s)
			continue
		}
		if s != nil {
			b.drop(s)
		}
	}
	for _, rule := range b.Rules {
		b.rule(rule)
	}
}

func (b *builder) rule(r Rule) {
	blocks := ipam.Disjoint(r.Blocks)
	nobody := !r.AnyPeer && len(blocks) == 0 && !slices.ContainsFunc(r.Peers, Selector.selectsSomething)
	if nobody || r.Closed != "" && r.Action != intent.Deny {
		return
	}
	b.deny(r)
	base := intent.Rule{
		ID: ruleID(b.Ref, r.Direction, r.Number), Policy: b.Ref, Number: r.Number, Direction: r.Direction,
		Tier: b.Tier, Priority: b.Priority, Action: r.Action,
	}
	whole := base
	whole.AnyPeer = r.AnyPeer
	if !r.AnyPeer {
		whole.Blocks = blocks
	}
	if r.AnyPort {
		b.parts = append(b.parts, b.part(whole, b.peers(r)))
		return
	}
	numbered, named := splitPorts(r.Ports)
	if len(numbered) > 0 {
		part := whole
		part.Ports = numbered
		b.parts = append(b.parts, b.part(part, b.peers(r)))
	}
	switch {
	case len(named) == 0:
	case r.Direction == intent.Ingress:
		b.named = append(b.named, b.ingress(r, whole, named))
	default:
		b.egress(r, base, named, blocks)
	}
}

// deny records the peers that the rule denies by their address. A rule that passes counts as well:
// a later one may allow what it passes.
func (b *builder) deny(r Rule) {
	if r.AnyPeer || r.Action == intent.Allow {
		return
	}
	for _, spec := range r.Peers {
		if s := b.selector(spec); s != nil {
			b.denies = append(b.denies, s)
		}
	}
}

// peers are the groups of the rule's peers.
func (b *builder) peers(r Rule) []*group {
	if r.AnyPeer {
		return nil
	}
	var groups []*group
	for _, s := range r.Peers {
		if g := b.group(s, narrowed{}); g != nil {
			groups = append(groups, g)
		}
	}
	return groups
}

// ingress returns the parts for the ports that the names stand for among the subjects.
func (b *builder) ingress(r Rule, whole intent.Rule, named []Port) namedRule {
	out := namedRule{ports: named, parts: map[resolved]*part{}}
	for _, s := range b.governs {
		for _, port := range named {
			w := b.watchFor(s.Selector, port)
			for at := range w.found.all() {
				if out.parts[at] == nil {
					out.parts[at] = b.part(at.of(whole), b.peers(r))
				}
			}
		}
	}
	return out
}

// maxNamedPorts is how many different ports the names in a rule for egress may stand for. Each is a
// rule of every subject, and every user that creates pods can give their ports such a name.
const maxNamedPorts = 100

// egress makes the parts for the ports that the names stand for among the peers, each with those
// peers. Of too many the first have effect. Peers with others are as closed as can be: not allowed,
// or denied at all ports.
func (b *builder) egress(r Rule, base intent.Rule, named []Port, blocks []netip.Prefix) {
	wanted := map[resolved][]func() *group{}
	add := func(s Selector, blocks []netip.Prefix) {
		for _, port := range named {
			w := b.watchFor(s, port)
			if w == nil {
				continue
			}
			for at := range w.found.all() {
				wanted[at] = append(wanted[at], func() *group {
					return b.group(s, narrowed{port: port.Name, at: at, blocks: blocks})
				})
			}
		}
	}
	switch {
	case r.AnyPeer:
		add(everywhere, nil)
	default:
		for _, s := range r.Peers {
			add(s, nil)
		}
		if len(blocks) > 0 {
			add(everywhere, blocks)
		}
	}
	var others []*group
	for i, at := range slices.SortedFunc(maps.Keys(wanted), resolved.compare) {
		var groups []*group
		if i < b.mostPorts || r.Action != intent.Allow {
			for _, get := range wanted[at] {
				groups = append(groups, get())
			}
		}
		if i < b.mostPorts {
			b.parts = append(b.parts, b.part(at.of(base), groups))
		} else {
			others = append(others, groups...)
		}
	}
	if len(others) > 0 {
		base.ID, base.Action = base.ID+"/others", intent.Deny
		b.parts = append(b.parts, b.part(base, others))
	}
}

// of returns the part of a rule that is for the port.
func (r resolved) of(rule intent.Rule) intent.Rule {
	rule.ID += r.suffix()
	rule.Ports = []intent.PortRange{{Protocol: r.protocol, First: r.port, Last: r.port}}
	return rule
}

func (b *builder) watchFor(s Selector, port Port) *watch {
	w := b.watch(s, port, b.policy)
	if w != nil {
		b.watches = append(b.watches, w)
	}
	return w
}

// part returns the part of the policy that is the rule with those groups, the one that there was
// before if it can.
func (b *builder) part(rule intent.Rule, groups []*group) *part {
	slices.SortFunc(groups, func(a, b *group) int { return cmp.Compare(a.id, b.id) })
	distinct := groups[:0:0]
	for _, g := range groups {
		if n := len(distinct); n > 0 && distinct[n-1] == g {
			b.dropGroup(g)
			continue
		}
		distinct = append(distinct, g)
		rule.Groups = append(rule.Groups, g.id)
	}
	p := b.old[rule.ID]
	if p == nil {
		return &part{rule: rule, groups: distinct}
	}
	delete(b.old, rule.ID)
	b.dropLater(p)
	for w := range p.users.all() {
		for _, g := range distinct {
			w.use(b.Engine, g)
		}
		for _, g := range p.groups {
			b.releases = append(b.releases, func() { w.unuse(b.Engine, g) })
		}
		if !reflect.DeepEqual(p.rule, rule) {
			w.rules[rule.ID] = p
			b.touched[w] = struct{}{}
		}
	}
	p.rule, p.groups = rule, distinct
	return p
}
