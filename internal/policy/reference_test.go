// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"maps"
	"net/netip"
	"slices"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ipam"
)

// reference says what the Views are without any index: it looks at everything each time.
type reference struct {
	namespaces map[string]Namespace
	nodes      map[string]Node
	endpoints  map[string]Endpoint
	policies   map[intent.PolicyRef]Policy
	mostPorts  int
}

func newReference() *reference {
	return &reference{map[string]Namespace{}, map[string]Node{}, map[string]Endpoint{}, map[intent.PolicyRef]Policy{}, maxNamedPorts}
}

func (r *reference) selects(s Selector, p Endpoint) bool {
	switch {
	case p.HostNetwork, s.Nodes != nil:
		return false
	case s.SecurityGroup != "":
		return slices.Contains(p.SecurityGroups, s.SecurityGroup)
	case s.Pods == nil || !s.Pods.Matches(p.Labels):
		return false
	case s.Namespace != "":
		return p.Namespace == s.Namespace
	}
	ns, known := r.namespaces[p.Namespace]
	return known && s.Namespaces != nil && s.Namespaces.Matches(ns.Labels)
}

func (r *reference) governs(p Policy, ep Endpoint) bool {
	return slices.ContainsFunc(p.subjects(), func(s Selector) bool { return r.selects(s, ep) })
}

// members are the locations of a selector's Ports or nodes.
func (r *reference) members(s Selector, n narrowed) map[location]bool {
	out := map[location]bool{}
	add := func(p Place) {
		if (len(n.blocks) == 0 || slices.ContainsFunc(n.blocks, func(b netip.Prefix) bool { return b.Contains(p.Address) })) &&
			(s.Family == AnyFamily || p.Address.Is4() == (s.Family == IPv4)) && (!p.Secondary || s.SecurityGroup != "") {
			out[location{p.Space, p.Address}] = true
		}
	}
	if s.Nodes != nil && n.port == "" {
		for _, node := range r.nodes {
			for _, a := range node.Addresses {
				if s.Nodes.Matches(node.Labels) {
					add(Place{Space: intent.DefaultRouterName, Address: a})
				}
			}
		}
	}
	for _, ep := range r.endpoints {
		here := func(p NamedPort) bool {
			return p.Name == n.port && p.Protocol == n.at.protocol && p.Port == n.at.port
		}
		if r.selects(s, ep) && (n.port == "" || slices.ContainsFunc(ep.NamedPorts, here)) {
			for _, place := range ep.Places {
				add(place)
			}
		}
	}
	return out
}

// viewOf is the View of a node, or of AllNodes: what the Views of the nodes have together, and what
// policies have that are for no Endpoint.
func (r *reference) viewOf(node string) View {
	if node != AllNodes {
		return r.view(node)
	}
	all := newAgent(View{})
	for _, v := range append([]View{r.unused()}, r.views()...) {
		for i, p := range v.Peers {
			groups := append(slices.Clone(p.Groups), all.peers[intent.PeerKey(p.Space, p.Address)].Groups...)
			slices.Sort(groups)
			v.Peers[i].Groups = slices.Compact(groups)
		}
		all.apply(Delta{View: v})
	}
	return all.view()
}

func (r *reference) views() (list []View) {
	for _, n := range testNodes {
		list = append(list, r.view(n))
	}
	return list
}

// unused are the rules of all policies, whether or not there is anything that they are for, and
// their peers.
func (r *reference) unused() (v View) {
	rules, groups := map[string]intent.Rule{}, map[string]map[location]bool{}
	for _, p := range r.policies {
		for _, rule := range p.Rules {
			parts := r.parts(p, rule, Endpoint{}, groups)
			for _, ep := range r.endpoints {
				if r.governs(p, ep) {
					parts = append(parts, r.parts(p, rule, ep, groups)...)
				}
			}
			for _, part := range parts {
				rules[part.ID] = part
			}
		}
	}
	v.Rules, v.Peers = slices.Collect(maps.Values(rules)), peersOf(groups)
	v.sort()
	return v
}

// view computes what a node has to know.
func (r *reference) view(node string) View {
	var v View
	rules := map[string]intent.Rule{}
	groups := map[string]map[location]bool{}
	for _, ep := range r.endpoints {
		if ep.Node != node || node == "" || ep.HostNetwork {
			continue
		}
		s := intent.Subject{Key: ep.Key}
		if _, ok := r.namespaces[ep.Namespace]; !ok {
			s.Closed = unknownNamespace(ep.Namespace)
		}
		for _, name := range ep.SecurityGroups {
			ref := securityGroupRef(name)
			if _, ok := r.policies[ref]; ok {
				s.SecurityGroups = append(s.SecurityGroups, ref)
			} else if s.Closed == "" {
				s.Closed = unknownSecurityGroup(name)
			}
		}
		for _, p := range r.policies {
			if !r.governs(p, ep) {
				continue
			}
			if p.Tier == intent.NetworkPolicyTier && p.Ingress {
				s.IngressIsolation = append(s.IngressIsolation, p.Ref)
			}
			if p.Tier == intent.NetworkPolicyTier && p.Egress {
				s.EgressIsolation = append(s.EgressIsolation, p.Ref)
			}
			for _, rule := range p.Rules {
				for _, part := range r.parts(p, rule, ep, groups) {
					rules[part.ID] = part
					s.Rules = append(s.Rules, part.ID)
				}
			}
		}
		if s.Closed == "" && r.mustWait(ep) {
			s.Closed = nowhere
		}
		slices.SortFunc(s.IngressIsolation, intent.PolicyRef.Compare)
		slices.SortFunc(s.EgressIsolation, intent.PolicyRef.Compare)
		slices.SortFunc(s.SecurityGroups, intent.PolicyRef.Compare)
		slices.Sort(s.Rules)
		v.Subjects = append(v.Subjects, s)
	}
	v.Rules, v.Peers = slices.Collect(maps.Values(rules)), peersOf(groups)
	v.sort()
	return v
}

func peersOf(groups map[string]map[location]bool) (list []intent.Peer) {
	peers := map[location]*intent.Peer{}
	for _, g := range slices.Sorted(maps.Keys(groups)) {
		for a := range groups[g] {
			if peers[a] == nil {
				peers[a] = &intent.Peer{Space: a.space, Address: a.address}
			}
			peers[a].Groups = append(peers[a].Groups, g)
		}
	}
	for _, p := range peers {
		list = append(list, *p)
	}
	return list
}

// mustWait says that rules deny an Endpoint something by an address that is not known yet.
func (r *reference) mustWait(ep Endpoint) bool {
	if slices.ContainsFunc(ep.Places, func(p Place) bool { return !p.Secondary }) {
		return false
	}
	for _, p := range r.policies {
		for _, rule := range p.Rules {
			if rule.AnyPeer || rule.Action == intent.Allow || rule.Action == intent.Pass && rule.Closed != "" {
				continue
			}
			if slices.ContainsFunc(rule.Peers, func(s Selector) bool { return r.selects(s, ep) }) {
				return true
			}
		}
	}
	return false
}

// parts are the rules that one becomes for a subject, and the groups that they need.
func (r *reference) parts(p Policy, rule Rule, ep Endpoint, groups map[string]map[location]bool) []intent.Rule {
	if rule.Closed != "" && rule.Action != intent.Deny {
		return nil
	}
	blocks := ipam.Disjoint(rule.Blocks)
	base := intent.Rule{
		ID: ruleID(p.Ref, rule.Direction, rule.Number), Policy: p.Ref, Number: rule.Number, Direction: rule.Direction,
		Tier: p.Tier, Priority: p.Priority, Action: rule.Action,
	}
	peers := func(out intent.Rule) intent.Rule {
		out.AnyPeer = rule.AnyPeer
		if rule.AnyPeer {
			return out
		}
		out.Blocks = blocks
		for _, s := range rule.Peers {
			if text := s.canonical(); text != "" {
				id := narrowed{family: s.Family}.id(text)
				groups[id] = r.members(s, narrowed{})
				out.Groups = append(out.Groups, id)
			}
		}
		slices.Sort(out.Groups)
		out.Groups = slices.Compact(out.Groups)
		return out
	}
	if !rule.AnyPeer && len(blocks) == 0 && !slices.ContainsFunc(rule.Peers, func(s Selector) bool { return s.canonical() != "" }) {
		return nil
	}
	if rule.AnyPort {
		return []intent.Rule{peers(base)}
	}
	var out []intent.Rule
	numbered, named := splitPorts(rule.Ports)
	if len(numbered) > 0 {
		part := peers(base)
		part.Ports = numbered
		out = append(out, part)
	}
	parts := map[resolved]intent.Rule{}
	members := map[string]map[location]bool{}
	for _, port := range named {
		if rule.Direction == intent.Ingress {
			for _, at := range resolve(ep.NamedPorts, port) {
				parts[at] = peers(base)
			}
			continue
		}
		add := func(s Selector, blocks []netip.Prefix) {
			all := map[resolved]bool{}
			for _, other := range r.endpoints {
				if r.selects(s, other) {
					for _, at := range resolve(other.NamedPorts, port) {
						all[at] = true
					}
				}
			}
			for at := range all {
				n := narrowed{port.Name, at, s.Family, blocks}
				id := n.id(s.canonical())
				members[id] = r.members(s, n)
				part, ok := parts[at]
				if !ok {
					part = base
				}
				part.Groups = append(part.Groups, id)
				slices.Sort(part.Groups)
				part.Groups = slices.Compact(part.Groups)
				parts[at] = part
			}
		}
		if rule.AnyPeer {
			add(everywhere, nil)
			continue
		}
		for _, s := range rule.Peers {
			add(s, nil)
		}
		if len(blocks) > 0 {
			add(everywhere, blocks)
		}
	}
	others := base
	others.ID, others.Action = base.ID+"/others", intent.Deny
	for i, at := range slices.SortedFunc(maps.Keys(parts), resolved.compare) {
		part := parts[at]
		if rule.Direction == intent.Egress && i >= r.mostPorts {
			others.Groups = append(others.Groups, part.Groups...)
			continue
		}
		part.ID += at.suffix()
		part.Ports = []intent.PortRange{{Protocol: at.protocol, First: at.port, Last: at.port}}
		out = append(out, part)
	}
	if len(others.Groups) > 0 && rule.Action != intent.Allow {
		slices.Sort(others.Groups)
		out = append(out, others)
	}
	for _, part := range out {
		for _, id := range part.Groups {
			if m, ok := members[id]; ok {
				groups[id] = m
			}
		}
	}
	return out
}

func (r *reference) nodesOf(ref intent.PolicyRef) []string {
	nodes := map[string]bool{}
	for _, ep := range r.endpoints {
		if ep.Node != "" && r.governs(r.policies[ref], ep) && r.concerns(r.policies[ref], ep) {
			nodes[ep.Node] = true
		}
	}
	return slices.Sorted(maps.Keys(nodes))
}

// concerns says whether what a node has to know of the Endpoint names the Policy.
func (r *reference) concerns(p Policy, ep Endpoint) bool {
	if p.Tier == intent.SecurityGroupTier || p.Tier == intent.NetworkPolicyTier && (p.Ingress || p.Egress) {
		return true
	}
	return slices.ContainsFunc(p.Rules, func(rule Rule) bool { return len(r.parts(p, rule, ep, map[string]map[location]bool{})) > 0 })
}
