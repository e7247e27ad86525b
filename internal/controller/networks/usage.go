// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/allocate"
	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/heartbeat"
)

// usage writes how many blocks and addresses of each Network are used, but not often:
// all nodes watch Networks.
type usage struct {
	*reconcile.Access
	interval time.Duration

	mu      sync.Mutex
	written map[string]time.Time
}

func (r *usage) setup(m manager.Manager, monitor *heartbeat.Monitor) error {
	return ctrl.NewControllerManagedBy(m).Named("usage").WithOptions(reconcile.Queue(reconcile.Workers)).
		Watches(&v1alpha1.Network{}, &handler.EnqueueRequestForObject{}).
		Watches(&v1alpha1.Port{}, handler.EnqueueRequestsFromMapFunc(networkOf),
			builder.WithPredicates(portChanged())).
		Watches(&v1alpha1.AddressBlock{}, handler.EnqueueRequestsFromMapFunc(networkOf)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(toDefault), builder.WithPredicates(podChanged())).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(toDefault),
			builder.WithPredicates(reconcile.NodeChanged())).
		Complete(reconcile.WithHeartbeat(monitor.Loop("usage"), r))
}

// Reconcile is for one Network.
func (r *usage) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	network := &v1alpha1.Network{}
	there, err := r.Find(ctx, "", request.Name, network)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !there {
		r.forget(request.Name)
		return ctrl.Result{}, nil
	}
	if network.Status.ID == 0 {
		return ctrl.Result{}, nil // it is not in use, and its number comes first
	}
	if wait := r.wait(request.Name); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	count, err := r.count(ctx, network)
	if err != nil {
		return ctrl.Result{}, err
	}
	has := allocate.Usage{Blocks: network.Status.Blocks, Used: network.Status.AddressesUsed,
		Free: network.Status.AddressesFree}
	if count == has {
		return ctrl.Result{}, nil
	}
	r.wrote(request.Name)
	return reconcile.Requeue(r.write(ctx, network, count))
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

func (r *usage) count(ctx context.Context, n *v1alpha1.Network) (allocate.Usage, error) {
	var none allocate.Usage
	ports, err := reconcile.All(ctx, r, &v1alpha1.PortList{}, client.MatchingFields{reconcile.ByNetwork: n.Name})
	if err != nil {
		return none, err
	}
	if n.Spec.IPAM != v1alpha1.PodCIDR {
		blocks, err := reconcile.All(ctx, r, &v1alpha1.AddressBlockList{},
			client.MatchingFields{reconcile.ByNetwork: n.Name})
		if err != nil {
			return none, err
		}
		return allocate.BlockUsage(n, reconcile.Pointers(ports.Items), reconcile.Pointers(blocks.Items)), nil
	}
	nodes, pods, err := r.nodesAndPods(ctx, n.Spec.Node)
	if err != nil {
		return none, err
	}
	if n.Name != v1alpha1.DefaultNetwork {
		return allocate.PodCIDRUsage(nodes, pods, reconcile.Pointers(ports.Items)), nil
	}
	elsewhere, err := onOtherPrimaries(ctx, r)
	if err != nil {
		return none, err
	}
	return allocate.DefaultUsage(nodes, pods, elsewhere), nil
}

// nodesAndPods are all of them, or one node and its pods.
func (r *usage) nodesAndPods(ctx context.Context, node string) ([]*corev1.Node, []*corev1.Pod, error) {
	if node == "" {
		nodes, err := reconcile.All(ctx, r, &corev1.NodeList{})
		if err != nil {
			return nil, nil, err
		}
		pods, err := reconcile.All(ctx, r, &corev1.PodList{})
		return reconcile.Pointers(nodes.Items), reconcile.Pointers(pods.Items), err
	}
	one := &corev1.Node{}
	if there, err := r.Find(ctx, "", node, one); err != nil || !there {
		return nil, nil, err
	}
	pods, err := reconcile.All(ctx, r, &corev1.PodList{}, client.MatchingFields{reconcile.ByNode: node})
	return []*corev1.Node{one}, reconcile.Pointers(pods.Items), err
}

// write patches the three numbers and nothing else: the rest of the status is numbering's.
func (r *usage) write(ctx context.Context, n *v1alpha1.Network, u allocate.Usage) error {
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
