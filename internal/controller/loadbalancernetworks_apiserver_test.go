// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controller_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/apitest"
)

// floatingIPGone waits until a FloatingIP of the namespace default is not there any more.
func (w *world) floatingIPGone(name string) {
	w.Helper()
	w.until(func() string {
		return want(!w.get(floatingIP("default", name, v1alpha1.FloatingIPSpec{})), "floatingip "+name+" is left")
	})
}

// testLoadBalancerNetworks are Services of type LoadBalancer with addresses of external Networks.
func testLoadBalancerNetworks(t *testing.T, api *apitest.API) {
	const network = v1alpha1.AnnotationLoadBalancerNetwork
	w := newWorld(t, api)
	stop := w.start(nil)
	w.create(external("office", "192.0.2.0/24", "2001:db8::/64"), external("dmz", "203.0.113.0/24"), pool("auto", "198.51.100.0/31"))
	w.ready("office")
	w.ready("dmz")
	mode := corev1.IPFamilyPolicyRequireDualStack
	web := wanting(balancer("web", corev1.IPv4Protocol, corev1.IPv6Protocol), network, "office")
	web.Spec.IPFamilyPolicy = &mode
	w.create(web, wanting(balancer("early"), network, "later"))
	web4 := w.floats("default", "web-ipv4", v1alpha1.ReasonBound, readyIP("", ""))
	web6 := w.floats("default", "web-ipv6", v1alpha1.ReasonBound, readyIP("", ""))
	w.has("web", web4.Status.Address, web6.Status.Address)
	w.event("Service", "early", v1alpha1.ReasonNetworkNotFound)
	w.has("early")

	// A controller that starts anew changes nothing, and gives what was waited for.
	stop()
	w.create(external("later", "192.0.3.0/24"))
	stop = w.start(nil)
	early := w.floats("default", "early-ipv4", v1alpha1.ReasonBound, readyIP("", ""))
	w.has("early", early.Status.Address)
	w.has("web", web4.Status.Address, web6.Status.Address)

	// An address that is asked for is given, or refused with an Event.
	asks := wanting(wanting(balancer("asks"), network, "office"), v1alpha1.AnnotationLoadBalancerIPs, "192.0.2.77")
	w.create(asks)
	w.has("asks", "192.0.2.77")
	w.change(asks, func() { asks.Annotations[v1alpha1.AnnotationLoadBalancerIPs] = web4.Status.Address })
	w.event("Service", "asks", v1alpha1.ReasonAddressTaken)
	w.has("asks")
	w.change(asks, func() { asks.Annotations[v1alpha1.AnnotationLoadBalancerPool] = "auto" })
	w.event("Service", "asks", v1alpha1.ReasonInvalidAnnotation)
	w.change(asks, func() {
		delete(asks.Annotations, network)
		delete(asks.Annotations, v1alpha1.AnnotationLoadBalancerIPs)
	})
	w.has("asks", "198.51.100.0")
	w.floatingIPGone("asks-ipv4")
	w.change(asks, func() {
		delete(asks.Annotations, v1alpha1.AnnotationLoadBalancerPool)
		asks.Annotations[network] = "dmz"
	})
	dmz := w.floats("default", "asks-ipv4", v1alpha1.ReasonBound, readyIP("", ""))
	w.has("asks", dmz.Status.Address)
	w.pool("auto", uses(0, 2, "198.51.100.0/31"))

	// A FloatingIP of the name is another user's, until it goes.
	w.create(floatingIP("default", "named-ipv4", v1alpha1.FloatingIPSpec{Network: "dmz", Address: "203.0.113.9"}), wanting(balancer("named"), network, "dmz"))
	w.event("Service", "named", v1alpha1.ReasonNameTaken)
	w.has("named")
	w.delete(floatingIP("default", "named-ipv4", v1alpha1.FloatingIPSpec{}))
	named := w.floats("default", "named-ipv4", v1alpha1.ReasonBound, readyIP("", ""))
	w.has("named", named.Status.Address)

	// One that a user deletes is made anew, and a Service of another type has none.
	w.delete(named)
	w.until(func() string {
		f := floatingIP("default", "named-ipv4", v1alpha1.FloatingIPSpec{})
		return want(w.get(f) && f.UID != named.UID && f.Status.Address != "", fmt.Sprintf("%+v", f))
	})
	w.change(web, func() { web.Spec.Type, web.Spec.AllocateLoadBalancerNodePorts = corev1.ServiceTypeClusterIP, nil })
	w.floatingIPGone("web-ipv4")
	w.floatingIPGone("web-ipv6")
	w.has("web")
	stop()
}

// testLoadBalancerNetworkQuota has a namespace with a quota of FloatingIPs, which Services cannot
// get around.
func testLoadBalancerNetworkQuota(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	hard := corev1.ResourceList{"count/floatingips.coelan.io": resource.MustParse("0")}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}
	w.create(quota)
	w.status(quota, func() { quota.Status = corev1.ResourceQuotaStatus{Hard: hard, Used: hard} })
	w.until(func() string {
		err := w.client.Create(t.Context(), floatingIP("default", "probe", v1alpha1.FloatingIPSpec{Network: "office"}), client.DryRunAll)
		return want(err != nil, "the quota has no effect yet")
	})
	w.start(nil)
	w.create(external("office", "192.0.2.0/24"), wanting(balancer("web"), v1alpha1.AnnotationLoadBalancerNetwork, "office"))
	w.event("Service", "web", v1alpha1.ReasonQuotaExceeded)
	w.has("web")
}
