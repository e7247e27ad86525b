// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"coelan.io/coelan/api/v1alpha1"
)

// blocks removes AddressBlocks whose node, Network or Port is gone, and those of the controller's own that nobody needs;
// and it answers nodes that want single addresses of the latter.
type blocks struct {
	*access
	claims claims
}

// newBlockGrace is how long a block may be there before what it is for: a node claims an address before it writes the Port,
// and the controller makes a block before the claims in it.
const newBlockGrace = 2 * time.Minute

// Reconcile is for one AddressBlock.
func (r *blocks) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	block := &v1alpha1.AddressBlock{}
	there, err := r.find(ctx, "", request.Name, block)
	if err != nil || !there || block.DeletionTimestamp != nil {
		return reconcile.Result{}, err
	}
	network := &v1alpha1.Network{}
	stale, err := r.stale(ctx, block, network)
	if err != nil {
		return retry(err)
	}
	if stale {
		return retry(r.delete(ctx, block))
	}
	if err := r.answer(ctx, block, network); err != nil {
		return retry(err)
	}
	idle, err := r.idle(ctx, block)
	if err != nil || !idle {
		return retry(err)
	}
	// What the controller has claimed for a Port is younger than the Port.
	if young := newBlockGrace - time.Since(block.CreationTimestamp.Time); young > 0 && (block.Spec.Node != "" || block.Spec.Port == "") {
		return reconcile.Result{RequeueAfter: young}, nil
	}
	return retry(r.delete(ctx, block))
}

func (r *blocks) delete(ctx context.Context, block *v1alpha1.AddressBlock) error {
	if err := r.remove(ctx, block); err != nil {
		return fmt.Errorf("delete addressblock %s: %w", block.Name, err)
	}
	return nil
}

// stale says whether the node or the Network of a block is gone, and reads the Network otherwise. One that is younger than
// the block is another one of the same name.
func (r *blocks) stale(ctx context.Context, block *v1alpha1.AddressBlock, network *v1alpha1.Network) (bool, error) {
	there, err := r.find(ctx, "", block.Spec.Network, network)
	if err != nil {
		return false, err
	}
	if !there {
		gone, err := r.gone(ctx, "", block.Spec.Network, "", network)
		if gone || err != nil {
			return gone, err
		}
	}
	if block.CreationTimestamp.Before(&network.CreationTimestamp) {
		return true, nil
	}
	if block.Spec.Node == "" {
		return false, nil
	}
	return r.nodeGone(ctx, block.Spec.Node)
}

// idle says whether a block is for a Port that is gone, or is one of the controller's that no address is claimed of.
func (r *blocks) idle(ctx context.Context, block *v1alpha1.AddressBlock) (bool, error) {
	if block.Spec.Port != "" {
		namespace, name, _ := strings.Cut(block.Spec.Port, "/")
		there, err := r.find(ctx, namespace, name, &v1alpha1.Port{})
		if err != nil || there {
			return false, err
		}
		return r.gone(ctx, namespace, name, "", &v1alpha1.Port{})
	}
	if block.Spec.Node != "" {
		return false, nil
	}
	prefix, err := netip.ParsePrefix(block.Spec.CIDR)
	if err != nil {
		return false, nil // whoever made it by hand knows why
	}
	list, err := all(ctx, r, &v1alpha1.AddressBlockList{}, client.MatchingFields{byNetwork: block.Spec.Network})
	if err != nil {
		return false, err
	}
	for _, o := range pointers(list.Items) {
		if a, single := address(o); single && prefix.Contains(a) {
			return false, nil
		}
	}
	return true, nil
}

// answer grants a node an address of one of the controller's blocks. All of these are claimed one by one, so that what
// could be created was free.
func (r *blocks) answer(ctx context.Context, block *v1alpha1.AddressBlock, network *v1alpha1.Network) error {
	a, single := address(block)
	if !single || block.Spec.Node == "" || meta.FindStatusCondition(block.Status.Conditions, v1alpha1.ConditionGranted) != nil {
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
