// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/translate"
)

// familyName of addresses, for people.
func familyName(is6 bool) string {
	if is6 {
		return "IPv6"
	}
	return "IPv4"
}

// lbRequest is what a Service of type LoadBalancer asks for.
type lbRequest struct {
	svc      *corev1.Service
	families []bool // in the Service's order; true for IPv6
	pool     string // "": whichever
	wants    []wish // at most one of each family
	// invalid requests get nothing new, or something else would seem to be what was asked for.
	invalid bool
	has     []netip.Addr // by the Service's status
	// gets is by family, what it has at first.
	gets map[bool]netip.Addr
}

// wish is an address that a Service asks for, and where.
type wish struct {
	netip.Addr
	field string
}

const (
	poolField = "metadata.annotations[" + v1alpha1.AnnotationLoadBalancerPool + "]"
	ipsField  = "metadata.annotations[" + v1alpha1.AnnotationLoadBalancerIPs + "]"
	ipField   = "spec.loadBalancerIP"
)

func serviceText(svc *corev1.Service) string { return "service " + svc.Namespace + "/" + svc.Name }

func serviceProblem(svc *corev1.Service, field, value, reason, format string, args ...any) translate.ServiceProblem {
	return translate.ServiceProblem{
		Service: types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}, UID: string(svc.UID),
		Problem: translate.Problem{Object: serviceText(svc), Field: field, Value: value,
			Reason: translate.Reason(reason), Text: fmt.Sprintf(format, args...)},
	}
}

// readRequest reports what it cannot read.
func readRequest(svc *corev1.Service, report func(translate.ServiceProblem)) *lbRequest {
	r := &lbRequest{svc: svc, pool: svc.Annotations[v1alpha1.AnnotationLoadBalancerPool], has: statusAddresses(svc),
		gets: map[bool]netip.Addr{}}
	for _, f := range svc.Spec.IPFamilies {
		r.families = append(r.families, f == corev1.IPv6Protocol)
	}
	field, texts := ipsField, strings.Split(svc.Annotations[v1alpha1.AnnotationLoadBalancerIPs], ",")
	if _, given := svc.Annotations[v1alpha1.AnnotationLoadBalancerIPs]; !given {
		field, texts = ipField, nil
		if svc.Spec.LoadBalancerIP != "" {
			texts = []string{svc.Spec.LoadBalancerIP}
		}
	}
	for _, text := range texts {
		r.want(field, strings.TrimSpace(text), report)
	}
	if _, given := svc.Annotations[v1alpha1.AnnotationLoadBalancerPool]; given && r.pool == "" {
		r.invalid = true
		report(serviceProblem(svc, poolField, "", v1alpha1.ReasonInvalidAnnotation,
			"is empty: write the name of a LoadBalancerPool, or leave it out"))
	}
	return r
}

func (r *lbRequest) want(field, text string, report func(translate.ServiceProblem)) {
	refuse := func(reason, format string, args ...any) {
		r.invalid = true
		report(serviceProblem(r.svc, field, text, reason, format, args...))
	}
	invalid := v1alpha1.ReasonInvalidAnnotation
	if field == ipField {
		invalid = v1alpha1.ReasonInvalid
	}
	a, err := netip.ParseAddr(text)
	switch {
	case err != nil || a.Zone() != "" || a.Is4In6():
		refuse(invalid, "is not an address; write at most one of each family, with commas between them, such as 192.0.2.5,2001:db8::5")
	case !slices.Contains(r.families, a.Is6()):
		refuse(v1alpha1.ReasonWrongFamily, "is of a family that the Service does not have in spec.ipFamilies")
	case slices.ContainsFunc(r.wants, func(w wish) bool { return w.Is6() == a.Is6() }):
		refuse(invalid, "is the second %s address; a Service gets one of each family", familyName(a.Is6()))
	default:
		r.wants = append(r.wants, wish{a, field})
	}
}

// wanted is the address of a family that the Service asks for.
func (r *lbRequest) wanted(is6 bool) (wish, bool) {
	i := slices.IndexFunc(r.wants, func(w wish) bool { return w.Is6() == is6 })
	if i < 0 {
		return wish{}, false
	}
	return r.wants[i], true
}

// statusAddresses are what a Service's status has.
func statusAddresses(svc *corev1.Service) []netip.Addr {
	var list []netip.Addr
	for _, i := range svc.Status.LoadBalancer.Ingress {
		if a, err := netip.ParseAddr(i.IP); err == nil {
			list = append(list, a)
		}
	}
	return list
}
