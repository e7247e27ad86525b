// SPDX-License-Identifier: Apache-2.0

package mapping

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/openconfig/ygot/ygot"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/restconf/datatree"
	"coelan.io/coelan/internal/restconf/yangmodel"
)

// AnnotationFamilies on a Router says under which families a client of RESTCONF has written its
// distinguisher and targets: "ipv6", or "ipv4,ipv6"; left out: ipv4.
const AnnotationFamilies = "coelan.io/restconf-families"

type (
	vpnInstance = yangmodel.L3Vpn_VpnInstances_VpnInstance
	ipv4Family  = yangmodel.L3Vpn_VpnInstances_VpnInstance_Ipv4Family
	ipv6Family  = yangmodel.L3Vpn_VpnInstances_VpnInstance_Ipv6Family
	ipv4Targets = yangmodel.L3Vpn_VpnInstances_VpnInstance_Ipv4Family_VpnTargets
	ipv4Target  = yangmodel.L3Vpn_VpnInstances_VpnInstance_Ipv4Family_VpnTargets_VpnTarget
	ipv6Targets = yangmodel.L3Vpn_VpnInstances_VpnInstance_Ipv6Family_VpnTargets
	ipv6Target  = yangmodel.L3Vpn_VpnInstances_VpnInstance_Ipv6Family_VpnTargets_VpnTarget
	targetType  = yangmodel.E_L3Vpn_VpnInstances_VpnInstance_Ipv4Family_VpnTargets_VpnTarget_VrfRTType
)

const (
	exported = yangmodel.L3Vpn_VpnInstances_VpnInstance_Ipv4Family_VpnTargets_VpnTarget_VrfRTType_export_extcommunity
	imported = yangmodel.L3Vpn_VpnInstances_VpnInstance_Ipv4Family_VpnTargets_VpnTarget_VrfRTType_import_extcommunity
	both     = yangmodel.L3Vpn_VpnInstances_VpnInstance_Ipv4Family_VpnTargets_VpnTarget_VrfRTType_both
)

// family is what an instance says of one address family.
type family struct {
	distinguisher string
	targets       map[string]targetType
}

// vpnInstances are Routers as vpn-instances.
func vpnInstances() *List {
	return &List{
		Container: "vpn-instances", Name: "vpn-instance",
		Reads:       []Resource{Routers},
		Guards:      []Resource{Networks},
		New:         func() ygot.GoStruct { return &vpnInstance{} },
		Entries:     func(w *World) []ygot.GoStruct { return structs(showVPNs(w, false)) },
		Operational: func(w *World) []ygot.GoStruct { return structs(showVPNs(w, true)) },
		Write:       writer(writeVPN),
		Remove:      removeVPN,
	}
}

// vpnName is the name that clients of Netvirt know a Router by.
func vpnName(r *v1alpha1.Router) string {
	if name := r.Annotations[v1alpha1.AnnotationVPN]; name != "" {
		return name
	}
	return r.Name
}

// findRouter finds a Router by the name of its vpn-instance.
func findRouter(w *World, name string) *v1alpha1.Router { return find(w.Routers, vpnName, name) }

// showVPNs are the instances as they are asked for, or as they are in operation.
func showVPNs(w *World, operational bool) []*vpnInstance {
	var list []*vpnInstance
	for _, name := range slices.Sorted(maps.Keys(w.Routers)) {
		r := w.Routers[name]
		if !alive(r) {
			continue
		}
		e := &vpnInstance{
			VpnInstanceName: ygot.String(vpnName(r)), Type: yangmodel.L3Vpn_VpnInstances_VpnInstance_Type_l3,
			L3Vni: optional(uint32(r.Status.VNI)),
		}
		f := familyOf(r)
		if operational && f.distinguisher == "" {
			f.distinguisher = r.Status.RouteDistinguisher
		}
		showFamilies(e, f, r.Annotations[AnnotationFamilies])
		list = append(list, e)
	}
	return list
}

func familyOf(r *v1alpha1.Router) family {
	f := family{distinguisher: r.Spec.RouteDistinguisher, targets: map[string]targetType{}}
	for _, t := range r.Spec.ExportRouteTargets {
		f.targets[t] = exported
	}
	for _, t := range r.Spec.ImportRouteTargets {
		if f.targets[t] == exported {
			f.targets[t] = both
		} else {
			f.targets[t] = imported
		}
	}
	return f
}

func showFamilies(e *vpnInstance, f family, families string) {
	if f.distinguisher == "" && len(f.targets) == 0 {
		return
	}
	var rd []string
	if f.distinguisher != "" {
		rd = []string{f.distinguisher}
	}
	if families != "ipv6" {
		e.Ipv4Family = &ipv4Family{RouteDistinguisher: rd, VpnTargets: &ipv4Targets{}}
		for value, typ := range f.targets {
			if e.Ipv4Family.VpnTargets.VpnTarget == nil {
				e.Ipv4Family.VpnTargets.VpnTarget = map[string]*ipv4Target{}
			}
			e.Ipv4Family.VpnTargets.VpnTarget[value] = &ipv4Target{VrfRTValue: ygot.String(value), VrfRTType: typ}
		}
	}
	if families == "ipv6" || families == "ipv4,ipv6" {
		e.Ipv6Family = &ipv6Family{RouteDistinguisher: rd, VpnTargets: &ipv6Targets{}}
		for value, typ := range f.targets {
			if e.Ipv6Family.VpnTargets.VpnTarget == nil {
				e.Ipv6Family.VpnTargets.VpnTarget = map[string]*ipv6Target{}
			}
			e.Ipv6Family.VpnTargets.VpnTarget[value] = &ipv6Target{VrfRTValue: ygot.String(value), VrfRTType: typ}
		}
	}
}

// readFamilies is what an instance says, and under which families.
func readFamilies(e *vpnInstance) (f family, families string, err error) {
	v4, v6 := family{targets: map[string]targetType{}}, family{targets: map[string]targetType{}}
	if e.Ipv4Family != nil {
		v4.distinguisher = first(e.Ipv4Family.RouteDistinguisher)
		if t := e.Ipv4Family.VpnTargets; t != nil {
			for value, target := range t.VpnTarget {
				v4.targets[value] = target.VrfRTType
			}
		}
	}
	if e.Ipv6Family != nil {
		v6.distinguisher = first(e.Ipv6Family.RouteDistinguisher)
		if t := e.Ipv6Family.VpnTargets; t != nil {
			for value, target := range t.VpnTarget {
				v6.targets[value] = target.VrfRTType
			}
		}
	}
	none := family{targets: map[string]targetType{}}
	switch {
	case reflect.DeepEqual(v6, none):
		return v4, "", nil
	case reflect.DeepEqual(v4, none):
		return v6, "ipv6", nil
	case reflect.DeepEqual(v4, v6):
		return v4, "ipv4,ipv6", nil
	}
	return none, "", unsupported("ipv6-family",
		"differs from ipv4-family: a Router has one distinguisher and the same targets for both")
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// writeVPN makes a Router be as the instance says.
func writeVPN(w *World, e *vpnInstance) error {
	name := text(e.VpnInstanceName)
	if e.Type == yangmodel.L3Vpn_VpnInstances_VpnInstance_Type_l2 {
		return unsupported("type", "is l2: an L2 domain is an elan-instance")
	}
	f, families, err := readFamilies(e)
	if err != nil {
		return err
	}
	r := findRouter(w, name)
	switch {
	case r == nil:
		if err := checkName(name, "vpn-instance-name", maxName); err != nil {
			return err
		}
		if w.Routers[name] != nil {
			return datatree.Fail(datatree.DataExists, "vpn-instance-name",
				fmt.Sprintf("the Router %s is there under the name %s", name, vpnName(w.Routers[name])))
		}
		r = &v1alpha1.Router{ObjectMeta: metav1.ObjectMeta{Name: name}}
	case !alive(r):
		return datatree.Fail(datatree.InUse, "vpn-instance-name", fmt.Sprintf("the Router %s is being deleted", r.Name))
	default:
		r = r.DeepCopy()
	}
	if !reflect.DeepEqual(f, familyOf(r)) {
		r.Spec.RouteDistinguisher = f.distinguisher
		r.Spec.ImportRouteTargets, r.Spec.ExportRouteTargets = nil, nil
		for _, value := range slices.Sorted(maps.Keys(f.targets)) {
			if typ := f.targets[value]; typ == imported || typ == both {
				r.Spec.ImportRouteTargets = append(r.Spec.ImportRouteTargets, value)
			}
			if typ := f.targets[value]; typ == exported || typ == both {
				r.Spec.ExportRouteTargets = append(r.Spec.ExportRouteTargets, value)
			}
		}
	}
	if families == "" {
		delete(r.Annotations, AnnotationFamilies)
	} else {
		metav1.SetMetaDataAnnotation(&r.ObjectMeta, AnnotationFamilies, families)
	}
	w.Routers[r.Name] = r
	return nil
}

// removeVPN removes the Router unless a Network is in it.
func removeVPN(w *World, name string) error {
	r := findRouter(w, name)
	if r == nil || !alive(r) {
		return datatree.NotFound("vpn-instance-name")
	}
	if err := mayRemoveRouter(w, r, "vpn-instance-name"); err != nil {
		return err
	}
	delete(w.Routers, r.Name)
	return nil
}

// mayRemoveRouter returns an error for a Router that has to stay.
func mayRemoveRouter(w *World, r *v1alpha1.Router, leaf string) error {
	if r.Name == v1alpha1.DefaultRouter {
		return unsupported(leaf, "the Router default cannot be removed")
	}
	for _, n := range sortedNetworks(w) {
		if n.Spec.Router == r.Name || n.Spec.Router == "" && n.Name == r.Name {
			return datatree.Fail(datatree.InUse, leaf,
				fmt.Sprintf("the Network %s is in the Router %s", n.Name, r.Name))
		}
	}
	return nil
}
