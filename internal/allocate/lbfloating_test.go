// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/api/v1alpha1"
)

// onNetwork is a dual-stack Service that names the external Network office.
func onNetwork(change func(*corev1.Service)) *corev1.Service {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "web", UID: "u",
			Annotations: map[string]string{v1alpha1.AnnotationLoadBalancerNetwork: "office"}},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}},
	}
	if change != nil {
		change(svc)
	}
	return svc
}

// made is the FloatingIP of a Service, which has an address, and is ready for the reason Bound.
func made(family v1alpha1.IPFamily, address, reason string) *v1alpha1.FloatingIP {
	yes, ready := true, metav1.ConditionFalse
	if reason == v1alpha1.ReasonBound {
		ready = metav1.ConditionTrue
	}
	f := floating("web-"+strings.ToLower(string(family)), v1alpha1.FloatingIPSpec{IPFamily: family, Service: "web"}, address)
	f.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: "web", UID: "u", Controller: &yes}}
	if reason != "" {
		f.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: ready, Reason: reason, Message: "so it is"}}
	}
	return f
}

func TestServiceFloatingIPs(t *testing.T) {
	four, six := made(v1alpha1.IPv4, "192.0.2.70", v1alpha1.ReasonBound), made(v1alpha1.IPv6, "2001:db8::7", v1alpha1.ReasonBound)
	both, elsewhere := []*v1alpha1.FloatingIP{four, six}, four.DeepCopy()
	elsewhere.Namespace = "b"
	status := func(svc *corev1.Service, ips ...string) {
		for _, ip := range ips {
			svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
		}
	}
	annotate := func(key, value string) func(*corev1.Service) {
		return func(svc *corev1.Service) { svc.Annotations[key] = value }
	}
	unnamed := func(svc *corev1.Service) {
		svc.Annotations = nil
		status(svc, "192.0.2.70", "203.0.113.9")
	}
	for name, c := range map[string]struct {
		change         func(*corev1.Service)
		there          []*v1alpha1.FloatingIP
		network        *v1alpha1.Network // nil: office as it is
		create, remove []string
		has            string // "-": the status is left alone
		reasons        []string
	}{
		"new":     {create: []string{"web-ipv4 office IPv4", "web-ipv6 office IPv6"}, has: "[]"},
		"ready":   {there: both, has: "[192.0.2.70 2001:db8::7]"},
		"waiting": {there: []*v1alpha1.FloatingIP{four, made(v1alpha1.IPv6, "", "")}, has: "[192.0.2.70]"},
		"refused": {there: []*v1alpha1.FloatingIP{made(v1alpha1.IPv4, "192.0.2.70", v1alpha1.ReasonNotAllowed), six},
			has: "[2001:db8::7]", reasons: []string{v1alpha1.ReasonNotAllowed}},
		"another Network": {change: annotate(v1alpha1.AnnotationLoadBalancerNetwork, "dmz"), there: both, has: "[]",
			remove: []string{"web-ipv4", "web-ipv6"}},
		"asks for an address": {change: annotate(v1alpha1.AnnotationLoadBalancerIPs, "192.0.2.99"),
			create: []string{"web-ipv4 office IPv4 192.0.2.99", "web-ipv6 office IPv6"}, has: "[]"},
		"asks for what it has": {change: annotate(v1alpha1.AnnotationLoadBalancerIPs, "192.0.2.70"), there: both, has: "[192.0.2.70 2001:db8::7]"},
		"asks for another one": {change: annotate(v1alpha1.AnnotationLoadBalancerIPs, "192.0.2.99"), there: both, has: "[2001:db8::7]",
			remove: []string{"web-ipv4"}},
		"asks by the field": {change: func(svc *corev1.Service) { svc.Spec.LoadBalancerIP = "192.0.2.99" }, has: "[]",
			create: []string{"web-ipv4 office IPv4 192.0.2.99", "web-ipv6 office IPv6"}},
		"asks for no address": {change: annotate(v1alpha1.AnnotationLoadBalancerIPs, "any"), there: both,
			has: "[192.0.2.70 2001:db8::7]", reasons: []string{v1alpha1.ReasonInvalidAnnotation}},
		"new, and asks for no address": {change: annotate(v1alpha1.AnnotationLoadBalancerIPs, "any"), has: "[]",
			reasons: []string{v1alpha1.ReasonInvalidAnnotation}},
		"a pool too": {change: annotate(v1alpha1.AnnotationLoadBalancerPool, "p"), there: both,
			has: "[192.0.2.70 2001:db8::7]", reasons: []string{v1alpha1.ReasonInvalidAnnotation}},
		"no name": {change: annotate(v1alpha1.AnnotationLoadBalancerNetwork, ""), has: "[]",
			reasons: []string{v1alpha1.ReasonInvalidAnnotation}},
		"not any more":   {change: unnamed, there: both, has: "[203.0.113.9]", remove: []string{"web-ipv4", "web-ipv6"}},
		"never":          {change: unnamed, has: "-"},
		"of a ClusterIP": {change: func(svc *corev1.Service) { svc.Spec.Type = corev1.ServiceTypeClusterIP }, there: both, has: "[]", remove: []string{"web-ipv4", "web-ipv6"}},
		"of another class": {change: func(svc *corev1.Service) {
			class := "cloud"
			svc.Spec.LoadBalancerClass = &class
		}, has: "-"},
		"of the class": {change: func(svc *corev1.Service) {
			class := v1alpha1.LoadBalancerClass
			svc.Spec.LoadBalancerClass = &class
		}, there: both, has: "[192.0.2.70 2001:db8::7]"},
		"leaving":              {change: func(svc *corev1.Service) { svc.DeletionTimestamp = &metav1.Time{} }, there: both, has: "-"},
		"of another namespace": {there: []*v1alpha1.FloatingIP{elsewhere}, create: []string{"web-ipv4 office IPv4", "web-ipv6 office IPv6"}, has: "[]"},
		"IPv6 only": {change: func(svc *corev1.Service) { svc.Spec.IPFamilies = svc.Spec.IPFamilies[1:] }, there: both,
			has: "[2001:db8::7]", remove: []string{"web-ipv4"}},
		"a name that is there": {there: []*v1alpha1.FloatingIP{floating("web-ipv4", v1alpha1.FloatingIPSpec{}, "192.0.2.70"), six},
			has: "[2001:db8::7]", reasons: []string{v1alpha1.ReasonNameTaken}},
		"that of the Service before": {change: func(svc *corev1.Service) { svc.UID = "v" }, there: both, has: "[]"},
		"prefers two families, of which the Network has one": {change: func(svc *corev1.Service) {
			prefers := corev1.IPFamilyPolicyPreferDualStack
			svc.Spec.IPFamilyPolicy = &prefers
		}, network: &v1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Name: "office"},
			Spec: v1alpha1.NetworkSpec{Subnets: []v1alpha1.Subnet{{CIDR: "2001:db8::/64"}}}},
			create: []string{"web-ipv6 office IPv6"}, has: "[]"},
		"insists on two families": {change: func(svc *corev1.Service) {
			insists := corev1.IPFamilyPolicyRequireDualStack
			svc.Spec.IPFamilyPolicy = &insists
		}, network: &v1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Name: "office"},
			Spec: v1alpha1.NetworkSpec{Subnets: []v1alpha1.Subnet{{CIDR: "2001:db8::/64"}}}},
			create: []string{"web-ipv4 office IPv4", "web-ipv6 office IPv6"}, has: "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			svc, network := onNetwork(c.change), c.network
			if network == nil {
				network = external()
			}
			got := AllocateServiceFloatingIPs([]*corev1.Service{svc}, c.there, []*v1alpha1.Network{network})
			var create, remove, reasons []string
			for _, f := range got.Create {
				create = append(create, strings.TrimSpace(fmt.Sprintln(f.Name, f.Spec.Network, f.Spec.IPFamily, f.Spec.Address)))
				if f.Namespace != "a" || f.Spec.Service != "web" || f.Spec.Port != "" || ServiceOf(f).UID != svc.UID {
					t.Errorf("%+v", f)
				}
			}
			for _, f := range got.Delete {
				remove = append(remove, f.Name)
			}
			for _, p := range got.Problems {
				reasons = append(reasons, string(p.Reason))
				if p.Text == "" || p.UID != string(svc.UID) {
					t.Errorf("%+v", p)
				}
			}
			has := "-"
			if list, ours := got.Services[types.NamespacedName{Namespace: "a", Name: "web"}]; ours {
				has = fmt.Sprint(list)
			}
			for _, d := range []string{
				cmp.Diff(c.create, create), cmp.Diff(c.remove, remove), cmp.Diff(c.has, has), cmp.Diff(c.reasons, reasons),
			} {
				if d != "" {
					t.Errorf("-want +got:\n%s", d)
				}
			}
		})
	}
}

// A Service that names a Network gets no address of a pool, and gives back what it has of one once
// that is not in its status any more.
func TestPoolsLeaveServicesOnNetworksAlone(t *testing.T) {
	pool := &v1alpha1.LoadBalancerPool{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1alpha1.LoadBalancerPoolSpec{Addresses: []string{"198.51.100.1/32"}}}
	other := onNetwork(func(svc *corev1.Service) { svc.Name, svc.UID, svc.Annotations = "other", "o", nil })
	other.Spec.IPFamilies = other.Spec.IPFamilies[:1]
	for _, c := range []struct {
		has, gets []string
	}{
		{nil, []string{"198.51.100.1"}},
		{[]string{"198.51.100.1"}, nil},
	} {
		svc := onNetwork(nil)
		for _, ip := range c.has {
			svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
		}
		if WantsPoolAddress(svc, []*v1alpha1.LoadBalancerPool{pool}) {
			t.Error("it wants an address of a pool")
		}
		got := AllocateLoadBalancers([]*v1alpha1.LoadBalancerPool{pool}, []*corev1.Service{svc, other}, nil, nil, nil)
		if _, ours := got.Services[types.NamespacedName{Namespace: "a", Name: "web"}]; ours {
			t.Errorf("with %v: %v", c.has, got.Services)
		}
		var gets []string
		for _, ip := range got.Services[types.NamespacedName{Namespace: "a", Name: "other"}] {
			gets = append(gets, ip.String())
		}
		if !slices.Equal(gets, c.gets) {
			t.Errorf("with %v, another Service gets %v, want %v", c.has, gets, c.gets)
		}
	}
}

func TestQuotaExceeded(t *testing.T) {
	p := QuotaExceeded(made(v1alpha1.IPv4, "", ""), errors.New("exceeded quota: few"))
	if p.Service.String() != "a/web" || p.UID != "u" || p.Value != "office" || !strings.Contains(p.Error(), "exceeded quota: few") {
		t.Errorf("%+v", p)
	}
}
