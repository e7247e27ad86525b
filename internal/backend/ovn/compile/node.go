// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"net/netip"

	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/internal/backend/ovn/nb"
	"coelan.io/coelan/internal/intent"
)

// nodeKind are nodes: the management port of each, by which its kernel reaches pods, and the way
// out of what is sent on the node.
type nodeKind struct{ cluster names.Cluster }

// Name implements Kind.
func (nodeKind) Name() string { return "Node" }

// Affected implements Kind.
func (nodeKind) Affected(from, to *intent.State, d intent.Delta, yield func(string)) {
	for _, name := range d.Nodes {
		yield(name)
	}
	if !hasName(d.Networks, intent.DefaultNetworkName) {
		return
	}
	for _, s := range states(from, to) {
		for n := range s.Nodes().All() {
			yield(n.Name)
		}
	}
}

func hasName(list []string, name string) bool {
	for _, s := range list {
		if s == name {
			return true
		}
	}
	return false
}

// Compile implements Kind.
func (k nodeKind) Compile(s *intent.State, name string, u *nb.Unit) {
	n, ok := s.Nodes().Get(name)
	if _, known := s.Networks().Get(intent.DefaultNetworkName); !ok || !known {
		return
	}
	subnets := nodeSubnets(s, name)
	for _, sn := range subnets {
		ofPods(u, sn.Prefix)
		if _, room := names.ManagementAddress(sn.Prefix); !room {
			u.Problem("Node "+name, "SubnetTooSmall",
				fmt.Sprintf("subnet %s has no address for the node itself: make it larger", sn.Prefix))
		}
	}
	addresses := names.ManagementAddresses(n)
	if len(addresses) == 0 {
		return
	}
	port := k.cluster.ManagementPort(name)
	u.AddTo(switchRef(intent.DefaultNetworkName, name), "ports", managementRef(name).Key, &nb.LogicalSwitchPort{
		// It has no port security: the kernel forwards what others have sent.
		Name: port, Addresses: []string{addressesOf(names.ManagementMAC(addresses), addresses)},
	})
	out := wayOutPort(k.cluster)
	for _, a := range addresses {
		k.policy(u, name, "resident", residentPriority, a,
			fmt.Sprintf("outport == %q && %s && is_chassis_resident(%q)", out, family(a), port))
	}
	for _, sn := range subnets {
		if a, room := names.ManagementAddress(sn.Prefix); room {
			k.policy(u, name, "source", sourcePriority, a,
				fmt.Sprintf("outport == %q && %s.src == %s", out, family(a), sn.Prefix))
		}
	}
}

// policy leads packets to a node's management address.
func (nodeKind) policy(u *nb.Unit, node, what string, priority int, to netip.Addr, match string) {
	key := nb.Key("Node/"+node, what, family(to))
	u.AddTo(routerRef(intent.DefaultRouterName), "policies", key, &nb.RouterPolicy{
		Priority: priority, Match: match, Action: "reroute", Nexthops: []string{to.String()},
	})
}
