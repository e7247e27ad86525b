// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/controller/policies"
	"coelan.io/coelan/internal/controller/reconcile"
)

// kinds are all that the controller watches but EndpointSlices, which only the leader has: they are
// many, and read only to report bad ones; and ClusterNetworkPolicies, which there need not be.
func kinds() []client.Object {
	return []client.Object{
		&corev1.Pod{}, &corev1.Node{}, &corev1.Namespace{},
		&v1alpha1.Network{}, &v1alpha1.Router{}, &v1alpha1.Port{}, &v1alpha1.AddressBlock{}, &v1alpha1.FloatingIP{},
		&v1alpha1.Egress{}, &v1alpha1.NodeNetworkConfig{},
		&corev1.Service{}, &v1alpha1.LoadBalancerPool{}, &networkingv1.NetworkPolicy{}, &v1alpha1.SecurityGroup{},
	}
}

// cacheOptions keep of each object what is read: every replica holds all pods of the cluster. The
// endpoints of Services are read where the controller programs these.
func cacheOptions(p *policies.Progress, endpoints bool) cache.Options {
	trim := reconcile.TrimForCache
	if endpoints {
		trim = reconcile.TrimKeepingEndpoints
	}
	return cache.Options{
		NewInformer:      p.NewInformer,
		DefaultTransform: trim,
		ByObject: map[client.Object]cache.ByObject{
			&apiextensionsv1.CustomResourceDefinition{}: policies.OnlyClusterDefinition(),
		},
	}
}

// warm makes a replica that does not lead watch all kinds as well, so that it can
// take over at once.
func warm(ctx context.Context, c cache.Cache) error {
	for _, k := range kinds() {
		if _, err := c.GetInformer(ctx, k, cache.BlockUntilSynced(false)); err != nil {
			return err
		}
	}
	return nil
}
