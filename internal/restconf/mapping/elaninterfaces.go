// SPDX-License-Identifier: Apache-2.0

package mapping

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/openconfig/ygot/ygot"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/restconf/datatree"
	"coelan.io/coelan/internal/restconf/yangmodel"
)

type (
	elanInterface  = yangmodel.Elan_ElanInterfaces_ElanInterface
	staticMACEntry = yangmodel.Elan_ElanInterfaces_ElanInterface_StaticMacEntries
)

// maxObjectName is that of most objects.
const maxObjectName = 253

// elanInterfaces are Ports as elan-interfaces: in configuration those of users.
func elanInterfaces() *List {
	return &List{
		Container: "elan-interfaces", Name: "elan-interface",
		Reads:       []Resource{Ports, Networks},
		Guards:      []Resource{Routers},
		New:         func() ygot.GoStruct { return &elanInterface{} },
		Entries:     func(w *World) []ygot.GoStruct { return structs(showInterfaces(w, false)) },
		Operational: func(w *World) []ygot.GoStruct { return structs(showInterfaces(w, true)) },
		Write:       writer(writeInterface),
		Remove:      removeInterface,
	}
}

// sortedPorts are the Ports that are not being deleted, in the order of their names; those that
// agents make only if asked for.
func sortedPorts(w *World, ofAgents bool) []*v1alpha1.Port {
	var list []*v1alpha1.Port
	for _, p := range w.Ports {
		if alive(p) && (ofAgents || !p.Spec.ByAgent()) {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b *v1alpha1.Port) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return list
}

// showInterfaces are the interfaces as they are asked for, or as they are in operation.
func showInterfaces(w *World, operational bool) []*elanInterface {
	var list []*elanInterface
	for _, p := range sortedPorts(w, operational) {
		list = append(list, showInterface(w, p, operational))
	}
	return list
}

func showInterface(w *World, p *v1alpha1.Port, operational bool) *elanInterface {
	e := &elanInterface{
		Name:             ygot.String(interfaceName(p)),
		ElanInstanceName: ygot.String(elanNameOf(w, p.Spec.Network)),
		Description:      optional(p.Annotations[AnnotationDescription]),
	}
	mac, addresses := p.Spec.MAC, p.Spec.Addresses
	if operational {
		mac, addresses = cmp.Or(p.Status.MAC, mac), p.Status.Addresses
	}
	if mac == "" {
		return e
	}
	entry := &staticMACEntry{MacAddress: ygot.String(strings.ToLower(mac))}
	if len(addresses) > 0 {
		entry.IpPrefix = ygot.String(canonicalAddress(addresses[0]))
	}
	e.StaticMacEntries = map[string]*staticMACEntry{*entry.MacAddress: entry}
	return e
}

// elanNameOf is the name of a Network's instance.
func elanNameOf(w *World, network string) string {
	if n := w.Networks[network]; n != nil {
		return elanName(n)
	}
	return network
}

// interfaceKey is the Port that an interface's name means.
func interfaceKey(name string) (types.NamespacedName, error) {
	namespace, port, ok := strings.Cut(name, ":")
	if !ok {
		return types.NamespacedName{}, invalid("name", fmt.Sprintf("%q is not NAMESPACE:NAME", name))
	}
	if err := checkName(namespace, "name", maxName); err != nil {
		return types.NamespacedName{}, err
	}
	if err := checkName(port, "name", maxObjectName); err != nil {
		return types.NamespacedName{}, err
	}
	return types.NamespacedName{Namespace: namespace, Name: port}, nil
}

// writeInterface makes a Port be as the interface says.
func writeInterface(w *World, e *elanInterface) error {
	key, err := interfaceKey(text(e.Name))
	if err != nil {
		return err
	}
	if len(e.StaticMacEntries) > 1 {
		return unsupported("static-mac-entries", "an attachment has one MAC address")
	}
	p := w.Ports[key]
	switch {
	case p == nil:
		p = &v1alpha1.Port{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	case !alive(p):
		return datatree.Fail(datatree.InUse, "name", fmt.Sprintf("the Port %s is being deleted", key))
	case p.Spec.ByAgent():
		return madeByAgent(key)
	}
	shown := showInterface(w, p, false)
	p = p.DeepCopy()
	p.Spec.Network = networkName(w, text(e.ElanInstanceName))
	if err := checkName(p.Spec.Network, "elan-instance-name", maxName); err != nil {
		return err
	}
	if !reflect.DeepEqual(shown.StaticMacEntries, e.StaticMacEntries) {
		p.Spec.MAC, p.Spec.Addresses = "", nil
		for _, entry := range maps.All(e.StaticMacEntries) {
			p.Spec.MAC = text(entry.MacAddress)
			if entry.IpPrefix != nil {
				p.Spec.Addresses = []v1alpha1.Address{*entry.IpPrefix}
			}
		}
	}
	setDescription(&p.ObjectMeta, text(e.Description))
	w.Ports[key] = p
	return nil
}

// networkName is the name of the Network that an instance's name means.
func networkName(w *World, instance string) string {
	if n := findNetwork(w, instance); n != nil {
		return n.Name
	}
	return instance
}

func removeInterface(w *World, name string) error {
	key, err := interfaceKey(name)
	if err != nil {
		return err
	}
	p := w.Ports[key]
	switch {
	case p == nil || !alive(p):
		return datatree.NotFound("name")
	case p.Spec.ByAgent():
		return madeByAgent(key)
	}
	if err := usedByRoutes(w, p, "name"); err != nil {
		return err
	}
	delete(w.Ports, key)
	return nil
}

// madeByAgent refuses to change a Port that an agent makes for a pod, or for a machine that names
// no Port, and removes when that is gone.
func madeByAgent(key types.NamespacedName) error {
	return unsupported("name", fmt.Sprintf("Coelan makes and removes the Port %s, for what is plugged", key))
}

// usedByRoutes returns an error for a Port that routes of its Router lead to.
func usedByRoutes(w *World, p *v1alpha1.Port, leaf string) error {
	for prefix := range routesBy(w, p) {
		return datatree.Fail(datatree.InUse, leaf, fmt.Sprintf(
			"the Router %s has a route for %s by way of the Port %s", routerOf(w, p), prefix, keyOf(p)))
	}
	return nil
}
