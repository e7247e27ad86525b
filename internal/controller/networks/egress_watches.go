// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/translate"
)

// egresses finds them in memory.
func (w watches) egresses(ctx context.Context, which func(*v1alpha1.Egress) bool,
	opts ...client.ListOption,
) []ctrl.Request {
	list, err := reconcile.All(ctx, w, &v1alpha1.EgressList{}, opts...)
	return reconcile.Listed(reconcile.Pointers(list.Items), err, which)
}

func (w watches) allEgresses(ctx context.Context, _ client.Object) []ctrl.Request {
	return w.egresses(ctx, nil)
}

func (w watches) egressesOfNetwork(ctx context.Context, o client.Object) []ctrl.Request {
	return w.egresses(ctx, nil, client.MatchingFields{reconcile.ByNetwork: o.GetName()})
}

func egressOfBlock(_ context.Context, o client.Object) []ctrl.Request {
	if name := o.(*v1alpha1.AddressBlock).Spec.Egress; name != "" {
		return reconcile.RequestFor("", name)
	}
	return nil
}

// egressesWithout lack an address, and may get what a Port or a block of their Network has left;
// or, of any Network, a LoadBalancerPool.
func (w watches) egressesWithout(ctx context.Context, o client.Object) []ctrl.Request {
	var opts []client.ListOption
	if network := networkName(o); network != "" {
		opts = append(opts, client.MatchingFields{reconcile.ByNetwork: network})
	}
	return w.egresses(ctx, func(e *v1alpha1.Egress) bool {
		return meta.IsStatusConditionFalse(e.Status.Conditions, v1alpha1.ConditionReady)
	}, opts...)
}

// rivals are all Egresses if there are several: pods of a namespace may be selected by others.
func (w watches) rivals(ctx context.Context, o client.Object) []ctrl.Request {
	if all := w.allEgresses(ctx, o); len(all) > 1 {
		return all
	}
	return nil
}

// rivalsOfPod are the Egresses that select a pod but for the oldest of them, by which it leaves.
func (w watches) rivalsOfPod(ctx context.Context, o client.Object) []ctrl.Request {
	list, err := reconcile.All(ctx, w, &v1alpha1.EgressList{})
	if err != nil || len(list.Items) < 2 {
		return nil
	}
	namespace := &corev1.Namespace{}
	if there, err := w.Find(ctx, "", o.GetNamespace(), namespace); err != nil || !there {
		return nil
	}
	var requests []ctrl.Request
	for _, s := range translate.NewEgressSelectors(reconcile.Pointers(list.Items)) {
		if s.Selects(namespace, o.(*corev1.Pod)) {
			requests = append(requests, reconcile.RequestFor("", s.Name)...)
		}
	}
	return requests[min(len(requests), 1):]
}

// podSelectionChanged leaves out what does not matter to which Egress a pod leaves by.
func podSelectionChanged() predicate.Predicate {
	return reconcile.Updated(func(a, b *corev1.Pod) bool {
		return maps.Equal(a.Labels, b.Labels) && translate.OnPodNetwork(a) == translate.OnPodNetwork(b)
	})
}
