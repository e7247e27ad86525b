// SPDX-License-Identifier: Apache-2.0

package clusterintent

import (
	corev1 "k8s.io/api/core/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/translate"
)

// tenants completes Networks with the project of OpenStack that follows from the Namespaces which
// they select.
type tenants struct {
	allowed    translate.Projects // nil: the backend knows no projects
	namespaces map[string]*corev1.Namespace
	objects    map[string]*v1alpha1.Network
	networks   map[string]intent.Network // as the NetworkSet has them
	// touched are the names of namespaces that may have changed, and stale says that Networks may
	// have another project.
	touched map[string]struct{}
	stale   bool
}

func newTenants(allowed translate.Projects) *tenants {
	return &tenants{
		allowed: allowed, namespaces: map[string]*corev1.Namespace{}, objects: map[string]*v1alpha1.Network{},
		networks: map[string]intent.Network{}, touched: map[string]struct{}{},
	}
}

func (t *tenants) setNamespace(name string, o *corev1.Namespace) {
	if t.allowed != nil {
		set(t.namespaces, name, o)
		t.touched[name], t.stale = struct{}{}, true
	}
}

func (t *tenants) setNetwork(name string, o *v1alpha1.Network) {
	if t.allowed != nil {
		set(t.objects, name, o)
		t.stale = true
	}
}

// apply brings intent to what has changed of Networks, and of what they are completed with.
func (t *tenants) apply(tx *intent.Tx, networks translate.Change[intent.Network]) {
	gone := func(n intent.Network) { tx.DeleteNetwork(n.Name) }
	if t.allowed == nil {
		apply(networks, tx.SetNetwork, gone)
		return
	}
	apply(networks, func(n intent.Network) { t.networks[n.Name], t.stale = n, true }, func(n intent.Network) {
		delete(t.networks, n.Name)
		gone(n)
	})
	for name := range t.touched {
		if o := t.namespaces[name]; o != nil {
			tx.SetTenant(t.allowed.Tenant(o))
		} else {
			tx.DeleteTenant(name)
		}
	}
	clear(t.touched)
	if t.stale {
		t.stale = false
		for _, n := range t.networks {
			tx.SetNetwork(t.placed(n))
		}
	}
}

// placed is a Network with its project.
func (t *tenants) placed(n intent.Network) intent.Network {
	o := t.objects[n.Name]
	if o == nil || o.Spec.NamespaceSelector == nil {
		return n
	}
	var selected []intent.Tenant
	for _, namespace := range t.namespaces {
		if translate.Selects(o.Spec.NamespaceSelector, namespace) {
			selected = append(selected, t.allowed.Tenant(namespace))
		}
	}
	return t.allowed.Place(n, o, selected)
}
