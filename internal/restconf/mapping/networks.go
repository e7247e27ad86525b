// SPDX-License-Identifier: Apache-2.0

package mapping

import (
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/restconf/datatree"
)

// AnnotationDescription is the description that a client of RESTCONF gave an object.
const AnnotationDescription = "coelan.io/description"

// maxName is that of Networks and Routers, as their definitions say.
const maxName = 63

// sortedNetworks are the Networks that are not being deleted, in the order of their names.
func sortedNetworks(w *World) []*v1alpha1.Network {
	var list []*v1alpha1.Network
	for _, name := range slices.Sorted(maps.Keys(w.Networks)) {
		if n := w.Networks[name]; alive(n) {
			list = append(list, n)
		}
	}
	return list
}

// elanName is the name that clients of Netvirt know a Network by.
func elanName(n *v1alpha1.Network) string {
	if name := n.Annotations[v1alpha1.AnnotationELAN]; name != "" {
		return name
	}
	return n.Name
}

// find finds the object that clients know by a name; the zero value: there is none.
func find[K comparable, O any](objects map[K]O, nameOf func(O) string, name string) (found O) {
	for _, o := range objects {
		if nameOf(o) == name {
			return o
		}
	}
	return found
}

// findNetwork finds a Network by the name of its elan-instance.
func findNetwork(w *World, name string) *v1alpha1.Network { return find(w.Networks, elanName, name) }

// editNetwork returns a copy of a Network that may be changed, or a new one, which it puts into
// the World.
func editNetwork(w *World, name, leaf string) (*v1alpha1.Network, error) {
	if n := findNetwork(w, name); n != nil {
		if !alive(n) {
			return nil, datatree.Fail(datatree.InUse, leaf, fmt.Sprintf("the Network %s is being deleted", n.Name))
		}
		n = n.DeepCopy()
		w.Networks[n.Name] = n
		return n, nil
	}
	if err := checkName(name, leaf, maxName); err != nil {
		return nil, err
	}
	if w.Networks[name] != nil {
		return nil, datatree.Fail(datatree.DataExists, leaf,
			fmt.Sprintf("the Network %s is there under the name %s", name, elanName(w.Networks[name])))
	}
	n := &v1alpha1.Network{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.NetworkSpec{
			Type: v1alpha1.Overlay, Role: v1alpha1.Secondary, IPAM: v1alpha1.Blocks,
		},
	}
	if w.Namespaces[name] != nil {
		n.Spec.Role = v1alpha1.Primary
		n.Spec.NamespaceSelector = &metav1.LabelSelector{
			MatchLabels: map[string]string{"kubernetes.io/metadata.name": name},
		}
	}
	w.Networks[name] = n
	return n, nil
}

// checkName refuses what cannot be an object's name.
func checkName(name, leaf string, most int) error {
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 || len(name) > most {
		return invalid(leaf, fmt.Sprintf("%q is no name of an object: lower case letters, digits, - and ., at most %d",
			name, most))
	}
	return nil
}

// removeNetwork removes the Network unless something is on it.
func removeNetwork(w *World, name, leaf string) error {
	n := findNetwork(w, name)
	if n == nil {
		return datatree.NotFound(leaf)
	}
	if err := mayRemoveNetwork(w, n, leaf); err != nil {
		return err
	}
	delete(w.Networks, n.Name)
	return nil
}

// mayRemoveNetwork returns an error for a Network that has to stay.
func mayRemoveNetwork(w *World, n *v1alpha1.Network, leaf string) error {
	if n.Name == v1alpha1.DefaultNetwork {
		return unsupported(leaf, "the Network default cannot be removed")
	}
	for key, p := range w.Ports {
		if p.Spec.Network == n.Name && alive(p) {
			return datatree.Fail(datatree.InUse, leaf, fmt.Sprintf("the Port %s is on the Network %s", key, n.Name))
		}
	}
	return nil
}
