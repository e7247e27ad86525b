// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/translate"
)

// FloatingIPTarget is what there is of the Port or Service that a FloatingIP names.
type FloatingIPTarget struct {
	Port    *v1alpha1.Port    // nil: there is none
	Network *v1alpha1.Network // that of the Port; nil: not known
	// Pod has an interface on the Network default, by the name of the Port; nil: none has.
	Pod *corev1.Pod
	// Service of that name; nil: there is none.
	Service *corev1.Service
	// Others are all FloatingIPs that name the same Port or Service, and Networks, by name, those
	// that they have addresses of.
	Others   []*v1alpha1.FloatingIP
	Networks map[string]*v1alpha1.Network
}

// FloatingIPBinding is what becomes of a FloatingIP that has its address.
type FloatingIPBinding struct {
	Refused         bool // it has no effect
	Reason, Message string
	Node            string // that answers for the address; empty: none
}

// BindFloatingIP judges a FloatingIP with an address by the Port or Service that it is to stand
// for. A Port has one of each family, a Service one of each family and Network: that of the older
// FloatingIP. The other one keeps its address, and waits.
func BindFloatingIP(f *v1alpha1.FloatingIP, a netip.Addr, t FloatingIPTarget) FloatingIPBinding {
	switch {
	case f.Spec.Service != "":
		return bindToService(f, a, t)
	case f.Spec.Port == "":
		return FloatingIPBinding{Reason: v1alpha1.ReasonUnassociated,
			Message: "neither spec.port nor spec.service names what to stand for"}
	}
	return bindToPort(f, a, t)
}

// refuseBinding is that of a FloatingIP that has no effect.
func refuseBinding(reason, format string, args ...any) FloatingIPBinding {
	return FloatingIPBinding{Refused: true, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

func bindToService(f *v1alpha1.FloatingIP, a netip.Addr, t FloatingIPTarget) FloatingIPBinding {
	v := t.Service
	t.Others = slices.DeleteFunc(slices.Clone(t.Others), func(o *v1alpha1.FloatingIP) bool {
		return o.Spec.Network != f.Spec.Network
	})
	if o := t.rival(f, familyOf(a)); o != nil {
		return refuseBinding(v1alpha1.ReasonServiceTaken,
			"service %s has the older floatingip %s/%s of the family %s on network %s: %s/%s gets it when that names another Service or none",
			f.Spec.Service, o.Namespace, o.Name, familyOf(a), f.Spec.Network, f.Namespace, f.Name)
	}
	switch {
	case v == nil:
		return FloatingIPBinding{Reason: v1alpha1.ReasonNotBound,
			Message: fmt.Sprintf("no service %s in namespace %s", f.Spec.Service, f.Namespace)}
	case v.Spec.Type == corev1.ServiceTypeExternalName || v.Spec.ClusterIP == corev1.ClusterIPNone:
		return refuseBinding(v1alpha1.ReasonNoClusterIP,
			"service %s is headless or an ExternalName, which nothing is balanced for: name a Service with a ClusterIP",
			f.Spec.Service)
	case len(v.Spec.IPFamilies) > 0 && !slices.Contains(v.Spec.IPFamilies, corev1.IPFamily(familyOf(a))):
		return refuseBinding(v1alpha1.ReasonWrongFamily,
			"service %s has no %s address for %s to stand for: name a Service that has, or ask for the other ipFamily",
			f.Spec.Service, familyOf(a), a)
	}
	return FloatingIPBinding{Reason: v1alpha1.ReasonBound,
		Message: fmt.Sprintf("service %s; Events of it say which node answers", f.Spec.Service)}
}

func bindToPort(f *v1alpha1.FloatingIP, a netip.Addr, t FloatingIPTarget) FloatingIPBinding {
	if o := t.rival(f, familyOf(a)); o != nil {
		return refuseBinding(v1alpha1.ReasonPortTaken,
			"port %s has the older floatingip %s/%s of the family %s: %s/%s gets it when that names another Port or none",
			f.Spec.Port, o.Namespace, o.Name, familyOf(a), f.Namespace, f.Name)
	}
	var addresses []string
	var node string
	switch {
	case t.Port != nil && t.Network != nil && t.Network.Spec.Type != v1alpha1.Overlay:
		return refuseBinding(v1alpha1.ReasonPortOnPhysical,
			"port %s is on network %s of type %s, which is a network of the outside itself: name a Port of an Overlay",
			f.Spec.Port, t.Network.Name, t.Network.Spec.Type)
	case t.Port != nil:
		addresses, node = t.Port.Status.Addresses, t.Port.Status.Node
	case t.Pod != nil:
		addresses, node = podIPs(t.Pod), t.Pod.Spec.NodeName
	default:
		return FloatingIPBinding{Reason: v1alpha1.ReasonNotBound, Message: fmt.Sprintf(
			"no port %s in namespace %s; that of a pod's interface is pod.interface, such as web-0.eth0",
			f.Spec.Port, f.Namespace)}
	}
	if len(addresses) > 0 && !slices.ContainsFunc(addresses, func(text string) bool {
		own, err := netip.ParseAddr(text)
		return err == nil && own.Is4() == a.Is4()
	}) {
		return refuseBinding(v1alpha1.ReasonWrongFamily,
			"port %s has no %s address for %s to stand for: name a Port that has, or ask for the other ipFamily",
			f.Spec.Port, familyOf(a), a)
	}
	if node == "" {
		return FloatingIPBinding{Reason: v1alpha1.ReasonNotBound,
			Message: fmt.Sprintf("port %s is on no node yet", f.Spec.Port)}
	}
	return FloatingIPBinding{Reason: v1alpha1.ReasonBound, Node: node,
		Message: fmt.Sprintf("port %s on node %s", f.Spec.Port, node)}
}

// rival is the oldest FloatingIP of a family that has the Port or Service before f, nil if f is
// first. One that was refused an address keeps nothing from others.
func (t FloatingIPTarget) rival(f *v1alpha1.FloatingIP, family v1alpha1.IPFamily) *v1alpha1.FloatingIP {
	first := f
	for _, o := range t.Others {
		refused := o.Status.Address == "" &&
			meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionReady) != nil
		if its, _ := FloatingIPFamily(o, t.Networks[o.Spec.Network]); its != family || refused {
			continue
		}
		if translate.Older(o, first) < 0 {
			first = o
		}
	}
	if first == f {
		return nil
	}
	return first
}

func podIPs(p *corev1.Pod) []string {
	texts := make([]string, len(p.Status.PodIPs))
	for i, ip := range p.Status.PodIPs {
		texts[i] = ip.IP
	}
	return texts
}
