// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"strings"

	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/internal/backend/ovn/nb"
	"coelan.io/coelan/internal/intent"
)

// The Load_Balancer_Groups: at every switch, at those that span nodes, at those of one node, and at
// those of any.
const (
	everySwitch      = "all"
	spanningSwitches = "spanning"
	nodeSwitches     = "nodes"
)

func switchesOf(node string) string { return "node " + node }

// balancingGroup is the Load_Balancer_Group of that name.
func balancingGroup(name string) nb.Ref {
	return nb.Ref{Table: "Load_Balancer_Group", Key: "Balancing/" + name}
}

// balancingKind are Load_Balancer_Groups, and which switches have them: units are groups, and
// switches of Networks that are in a Router, since on physical networks others route. Networks with
// addresses of the nodes' ranges share the switches of the Network default.
type balancingKind struct{ cluster names.Cluster }

// Name implements Kind.
func (balancingKind) Name() string { return "Balancing" }

const atSwitch = "switch "

// Affected implements Kind.
func (balancingKind) Affected(from, to *intent.State, d intent.Delta, yield func(string)) {
	if from == nil {
		yield(everySwitch)
		yield(spanningSwitches)
		yield(nodeSwitches)
	}
	for _, node := range d.Nodes {
		yield(switchesOf(node))
		yield(atSwitch + intent.DefaultNetworkName + " " + node)
	}
	for _, network := range d.Networks {
		yield(atSwitch + network + " ")
		if network != intent.DefaultNetworkName {
			continue
		}
		for _, st := range states(from, to) {
			for n := range st.Nodes().All() {
				yield(atSwitch + network + " " + n.Name)
			}
		}
	}
}

// Compile implements Kind.
func (k balancingKind) Compile(s *intent.State, key string, u *nb.Unit) {
	if at, ok := strings.CutPrefix(key, atSwitch); ok {
		network, node, _ := strings.Cut(at, " ")
		k.atSwitch(s, network, node, u)
		return
	}
	if node, ok := strings.CutPrefix(key, switchesOf("")); ok {
		if _, there := s.Nodes().Get(node); !there {
			return
		}
	}
	group := balancingGroup(key)
	u.Add(group.Key, &nb.LoadBalancerGroup{Name: k.cluster.Owner(group.Key)})
}

// atSwitch gives a switch its groups; node is empty for one that spans nodes.
func (balancingKind) atSwitch(s *intent.State, network, node string, u *nb.Unit) {
	n, ok := s.Networks().Get(network)
	if !ok || n.Router == "" || n.LogicalSwitch != "" || node == "" && n.FromNodes() {
		return
	}
	groups := []string{everySwitch, spanningSwitches}
	if node != "" {
		if _, there := s.Nodes().Get(node); !there {
			return
		}
		groups = []string{everySwitch, nodeSwitches, switchesOf(node)}
	}
	for _, group := range groups {
		u.Put(switchRef(network, node), "load_balancer_group", balancingGroup(group).Key)
	}
}
