// SPDX-License-Identifier: Apache-2.0

package portbinding

import (
	"fmt"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agent/apicache"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/reserved"
	"coelan.io/coelan/internal/translate"
)

// admit chooses the Network of a machine that names no Port, by its namespace as for pods; or it
// says why the machine gets none, with the reason.
func (b *Binder) admit(s apicache.State, m machine) (network, reason, refusal string) {
	namespace := s.Namespaces.Get(m.namespace)
	if namespace == nil {
		return "", v1alpha1.ReasonInvalid, "namespace " + m.namespace + " does not exist"
	}
	name, _ := translate.PrimaryNetwork(b.Mapping, m.namespace, namespace, b.Node, s.NetworkList())
	n := s.Networks.Get(name)
	switch {
	case name == intent.DefaultNetworkName:
		return "", v1alpha1.ReasonNetworkNotFound, "no Network selects namespace " + m.namespace +
			": give a primary Network with spec.dhcp a namespaceSelector for it, or make a Port and name it"
	case n == nil || n.DeletionTimestamp != nil:
		return "", v1alpha1.ReasonNetworkNotFound, "network " + name + " does not exist, or is being deleted"
	}
	reason, refusal = b.mayBeOn(s, n, m)
	return name, reason, refusal
}

// mayBeOn says why a machine that names no Port cannot be on a Network, with the reason. It is
// asked of Ports that are there, too: users may make some that look like an agent's.
func (b *Binder) mayBeOn(s apicache.State, n *v1alpha1.Network, m machine) (reason, refusal string) {
	switch {
	case !translate.MayAttach(n, s.Namespaces.Get(m.namespace), b.Node):
		return v1alpha1.ReasonNotAllowed, "network " + n.Name + " does not take Ports of namespace " + m.namespace
	case !translate.Answers(n):
		return v1alpha1.ReasonNoDHCP, "network " + n.Name +
			" has no spec.dhcp: nothing answers what the machine asks; set it, or make a Port and name it"
	case reserved.IsPodMAC(m.mac) || reserved.IsRouterMAC(m.mac):
		return v1alpha1.ReasonMACTaken, fmt.Sprintf("MAC %s is one of those that Coelan itself uses", m.mac)
	}
	if why := translate.FixedMACRefused(n, m.mac); why != "" {
		return v1alpha1.ReasonFixedMAC, why
	}
	for key, o := range s.Ports.All() {
		if o.Spec.Network == n.Name && key != m.key() &&
			(translate.SameMAC(o.Status.MAC, m.mac) || translate.SameMAC(o.Spec.MAC, m.mac)) {
			return v1alpha1.ReasonMACTaken, fmt.Sprintf("MAC %s is that of port %s on network %s", m.mac, key, n.Name)
		}
	}
	return "", ""
}
