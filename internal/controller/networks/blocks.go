// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/translate"
)

// blocks removes AddressBlocks without their node, Network, Port, FloatingIP, Router or Egress, and
// unused ones of the controller itself; and it answers nodes that want single addresses of the
// latter.
type blocks struct {
	*reconcile.Access
	claims claims
}

// newBlockGrace is how long a block may be there before what it is for: a node claims an address
// before it writes the Port, and the controller makes a block before the claims in it.
const newBlockGrace = 2 * time.Minute

func (r *blocks) setup(m manager.Manager, monitor *heartbeat.Monitor) error {
	w := watches{r.Access}
	return ctrl.NewControllerManagedBy(m).Named("blocks").WithOptions(reconcile.Queue(reconcile.Workers)).
		Watches(&v1alpha1.AddressBlock{}, &handler.EnqueueRequestForObject{}).
		Watches(&v1alpha1.AddressBlock{}, handler.EnqueueRequestsFromMapFunc(w.blockAround),
			builder.WithPredicates(reconcile.OnlyDelete())).
		Watches(&v1alpha1.Network{}, handler.EnqueueRequestsFromMapFunc(w.blocksBy(reconcile.ByNetwork)),
			builder.WithPredicates(reconcile.NetworkChanged())).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(w.blocksBy(reconcile.ByNode)),
			builder.WithPredicates(reconcile.OnlyDelete())).
		Watches(&v1alpha1.Port{}, handler.EnqueueRequestsFromMapFunc(w.blocksBy(reconcile.ByPort)),
			builder.WithPredicates(reconcile.OnlyDelete())).
		Watches(&v1alpha1.FloatingIP{}, handler.EnqueueRequestsFromMapFunc(w.blocksBy(reconcile.ByFloatingIP)),
			builder.WithPredicates(reconcile.OnlyDelete())).
		Watches(&v1alpha1.Egress{}, handler.EnqueueRequestsFromMapFunc(w.blocksBy(reconcile.ByEgress)),
			builder.WithPredicates(reconcile.OnlyDelete())).
		Watches(&v1alpha1.Router{}, handler.EnqueueRequestsFromMapFunc(w.blocksBy(reconcile.ByGateway)),
			builder.WithPredicates(reconcile.OnlyDelete())).
		Complete(reconcile.WithHeartbeat(monitor.Loop("blocks"), r))
}

// Reconcile is for one AddressBlock.
func (r *blocks) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	block := &v1alpha1.AddressBlock{}
	there, err := r.Find(ctx, "", request.Name, block)
	if err != nil || !there || block.DeletionTimestamp != nil {
		return ctrl.Result{}, err
	}
	network := &v1alpha1.Network{}
	stale, err := r.stale(ctx, block, network)
	if err != nil {
		return reconcile.Requeue(err)
	}
	if stale {
		return reconcile.Requeue(r.delete(ctx, block))
	}
	if err := r.answer(ctx, block, network); err != nil {
		return reconcile.Requeue(err)
	}
	idle, err := r.idle(ctx, block)
	if err != nil || !idle {
		return reconcile.Requeue(err)
	}
	// What the controller has claimed for an object is younger than that.
	if young := newBlockGrace - time.Since(block.CreationTimestamp.Time); young > 0 &&
		(block.Spec.Node != "" || ofController(block)) {
		return ctrl.Result{RequeueAfter: young}, nil
	}
	return reconcile.Requeue(r.delete(ctx, block))
}

func (r *blocks) delete(ctx context.Context, block *v1alpha1.AddressBlock) error {
	if err := r.Remove(ctx, block); err != nil {
		return fmt.Errorf("delete addressblock %s: %w", block.Name, err)
	}
	return nil
}

// stale says whether the node or the Network of a block is gone, and reads the Network otherwise.
// One that is younger than the block is another one of the same name.
func (r *blocks) stale(ctx context.Context, block *v1alpha1.AddressBlock, network *v1alpha1.Network) (bool, error) {
	there, err := r.Find(ctx, "", block.Spec.Network, network)
	if err != nil {
		return false, err
	}
	if !there {
		gone, err := r.Gone(ctx, "", block.Spec.Network, "", network)
		if gone || err != nil {
			return gone, err
		}
	}
	if block.CreationTimestamp.Before(&network.CreationTimestamp) {
		return true, nil
	}
	node := block.Spec.Node
	if _, gateway, is := strings.Cut(block.Spec.Gateway, "/"); is && gateway != v1alpha1.AnyNode {
		node = gateway
	}
	if node == "" {
		return false, nil
	}
	return r.NodeGone(ctx, node)
}

// idle says whether a block is for a Port, FloatingIP, Router or Egress that is gone, or is one of
// the controller's that no address is claimed of.
func (r *blocks) idle(ctx context.Context, block *v1alpha1.AddressBlock) (bool, error) {
	switch {
	case block.Spec.Port != "":
		return r.claimantGone(ctx, block.Spec.Port, &v1alpha1.Port{})
	case block.Spec.FloatingIP != "":
		return r.claimantGone(ctx, block.Spec.FloatingIP, &v1alpha1.FloatingIP{})
	case block.Spec.Gateway != "":
		router, _, _ := strings.Cut(block.Spec.Gateway, "/")
		return r.claimantGone(ctx, "/"+router, &v1alpha1.Router{})
	case block.Spec.Egress != "":
		return r.claimantGone(ctx, "/"+block.Spec.Egress, &v1alpha1.Egress{})
	case block.Spec.Node != "":
		return false, nil
	}
	prefix, err := netip.ParsePrefix(block.Spec.CIDR)
	if err != nil {
		return false, nil // it was made by hand, for a reason
	}
	list, err := reconcile.All(ctx, r, &v1alpha1.AddressBlockList{},
		client.MatchingFields{reconcile.ByNetwork: block.Spec.Network})
	if err != nil {
		return false, err
	}
	for _, o := range reconcile.Pointers(list.Items) {
		if a, single := address(o); single && prefix.Contains(a) {
			return false, nil
		}
	}
	return true, nil
}

// claimantGone says whether the Port, FloatingIP, Router or Egress of a key is neither in memory
// nor in the API.
func (r *blocks) claimantGone(ctx context.Context, key string, of client.Object) (bool, error) {
	namespace, name, _ := strings.Cut(key, "/")
	there, err := r.Find(ctx, namespace, name, of)
	if err != nil || there {
		return false, err
	}
	return r.Gone(ctx, namespace, name, "", of)
}

// answer grants a node an address of one of the controller's blocks. All of these are claimed one
// by one, so that what could be created was free. What other nodes have answered does not count.
func (r *blocks) answer(ctx context.Context, block *v1alpha1.AddressBlock, network *v1alpha1.Network) error {
	a, single := address(block)
	if !single || block.Spec.Node == "" || translate.Answer(block, "") != nil {
		return nil
	}
	known, err := r.claims.blocks(ctx, network)
	if err != nil {
		return nil // a Network that cannot be read has no effect, and says why
	}
	if covering := known.covering(a); covering == nil || covering.Spec.Node != "" {
		return nil
	}
	return r.claims.grant(ctx, block)
}
