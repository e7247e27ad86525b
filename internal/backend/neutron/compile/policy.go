// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"net/netip"
	"slices"
	"strings"

	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/internal/intent"
)

// firewall makes security groups of policies. Neutron lets a port send and receive what a rule of
// any of its groups allows, and nothing else. So these groups exist:
//
//	that let everything in, or out        of Ports that policies do not close in the direction
//	with the rules of a policy            of the Ports that it is for
//	without rules                         of Ports that rules of policies have as peers
//	with what a node's Ports may always   of its Ports that policies close
//
// A Port that comes or goes changes no rule. Nor does the only one of a group: see unused.
type firewall struct {
	*compiler
	families []family
	// governed are the groups that decide what a Port is allowed, by ID of the Port.
	governed map[string][]resource.Ref
	// members are the groups without rules, by address space, group of intent and family.
	members map[memberKey]resource.Ref
	// single are addresses in a group of intent, of Ports with other addresses of the family that
	// are not in it: rules name them one by one.
	single map[memberKey][]netip.Addr
	// nodes are the nodes that have an address.
	nodes    map[netip.Addr]bool
	services balanced
	reported map[resource.Problem]bool
	// made are how many rules of Neutron there are of a policy in a space, and of a namespace.
	made map[string]int
}

// memberKey names those addresses of one family that are in a group of intent in an address space.
type memberKey struct {
	space, group string
	family       family
}

// family is one of addresses, as Neutron calls it.
type family string

const (
	ipv4 family = "IPv4"
	ipv6 family = "IPv6"
)

func familyOf(a netip.Addr) family {
	if a.Is4() {
		return ipv4
	}
	return ipv6
}

// Keys of groups that are not of a policy.
const (
	openKey   = "Cluster/open"
	exemptKey = "Cluster/exempt"
)

func groupRef(object string, parts ...string) resource.Ref {
	return resource.Ref{Kind: resource.SecurityGroup, Key: resource.Key(object, parts...)}
}

// directionName is what Neutron calls a direction.
func directionName(d intent.Direction) string {
	if d == intent.Egress {
		return "egress"
	}
	return "ingress"
}

// firewall makes the groups, and finds those that decide what each Port is allowed.
func (c *compiler) firewall() *firewall {
	f := &firewall{
		compiler: c, governed: map[string][]resource.Ref{}, members: map[memberKey]resource.Ref{},
		nodes: map[netip.Addr]bool{}, reported: map[resource.Problem]bool{}, made: map[string]int{},
	}
	const object = "Network " + intent.DefaultNetworkName
	for _, d := range []intent.Direction{intent.Ingress, intent.Egress} {
		g := f.group(openRef(d), object, "open-"+directionName(d))
		for _, fam := range []family{ipv4, ipv6} {
			f.rule(g, d, peer{family: fam}, port{})
		}
	}
	if c.state.Local().PolicyMode != intent.EnforcedPolicies {
		return f
	}
	f.exempt(object)
	f.families = f.familiesInUse()
	f.single = f.singleMembers()
	f.services = f.balancedPorts()
	for n := range c.state.Nodes().All() {
		for _, a := range slices.Concat(n.Addresses, names.ManagementAddresses(n)) {
			f.nodes[a] = true
		}
	}
	for p := range c.state.Ports().All() {
		if _, ok := c.networkOf(p); ok {
			f.governed[p.ID] = f.govern(p)
		}
	}
	f.unused()
	return f
}

func openRef(d intent.Direction) resource.Ref { return groupRef(openKey, directionName(d)) }

// exempt makes the group of what policies do not judge of what Ports send: multicast, and requests
// for an address.
func (f *firewall) exempt(object string) {
	const serverPort = 67
	g := f.group(groupRef(exemptKey), object, "exempt")
	for _, b := range []string{"224.0.0.0/4", "ff00::/8"} {
		f.rule(g, intent.Egress, blockPeer(netip.MustParsePrefix(b)), port{})
	}
	f.rule(g, intent.Egress, blockPeer(netip.MustParsePrefix("255.255.255.255/32")),
		port{"udp", serverPort, serverPort})
}

// familiesInUse are those that Ports may have addresses of.
func (f *firewall) familiesInUse() (list []family) {
	has := map[family]bool{}
	for n := range f.state.Networks().All() {
		for _, sn := range n.Subnets {
			has[familyOf(sn.Prefix.Addr())] = true
		}
	}
	for n := range f.state.Nodes().All() {
		for _, sn := range n.Subnets {
			has[familyOf(sn.Prefix.Addr())] = true
		}
	}
	for _, fam := range []family{ipv4, ipv6} {
		if has[fam] {
			list = append(list, fam)
		}
	}
	return list
}

// group adds a security group without rules.
func (f *firewall) group(ref resource.Ref, object, name string) resource.Ref {
	return f.set.Add(resource.Resource{
		Ref: ref, Object: object, Mutable: resource.Attributes{"name": f.name(name)},
	})
}

// groupsOf are all groups of a Port.
func (f *firewall) groupsOf(p intent.Port) []any {
	list := f.governed[p.ID]
	if f.state.Local().PolicyMode != intent.EnforcedPolicies {
		list = []resource.Ref{openRef(intent.Ingress), openRef(intent.Egress)}
	}
	list = append(list, f.memberships(p)...)
	groups := make([]any, len(list))
	for i, ref := range list {
		groups[i] = ref
	}
	return groups
}

// memberships are the groups by which rules of policies have a Port as their peer.
func (f *firewall) memberships(p intent.Port) (list []resource.Ref) {
	space := f.spaceOf(p.Network)
	for _, a := range p.Addresses {
		known, _ := f.state.Peers().Get(intent.PeerKey(space, a))
		for _, group := range known.Groups {
			k := memberKey{space, group, familyOf(a)}
			ref, made := f.members[k]
			if made && !slices.Contains(list, ref) && !slices.Contains(f.single[k], a) {
				list = append(list, ref)
			}
		}
	}
	return list
}

// singleMembers finds the addresses that rules of policies have to name one by one: the members of
// a group of Neutron are Ports, with all that they have.
func (f *firewall) singleMembers() map[memberKey][]netip.Addr {
	single := map[memberKey][]netip.Addr{}
	for p := range f.state.Ports().All() {
		space := f.spaceOf(p.Network)
		in := func(a netip.Addr) []string {
			known, _ := f.state.Peers().Get(intent.PeerKey(space, a))
			return known.Groups
		}
		for _, a := range p.Addresses {
			others := slices.DeleteFunc(slices.Clone(p.Addresses), func(o netip.Addr) bool {
				return o == a || familyOf(o) != familyOf(a)
			})
			if len(others) == 0 {
				continue // as of most Ports
			}
			for _, group := range in(a) {
				without := func(o netip.Addr) bool { return !slices.Contains(in(o), group) }
				if slices.ContainsFunc(others, without) {
					k := memberKey{space, group, familyOf(a)}
					single[k] = append(single[k], a)
				}
			}
		}
	}
	return single
}

// spaceOf is the name of the space that a Port's addresses mean something in; empty on physical
// networks, where a peer is known by its prefix only.
func (f *firewall) spaceOf(network string) string {
	n, _ := f.state.Networks().Get(network)
	r, ok := f.state.Routers().Get(n.Router)
	if !ok {
		return ""
	}
	return RouterOf(r)
}

// inSpace is how keys and names say in which space a group is; empty for that of the cluster.
func inSpace(space string) []string {
	switch space {
	case intent.DefaultRouterName:
		return nil
	case "":
		return []string{"on physical networks"}
	}
	return []string{"in " + space}
}

// govern finds the groups that decide what a Port is allowed, and makes those that are not there.
func (f *firewall) govern(p intent.Port) (list []resource.Ref) {
	in, out := f.access(p)
	if in.open {
		list = append(list, openRef(intent.Ingress))
	} else {
		list = append(list, f.fromItself()...)
		if f.spaceOf(p.Network) == intent.DefaultRouterName && !f.Supplemented {
			list = append(list, f.fromNode(p.Node)...)
		}
	}
	if out.open {
		list = append(list, openRef(intent.Egress))
	} else {
		list = append(list, groupRef(exemptKey))
	}
	if out.ownNode {
		list = append(list, f.toNode(p.Node)...)
	}
	return append(list, f.policyGroups(f.spaceOf(p.Network), slices.Concat(in.rules, out.rules))...)
}

// fromNode is the group of a node's Ports that policies close: its own processes reach them, such
// as kubelet by its probes. So do clients that the node forwards: where OVN's database can be
// written, an ACL is there instead that tells them apart.
func (f *firewall) fromNode(name string) []resource.Ref {
	n, ok := f.state.Nodes().Get(name)
	own := names.ManagementAddresses(n)
	if !ok || len(own) == 0 {
		return nil
	}
	return f.nodeGroup(n, intent.Ingress, own)
}

// toNode is the group of a node's Ports that NetworkPolicies isolate: they reach the node.
func (f *firewall) toNode(name string) []resource.Ref {
	n, ok := f.state.Nodes().Get(name)
	if !ok {
		return nil
	}
	to := slices.Concat(n.Addresses, names.ManagementAddresses(n))
	for _, sn := range n.Subnets {
		to = append(to, sn.Gateway)
	}
	return f.nodeGroup(n, intent.Egress, to)
}

func (f *firewall) nodeGroup(n intent.Node, d intent.Direction, addresses []netip.Addr) []resource.Ref {
	g := f.group(groupRef("Node/"+n.Name, directionName(d)), "Node "+n.Name, "node-"+n.Name+" "+directionName(d))
	for _, a := range addresses {
		if a.IsValid() {
			f.rule(g, d, addressPeer(a), port{})
		}
	}
	return []resource.Ref{g}
}

// policyGroups are the groups with the rules of policies: one for each policy. A rule that is for
// some of a policy's Ports only has one of its own, and so has what a Port has a part of.
func (f *firewall) policyGroups(space string, rules []intent.Rule) (list []resource.Ref) {
	parts := map[intent.PolicyRef][]intent.Rule{}
	var order []intent.PolicyRef
	for _, r := range rules {
		if forSome(r) {
			list = append(list, f.policyGroup(space, []intent.Rule{r}, false))
			continue
		}
		if parts[r.Policy] == nil {
			order = append(order, r.Policy)
		}
		parts[r.Policy] = append(parts[r.Policy], r)
	}
	for _, ref := range order {
		whole := 0
		for r := range f.state.RulesOfPolicy(ref) {
			if !forSome(r) {
				whole++
			}
		}
		list = append(list, f.policyGroup(space, parts[ref], len(parts[ref]) == whole))
	}
	return list
}

// policyGroup is the group of rules of one policy, which are all that it has for each of its Ports,
// or some.
func (f *firewall) policyGroup(space string, rules []intent.Rule, whole bool) resource.Ref {
	object := rules[0].Policy.String()
	parts := inSpace(space)
	if !whole {
		var ids []string
		for _, r := range rules {
			ids = append(ids, partName(r))
		}
		slices.Sort(ids)
		parts = append(parts, "of "+strings.Join(ids, " "))
	}
	ref := groupRef("Policy/"+object, parts...).In(f.policyProject(rules[0].Policy))
	if _, made := f.set.Get(ref); made {
		return ref
	}
	f.group(ref, object, strings.TrimPrefix(ref.Key, "Policy/"))
	slices.SortFunc(rules, compareRules) // of too many rules always the same are left out
	for _, r := range rules {
		f.allow(ref, r, space)
	}
	return ref
}

// partName is the ID of a rule without its policy.
func partName(r intent.Rule) string {
	return strings.TrimPrefix(r.ID, string(r.Policy.Kind)+"/"+r.Policy.Namespace+"/"+r.Policy.Name+"/")
}

// forSome reports whether a rule is for some of its policy's Ports: those that have a container
// port of a name.
func forSome(r intent.Rule) bool {
	return r.Direction == intent.Ingress && strings.Count(partName(r), "/") > 1
}
