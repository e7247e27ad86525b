// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"coelan.io/coelan/api/v1alpha1"
)

// ConnectedTo reports whether a node's agent has written that the node is connected to a physical
// network.
func ConnectedTo(o *corev1.Node, physical string) bool {
	return physical != "" && slices.Contains(physicalNetworks(o), physical)
}

// MayBeActive reports whether a node may be active for addresses of an external Network on a
// physical network that are for the nodes of a selector.
func MayBeActive(o *corev1.Node, selected labels.Selector, physical string) bool {
	return !withdrawn(o) && ConnectedTo(o, physical) && selected.Matches(labels.Set(o.Labels))
}

// SelectNodes reads a selector of nodes; nil selects all.
func SelectNodes(s *metav1.LabelSelector) (labels.Selector, error) {
	if s == nil {
		return labels.Everything(), nil
	}
	return metav1.LabelSelectorAsSelector(s)
}

// candidates are the nodes that may be active for the addresses of users: the gateways of Routers,
// or Egresses. A change looks at what it touches.
type candidates struct {
	nodes    map[string]*corev1.Node
	physical map[string]string // physical networks, by the name of the external Network
	users    map[string]*candidatesOf
	touched  map[string]struct{} // users with other candidates than before
}

// candidatesOf is one user, and the names of its nodes, sorted. They are never written to.
type candidatesOf struct {
	network  string
	selected labels.Selector
	names    []string
}

func newCandidates() *candidates {
	return &candidates{
		nodes: map[string]*corev1.Node{}, physical: map[string]string{}, users: map[string]*candidatesOf{},
		touched: map[string]struct{}{},
	}
}

// of are the names of a user's nodes, sorted.
func (c *candidates) of(user string) []string {
	if u := c.users[user]; u != nil {
		return u.names
	}
	return nil
}

// setNode adds or replaces the node of a name; nil removes it.
func (c *candidates) setNode(name string, o *corev1.Node) {
	delete(c.nodes, name)
	if o != nil {
		c.nodes[name] = o
	}
	for user, u := range c.users {
		at, was := slices.BinarySearch(u.names, name)
		is := o != nil && MayBeActive(o, u.selected, c.physical[u.network])
		switch {
		case is && !was:
			u.names = slices.Insert(slices.Clone(u.names), at, name)
		case was && !is:
			u.names = slices.Delete(slices.Clone(u.names), at, at+1)
		default:
			continue
		}
		c.touched[user] = struct{}{}
	}
}

// setNetwork adds or replaces the Network of a name; nil removes it.
func (c *candidates) setNetwork(name string, o *v1alpha1.Network) {
	before := c.physical[name]
	delete(c.physical, name)
	if o != nil && o.Spec.PhysicalNetwork != "" {
		c.physical[name] = o.Spec.PhysicalNetwork
	}
	if c.physical[name] == before {
		return
	}
	for user, u := range c.users {
		if u.network == name {
			c.look(user, u)
		}
	}
}

// setUser adds or replaces a user with addresses of a Network. A selector that cannot be read
// selects no node: the controller reports it.
func (c *candidates) setUser(user, network string, nodes *metav1.LabelSelector) {
	selected, err := SelectNodes(nodes)
	if err != nil {
		selected = labels.Nothing()
	}
	c.users[user] = &candidatesOf{network: network, selected: selected}
	c.look(user, c.users[user])
}

func (c *candidates) removeUser(user string) { delete(c.users, user) }

// look finds a user's nodes anew.
func (c *candidates) look(user string, u *candidatesOf) {
	u.names = nil
	for name, o := range c.nodes {
		if MayBeActive(o, u.selected, c.physical[u.network]) {
			u.names = append(u.names, name)
		}
	}
	slices.Sort(u.names)
	c.touched[user] = struct{}{}
}
