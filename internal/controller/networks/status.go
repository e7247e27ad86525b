// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/allocate"
	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policystream/server"
)

// write brings all Networks and Routers to what was decided, Routers first: a Network's agents look
// for its Router.
func (r *numbering) write(ctx context.Context, c allocate.Cluster, a allocate.Allocation) error {
	refused := r.refused()
	routers := reconcile.Each(ctx, c.Routers, func(ctx context.Context, o *v1alpha1.Router) error {
		return r.writeRouter(ctx, o, c.Networks, a, refused[reconcile.ObjectRef(intent.KindRouter, o.Name)])
	})
	// Also if one Router fails for good.
	networks := reconcile.Each(ctx, c.Networks, func(ctx context.Context, n *v1alpha1.Network) error {
		return r.writeNetwork(ctx, n, a, refused[reconcile.ObjectRef(intent.KindNetwork, n.Name)])
	})
	if networks == nil || routers != nil && !reconcile.IsFaster(routers) {
		return routers
	}
	return networks
}

func (r *numbering) writeNetwork(ctx context.Context, n *v1alpha1.Network, a allocate.Allocation,
	refused []server.NodeRefusal,
) error {
	now := n.DeepCopy()
	var users []string
	if now.DeletionTimestamp != nil {
		var err error
		if users, err = r.networkUsers(ctx, now); err != nil {
			return err
		}
	}
	if gone, err := r.Hold(ctx, now, users); err != nil || gone {
		return err
	}
	before := now.DeepCopy()
	if v, decided := a.Networks[n.Name]; decided {
		now.Status.ID, now.Status.VNI, now.Status.Router, now.Status.Subnets = v.ID, v.VNI, v.Router, v.Subnets
		reconcile.SetReady(&now.Status.Conditions, now.Generation, v.Verdict)
		reconcile.SetProgrammed(&now.Status.Conditions, now.Generation, !v.Ready(), "", refused)
	}
	reconcile.SetBlocked(&now.Status.Conditions, now.Generation, users)
	if !equality.Semantic.DeepEqual(before.Status, now.Status) {
		if err := r.WriteStatus(ctx, before, now); err != nil {
			return err
		}
		r.Announce(now, a.Networks[n.Name].Verdict, before.Status.Conditions, now.Status.Conditions)
	}
	if now.ResourceVersion != n.ResourceVersion {
		r.networks.Keep(now)
	}
	return nil
}

func (r *numbering) writeRouter(
	ctx context.Context, o *v1alpha1.Router, networks []*v1alpha1.Network, a allocate.Allocation,
	refused []server.NodeRefusal,
) error {
	now := o.DeepCopy()
	var users []string
	if now.DeletionTimestamp != nil {
		users = routerUsers(now, networks)
	}
	if gone, err := r.Hold(ctx, now, users); err != nil || gone {
		return err
	}
	before := now.DeepCopy()
	if v, decided := a.Routers[o.Name]; decided {
		now.Status.ID, now.Status.VNI = v.ID, v.VNI
		now.Status.RouteDistinguisher, now.Status.Networks = v.RouteDistinguisher, v.Networks
		reconcile.SetReady(&now.Status.Conditions, now.Generation, v.Verdict)
		reconcile.SetProgrammed(&now.Status.Conditions, now.Generation, !v.Ready(), "", refused)
	}
	reconcile.SetBlocked(&now.Status.Conditions, now.Generation, users)
	if !equality.Semantic.DeepEqual(before.Status, now.Status) {
		if err := r.WriteStatus(ctx, before, now); err != nil {
			return err
		}
		r.Announce(now, a.Routers[o.Name].Verdict, before.Status.Conditions, now.Status.Conditions)
	}
	if now.ResourceVersion != o.ResourceVersion {
		r.routers.Keep(now)
	}
	return nil
}
