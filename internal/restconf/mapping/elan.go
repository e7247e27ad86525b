// SPDX-License-Identifier: Apache-2.0

package mapping

import (
	"fmt"

	"github.com/openconfig/ygot/ygot"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/restconf/yangmodel"
)

type elanInstance = yangmodel.Elan_ElanInstances_ElanInstance

// elanInstances are Networks as elan-instances.
func elanInstances() *List {
	return &List{
		Container: "elan-instances", Name: "elan-instance",
		Reads:   []Resource{Networks},
		Guards:  []Resource{Ports},
		New:     func() ygot.GoStruct { return &elanInstance{} },
		Entries: func(w *World) []ygot.GoStruct { return structs(showInstances(w, false)) },
		Operational: func(w *World) []ygot.GoStruct {
			return structs(showInstances(w, true))
		},
		Write:  writer(writeInstance),
		Remove: func(w *World, key string) error { return removeNetwork(w, key, "elan-instance-name") },
	}
}

// The types of Networks, as segment-type has them.
var segmentTypes = map[v1alpha1.NetworkType]yangmodel.E_Elan_SegmentTypeBase{
	v1alpha1.Overlay: yangmodel.Elan_SegmentTypeBase_segment_type_vxlan,
	v1alpha1.VLAN:    yangmodel.Elan_SegmentTypeBase_segment_type_vlan,
	v1alpha1.Flat:    yangmodel.Elan_SegmentTypeBase_segment_type_flat,
}

// showInstances are the instances as they are asked for, or as they are in operation.
func showInstances(w *World, operational bool) []*elanInstance {
	var list []*elanInstance
	for _, n := range sortedNetworks(w) {
		e := &elanInstance{
			ElanInstanceName: ygot.String(elanName(n)), SegmentType: segmentTypes[n.Spec.Type],
			PhysicalNetworkName: optional(n.Spec.PhysicalNetwork), External: optional(n.Spec.External),
			Description: optional(n.Annotations[AnnotationDescription]),
		}
		vni := text(n.Spec.VNI)
		if operational {
			vni = max(vni, n.Status.VNI)
		}
		e.SegmentationId = optional(uint32(max(vni, text(n.Spec.VLAN))))
		list = append(list, e)
	}
	return list
}

// writeInstance makes a Network be as the instance says.
func writeInstance(w *World, e *elanInstance) error {
	existed := findNetwork(w, text(e.ElanInstanceName)) != nil
	n, err := editNetwork(w, text(e.ElanInstanceName), "elan-instance-name")
	if err != nil {
		return err
	}
	typ := e.SegmentType
	if typ == yangmodel.Elan_SegmentTypeBase_UNSET {
		typ = yangmodel.Elan_SegmentTypeBase_segment_type_vxlan
	}
	spec := &n.Spec
	var kind v1alpha1.NetworkType
	for t, s := range segmentTypes {
		if s == typ {
			kind = t
		}
	}
	switch {
	case kind == "":
		return unsupported("segment-type", "is not one that Coelan has: vxlan, vlan and flat are")
	case !existed:
		spec.Type = kind
		if kind != v1alpha1.Overlay {
			spec.Role, spec.NamespaceSelector = v1alpha1.Secondary, nil
		}
	case spec.Type != kind:
		return invalid("segment-type", "cannot be changed")
	}
	number := int32(text(e.SegmentationId))
	switch kind {
	case v1alpha1.Overlay:
		spec.VNI = optional(number)
	case v1alpha1.VLAN:
		spec.VLAN = optional(number)
	default:
		if number != 0 {
			return invalid("segmentation-id", fmt.Sprintf("is %d: a flat network has none", number))
		}
	}
	spec.PhysicalNetwork, spec.External = text(e.PhysicalNetworkName), text(e.External)
	setDescription(&n.ObjectMeta, text(e.Description))
	return nil
}

// setDescription writes the description, or removes it.
func setDescription(m *metav1.ObjectMeta, description string) {
	if description == "" {
		delete(m.Annotations, AnnotationDescription)
		return
	}
	metav1.SetMetaDataAnnotation(m, AnnotationDescription, description)
}
