// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/translate"
	"coelan.io/coelan/internal/translate/policies"
	"coelan.io/coelan/internal/wellknown"
)

// TrimForCache returns the part of an object that is read: every replica holds all pods of the
// cluster.
func TrimForCache(obj any) (any, error) {
	switch o := obj.(type) {
	case *corev1.Pod:
		return slimPod(o), nil
	case *corev1.Node:
		n := &corev1.Node{
			ObjectMeta: slimMeta(o.ObjectMeta),
			Spec:       corev1.NodeSpec{PodCIDR: o.Spec.PodCIDR, PodCIDRs: o.Spec.PodCIDRs},
			Status:     corev1.NodeStatus{Addresses: o.Status.Addresses},
		}
		n.Labels = o.Labels
		for _, t := range o.Spec.Taints {
			if t.Key == wellknown.TaintToBeDeleted {
				n.Spec.Taints = append(n.Spec.Taints, t)
			}
		}
		keepAnnotations(&n.ObjectMeta, o.Annotations, v1alpha1.AnnotationPhysicalNetworks,
			v1alpha1.AnnotationNetworkConfig, v1alpha1.AnnotationMTU, v1alpha1.AnnotationNeutronPort,
			v1alpha1.AnnotationNeutronVLAN, v1alpha1.AnnotationTrunkPort)
		return n, nil
	case *corev1.Namespace:
		n := &corev1.Namespace{ObjectMeta: slimMeta(o.ObjectMeta)}
		n.Labels = o.Labels
		keepAnnotations(&n.ObjectMeta, o.Annotations, v1alpha1.AnnotationAuditDenied, v1alpha1.KuryrProjectAnnotation)
		return n, nil
	case *corev1.Service:
		svc := &corev1.Service{ObjectMeta: slimMeta(o.ObjectMeta), Spec: o.Spec}
		svc.Annotations = maps.Clone(o.Annotations)
		delete(svc.Annotations, corev1.LastAppliedConfigAnnotation)
		svc.Labels, svc.Spec.Selector = o.Labels, nil
		svc.Status.LoadBalancer = o.Status.LoadBalancer
		return svc, nil
	case *discoveryv1.EndpointSlice:
		return slimSlice(o), nil
	case *apiextensionsv1.CustomResourceDefinition:
		return slimDefinition(o), nil
	case metav1.Object:
		o.SetManagedFields(nil)
	}
	return obj, nil
}

// TrimKeepingEndpoints is TrimForCache that leaves EndpointSlices with all of their endpoints.
func TrimKeepingEndpoints(obj any) (any, error) {
	o, ok := obj.(*discoveryv1.EndpointSlice)
	if !ok {
		return TrimForCache(obj)
	}
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: slimMeta(o.ObjectMeta), AddressType: o.AddressType, Ports: o.Ports, Endpoints: o.Endpoints,
	}
	s.Labels = o.Labels
	return s, nil
}

// slimPod has the labels, the annotations and the named ports that policies look at.
func slimPod(o *corev1.Pod) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: slimMeta(o.ObjectMeta),
		Spec:       corev1.PodSpec{NodeName: o.Spec.NodeName, HostNetwork: o.Spec.HostNetwork},
		Status:     corev1.PodStatus{Phase: o.Status.Phase, PodIPs: o.Status.PodIPs},
	}
	p.Labels = o.Labels
	keepAnnotations(&p.ObjectMeta, o.Annotations, policies.Annotations()...)
	p.Spec.Containers, p.Spec.InitContainers = slimContainers(o.Spec.Containers), slimContainers(o.Spec.InitContainers)
	return p
}

// slimContainers are those with a named port.
func slimContainers(list []corev1.Container) []corev1.Container {
	var kept []corev1.Container
	for _, c := range list {
		slim := corev1.Container{RestartPolicy: c.RestartPolicy}
		for _, port := range c.Ports {
			if port.Name != "" {
				slim.Ports = append(slim.Ports,
					corev1.ContainerPort{Name: port.Name, Protocol: port.Protocol, ContainerPort: port.ContainerPort})
			}
		}
		if slim.Ports != nil {
			kept = append(kept, slim)
		}
	}
	return kept
}

// slimSlice has one endpoint in place of many if none of them is wrong: nothing else
// of them is read.
func slimSlice(o *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{ObjectMeta: slimMeta(o.ObjectMeta), AddressType: o.AddressType, Ports: o.Ports}
	s.Labels = o.Labels
	kept := o.Endpoints
	if !slices.ContainsFunc(kept, func(e discoveryv1.Endpoint) bool { return isWrong(e, o.AddressType) }) {
		kept = kept[:min(len(kept), 1)]
	}
	for _, e := range kept {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: e.Addresses})
	}
	return s
}

func isWrong(e discoveryv1.Endpoint, of discoveryv1.AddressType) bool {
	return len(e.Addresses) == 0 || slices.ContainsFunc(e.Addresses, func(text string) bool {
		return !translate.IsSound(text, of)
	})
}

// keepAnnotations keeps those of the given keys.
func keepAnnotations(m *metav1.ObjectMeta, annotations map[string]string, keys ...string) {
	for _, key := range keys {
		if value, there := annotations[key]; there {
			metav1.SetMetaDataAnnotation(m, key, value)
		}
	}
}

func slimMeta(m metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
	}
}

// slimDefinition is what says whether it is served.
func slimDefinition(o *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	d := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: slimMeta(o.ObjectMeta)}
	d.Status.Conditions = o.Status.Conditions
	for _, v := range o.Spec.Versions {
		d.Spec.Versions = append(d.Spec.Versions,
			apiextensionsv1.CustomResourceDefinitionVersion{Name: v.Name, Served: v.Served})
	}
	return d
}
