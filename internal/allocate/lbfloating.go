// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/translate"
)

// ServiceFloatingIPs is the outcome of AllocateServiceFloatingIPs.
type ServiceFloatingIPs struct {
	// Create are FloatingIPs that Services of type LoadBalancer ask for, Delete those that they ask
	// for no longer. Services has the addresses that their status is to have; it is written before
	// anything is deleted.
	Create, Delete []*v1alpha1.FloatingIP
	Services       map[types.NamespacedName][]netip.Addr
	Problems       []translate.ServiceProblem
}

// networkField is where a Service names an external Network.
const networkField = "metadata.annotations[" + v1alpha1.AnnotationLoadBalancerNetwork + "]"

// NamesNetwork says whether a Service of type LoadBalancer asks for addresses of an external
// Network, as FloatingIPs, in place of those of a LoadBalancerPool.
func NamesNetwork(svc *corev1.Service) bool {
	_, named := svc.Annotations[v1alpha1.AnnotationLoadBalancerNetwork]
	class := svc.Spec.LoadBalancerClass
	return named && svc.Spec.Type == corev1.ServiceTypeLoadBalancer &&
		(class == nil || *class == v1alpha1.LoadBalancerClass)
}

// AllocateServiceFloatingIPs decides which FloatingIPs there are for Services of type LoadBalancer
// that name an external Network: one of each family of the Service. A Service that asks for what
// cannot be read keeps what it has. Its addresses are those of its FloatingIPs that are ready.
func AllocateServiceFloatingIPs(services []*corev1.Service, all []*v1alpha1.FloatingIP,
	networks []*v1alpha1.Network,
) ServiceFloatingIPs {
	a := &serviceFloatingIPs{
		all: map[types.NamespacedName]*v1alpha1.FloatingIP{}, of: map[serviceUID][]*v1alpha1.FloatingIP{},
		networks: map[string]*v1alpha1.Network{},
		out:      ServiceFloatingIPs{Services: map[types.NamespacedName][]netip.Addr{}},
	}
	for _, f := range all {
		a.all[types.NamespacedName{Namespace: f.Namespace, Name: f.Name}] = f
		if owner := ServiceOf(f); owner != nil {
			key := serviceUID{f.Namespace, owner.UID}
			a.of[key] = append(a.of[key], f)
		}
	}
	for _, n := range networks {
		a.networks[n.Name] = n
	}
	for _, svc := range services {
		switch {
		case svc.DeletionTimestamp != nil: // its FloatingIPs go with it
		case NamesNetwork(svc):
			a.provide(svc)
		case len(a.of[uidOf(svc)]) > 0:
			a.withdraw(svc, a.of[uidOf(svc)])
		}
	}
	return a.out
}

type serviceFloatingIPs struct {
	all      map[types.NamespacedName]*v1alpha1.FloatingIP
	of       map[serviceUID][]*v1alpha1.FloatingIP // by the Service that they were made for
	networks map[string]*v1alpha1.Network
	out      ServiceFloatingIPs
}

// serviceUID is a Service that FloatingIPs of its namespace were made for. That those of another
// namespace say so means nothing.
type serviceUID struct {
	namespace string
	uid       types.UID
}

func uidOf(svc *corev1.Service) serviceUID { return serviceUID{svc.Namespace, svc.UID} }

const serviceKind = "Service"

// ServiceOf is the Service that a FloatingIP was made for; nil: none.
func ServiceOf(f *v1alpha1.FloatingIP) *metav1.OwnerReference {
	if owner := metav1.GetControllerOf(f); owner != nil && owner.Kind == serviceKind {
		return owner
	}
	return nil
}

// QuotaExceeded is the problem of a Service of which the namespace may have no further FloatingIP.
func QuotaExceeded(f *v1alpha1.FloatingIP, err error) translate.ServiceProblem {
	owner := ServiceOf(f)
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: owner.Name, UID: owner.UID}}
	return serviceProblem(svc, networkField, f.Spec.Network, v1alpha1.ReasonQuotaExceeded,
		"gives no address, for the namespace may have no further FloatingIP: %v", err)
}

// withdraw deletes FloatingIPs of a Service that does not ask for them any more. Other addresses in
// its status stay.
func (a *serviceFloatingIPs) withdraw(svc *corev1.Service, gone []*v1alpha1.FloatingIP) {
	list := statusAddresses(svc)
	for _, f := range gone {
		list = slices.DeleteFunc(list, func(ip netip.Addr) bool { return ip.String() == f.Status.Address })
	}
	a.out.Services[types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}] = list
	a.out.Delete = append(a.out.Delete, gone...)
}

// provide has a Service get what it asks for.
func (a *serviceFloatingIPs) provide(svc *corev1.Service) {
	report := func(p translate.ServiceProblem) { a.out.Problems = append(a.out.Problems, p) }
	network, r := svc.Annotations[v1alpha1.AnnotationLoadBalancerNetwork], readRequest(svc, report)
	if _, both := svc.Annotations[v1alpha1.AnnotationLoadBalancerPool]; both {
		r.invalid = true
		report(serviceProblem(svc, networkField, network, v1alpha1.ReasonInvalidAnnotation,
			"is there beside %s: leave one of them out", v1alpha1.AnnotationLoadBalancerPool))
	}
	if network == "" {
		r.invalid = true
		report(serviceProblem(svc, networkField, "", v1alpha1.ReasonInvalidAnnotation,
			"is empty: write the name of an external Network, or leave it out"))
	}
	wanted, addresses := map[string]bool{}, []netip.Addr{}
	for _, is6 := range r.families {
		f := r.floatingIP(network, is6)
		if a.canDoWithout(svc, network, is6) {
			continue
		}
		there := a.all[types.NamespacedName{Namespace: f.Namespace, Name: f.Name}]
		switch {
		case there == nil && !r.invalid:
			a.out.Create = append(a.out.Create, f)
		case there == nil:
		case !metav1.IsControlledBy(there, svc):
			a.blocked(svc, network, there)
		case r.invalid || asksTheSame(there, f):
			wanted[f.Name] = true
			addresses = append(addresses, a.ready(svc, network, there)...)
		}
	}
	a.out.Services[types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}] = addresses
	for _, f := range a.of[uidOf(svc)] {
		if !wanted[f.Name] {
			a.out.Delete = append(a.out.Delete, f)
		}
	}
}

// floatingIP is the one that a Service asks for in a family.
func (r *lbRequest) floatingIP(network string, is6 bool) *v1alpha1.FloatingIP {
	controller, family := true, v1alpha1.IPv4
	if is6 {
		family = v1alpha1.IPv6
	}
	f := &v1alpha1.FloatingIP{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.svc.Namespace, Name: r.svc.Name + "-" + strings.ToLower(string(family)),
			Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedByController},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: serviceKind, Name: r.svc.Name, UID: r.svc.UID, Controller: &controller,
			}},
		},
		Spec: v1alpha1.FloatingIPSpec{Network: network, IPFamily: family, Service: r.svc.Name},
	}
	if w, wants := r.wanted(is6); wants {
		f.Spec.Address = w.String()
	}
	return f
}

// asksTheSame says whether a FloatingIP that is there is the one that a Service asks for. A Service
// that asks for no address keeps any.
func asksTheSame(there, wanted *v1alpha1.FloatingIP) bool {
	spec := there.Spec
	if wanted.Spec.Address == "" {
		spec.Address = ""
	} else if there.Status.Address == wanted.Spec.Address {
		spec.Address = wanted.Spec.Address
	}
	return spec == wanted.Spec
}

// canDoWithout says whether a Service that need not be dual-stack names a Network that has the
// other family only.
func (a *serviceFloatingIPs) canDoWithout(svc *corev1.Service, network string, is6 bool) bool {
	n, policy := a.networks[network], svc.Spec.IPFamilyPolicy
	if n == nil || policy == nil || *policy != corev1.IPFamilyPolicyPreferDualStack || len(svc.Spec.IPFamilies) < 2 {
		return false
	}
	has := map[bool]bool{}
	for _, s := range n.Spec.Subnets {
		if p, err := netip.ParsePrefix(s.CIDR); err == nil {
			has[p.Addr().Is6()] = true
		}
	}
	return !has[is6] && has[!is6]
}

// ready is the address of a FloatingIP, none while it has no effect.
func (a *serviceFloatingIPs) ready(svc *corev1.Service, network string, f *v1alpha1.FloatingIP) []netip.Addr {
	c := meta.FindStatusCondition(f.Status.Conditions, v1alpha1.ConditionReady)
	if c == nil {
		return nil
	}
	if c.Status != metav1.ConditionTrue {
		a.out.Problems = append(a.out.Problems, serviceProblem(svc, networkField, network, c.Reason,
			"gives no address to floatingip %s/%s: %s", f.Namespace, f.Name, c.Message))
		return nil
	}
	ip, err := netip.ParseAddr(f.Status.Address)
	if err != nil {
		return nil
	}
	return []netip.Addr{ip}
}

// blocked reports that a FloatingIP of the name is not the Service's. One of an earlier Service of
// the name goes by itself.
func (a *serviceFloatingIPs) blocked(svc *corev1.Service, network string, f *v1alpha1.FloatingIP) {
	if owner := ServiceOf(f); owner != nil && owner.Name == svc.Name {
		return
	}
	a.out.Problems = append(a.out.Problems, serviceProblem(svc, networkField, network, v1alpha1.ReasonNameTaken,
		"has no address for the Service: floatingip %s/%s, which would be made for it, is there already: delete it",
		f.Namespace, f.Name))
}
