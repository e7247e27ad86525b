// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"net/netip"
	"slices"
	"strings"

	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/internal/backend/ovn/nb"
	"coelan.io/coelan/internal/intent"
)

// policyKind are policies. Its units are
//
//	port ID         which Port_Groups a Port is in
//	group NAME      a Port_Group with the ACLs of a policy, or of several that depend on each other
//	peer KEY        which Address_Sets an address is in
//	set SPACE GROUP the Address_Sets of a group, one for each family
//	node NAME       what a node's own processes may, and what may reach them
//	switch KEY      what policies do not judge on a switch, of a unit of networkKind
//	base            the same on switches of other systems, and Ports that are closed
//
// A Port that comes or goes changes elements only; a rule is an ACL for each group of its policy.
type policyKind struct {
	cluster names.Cluster
	ports   map[string]membership // by ID
	subject map[string]map[string]struct{}
	groups  map[string]*policyGroup
	// Keys of groups by ID of a rule, and by name of the policy that a group is of.
	ofRule, ofPolicy map[string]map[string]struct{}
	sets             map[string]int // how many groups use the sets of a space and group
	ranks            ranks
}

func newPolicyKind(c names.Cluster) *policyKind {
	k := &policyKind{cluster: c}
	k.forget()
	return k
}

func (k *policyKind) forget() {
	k.ports, k.subject = map[string]membership{}, map[string]map[string]struct{}{}
	k.groups, k.sets = map[string]*policyGroup{}, map[string]int{}
	k.ofRule, k.ofPolicy = map[string]map[string]struct{}{}, map[string]map[string]struct{}{}
	k.ranks = newRanks()
}

// policyGroup is a Port_Group with ACLs.
type policyGroup struct {
	groupSpec
	ports int
	rules []string // their IDs
	sets  []string // that its ACLs use
}

// Name implements Kind.
func (*policyKind) Name() string { return "Policy" }

// The prefixes of units.
const (
	unitPort   = "port "
	unitGroup  = "group "
	unitPeer   = "peer "
	unitSet    = "set "
	unitNode   = "node "
	unitSwitch = "switch "
	unitBase   = "base"
)

func enforced(s *intent.State) bool { return s.Local().PolicyMode == intent.EnforcedPolicies }

// Affected implements Kind.
func (k *policyKind) Affected(from, to *intent.State, d intent.Delta, yield func(string)) {
	if from == nil {
		k.forget()
	}
	if d.Local {
		yield(unitBase)
		d = withAll(d, intent.Diff(nil, to)) // whether policies are enforced decides about all
	}
	groups := map[string]struct{}{}
	if k.ranks.update(from, to, d) { // priorities of rules are relative to each other
		for key := range k.groups {
			groups[key] = struct{}{}
		}
	}
	for id := range k.touched(from, to, d) {
		k.place(to, id, groups)
		yield(unitPort + id)
	}
	for _, id := range d.Rules {
		for key := range k.ofRule[id] {
			groups[key] = struct{}{}
		}
		for _, st := range states(from, to) {
			r, _ := st.Rules().Get(id)
			for key := range k.ofPolicy[r.Policy.String()] {
				groups[key] = struct{}{}
			}
		}
	}
	var sets []string
	for key := range groups {
		sets = append(sets, k.useSets(to, key)...)
	}
	for key := range groups { // when it is known what all of them use
		yield(unitGroup + key)
	}
	for _, set := range sets {
		yield(unitSet + set)
	}
	for _, key := range d.Peers {
		yield(unitPeer + key)
	}
	for _, name := range d.Nodes {
		yield(unitNode + name)
	}
	networkKind{k.cluster}.Affected(from, to, d, func(key string) { yield(unitSwitch + key) })
}

// withAll is a Delta of what another one has as well.
func withAll(d, all intent.Delta) intent.Delta {
	d.Ports, d.Subjects = append(d.Ports, all.Ports...), append(d.Subjects, all.Subjects...)
	d.Rules = append(d.Rules, all.Rules...)
	d.Peers, d.Nodes = append(d.Peers, all.Peers...), append(d.Nodes, all.Nodes...)
	d.Networks = append(d.Networks, all.Networks...)
	return d
}

// touched are the IDs of the Ports that may be in other groups than before.
func (k *policyKind) touched(from, to *intent.State, d intent.Delta) map[string]struct{} {
	ports := map[string]struct{}{}
	for _, id := range d.Ports {
		for _, s := range states(from, to) {
			if p, ok := s.Ports().Get(id); ok && s == from {
				unindex(k.subject, p.SubjectKey(), id)
			}
		}
		if p, ok := to.Ports().Get(id); ok {
			index(k.subject, p.SubjectKey(), id)
		}
		ports[id] = struct{}{}
	}
	subject := func(key string) {
		for id := range k.subject[key] {
			ports[id] = struct{}{}
		}
	}
	for _, key := range d.Subjects {
		subject(key)
	}
	for _, id := range d.Rules {
		if sameStage(from, to, id) {
			continue
		}
		for s := range to.SubjectsOf(id) {
			subject(s.Key)
		}
	}
	for _, name := range d.Networks {
		for _, s := range states(from, to) {
			for p := range s.PortsOf(name) {
				ports[p.ID] = struct{}{}
			}
		}
	}
	for _, name := range d.Routers {
		for n := range to.NetworksOf(name) {
			for p := range to.PortsOf(n.Name) {
				ports[p.ID] = struct{}{}
			}
		}
	}
	return ports
}

// sameStage reports whether a rule is at the same stage of its Ports' policies as before.
func sameStage(from, to *intent.State, id string) bool {
	if from == nil {
		return false
	}
	a, was := from.Rules().Get(id)
	b, is := to.Rules().Get(id)
	return was && is && a.Tier == b.Tier && a.Direction == b.Direction && a.Action == b.Action &&
		a.Policy == b.Policy && a.Priority == b.Priority && a.Number == b.Number
}

// place finds the groups of a Port anew, and adds to groups those that come or go.
func (k *policyKind) place(s *intent.State, id string, groups map[string]struct{}) {
	var now membership
	if p, ok := s.Ports().Get(id); ok && enforced(s) {
		now = memberOf(s, p)
	}
	before := k.ports[id]
	for _, spec := range now.groups {
		key := spec.key()
		g := k.groups[key]
		if g == nil {
			g = &policyGroup{groupSpec: spec}
			k.groups[key] = g
			if spec.policy != (intent.PolicyRef{}) {
				index(k.ofPolicy, spec.policy.String(), key)
			}
			groups[key] = struct{}{}
		}
		g.ports++
	}
	for _, spec := range before.groups {
		key := spec.key()
		if g := k.groups[key]; g != nil {
			if g.ports--; g.ports == 0 {
				groups[key] = struct{}{}
			}
		}
	}
	if now.governed() {
		k.ports[id] = now
	} else {
		delete(k.ports, id)
	}
}

// useSets counts which sets a group uses now, and returns those that come into use or out of it. A
// group without Ports is forgotten.
func (k *policyKind) useSets(s *intent.State, key string) (changed []string) {
	g := k.groups[key]
	if g == nil {
		return nil
	}
	before := g.sets
	for _, id := range g.rules {
		unindex(k.ofRule, id, key)
	}
	g.rules, g.sets = nil, nil
	if g.ports == 0 {
		delete(k.groups, key)
		unindex(k.ofPolicy, g.policy.String(), key)
	} else {
		g.rules = g.ruleIDs(s)
	}
	for _, id := range g.rules {
		index(k.ofRule, id, key)
		r, _ := s.Rules().Get(id)
		for _, group := range r.Groups {
			if set := setKey(g.space, group); g.space != "" && !slices.Contains(g.sets, set) {
				g.sets = append(g.sets, set)
			}
		}
	}
	for _, set := range g.sets {
		if k.sets[set]++; k.sets[set] == 1 {
			changed = append(changed, set)
		}
	}
	for _, set := range before {
		if k.sets[set]--; k.sets[set] == 0 {
			delete(k.sets, set)
			changed = append(changed, set)
		}
	}
	return changed
}

// Compile implements Kind.
func (k *policyKind) Compile(s *intent.State, key string, u *nb.Unit) {
	sort, name, _ := strings.Cut(key, " ")
	switch sort + " " {
	case unitPort:
		k.port(s, name, u)
	case unitGroup:
		k.group(s, name, u)
	case unitPeer:
		k.peer(s, name, u)
	case unitSet:
		k.set(name, u)
	case unitNode:
		k.node(s, name, u)
	case unitSwitch:
		k.unjudged(s, name, u)
	case unitBase + " ":
		k.base(s, u)
	}
}

// port makes a Port an element of its groups.
func (k *policyKind) port(s *intent.State, id string, u *nb.Unit) {
	p, ok := s.Ports().Get(id)
	m, governed := k.ports[id]
	if !ok || !governed {
		return
	}
	port := portRef(p.ObjectKey()).Key
	put := func(of nb.Ref) { u.Put(of, "ports", port) }
	if n, _ := s.Networks().Get(p.Network); n.LogicalSwitch != "" {
		put(adoptedRef)
	}
	put(nodePortsRef(p.Node))
	if m.closed {
		put(closedRef)
	}
	if m.egressIsolated {
		put(isolatedAtRef(p.Node))
	}
	for _, g := range m.groups {
		put(groupRef(g.key()))
	}
}

func portGroupRef(key string) nb.Ref { return nb.Ref{Table: "Port_Group", Key: "Policy/" + key} }

func groupRef(key string) nb.Ref { return portGroupRef(unitGroup + key) }

// adoptedRef is the group of Ports that policies govern on switches of other systems, closedRef
// that of those that are closed. There is none of all Ports: each one more would have all be
// compared.
var (
	adoptedRef = portGroupRef(unitBase)
	closedRef  = portGroupRef(unitBase + " closed")
)

// nodePortsRef is the group of the governed Ports on a node, isolatedAtRef that of those that a
// NetworkPolicy isolates in the direction Egress.
func nodePortsRef(node string) nb.Ref  { return portGroupRef(unitNode + node) }
func isolatedAtRef(node string) nb.Ref { return portGroupRef(unitNode + node + " isolated") }

// portGroup adds a Port_Group, and returns how ACLs name it.
func (k *policyKind) portGroup(u *nb.Unit, ref nb.Ref) string {
	name := k.cluster.Set("pg", ref.Key)
	u.Add(ref.Key, &nb.PortGroup{Name: name})
	return "@" + name
}

// setKey is what a space and a group are called together.
func setKey(space, group string) string { return space + " " + group }

func setRef(set string, is4 bool) nb.Ref {
	family := " 6"
	if is4 {
		family = " 4"
	}
	return nb.Ref{Table: "Address_Set", Key: "Policy/" + unitSet + set + family}
}

// setName is how ACLs name an Address_Set.
func (k *policyKind) setName(set string, is4 bool) string {
	kind := "as6"
	if is4 {
		kind = "as4"
	}
	return k.cluster.Set(kind, setRef(set, is4).Key)
}

// set adds the Address_Sets of a space and group, empty ones too: an ACL with an unknown set has no
// effect.
func (k *policyKind) set(set string, u *nb.Unit) {
	if k.sets[set] == 0 {
		return
	}
	for _, is4 := range []bool{true, false} {
		u.Add(setRef(set, is4).Key, &nb.AddressSet{Name: k.setName(set, is4)})
	}
}

// peer makes an address an element of the sets of its groups, whether or not there are these sets.
func (k *policyKind) peer(s *intent.State, key string, u *nb.Unit) {
	p, ok := s.Peers().Get(key)
	if !ok || !enforced(s) {
		return
	}
	for _, group := range p.Groups {
		u.Put(setRef(setKey(p.Space, group), p.Address.Is4()), "addresses", p.Address.String())
	}
}

// spaceOf is the name of the space that a Port's addresses mean something in; empty on physical
// networks, where a peer is known by its prefix only.
func spaceOf(s *intent.State, network string) string {
	n, _ := s.Networks().Get(network)
	r, ok := s.Routers().Get(n.Router)
	switch {
	case !ok:
		return ""
	case r.Private():
		return r.Name
	}
	return intent.DefaultRouterName
}

// addressesText are addresses of a family as a match has them.
func addressesText(list []netip.Addr, is4 bool) string {
	var texts []string
	for _, a := range list {
		if a.Is4() == is4 {
			texts = append(texts, a.String())
		}
	}
	return strings.Join(texts, ", ")
}
