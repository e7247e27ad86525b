// SPDX-License-Identifier: Apache-2.0

package mapping

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/openconfig/ygot/ygot"
	corev1 "k8s.io/api/core/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/restconf/datatree"
	"coelan.io/coelan/internal/restconf/yangmodel"
)

type (
	interfaceEntry = yangmodel.IETFInterfaces_Interfaces_Interface
	interfaceState = yangmodel.IETFInterfaces_InterfacesState_Interface
	vlanMode       = yangmodel.E_IETFInterfaces_Interfaces_Interface_L2VlanMode
)

const (
	l2vlan = yangmodel.IETFInterfaces_InterfaceType_l2vlan
	tunnel = yangmodel.IETFInterfaces_InterfaceType_tunnel

	trunkMode = yangmodel.IETFInterfaces_Interfaces_Interface_L2VlanMode_trunk

	adminUp     = yangmodel.IETFInterfaces_InterfacesState_Interface_AdminStatus_up
	operUp      = yangmodel.IETFInterfaces_InterfacesState_Interface_OperStatus_up
	operDown    = yangmodel.IETFInterfaces_InterfacesState_Interface_OperStatus_down
	operUnknown = yangmodel.IETFInterfaces_InterfacesState_Interface_OperStatus_unknown
)

// interfaces are users' Ports; in operation all Ports, the ends of nodes' tunnels, and their trunks
// to physical networks.
func interfaces() *List {
	return &List{
		Container: "interfaces", Name: "interface",
		Reads:   []Resource{Ports, Nodes},
		Late:    true,
		New:     func() ygot.GoStruct { return &interfaceEntry{} },
		Entries: func(w *World) []ygot.GoStruct { return structs(portInterfaces(w, false)) },
		Operational: func(w *World) []ygot.GoStruct {
			return structs(slices.Concat(portInterfaces(w, true), nodeInterfaces(w)))
		},
		Write:  writer(writePortInterface),
		Remove: removePortInterface,
		Kept:   userInterfaces,
	}
}

// interfaceStates are the same interfaces as they are.
func interfaceStates() *List {
	show := func(w *World) []ygot.GoStruct {
		var list []*interfaceState
		for _, p := range sortedPorts(w, true) {
			s := &interfaceState{
				Name: ygot.String(interfaceName(p)), Type: l2vlan, AdminStatus: adminUp, OperStatus: operDown,
				PhysAddress: optional(strings.ToLower(cmp.Or(p.Status.MAC, p.Spec.MAC))),
			}
			if p.Status.Phase == v1alpha1.PortBound {
				s.OperStatus = operUp
			}
			list = append(list, s)
		}
		for _, i := range nodeInterfaces(w) {
			list = append(list, &interfaceState{
				Name: i.Name, Type: i.Type, AdminStatus: adminUp, OperStatus: operUnknown,
			})
		}
		return structs(list)
	}
	return &List{
		Container: "interfaces-state", Name: "interface",
		Reads: []Resource{Ports, Nodes}, New: func() ygot.GoStruct { return &interfaceState{} }, Entries: show,
	}
}

// userInterfaces are the names of users' Ports.
func userInterfaces(w *World) []string {
	var list []string
	for _, p := range sortedPorts(w, false) {
		list = append(list, interfaceName(p))
	}
	return list
}

func portInterfaces(w *World, ofPods bool) []*interfaceEntry {
	var list []*interfaceEntry
	for _, p := range sortedPorts(w, ofPods) {
		list = append(list, &interfaceEntry{
			Name: ygot.String(interfaceName(p)), Type: l2vlan, Enabled: ygot.Bool(true), L2VlanMode: trunkMode,
			Description: optional(p.Annotations[AnnotationDescription]),
		})
	}
	return list
}

// nodeInterfaces are the ends of tunnels and the trunks that nodes have.
func nodeInterfaces(w *World) []*interfaceEntry {
	var list []*interfaceEntry
	for _, node := range slices.Sorted(maps.Keys(w.Nodes)) {
		if address := addressOf(w, node, corev1.NodeInternalIP); address != "" {
			list = append(list, &interfaceEntry{
				Name: ygot.String("tunnel/" + node), Type: tunnel, Enabled: ygot.Bool(true), TunnelSource: &address,
			})
		}
		for network := range strings.SplitSeq(w.Nodes[node].Annotations[v1alpha1.AnnotationPhysicalNetworks], ",") {
			if network != "" {
				list = append(list, &interfaceEntry{
					Name: ygot.String("trunk/" + node + "/" + network), Type: l2vlan, Enabled: ygot.Bool(true),
					L2VlanMode: trunkMode, External: ygot.Bool(true),
				})
			}
		}
	}
	return list
}

// writePortInterface compares an entry with the Port that it is, and writes the description.
func writePortInterface(w *World, e *interfaceEntry) error {
	name := text(e.Name)
	if e.Type != l2vlan {
		return unsupported("type", "is none of a Port, which is l2vlan: agents make tunnels by themselves")
	}
	if e.TunnelSource != nil {
		return unsupported("tunnel-source", "is none of a Port: agents make tunnels by themselves")
	}
	key, err := interfaceKey(name)
	if err != nil {
		return err
	}
	p := w.Ports[key]
	switch {
	case p == nil || w.hidden[key]:
		return invalid("name", fmt.Sprintf("there is no Port %s: make it first, as elan-interface %s", key, name))
	case !alive(p):
		return datatree.Fail(datatree.InUse, "name", fmt.Sprintf("the Port %s is being deleted", key))
	case p.Spec.ByAgent():
		return madeByAgent(key)
	case e.Enabled != nil && !*e.Enabled:
		return unsupported("enabled", "is false: a Port works as long as it is there, delete elan-interface "+name)
	case e.L2VlanMode != vlanMode(0) && e.L2VlanMode != trunkMode:
		return unsupported("l2vlan-mode", "is not trunk: the VLAN of a Port is that of its Network")
	case text(e.External):
		return unsupported("external", "is true: that a Port leads outside is said by its Network")
	}
	p = p.DeepCopy()
	setDescription(&p.ObjectMeta, text(e.Description))
	w.Ports[key] = p
	return nil
}

// removePortInterface refuses: what is there is the Port.
func removePortInterface(_ *World, name string) error {
	return unsupported("name", "is there as long as the Port is: delete elan-interface "+name)
}
