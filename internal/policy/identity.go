// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/labels"

	"coelan.io/coelan/internal/intent"
)

// identity is those Endpoints of a namespace that no selector can tell apart.
type identity struct {
	namespace      *namespace
	key            string
	labels         labels.Set
	securityGroups []string
	ports          []NamedPort

	endpoints multiset[*endpoint]
	selectors []*selector // that select it
	on        multiset[*watcher]
	governed  *governed // nil until it is first needed
}

// governed is what the Subjects of an identity have in common.
type governed struct {
	subject intent.Subject // without Key
	parts   []*part        // the same as the Subject's Rules
}

func (g *governed) equal(o *governed) bool {
	return g == o || slices.Equal(g.parts, o.parts) && g.subject.Closed == o.subject.Closed &&
		slices.Equal(g.subject.IngressIsolation, o.subject.IngressIsolation) &&
		slices.Equal(g.subject.EgressIsolation, o.subject.EgressIsolation) &&
		slices.Equal(g.subject.SecurityGroups, o.subject.SecurityGroups)
}

// identity returns the one of an Endpoint.
func (e *Engine) identity(p Endpoint) *identity {
	n := e.namespace(p.Namespace)
	key := e.identityKey(p)
	if c := n.identities[string(key)]; c != nil {
		return c
	}
	c := &identity{namespace: n, key: string(key), labels: p.Labels, securityGroups: p.SecurityGroups,
		ports: p.NamedPorts}
	n.identities[c.key] = c
	e.joinScope(&n.own, c)
	for _, s := range n.scopes {
		e.joinScope(s, c)
	}
	for _, name := range c.securityGroups {
		named := e.naming[name]
		if named == nil {
			named = &multiset[*identity]{}
			e.naming[name] = named
		}
		named.add(c)
		if s := e.selectors[Selector{SecurityGroup: name}.canonical()]; s != nil && s.identities.count(c) == 0 {
			e.join(s, c)
		}
	}
	return c
}

// identityKey is a text that is the same for Endpoints of one identity in a namespace. It is valid
// until the next call.
func (e *Engine) identityKey(p Endpoint) []byte {
	key, names := e.key[:0], e.names[:0]
	names = slices.AppendSeq(names, maps.Keys(p.Labels))
	slices.Sort(names)
	for _, k := range names {
		key = append(append(append(append(key, k...), '='), p.Labels[k]...), 0)
	}
	names = append(names[:0], p.SecurityGroups...)
	slices.Sort(names)
	key = append(key, 1)
	for _, name := range names {
		key = append(append(key, name...), 0)
	}
	e.names = names
	if len(p.NamedPorts) > 0 {
		ports := slices.Clone(p.NamedPorts)
		slices.SortFunc(ports, func(a, b NamedPort) int {
			return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
		})
		key = append(key, 1)
		for _, p := range ports {
			key = append(append(key, p.Name...), 0)
			key = strconv.AppendUint(append(strconv.AppendUint(key, uint64(p.Protocol), 10), ' '), uint64(p.Port), 10)
			key = append(key, 0)
		}
	}
	e.key = key
	return key
}

// joinScope has the scope's selectors select the identity, if they do.
func (e *Engine) joinScope(s *scope, c *identity) {
	for candidate := range s.selectors.candidates(c.labels) {
		if candidate.Pods.Matches(c.labels) {
			e.join(candidate, c)
		}
	}
}

// leaveScope has none of the scope's selectors select it any more.
func (e *Engine) leaveScope(s *scope, c *identity) {
	for _, joined := range slices.Clone(c.selectors) {
		if joined.scope == s {
			e.leave(joined, c)
		}
	}
}

// tidyIdentity removes an identity without members.
func (e *Engine) tidyIdentity(c *identity) {
	if c.endpoints.len() > 0 {
		return
	}
	for _, s := range slices.Clone(c.selectors) {
		e.leave(s, c)
	}
	for _, name := range c.securityGroups {
		if named := e.naming[name]; named.remove(c) == 0 && named.len() == 0 {
			delete(e.naming, name)
		}
	}
	delete(c.namespace.identities, c.key)
	e.tidyNamespace(c.namespace)
}

// stale says that other rules may be for the identity.
func (e *Engine) stale(c *identity) {
	c.governed = nil
	for w := range c.on.all() {
		w.pending[c] = struct{}{}
		e.touched[w] = struct{}{}
	}
}

// govern returns how the identity is governed.
func (e *Engine) govern(c *identity) *governed {
	if c.governed != nil {
		return c.governed
	}
	g := &governed{}
	c.governed = g
	s := &g.subject
	if !c.namespace.known {
		s.Closed = unknownNamespace(c.namespace.Name)
	}
	for _, name := range c.securityGroups {
		ref := securityGroupRef(name)
		if _, ok := e.policies[ref]; ok {
			s.SecurityGroups = append(s.SecurityGroups, ref)
		} else if s.Closed == "" {
			s.Closed = unknownSecurityGroup(name)
		}
	}
	slices.SortFunc(s.SecurityGroups, intent.PolicyRef.Compare)
	s.SecurityGroups = slices.Compact(s.SecurityGroups)
	var policies []*policy
	for _, s := range c.selectors {
		policies = append(policies, s.governing...)
	}
	slices.SortFunc(policies, func(a, b *policy) int { return a.Ref.Compare(b.Ref) })
	for _, p := range slices.Compact(policies) {
		if p.Tier == intent.NetworkPolicyTier && p.Ingress {
			s.IngressIsolation = append(s.IngressIsolation, p.Ref)
		}
		if p.Tier == intent.NetworkPolicyTier && p.Egress {
			s.EgressIsolation = append(s.EgressIsolation, p.Ref)
		}
		g.parts = p.appendParts(g.parts, c)
	}
	slices.SortFunc(g.parts, func(a, b *part) int { return cmp.Compare(a.rule.ID, b.rule.ID) })
	if len(g.parts) > 0 {
		s.Rules = make([]string, len(g.parts))
		for i, p := range g.parts {
			s.Rules[i] = p.rule.ID
		}
	}
	return g
}

// groups are those that the identity's Endpoints are in, if their places are.
func (c *identity) groups() iter.Seq[*group] {
	return func(yield func(*group) bool) {
		for _, s := range c.selectors {
			for _, g := range s.groups {
				if g.hasIdentity(c) && !yield(g) {
					return
				}
			}
		}
	}
}

// groups are those that the node is in.
func (n *node) groups() iter.Seq[*group] {
	return func(yield func(*group) bool) {
		for _, s := range n.selectors {
			for _, g := range s.groups {
				if g.port == "" && !yield(g) {
					return
				}
			}
		}
	}
}
