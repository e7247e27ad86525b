// SPDX-License-Identifier: Apache-2.0

package lab

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// addServiceRanges publishes what ClusterIPs are from, 10.96.0.0/16 and fd00:10:96::/108, as the
// API server does.
func (a *API) addServiceRanges(families Family) {
	o := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}}
	for _, r := range families.pick("10.96.0.0/16", "fd00:10:96::/108") {
		o.Spec.CIDRs = append(o.Spec.CIDRs, r.String())
	}
	a.set(serviceCIDRs, o)
}

// SetService publishes a Service, or changes it. It gets no ClusterIPs or ports that
// it does not name.
func (a *API) SetService(s *corev1.Service) { a.set(services, s) }

// RemoveService deletes a Service, and no EndpointSlices.
func (a *API) RemoveService(namespace, name string) { a.remove(services, objectKey(namespace, name)) }

// SetEndpointSlice publishes an EndpointSlice, or changes it.
func (a *API) SetEndpointSlice(s *discoveryv1.EndpointSlice) { a.set(endpointSlices, s) }

// Services are all Services.
func (a *API) Services() []*corev1.Service { return all[corev1.Service](a, services) }
