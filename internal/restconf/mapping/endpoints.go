// SPDX-License-Identifier: Apache-2.0

package mapping

import (
	"cmp"
	"slices"

	"github.com/openconfig/ygot/ygot"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/internal/restconf/yangmodel"
)

// LabelEndpoints on an EndpointSlice is the uid of the entry that it belongs to, AnnotationCluster
// its cluster-id. ManagedBy is what Kubernetes calls the writer of an EndpointSlice.
const (
	LabelEndpoints    = "coelan.io/restconf-endpoints"
	AnnotationCluster = "coelan.io/restconf-cluster"
	ManagedBy         = "restconf.coelan.io"
)

type (
	endpointsEntry  = yangmodel.Service_EndpointsInfo_Endpoints
	endpointAddress = yangmodel.Service_EndpointsInfo_Endpoints_EndpointAddresses
	endpointPortKey = yangmodel.Service_EndpointsInfo_Endpoints_EndpointPorts_Key
	endpointPorts   = yangmodel.Service_EndpointsInfo_Endpoints_EndpointPorts
)

// endpoints are the EndpointSlices of Services, together for each Service.
func endpoints() *List {
	return &List{
		Container: "endpoints-info", Name: "endpoints",
		Reads:   []Resource{Slices, Services},
		Single:  IfRead,
		Refers:  refersTo,
		Late:    true,
		New:     func() ygot.GoStruct { return &endpointsEntry{} },
		Entries: func(w *World) []ygot.GoStruct { return structs(showEndpoints(w)) },
		Write:   writer(writeEndpoints),
		Remove:  removeEndpoints,
		Kept:    func(w *World) []string { return fixedServices(w, entryUID) },
	}
}

// ServiceOf is the Service that an EndpointSlice belongs to.
func ServiceOf(s *discoveryv1.EndpointSlice) types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}
}

// slicesByService are the EndpointSlices with addresses that are not being deleted, in the order of
// their names.
func slicesByService(w *World) map[types.NamespacedName][]*discoveryv1.EndpointSlice {
	of := map[types.NamespacedName][]*discoveryv1.EndpointSlice{}
	for _, s := range w.Slices {
		if alive(s) && s.AddressType != discoveryv1.AddressTypeFQDN {
			key := ServiceOf(s)
			of[key] = append(of[key], s)
		}
	}
	for _, list := range of {
		slices.SortFunc(list, func(a, b *discoveryv1.EndpointSlice) int { return cmp.Compare(a.Name, b.Name) })
	}
	return of
}

// slicesOf are those of one Service.
func slicesOf(w *World, service types.NamespacedName) []*discoveryv1.EndpointSlice {
	return slicesByService(w)[service]
}

// entryUID is the uid of the entry of a Service's endpoints, which are in these EndpointSlices.
func entryUID(s *corev1.Service, of []*discoveryv1.EndpointSlice) string {
	for _, slice := range of {
		if uid := slice.Labels[LabelEndpoints]; uid != "" {
			return uid
		}
	}
	return serviceUID(s)
}

// showEndpoints are the entries of Services that have EndpointSlices.
func showEndpoints(w *World) []*endpointsEntry {
	var list []*endpointsEntry
	of := slicesByService(w)
	for _, s := range sortedServices(w) {
		if all := of[keyOf(s)]; len(all) > 0 {
			list = append(list, showSlices(s, all))
		}
	}
	return list
}

// showSlices has the endpoints that are ready, of all slices and families.
func showSlices(s *corev1.Service, of []*discoveryv1.EndpointSlice) *endpointsEntry {
	e := &endpointsEntry{
		Uid: ygot.String(entryUID(s, of)), Name: ygot.String(s.Name), Network_NS: ygot.String(s.Namespace),
		EndpointAddresses: map[string]*endpointAddress{}, EndpointPorts: map[endpointPortKey]*endpointPorts{},
	}
	for _, slice := range of {
		e.ClusterId = cmp.Or(e.ClusterId, optional(slice.Annotations[AnnotationCluster]))
		for i := range slice.Endpoints {
			showEndpoint(e, &slice.Endpoints[i])
		}
		for _, p := range slice.Ports {
			if p.Port == nil {
				continue // all ports, which the model cannot say
			}
			key := endpointPortKey{Name: text(p.Name), Port: *p.Port}
			e.EndpointPorts[key] = &endpointPorts{Name: &key.Name, Port: &key.Port}
		}
	}
	return e
}

func showEndpoint(e *endpointsEntry, endpoint *discoveryv1.Endpoint) {
	if !ready(endpoint) {
		return
	}
	for _, a := range endpoint.Addresses {
		a = canonicalAddress(a)
		e.EndpointAddresses[a] = &endpointAddress{
			IpAddress: ygot.String(a), HostName: optional(text(endpoint.Hostname)),
			NodeName: optional(text(endpoint.NodeName)),
		}
	}
}

func ready(e *discoveryv1.Endpoint) bool { return e.Conditions.Ready == nil || *e.Conditions.Ready }
