// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/allocate"
	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/translate"
)

// egresses gives Egresses their addresses, and reports the pods that several select.
type egresses struct {
	*reconcile.Access
	claims claims
}

func (r *egresses) setup(m manager.Manager, monitor *heartbeat.Monitor) error {
	w := watches{r.Access}
	return ctrl.NewControllerManagedBy(m).Named("egresses").WithOptions(reconcile.Queue(reconcile.Workers)).
		Watches(&v1alpha1.Egress{}, &handler.EnqueueRequestForObject{}).
		Watches(&v1alpha1.Egress{}, handler.EnqueueRequestsFromMapFunc(w.allEgresses),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.AddressBlock{}, handler.EnqueueRequestsFromMapFunc(egressOfBlock)).
		Watches(&v1alpha1.AddressBlock{}, handler.EnqueueRequestsFromMapFunc(w.egressesWithout),
			builder.WithPredicates(reconcile.OnlyDelete())).
		Watches(&v1alpha1.Network{}, handler.EnqueueRequestsFromMapFunc(w.egressesOfNetwork),
			builder.WithPredicates(reconcile.NetworkChanged())).
		Watches(&v1alpha1.Port{}, handler.EnqueueRequestsFromMapFunc(w.egressesWithout),
			builder.WithPredicates(reconcile.OnlyDelete())).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(w.rivalsOfPod),
			builder.WithPredicates(podSelectionChanged())).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(w.rivals),
			builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(w.allEgresses),
			builder.WithPredicates(gatewayNodeChanged())).
		Watches(&v1alpha1.LoadBalancerPool{}, handler.EnqueueRequestsFromMapFunc(w.egressesWithout),
			builder.WithPredicates(rangesChanged())).
		Complete(reconcile.WithHeartbeat(monitor.Loop("egresses"), r))
}

// Reconcile is for one Egress. What is left of one that is gone, blocks removes.
func (r *egresses) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	egress := &v1alpha1.Egress{}
	there, err := r.Find(ctx, "", request.Name, egress)
	if err != nil || !there || egress.DeletionTimestamp != nil {
		return ctrl.Result{}, err
	}
	now := egress.DeepCopy()
	again, err := r.apply(ctx, now)
	if err != nil {
		return reconcile.Requeue(err)
	}
	if !equality.Semantic.DeepEqual(egress.Status, now.Status) {
		if err := r.WriteStatus(ctx, egress, now); err != nil {
			return reconcile.Requeue(err)
		}
		r.Announce(now, allocate.Verdict{}, egress.Status.Conditions, now.Status.Conditions)
	}
	return ctrl.Result{RequeueAfter: again}, nil
}

// apply claims and gives back what the verdict on an Egress says, and writes into its status what
// has become of it.
func (r *egresses) apply(ctx context.Context, egress *v1alpha1.Egress) (again time.Duration, err error) {
	list, err := reconcile.All(ctx, r, &v1alpha1.AddressBlockList{},
		client.MatchingFields{reconcile.ByEgress: egress.Name})
	if err != nil {
		return 0, err
	}
	has := reconcile.Pointers(list.Items)
	cluster, err := r.cluster(ctx, egress, has)
	if err != nil {
		return 0, err
	}
	v := allocate.CheckEgress(egress, cluster)
	s, err := r.claims.egress(ctx, claimantEgress(egress), egress.Spec.Network, cluster.Network, v, has)
	if err != nil {
		return 0, err
	}
	if !v.Keep {
		if err := r.claims.releaseOf(ctx, egress, &v1alpha1.Egress{}, has, s.keeps); err != nil {
			return 0, err
		}
	}
	rivals, err := r.rivals(ctx, egress)
	if err != nil {
		return 0, err
	}
	egress.Status.Addresses, egress.Status.ActiveNodes = s.texts(), activeFor(has, s.texts())
	c := allocate.WithRivals(allocate.EgressReady(v1alpha1.ConditionReady, v, s.has, s.refused), rivals)
	c.ObservedGeneration = egress.Generation
	reconcile.SetCondition(&egress.Status.Conditions, c)
	return s.again, nil
}

// activeFor are the nodes that have reported that they are active for one of some addresses,
// sorted.
func activeFor(blocks []*v1alpha1.AddressBlock, addresses []string) []string {
	var nodes []string
	for _, b := range blocks {
		if a, _ := address(b); b.Status.ActiveNode != "" && slices.Contains(addresses, a.String()) {
			nodes = append(nodes, b.Status.ActiveNode)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// cluster is what an Egress is judged by.
func (r *egresses) cluster(ctx context.Context, egress *v1alpha1.Egress,
	has []*v1alpha1.AddressBlock,
) (c allocate.EgressCluster, err error) {
	if c.Network, err = found(ctx, r.Access, "", egress.Spec.Network, &v1alpha1.Network{}); err != nil {
		return c, err
	}
	if c.Nodes, c.Held, err = r.claims.held(ctx); err != nil {
		return c, err
	}
	for _, b := range has {
		if a, single := address(b); single && b.Spec.Network == egress.Spec.Network {
			c.Has = append(c.Has, a)
		}
	}
	return c, nil
}

// rivals are the pods that an Egress selects and that leave by an older one.
func (r *egresses) rivals(ctx context.Context, egress *v1alpha1.Egress) (found allocate.EgressRivals, err error) {
	own, err := translate.SelectorOfEgress(egress)
	if err != nil {
		return found, nil // it selects nothing
	}
	all, err := reconcile.All(ctx, r, &v1alpha1.EgressList{})
	if err != nil {
		return found, err
	}
	others := reconcile.Pointers(all.Items)
	older := translate.NewEgressSelectors(slices.DeleteFunc(others, func(o *v1alpha1.Egress) bool {
		return translate.Older(o, egress) >= 0
	}))
	if len(older) == 0 {
		return found, nil
	}
	namespaces, err := reconcile.All(ctx, r, &corev1.NamespaceList{},
		client.MatchingLabelsSelector{Selector: own.Namespaces})
	if err != nil {
		return found, err
	}
	for _, ns := range reconcile.Pointers(namespaces.Items) {
		pods, err := reconcile.All(ctx, r, &corev1.PodList{}, client.InNamespace(ns.Name),
			client.MatchingLabelsSelector{Selector: own.Pods})
		if err != nil {
			return found, err
		}
		for _, p := range reconcile.Pointers(pods.Items) {
			if !translate.OnPodNetwork(p) {
				continue
			}
			if other := older.Of(ns, p); other != "" {
				found.Count++
				// One name for the same pods, whatever order they are listed in.
				if name := key(p); found.Pod == "" || name < found.Pod {
					found.Pod, found.Egress = name, other
				}
			}
		}
	}
	return found, nil
}
