// SPDX-License-Identifier: Apache-2.0

package clusterintent

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/translate"
)

// tenants completes Networks with the project of OpenStack that follows from the Namespaces which
// they select. A changed Namespace is compared once with each selector, and Networks are set anew
// only if what they follow from has changed.
type tenants struct {
	allowed    translate.Projects // nil: the backend knows no projects
	namespaces map[string]*corev1.Namespace
	networks   map[string]intent.Network // as the NetworkSet has them
	selections map[string]*selection     // by the names of Networks; empty if no project is allowed
	// changedNamespaces and changedNetworks are names of what the next apply sets.
	changedNamespaces, changedNetworks map[string]struct{}
}

// selection is a Network with a selector, and the names of the Namespaces that it selects.
type selection struct {
	network  *v1alpha1.Network
	selector labels.Selector
	members  map[string]struct{}
}

func newTenants(allowed translate.Projects) *tenants {
	return &tenants{
		allowed: allowed, namespaces: map[string]*corev1.Namespace{}, networks: map[string]intent.Network{},
		selections:        map[string]*selection{},
		changedNamespaces: map[string]struct{}{}, changedNetworks: map[string]struct{}{},
	}
}

func (t *tenants) setNamespace(name string, o *corev1.Namespace) {
	if t.allowed == nil {
		return
	}
	moved := t.tenant(t.namespaces[name]) != t.tenant(o)
	set(t.namespaces, name, o)
	t.changedNamespaces[name] = struct{}{}
	for network, s := range t.selections {
		if s.update(name, o) || moved && s.has(name) {
			t.changedNetworks[network] = struct{}{}
		}
	}
}

// tenant is what a Namespace says of its project; one that does not exist says nothing.
func (t *tenants) tenant(o *corev1.Namespace) intent.Tenant {
	if o == nil {
		return intent.Tenant{}
	}
	return t.allowed.Tenant(o)
}

func (t *tenants) setNetwork(name string, o *v1alpha1.Network) {
	if len(t.allowed) == 0 {
		return // no Network follows Namespaces
	}
	delete(t.selections, name)
	t.changedNetworks[name] = struct{}{}
	if o == nil || o.Spec.NamespaceSelector == nil {
		return
	}
	selector, err := translate.Select(o.Spec.NamespaceSelector)
	if err != nil {
		selector = labels.Nothing()
	}
	s := &selection{network: o, selector: selector, members: map[string]struct{}{}}
	for name, namespace := range t.namespaces {
		s.update(name, namespace)
	}
	t.selections[name] = s
}

// update says whether a Namespace, which is nil if it does not exist, begins or ceases to be
// selected.
func (s *selection) update(name string, o *corev1.Namespace) bool {
	before := s.has(name)
	now := o != nil && s.selector.Matches(labels.Set(o.Labels))
	if now {
		s.members[name] = struct{}{}
	} else {
		delete(s.members, name)
	}
	return before != now
}

func (s *selection) has(namespace string) bool {
	_, ok := s.members[namespace]
	return ok
}

// apply brings intent to what has changed of Networks, and of what they are completed with.
func (t *tenants) apply(tx *intent.Tx, networks translate.Change[intent.Network]) {
	gone := func(n intent.Network) { tx.DeleteNetwork(n.Name) }
	if len(t.allowed) == 0 {
		apply(networks, tx.SetNetwork, gone)
	} else {
		apply(networks, func(n intent.Network) {
			t.networks[n.Name], t.changedNetworks[n.Name] = n, struct{}{}
		}, func(n intent.Network) {
			delete(t.networks, n.Name)
			gone(n)
		})
	}
	for name := range t.changedNamespaces {
		if o := t.namespaces[name]; o != nil {
			tx.SetTenant(t.allowed.Tenant(o))
		} else {
			tx.DeleteTenant(name)
		}
	}
	clear(t.changedNamespaces)
	for name := range t.changedNetworks {
		if n, ok := t.networks[name]; ok {
			tx.SetNetwork(t.placed(n))
		}
	}
	clear(t.changedNetworks)
}

// placed is a Network with its project.
func (t *tenants) placed(n intent.Network) intent.Network {
	s := t.selections[n.Name]
	if s == nil {
		return n
	}
	var selected []intent.Tenant
	for name := range s.members {
		selected = append(selected, t.allowed.Tenant(t.namespaces[name]))
	}
	return t.allowed.Place(n, s.network, selected)
}
