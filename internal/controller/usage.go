// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/translate"
)

// usage writes how many blocks and addresses of each Network are used, but not often: all nodes watch Networks.
type usage struct {
	*access
	interval time.Duration

	mu      sync.Mutex
	written map[string]time.Time
}

// Reconcile is for one Network.
func (r *usage) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	network := &v1alpha1.Network{}
	there, err := r.find(ctx, "", request.Name, network)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !there {
		r.forget(request.Name)
		return reconcile.Result{}, nil
	}
	if network.Status.ID == 0 {
		return reconcile.Result{}, nil // nobody uses it, and its number comes first
	}
	if wait := r.wait(request.Name); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	count, err := r.count(ctx, network)
	if err != nil {
		return reconcile.Result{}, err
	}
	has := translate.Usage{Blocks: network.Status.Blocks, Used: network.Status.AddressesUsed, Free: network.Status.AddressesFree}
	if count == has {
		return reconcile.Result{}, nil
	}
	r.wrote(request.Name)
	return retry(r.write(ctx, network, count))
}

func (r *usage) wait(name string) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.interval - time.Since(r.written[name])
}

func (r *usage) wrote(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.written == nil {
		r.written = map[string]time.Time{}
	}
	r.written[name] = time.Now()
}

func (r *usage) forget(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.written, name)
}

func (r *usage) count(ctx context.Context, n *v1alpha1.Network) (translate.Usage, error) {
	var none translate.Usage
	ports, err := all(ctx, r, &v1alpha1.PortList{}, client.MatchingFields{byNetwork: n.Name})
	if err != nil {
		return none, err
	}
	if n.Spec.IPAM != v1alpha1.PodCIDR {
		blocks, err := all(ctx, r, &v1alpha1.AddressBlockList{}, client.MatchingFields{byNetwork: n.Name})
		if err != nil {
			return none, err
		}
		return translate.BlockUsage(n, pointers(ports.Items), pointers(blocks.Items)), nil
	}
	nodes, pods, err := r.nodesAndPods(ctx, n.Spec.Node)
	if err != nil {
		return none, err
	}
	if n.Name != v1alpha1.DefaultNetwork {
		return translate.PodCIDRUsage(nodes, pods, pointers(ports.Items)), nil
	}
	elsewhere, err := onOtherPrimaries(ctx, r)
	if err != nil {
		return none, err
	}
	return translate.DefaultUsage(nodes, pods, elsewhere), nil
}

// nodesAndPods are all of them, or one node and its pods.
func (r *usage) nodesAndPods(ctx context.Context, node string) ([]*corev1.Node, []*corev1.Pod, error) {
	if node == "" {
		nodes, err := all(ctx, r, &corev1.NodeList{})
		if err != nil {
			return nil, nil, err
		}
		pods, err := all(ctx, r, &corev1.PodList{})
		return pointers(nodes.Items), pointers(pods.Items), err
	}
	one := &corev1.Node{}
	if there, err := r.find(ctx, "", node, one); err != nil || !there {
		return nil, nil, err
	}
	pods, err := all(ctx, r, &corev1.PodList{}, client.MatchingFields{byNode: node})
	return []*corev1.Node{one}, pointers(pods.Items), err
}

// write patches the three numbers and nothing else: the rest of the status is numbering's.
func (r *usage) write(ctx context.Context, n *v1alpha1.Network, u translate.Usage) error {
	patch, err := json.Marshal(map[string]any{"status": map[string]any{
		"blocks": u.Blocks, "addressesUsed": u.Used, "addressesFree": u.Free,
	}})
	if err != nil {
		return err
	}
	about := &v1alpha1.Network{}
	about.Name = n.Name
	if err := r.Status().Patch(ctx, about, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("usage of network %s: %w", n.Name, err)
	}
	return nil
}
