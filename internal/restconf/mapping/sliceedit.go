// SPDX-License-Identifier: Apache-2.0

package mapping

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// maxEndpoints is the most that the API takes in an EndpointSlice.
const maxEndpoints = 1000

// sliceEdit changes the EndpointSlices of a Service.
type sliceEdit struct {
	service *corev1.Service
	list    []*discoveryv1.EndpointSlice
}

// editSlices takes copies of a Service's slices.
func editSlices(service *corev1.Service, of []*discoveryv1.EndpointSlice) *sliceEdit {
	s := &sliceEdit{service: service}
	for _, slice := range of {
		s.list = append(s.list, slice.DeepCopy())
	}
	return s
}

// filter keeps the endpoints for which keep is true; it may change them.
func (s *sliceEdit) filter(keep func(*discoveryv1.Endpoint) bool) {
	for _, slice := range s.list {
		var kept []discoveryv1.Endpoint
		for i := range slice.Endpoints {
			if keep(&slice.Endpoints[i]) {
				kept = append(kept, slice.Endpoints[i])
			}
		}
		if len(kept) < len(slice.Endpoints) {
			slice.Endpoints = kept
		}
	}
}

// add puts an endpoint into the first slice of its family with these ports that has room.
func (s *sliceEdit) add(address string, e discoveryv1.Endpoint, ports []discoveryv1.EndpointPort) {
	family := discoveryv1.AddressTypeIPv6
	if a, err := netip.ParseAddr(address); err == nil && a.Is4() {
		family = discoveryv1.AddressTypeIPv4
	}
	at := slices.IndexFunc(s.list, func(slice *discoveryv1.EndpointSlice) bool {
		room := len(slice.Endpoints) < maxEndpoints
		return room && slice.AddressType == family && reflect.DeepEqual(slice.Ports, ports)
	})
	if at < 0 {
		at = len(s.list)
		s.list = append(s.list, s.newSlice(family, ports))
	}
	s.list[at].Endpoints = append(s.list[at].Endpoints, e)
}

// newSlice is one without endpoints and without a name.
func (s *sliceEdit) newSlice(family discoveryv1.AddressType, ports []discoveryv1.EndpointPort,
) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.service.Namespace, Labels: map[string]string{
			discoveryv1.LabelServiceName: s.service.Name, discoveryv1.LabelManagedBy: ManagedBy,
		}},
		AddressType: family, Endpoints: []discoveryv1.Endpoint{}, Ports: ports,
	}
	if s.service.UID != "" {
		slice.OwnerReferences = []metav1.OwnerReference{ownerOf(s.service)}
	}
	return slice
}

// mark writes the entry's uid and cluster on the slices. If there is none, it makes one without
// endpoints.
func (s *sliceEdit) mark(uid, cluster string, ports []discoveryv1.EndpointPort) {
	if len(s.list) == 0 {
		family := discoveryv1.AddressTypeIPv4
		if f := s.service.Spec.IPFamilies; len(f) > 0 && f[0] == corev1.IPv6Protocol {
			family = discoveryv1.AddressTypeIPv6
		}
		s.list = []*discoveryv1.EndpointSlice{s.newSlice(family, ports)}
	}
	for _, slice := range s.list {
		if slice.Labels[discoveryv1.LabelManagedBy] == ManagedBy {
			metav1.SetMetaDataLabel(&slice.ObjectMeta, LabelEndpoints, uid)
		}
		if cluster == "" {
			delete(slice.Annotations, AnnotationCluster)
		} else {
			metav1.SetMetaDataAnnotation(&slice.ObjectMeta, AnnotationCluster, cluster)
		}
	}
}

// finish puts the slices into the World, without those that have no endpoints any more. One is left
// if all have none: else the entry would be gone.
func (s *sliceEdit) finish(w *World) {
	kept := slices.DeleteFunc(slices.Clone(s.list), func(slice *discoveryv1.EndpointSlice) bool {
		return len(slice.Endpoints) == 0
	})
	if len(kept) == 0 {
		kept = s.list[:min(len(s.list), 1)]
	}
	for _, slice := range s.list {
		delete(w.Slices, keyOf(slice))
	}
	taken := 0
	for _, slice := range kept {
		for slice.Name == "" {
			taken++
			key := types.NamespacedName{
				Namespace: slice.Namespace, Name: fmt.Sprintf("%s-restconf-%d", s.service.Name, taken),
			}
			if w.Slices[key] == nil && !slices.ContainsFunc(kept, func(k *discoveryv1.EndpointSlice) bool {
				return k.Name == key.Name
			}) {
				slice.Name = key.Name
			}
		}
		w.Slices[keyOf(slice)] = slice
	}
}

func ownerOf(s *corev1.Service) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: "Service", Name: s.Name, UID: s.UID}
}

// Adopt makes a Service that was just made the owner of its slices among the changes that follow,
// so that Kubernetes removes them with it.
func Adopt(made metav1.Object, changes []Change) {
	s, ok := made.(*corev1.Service)
	if !ok {
		return
	}
	for i := range changes {
		slice, ok := changes[i].Object.(*discoveryv1.EndpointSlice)
		if ok && changes[i].Verb == Create && ServiceOf(slice) == keyOf(s) {
			slice = slice.DeepCopy()
			slice.OwnerReferences = []metav1.OwnerReference{ownerOf(s)}
			changes[i].Object = slice
		}
	}
}
