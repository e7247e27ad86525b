// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/translate"
)

// What objects are found by in memory.
const (
	// ByNetwork finds Ports, AddressBlocks, FloatingIPs and Egresses by the Network's name, and
	// Routers by that of their gateway's.
	ByNetwork = "network"
	ByNode    = "node" // pods, AddressBlocks, of gateways as well, and Ports, by the node's name
	// ByPort finds AddressBlocks by the Port's key, and FloatingIPs by its name: it is of their
	// namespace.
	ByPort       = "port"
	ByService    = "service"    // FloatingIPs, by the Service's name: it is of their namespace
	ByFloatingIP = "floatingIP" // AddressBlocks, by the FloatingIP's key
	ByGateway    = "gateway"    // AddressBlocks of gateways, by the name of the Router
	ByEgress     = "egress"     // AddressBlocks, by the name of the Egress
	ByPod        = "pod"        // Ports, by the name of the pod that they are for
	ByNamespace  = "namespace"  // Networks and Routers, by the namespace that they were made for
	Selecting    = "selecting"  // Networks that select namespaces: all have the value "true"
)

// index is a field of an object's kind.
type index struct {
	kind  client.Object
	field string
	value func(client.Object) string // "": not found by it
}

var indexes = []index{
	{&v1alpha1.Port{}, ByNetwork, func(o client.Object) string { return o.(*v1alpha1.Port).Spec.Network }},
	{&v1alpha1.Port{}, ByNode, nodeOfPort},
	{&v1alpha1.Port{}, ByPod, func(o client.Object) string {
		if pod := o.(*v1alpha1.Port).Spec.Pod; pod != nil {
			return pod.Name
		}
		return ""
	}},
	{&v1alpha1.AddressBlock{}, ByNetwork, func(o client.Object) string {
		return o.(*v1alpha1.AddressBlock).Spec.Network
	}},
	{&v1alpha1.AddressBlock{}, ByNode, func(o client.Object) string {
		spec := o.(*v1alpha1.AddressBlock).Spec
		_, gateway, _ := strings.Cut(spec.Gateway, "/")
		if gateway == v1alpha1.AnyNode {
			return ""
		}
		return spec.Node + gateway // not both
	}},
	{&v1alpha1.AddressBlock{}, ByPort, func(o client.Object) string { return o.(*v1alpha1.AddressBlock).Spec.Port }},
	{&v1alpha1.AddressBlock{}, ByFloatingIP, func(o client.Object) string {
		return o.(*v1alpha1.AddressBlock).Spec.FloatingIP
	}},
	{&v1alpha1.AddressBlock{}, ByGateway, func(o client.Object) string {
		router, _, _ := strings.Cut(o.(*v1alpha1.AddressBlock).Spec.Gateway, "/")
		return router
	}},
	{&v1alpha1.AddressBlock{}, ByEgress, func(o client.Object) string {
		return o.(*v1alpha1.AddressBlock).Spec.Egress
	}},
	{&v1alpha1.Egress{}, ByNetwork, func(o client.Object) string { return o.(*v1alpha1.Egress).Spec.Network }},
	{&v1alpha1.Router{}, ByNetwork, func(o client.Object) string {
		if gateway := o.(*v1alpha1.Router).Spec.Gateway; gateway != nil {
			return gateway.Network
		}
		return ""
	}},
	{&v1alpha1.FloatingIP{}, ByNetwork, func(o client.Object) string { return o.(*v1alpha1.FloatingIP).Spec.Network }},
	{&v1alpha1.FloatingIP{}, ByPort, func(o client.Object) string { return o.(*v1alpha1.FloatingIP).Spec.Port }},
	{&v1alpha1.FloatingIP{}, ByService, func(o client.Object) string { return o.(*v1alpha1.FloatingIP).Spec.Service }},
	{&corev1.Pod{}, ByNode, func(o client.Object) string { return o.(*corev1.Pod).Spec.NodeName }},
	{&v1alpha1.Network{}, ByNamespace, madeFor},
	{&v1alpha1.Router{}, ByNamespace, madeFor},
	{&v1alpha1.Network{}, Selecting, func(o client.Object) string {
		if n := o.(*v1alpha1.Network); n.Spec.Role == v1alpha1.Primary && n.Spec.NamespaceSelector != nil {
			return "true"
		}
		return ""
	}},
}

func madeFor(o client.Object) string { return translate.MadeFor(o) }

// AddIndexes makes objects found in memory by these fields.
func AddIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	for _, i := range indexes {
		err := indexer.IndexField(ctx, i.kind, i.field, func(o client.Object) []string {
			if v := i.value(o); v != "" {
				return []string{v}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// nodeOfPort is the node that has bound a Port; of a dynamic one, that of the agent which has made
// it.
func nodeOfPort(o client.Object) string {
	p := o.(*v1alpha1.Port)
	if p.Spec.Dynamic {
		return p.Spec.Node
	}
	return p.Status.Node
}
