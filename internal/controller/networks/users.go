// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/translate"
)

// networkUsers are what keeps a Network from going: its Ports, those of pods as well, the
// FloatingIPs, gateways of Routers and Egresses that have addresses of it, and the blocks that
// nodes have of it, because a node has one before the first of its pods and returns it after the
// last. The default Network has neither; it is used by all pods that have their first interface on
// no other one.
func (r *numbering) networkUsers(ctx context.Context, n *v1alpha1.Network) ([]string, error) {
	if n.Name == v1alpha1.DefaultNetwork {
		return r.defaultUsers(ctx)
	}
	ports, err := reconcile.All(ctx, r, &v1alpha1.PortList{}, client.MatchingFields{reconcile.ByNetwork: n.Name})
	if err != nil {
		return nil, err
	}
	blocks, err := reconcile.All(ctx, r, &v1alpha1.AddressBlockList{},
		client.MatchingFields{reconcile.ByNetwork: n.Name})
	if err != nil {
		return nil, err
	}
	var users []string
	for _, p := range reconcile.Pointers(ports.Items) {
		users = append(users, portUser(p))
	}
	for _, b := range reconcile.Pointers(blocks.Items) {
		switch {
		case translate.ClaimedOutside(b):
			users = append(users, translate.ClaimedFor(b))
		case b.Spec.Node != "" && b.Spec.Port == "":
			users = append(users, fmt.Sprintf("node %s (block %s)", b.Spec.Node, b.Spec.CIDR))
		}
	}
	slices.Sort(users)
	return users, nil
}

func portUser(p *v1alpha1.Port) string {
	if p.Spec.Pod != nil {
		return fmt.Sprintf("pod %s/%s", p.Namespace, p.Spec.Pod.Name)
	}
	return fmt.Sprintf("port %s/%s", p.Namespace, p.Name)
}

func (r *numbering) defaultUsers(ctx context.Context) ([]string, error) {
	elsewhere, err := onOtherPrimaries(ctx, r)
	if err != nil {
		return nil, err
	}
	pods, err := reconcile.All(ctx, r, &corev1.PodList{})
	if err != nil {
		return nil, err
	}
	var users []string
	for _, p := range reconcile.Pointers(pods.Items) {
		if translate.OnPodNetwork(p) && !elsewhere[string(p.UID)] {
			users = append(users, fmt.Sprintf("pod %s/%s", p.Namespace, p.Name))
		}
	}
	slices.Sort(users)
	return users, nil
}

// onOtherPrimaries are the UIDs of the pods with a Port on a primary Network; those on the default
// one have none.
func onOtherPrimaries(ctx context.Context, r client.Reader) (map[string]bool, error) {
	networks, err := reconcile.All(ctx, r, &v1alpha1.NetworkList{})
	if err != nil {
		return nil, err
	}
	pods := map[string]bool{}
	for _, n := range networks.Items {
		if n.Spec.Role != v1alpha1.Primary || n.Name == v1alpha1.DefaultNetwork {
			continue
		}
		ports, err := reconcile.All(ctx, r, &v1alpha1.PortList{}, client.MatchingFields{reconcile.ByNetwork: n.Name})
		if err != nil {
			return nil, err
		}
		for _, p := range ports.Items {
			if p.Spec.Pod != nil {
				pods[p.Spec.Pod.UID] = true
			}
		}
	}
	return pods, nil
}

// routerUsers are the Networks that have joined a Router. One that has not may not join it any
// more, and must not keep it from going, and from being made again.
func routerUsers(o *v1alpha1.Router, networks []*v1alpha1.Network) []string {
	var users []string
	for _, n := range networks {
		if translate.EffectiveRouter(n) == o.Name && n.Status.ID != 0 {
			users = append(users, "network "+n.Name)
		}
	}
	slices.Sort(users)
	return users
}
