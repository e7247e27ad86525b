// SPDX-License-Identifier: Apache-2.0

package podplan

import (
	"context"
	"errors"
	"net/netip"

	"github.com/containernetworking/cni/pkg/types"
	"k8s.io/apimachinery/pkg/api/meta"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agent/apicache"
	"coelan.io/coelan/internal/agent/kube"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/cni"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/translate"
)

// on fills in what an interface gets from its Network, for which it waits.
func (p *Planner) on(ctx context.Context, i attachment.Plan, name string) (attachment.Plan, error) {
	ctx, cancel := context.WithTimeout(ctx, networkTimeout)
	defer cancel()
	s, ready := p.View.Await(ctx, func(s apicache.State) bool {
		return p.unready(s, name) == nil && p.Effective(name) || final(p.unready(s, name))
	})
	if err := p.unready(s, name); err != nil {
		return i, err
	}
	if !ready {
		return i, early(v1alpha1.ReasonNetworkNotReady, "network %s: its flows are not there yet", name)
	}
	n := s.Networks[name]
	subnets, _ := translate.Subnets(n)
	i.NetworkName, i.NetworkID, i.MTU = name, intent.NetworkID(n.Status.ID), int(n.Spec.MTU) //nolint:gosec // positive: it is ready
	i.BlockSpace, i.Subnets, i.DNS = n.Spec.IPAM != v1alpha1.PodCIDR, subnets, dnsOf(n)
	i.NodeAddresses = i.Primary && i.BlockSpace && !p.shared(s, n)
	i.Routes = append(i.Routes, routesOf(n)...)
	return i, nil
}

// unready says why a Network cannot be used.
func (p *Planner) unready(s apicache.State, name string) error {
	n := s.Networks[name]
	switch {
	case n == nil && s.Listed(kube.Networks):
		return refused(v1alpha1.ReasonNetworkNotFound, "network %s does not exist", name)
	case n == nil:
		return early(v1alpha1.ReasonNetworkNotFound,
			"network %s is not known, and the API server has not been heard of", name)
	case n.DeletionTimestamp != nil:
		// That of a namespace goes with its last pod, and comes again with the next.
		return early(v1alpha1.ReasonNetworkNotReady, "network %s is being deleted", name)
	}
	if c := meta.FindStatusCondition(n.Status.Conditions, v1alpha1.ConditionReady); c != nil && c.Status == "False" {
		return refused(v1alpha1.ReasonNetworkNotReady, "network %s is not ready: %s: %s", name, c.Reason, c.Message)
	}
	if n.Status.ID == 0 {
		return early(v1alpha1.ReasonNetworkNotReady, "network %s has no id yet: is coelan-controller running?", name)
	}
	if n.Spec.Type == v1alpha1.VLAN || n.Spec.Type == v1alpha1.Flat {
		if err := p.Connected(n.Spec.PhysicalNetwork); err != nil {
			return refused(v1alpha1.ReasonNetworkNotReady, "network %s: node %s: %v", name, p.Node, err)
		}
	}
	return nil
}

// final says whether waiting is of no use. A Network that does not exist may be about to: that of a
// namespace comes with the namespace's first pod.
func final(err error) bool {
	var e *cni.PlanError
	return errors.As(err, &e) && !e.Retry && e.Reason != v1alpha1.ReasonNetworkNotFound
}

// shared says whether the addresses of a Network are known to the nodes' kernels.
func (p *Planner) shared(s apicache.State, n *v1alpha1.Network) bool {
	if n.Spec.Type == v1alpha1.VLAN || n.Spec.Type == v1alpha1.Flat {
		return false
	}
	r := s.Routers[n.Status.Router]
	return n.Status.Router == intent.DefaultRouterName || r != nil && translate.IsShared(r)
}

// dnsOf is nil if the Network says nothing of DNS.
func dnsOf(n *v1alpha1.Network) *types.DNS {
	if n.Spec.DNS == nil {
		return nil
	}
	dns := &types.DNS{Nameservers: n.Spec.DNS.Nameservers, Search: n.Spec.DNS.Searches, Options: n.Spec.DNS.Options}
	if dns.IsEmpty() {
		return nil
	}
	return dns
}

// routesOf are the routes of the subnets that an interface gets addresses of: the
// first of each family.
func routesOf(n *v1alpha1.Network) []attachment.Route {
	var routes []attachment.Route
	seen := map[bool]bool{}
	for _, s := range n.Spec.Subnets {
		p, err := netip.ParsePrefix(s.CIDR)
		if err != nil || seen[p.Addr().Is4()] {
			continue
		}
		seen[p.Addr().Is4()] = true
		for _, r := range s.Routes {
			destination, err := netip.ParsePrefix(r.Destination)
			hop, hopErr := netip.ParseAddr(r.NextHop)
			if err == nil && hopErr == nil {
				routes = append(routes, attachment.Route{Destination: destination.Masked(), NextHop: hop})
			}
		}
	}
	return routes
}
