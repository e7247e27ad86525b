// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/translate"
)

// parallel writes at a time, of one reconciliation.
const parallel = 16

// numbering looks at all Networks, Routers and nodes at once, whenever one of them changes: makes the default objects and
// the Routers that Networks have for themselves, gives out ids and VNIs, writes conditions, and lets go of what is being
// deleted and not used. It runs once at a time.
type numbering struct {
	*access
	numbers  translate.Numbers
	networks memory[*v1alpha1.Network]
	routers  memory[*v1alpha1.Router]
	// started is set when what the leader before has written is known.
	started bool
}

// Reconcile is for everything, whatever the request.
func (r *numbering) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	if err := r.start(ctx); err != nil {
		return reconcile.Result{}, err
	}
	cluster, err := r.load(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	if err := r.complete(ctx, &cluster); err != nil {
		return retry(err)
	}
	allocation := translate.Allocate(cluster, r.numbers)
	r.numbers = allocation.Next
	return retry(r.write(ctx, cluster, allocation))
}

// start reads what there is from the API server once, because the memory of one who has just become leader may lack the
// last writes of the one before.
func (r *numbering) start(ctx context.Context) error {
	if r.started {
		return nil
	}
	networks, routers := &v1alpha1.NetworkList{}, &v1alpha1.RouterList{}
	if err := r.live.List(ctx, networks); err != nil {
		return fmt.Errorf("list Networks: %w", err)
	}
	if err := r.live.List(ctx, routers); err != nil {
		return fmt.Errorf("list Routers: %w", err)
	}
	for _, n := range pointers(networks.Items) {
		r.networks.keep(n)
	}
	for _, o := range pointers(routers.Items) {
		r.routers.keep(o)
	}
	r.started = true
	return nil
}

func (r *numbering) load(ctx context.Context) (c translate.Cluster, err error) {
	networks, err := all(ctx, r, &v1alpha1.NetworkList{})
	if err != nil {
		return c, err
	}
	routers, err := all(ctx, r, &v1alpha1.RouterList{})
	if err != nil {
		return c, err
	}
	nodes, err := all(ctx, r, &corev1.NodeList{})
	if err != nil {
		return c, err
	}
	c.Nodes = pointers(nodes.Items)
	if c.Networks, err = r.networks.merge(ctx, r.access, pointers(networks.Items)); err != nil {
		return c, err
	}
	c.Routers, err = r.routers.merge(ctx, r.access, pointers(routers.Items))
	return c, err
}

// complete makes the Networks and Routers that are to be there in any case, adds them to the cluster, and deletes the
// Routers of Networks that are gone.
func (r *numbering) complete(ctx context.Context, c *translate.Cluster) error {
	network, router := translate.DefaultObjects()
	var missing []*v1alpha1.Router
	if !named(c.Routers, router.Name) {
		missing = append(missing, router)
	}
	missing = append(missing, translate.MissingRouters(c.Networks, c.Routers)...)
	if err := each(ctx, missing, func(ctx context.Context, o *v1alpha1.Router) error { return r.create(ctx, o) }); err != nil {
		return err
	}
	for _, o := range missing {
		r.routers.keep(o)
		c.Routers = append(c.Routers, o)
	}
	if !named(c.Networks, network.Name) {
		if err := r.create(ctx, network); err != nil {
			return err
		}
		r.networks.keep(network)
		c.Networks = append(c.Networks, network)
	}
	return each(ctx, translate.Orphans(c.Networks, c.Routers), func(ctx context.Context, o *v1alpha1.Router) error {
		return r.remove(ctx, o)
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

// each works on a list, some at a time, and returns the first error that is more than that somebody else was faster; what
// does not fail is done in any case.
func each[T any](ctx context.Context, list []T, do func(context.Context, T) error) error {
	var group errgroup.Group
	group.SetLimit(parallel)
	errs := make([]error, len(list))
	for i, item := range list {
		group.Go(func() error {
			errs[i] = do(ctx, item)
			return nil
		})
	}
	_ = group.Wait() // what it returns is in errs
	var faster error
	for _, err := range errs {
		switch {
		case isFaster(err):
			faster = err
		case err != nil:
			return err
		}
	}
	return faster
}
