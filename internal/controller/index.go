// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
)

// What objects are found by in memory.
const (
	byNetwork   = "network"   // Ports and AddressBlocks, by the Network's name
	byNode      = "node"      // pods, AddressBlocks and Ports, by the node's name
	byPort      = "port"      // AddressBlocks, by the Port's key
	byPod       = "pod"       // Ports, by the name of the pod that they are for
	byNamespace = "namespace" // Networks and Routers, by the namespace that they were made for
	selecting   = "selecting" // Networks that select namespaces: all have the value "true"
)

// index is a field of an object's kind.
type index struct {
	kind  client.Object
	field string
	value func(client.Object) string // "": not found by it
}

var indexes = []index{
	{&v1alpha1.Port{}, byNetwork, func(o client.Object) string { return o.(*v1alpha1.Port).Spec.Network }},
	{&v1alpha1.Port{}, byNode, func(o client.Object) string { return o.(*v1alpha1.Port).Status.Node }},
	{&v1alpha1.Port{}, byPod, func(o client.Object) string {
		if pod := o.(*v1alpha1.Port).Spec.Pod; pod != nil {
			return pod.Name
		}
		return ""
	}},
	{&v1alpha1.AddressBlock{}, byNetwork, func(o client.Object) string { return o.(*v1alpha1.AddressBlock).Spec.Network }},
	{&v1alpha1.AddressBlock{}, byNode, func(o client.Object) string { return o.(*v1alpha1.AddressBlock).Spec.Node }},
	{&v1alpha1.AddressBlock{}, byPort, func(o client.Object) string { return o.(*v1alpha1.AddressBlock).Spec.Port }},
	{&corev1.Pod{}, byNode, func(o client.Object) string { return o.(*corev1.Pod).Spec.NodeName }},
	{&v1alpha1.Network{}, byNamespace, madeFor},
	{&v1alpha1.Router{}, byNamespace, madeFor},
	{&v1alpha1.Network{}, selecting, func(o client.Object) string {
		if n := o.(*v1alpha1.Network); n.Spec.Role == v1alpha1.Primary && n.Spec.NamespaceSelector != nil {
			return "true"
		}
		return ""
	}},
}

// madeFor is the namespace whose objects the controller has made.
func madeFor(o client.Object) string {
	if o.GetLabels()[v1alpha1.LabelManagedBy] != v1alpha1.ManagedByController {
		return ""
	}
	return o.GetLabels()[v1alpha1.LabelNamespace]
}

func addIndexes(ctx context.Context, indexer client.FieldIndexer) error {
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
