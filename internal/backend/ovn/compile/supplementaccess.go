// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"strings"

	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/internal/backend/ovn/nb"
	"coelan.io/coelan/internal/intent"
)

// ownNodeKind lets a node's own processes reach its Ports, such as kubelet by its probes, on
// switches that another system has made and closes. That system knows addresses alone, and a client
// that the node forwards has the node's, too. A unit is NETWORK@NODE.
type ownNodeKind struct {
	cluster names.Cluster
	others  *Others
}

// Name implements Kind.
func (ownNodeKind) Name() string { return "OwnNode" }

// Affected implements Kind.
func (ownNodeKind) Affected(from, to *intent.State, d intent.Delta, yield func(string)) {
	if d.Local { // whether policies are enforced
		d = withAll(d, intent.Diff(nil, to))
	}
	networks := map[string]bool{}
	for _, name := range d.Networks {
		networks[name] = true
	}
	for _, s := range states(from, to) {
		for _, name := range d.Nodes {
			yield(intent.DefaultNetworkName + "@" + name)
			for p := range s.PortsAt(name) {
				yield(p.Network + "@" + name)
			}
		}
		for _, router := range d.Routers {
			for n := range s.NetworksOf(router) {
				networks[n.Name] = true
			}
		}
		// On the Network default, each node has a range, whatever Ports there are.
		for _, id := range d.Ports {
			if p, ok := s.Ports().Get(id); ok && p.Network != intent.DefaultNetworkName {
				yield(p.Network + "@" + p.Node)
			}
		}
		for name := range networks {
			if name == intent.DefaultNetworkName {
				for n := range s.Nodes().All() {
					yield(name + "@" + n.Name)
				}
				continue
			}
			for p := range s.PortsOf(name) {
				yield(name + "@" + p.Node)
			}
		}
	}
}

// Compile implements Kind.
func (k ownNodeKind) Compile(s *intent.State, key string, u *nb.Unit) {
	name, node, _ := strings.Cut(key, "@")
	network, known := s.Networks().Get(name)
	n, ok := s.Nodes().Get(node)
	if !ok || !known || !enforced(s) || !k.others.routed(network) {
		return
	}
	for _, own := range names.ManagementAddresses(n) {
		var to []string
		if name == intent.DefaultNetworkName {
			for _, sn := range nodeSubnets(s, node) {
				if sn.Prefix.Addr().Is4() == own.Is4() {
					to = append(to, sn.Prefix.String())
				}
			}
		} else {
			to = k.portsOf(s, network, node, own.Is4(), u)
		}
		if len(to) == 0 {
			continue
		}
		fam := family(own)
		a := acls{unit: u, group: switchRef(name, "")}
		a.add("own node "+node+" "+fam, intent.Ingress, priorityNode, and(
			fam+".src == "+own.String(), fam+".dst == {"+strings.Join(to, ", ")+"}", unforwarded(),
		), true, "own node")
	}
}

// portsOf is an Address_Set of a node's Ports on a Network, as a match has it; nil without any. Of
// those of private Routers they are the ones with node addresses.
func (k ownNodeKind) portsOf(
	s *intent.State, network intent.Network, node string, is4 bool, u *nb.Unit,
) (sets []string) {
	fam, shared := familyOf(is4), ofSharedRouter(s, network)
	ref := nb.Ref{Table: "Address_Set", Key: nb.Key("Access/"+network.Name+"@"+node, fam)}
	for p := range s.PortsOf(network.Name) {
		if p.Node != node || !shared && len(p.NodeAddresses) == 0 {
			continue
		}
		for _, a := range p.Addresses {
			if a.Is4() != is4 {
				continue
			}
			if sets == nil {
				set := k.cluster.Set(fam, ref.Key)
				u.Add(ref.Key, &nb.AddressSet{Name: set})
				sets = append(sets, "$"+set)
			}
			u.Put(ref, "addresses", a.String())
		}
	}
	return sets
}
