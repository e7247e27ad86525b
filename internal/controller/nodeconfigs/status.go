// SPDX-License-Identifier: Apache-2.0

package nodeconfigs

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/allocate"
	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/nodeconfig"
)

// status writes what has become of all NodeNetworkConfigs. It runs once at a time, so that the
// reports of many nodes make few writes.
type status struct{ *reconcile.Access }

func (r *status) setup(m manager.Manager, monitor *heartbeat.Monitor) error {
	everything := handler.EnqueueRequestsFromMapFunc(reconcile.Everything)
	return ctrl.NewControllerManagedBy(m).Named("nodenetworkconfigs").WithOptions(reconcile.Queue(1)).
		Watches(&v1alpha1.NodeNetworkConfig{}, everything,
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Node{}, everything, builder.WithPredicates(reportChanged())).
		Complete(reconcile.WithHeartbeat(monitor.Loop("nodenetworkconfigs"), r))
}

// reportChanged lets through what selects a node, and what it reports.
func reportChanged() predicate.Predicate {
	return reconcile.Updated(func(a, b *corev1.Node) bool {
		const key = v1alpha1.AnnotationNetworkConfig
		return a.Annotations[key] == b.Annotations[key] && maps.Equal(a.Labels, b.Labels)
	})
}

// Reconcile is for all configurations at every request.
func (r *status) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	configs, err := reconcile.All(ctx, r, &v1alpha1.NodeNetworkConfigList{})
	if err != nil || len(configs.Items) == 0 {
		return ctrl.Result{}, err
	}
	nodes, err := reconcile.All(ctx, r, &corev1.NodeList{})
	if err != nil {
		return ctrl.Result{}, err
	}
	all, list := reconcile.Pointers(nodes.Items), reconcile.Pointers(configs.Items)
	choice := nodeconfig.Choose(all, list)
	err = reconcile.Each(ctx, list, func(ctx context.Context, c *v1alpha1.NodeNetworkConfig) error {
		return r.write(ctx, c, all, choice)
	})
	return reconcile.Requeue(err)
}

func (r *status) write(
	ctx context.Context, c *v1alpha1.NodeNetworkConfig, nodes []*corev1.Node, choice nodeconfig.Choice,
) error {
	now := c.DeepCopy()
	s, condition := nodeconfig.Status(c, nodes, choice)
	s.Conditions = now.Status.Conditions
	reconcile.SetCondition(&s.Conditions, condition)
	now.Status = s
	if equality.Semantic.DeepEqual(c.Status, now.Status) {
		return nil
	}
	if err := r.WriteStatus(ctx, c, now); err != nil {
		return err
	}
	// That nodes have not come to it yet is no trouble.
	if condition.Reason != v1alpha1.ReasonPending {
		r.Announce(now, allocate.Verdict{}, c.Status.Conditions, now.Status.Conditions)
	}
	return nil
}
