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
	return ConnectedTo(o, physical) && selected.Matches(labels.Set(o.Labels))
}

// Select reads a selector; nil selects all.
func Select(s *metav1.LabelSelector) (labels.Selector, error) {
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

// candidatesOf is one user, and the names of its nodes, sorted; leaving are those of them that are
// about to leave the cluster or keep load balancers away. They are never written to.
type candidatesOf struct {
	network        string
	selected       labels.Selector
	names, leaving []string
}

func newCandidates() *candidates {
	return &candidates{
		nodes: map[string]*corev1.Node{}, physical: map[string]string{}, users: map[string]*candidatesOf{},
		touched: map[string]struct{}{},
	}
}

// of are the names of a user's nodes, and of those of them that are leaving, sorted.
func (c *candidates) of(user string) (names, leaving []string) {
	if u := c.users[user]; u != nil {
		return u.names, u.leaving
	}
	return nil, nil
}

// setNode adds or replaces the node of a name; nil removes it.
func (c *candidates) setNode(name string, o *corev1.Node) {
	delete(c.nodes, name)
	if o != nil {
		c.nodes[name] = o
	}
	for user, u := range c.users {
		is := o != nil && MayBeActive(o, u.selected, c.physical[u.network])
		names, leaving := with(u.names, name, is), with(u.leaving, name, is && withdrawn(o))
		if !slices.Equal(names, u.names) || !slices.Equal(leaving, u.leaving) {
			u.names, u.leaving = names, leaving
			c.touched[user] = struct{}{}
		}
	}
}

// with is a sorted list in which a name is, or is not.
func with(list []string, name string, is bool) []string {
	at, was := slices.BinarySearch(list, name)
	switch {
	case is && !was:
		return slices.Insert(slices.Clone(list), at, name)
	case was && !is:
		return slices.Delete(slices.Clone(list), at, at+1)
	}
	return list
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
	selected, err := Select(nodes)
	if err != nil {
		selected = labels.Nothing()
	}
	c.users[user] = &candidatesOf{network: network, selected: selected}
	c.look(user, c.users[user])
}

func (c *candidates) removeUser(user string) { delete(c.users, user) }

// look finds a user's nodes anew.
func (c *candidates) look(user string, u *candidatesOf) {
	u.names, u.leaving = nil, nil
	for name, o := range c.nodes {
		if !MayBeActive(o, u.selected, c.physical[u.network]) {
			continue
		}
		u.names = append(u.names, name)
		if withdrawn(o) {
			u.leaving = append(u.leaving, name)
		}
	}
	slices.Sort(u.names)
	slices.Sort(u.leaving)
	c.touched[user] = struct{}{}
}
