// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/allocate"
	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policystream/server"
)

// numbering looks at all Networks, Routers and nodes at once, whenever one of them changes: makes
// the default objects and the Routers that Networks have for themselves, allocates ids and VNIs,
// writes conditions, and removes the finalizer of unused objects that are being deleted. It runs
// once at a time.
type numbering struct {
	*reconcile.Access
	numbers  allocate.Numbers
	networks reconcile.WriteCache[*v1alpha1.Network]
	routers  reconcile.WriteCache[*v1alpha1.Router]
	// refused are the objects that switches refuse.
	refused func() map[intent.PolicyRef][]server.NodeRefusal
	// started is set when what the leader before has written is known.
	started bool
}

// setup has all looked at whenever something changes that decides about it.
func (r *numbering) setup(m manager.Manager, monitor *heartbeat.Monitor, o Options) error {
	w := watches{r.Access}
	everything := handler.EnqueueRequestsFromMapFunc(reconcile.Everything)
	return ctrl.NewControllerManagedBy(m).Named("numbering").WithOptions(reconcile.Queue(1)).
		WatchesRawSource(source.Func(reconcile.AtStart)).
		WatchesRawSource(refusedChanged(o.Refusals, o.RefusedInterval)).
		Watches(&v1alpha1.Network{}, everything, builder.WithPredicates(reconcile.NetworkChanged())).
		Watches(&v1alpha1.Router{}, everything).
		Watches(&corev1.Node{}, everything, builder.WithPredicates(reconcile.NodeChanged())).
		Watches(&v1alpha1.Port{}, handler.EnqueueRequestsFromMapFunc(w.leaving),
			builder.WithPredicates(reconcile.OnlyDelete())).
		Watches(&v1alpha1.AddressBlock{}, handler.EnqueueRequestsFromMapFunc(w.leaving),
			builder.WithPredicates(reconcile.OnlyDelete())).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(w.leavingDefault),
			builder.WithPredicates(podChanged())).
		Complete(reconcile.WithHeartbeat(monitor.Loop("numbering"), r))
}

// Reconcile handles all Networks and Routers at every request.
func (r *numbering) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	if err := r.start(ctx); err != nil {
		return ctrl.Result{}, err
	}
	cluster, err := r.load(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	if err := r.complete(ctx, &cluster); err != nil {
		return reconcile.Requeue(err)
	}
	allocation := allocate.Allocate(cluster, r.numbers)
	r.numbers = allocation.Next
	return reconcile.Requeue(r.write(ctx, cluster, allocation))
}

// start reads the state from the API server once, because the cache of a new leader may lack the
// last writes of the previous one.
func (r *numbering) start(ctx context.Context) error {
	if r.started {
		return nil
	}
	networks, routers := &v1alpha1.NetworkList{}, &v1alpha1.RouterList{}
	if err := r.Live.List(ctx, networks); err != nil {
		return fmt.Errorf("list Networks: %w", err)
	}
	if err := r.Live.List(ctx, routers); err != nil {
		return fmt.Errorf("list Routers: %w", err)
	}
	for _, n := range reconcile.Pointers(networks.Items) {
		r.networks.Keep(n)
	}
	for _, o := range reconcile.Pointers(routers.Items) {
		r.routers.Keep(o)
	}
	r.started = true
	return nil
}

func (r *numbering) load(ctx context.Context) (c allocate.Cluster, err error) {
	networks, err := reconcile.All(ctx, r, &v1alpha1.NetworkList{})
	if err != nil {
		return c, err
	}
	routers, err := reconcile.All(ctx, r, &v1alpha1.RouterList{})
	if err != nil {
		return c, err
	}
	nodes, err := reconcile.All(ctx, r, &corev1.NodeList{})
	if err != nil {
		return c, err
	}
	c.Nodes = reconcile.Pointers(nodes.Items)
	if c.Networks, err = r.networks.Merge(ctx, r.Access, reconcile.Pointers(networks.Items)); err != nil {
		return c, err
	}
	c.Routers, err = r.routers.Merge(ctx, r.Access, reconcile.Pointers(routers.Items))
	return c, err
}

// complete makes the Networks and Routers that are to be there in any case, adds them to the
// cluster, and deletes the Routers of Networks that are gone.
func (r *numbering) complete(ctx context.Context, c *allocate.Cluster) error {
	network, router := allocate.DefaultObjects()
	var missing []*v1alpha1.Router
	if !named(c.Routers, router.Name) {
		missing = append(missing, router)
	}
	missing = append(missing, allocate.MissingRouters(c.Networks, c.Routers)...)
	if err := reconcile.Each(ctx, missing, func(ctx context.Context, o *v1alpha1.Router) error {
		return r.create(ctx, o)
	}); err != nil {
		return err
	}
	for _, o := range missing {
		r.routers.Keep(o)
		c.Routers = append(c.Routers, o)
	}
	if !named(c.Networks, network.Name) {
		if err := r.create(ctx, network); err != nil {
			return err
		}
		r.networks.Keep(network)
		c.Networks = append(c.Networks, network)
	}
	return reconcile.Each(ctx, allocate.Orphans(c.Networks, c.Routers),
		func(ctx context.Context, o *v1alpha1.Router) error {
			return r.Remove(ctx, o)
		})
}

func (r *numbering) create(ctx context.Context, obj client.Object) error {
	if err := r.Create(ctx, obj); err != nil {
		return fmt.Errorf("create %s: %w", obj.GetName(), err)
	}
	return nil
}

func named[T client.Object](list []T, name string) bool {
	for _, o := range list {
		if o.GetName() == name {
			return true
		}
	}
	return false
}
