// SPDX-License-Identifier: Apache-2.0

package podplan

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
	"k8s.io/apimachinery/pkg/api/meta"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agent/apicache"
	"coelan.io/coelan/internal/agent/kube"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/cni"
	"coelan.io/coelan/internal/intent"
)

// named is the choice of the Network of a name.
func named(name string) func(apicache.State) string {
	return func(apicache.State) string { return name }
}

// on fills in what an interface gets from its Network, for which it waits: the one that choose
// names, which may be another one as Networks come and go.
func (p *Planner) on(
	ctx context.Context, i attachment.Plan, choose func(apicache.State) string,
) (attachment.Plan, error) {
	n, err := p.awaitNetwork(ctx, choose)
	if err != nil {
		return i, err
	}
	i.NetworkName, i.NetworkID, i.MTU, i.Subnets, i.DNS = n.Name, n.ID, n.MTU, n.Subnets, dnsOf(n.DNS)
	i.BlockSpace = n.object.Spec.IPAM != v1alpha1.PodCIDR
	i.Leased = n.Leased
	i.NodeAddresses = i.Primary && i.BlockSpace && !n.shared()
	i.Routes = append(i.Routes, routesOf(n.object, n.Subnets)...)
	return i, nil
}

// withVNI is the Network that has a VNI. Networks on physical networks have none.
func (p *Planner) withVNI(vni uint32) (string, error) {
	if vni == uint32(intent.DefaultNetwork) {
		return intent.DefaultNetworkName, nil
	}
	s := p.View.State()
	awaits := "" // the controller, to say that it has the VNI
	for _, n := range s.NetworkList() {
		asked := n.Spec.VNI
		switch {
		case int64(n.Status.VNI) == int64(vni):
			return n.Name, nil
		case n.Status.VNI == 0 && asked != nil && int64(*asked) == int64(vni):
			awaits = n.Name
		}
	}
	if awaits != "" {
		return awaits, nil
	}
	if !s.Listed(kube.Networks) {
		return "", early(v1alpha1.ReasonNetworkNotFound,
			"no network with VNI %d is known, and the API server has not been heard of", vni)
	}
	return "", refused(v1alpha1.ReasonNetworkNotFound,
		"no network has the VNI %d of the CNI configuration: make a Network with spec.vni: %d", vni, vni)
}

// readyNetwork is the intent of a Network, of its Router, and the object that it is made of.
type readyNetwork struct {
	intent.Network
	router intent.Router
	object *v1alpha1.Network
}

// shared says whether the addresses of the Network are known to the nodes' kernels.
func (n readyNetwork) shared() bool { return n.router.Shared }

// awaitNetwork waits until a Network is in effect as the view has it: what a pod gets must not be
// from before a change that the agent has received already.
func (p *Planner) awaitNetwork(
	ctx context.Context, choose func(apicache.State) string,
) (n readyNetwork, err error) {
	ctx, cancel := context.WithTimeout(ctx, networkTimeout)
	defer cancel()
	s, ready := p.View.Await(ctx, func(s apicache.State) bool {
		name := choose(s)
		if err := p.unready(s, name); err != nil {
			return final(err)
		}
		var ok bool
		n.Network, n.router, ok = p.InEffect(s, name)
		n.object = s.Networks.Get(name)
		return ok
	})
	name := choose(s)
	if err := p.unready(s, name); err != nil {
		return n, err
	}
	if !ready {
		return n, early(v1alpha1.ReasonNetworkNotReady, "network %s: its flows are not there yet", name)
	}
	return n, nil
}

// unready says why a Network cannot be used.
func (p *Planner) unready(s apicache.State, name string) error {
	n := s.Networks.Get(name)
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

// dnsOf is nil if the Network says nothing of DNS.
func dnsOf(d intent.DNS) *types.DNS {
	dns := &types.DNS{Search: d.Searches, Options: d.Options}
	for _, a := range d.Servers {
		dns.Nameservers = append(dns.Nameservers, a.String())
	}
	if dns.IsEmpty() {
		return nil
	}
	return dns
}

// routesOf are the routes of the subnets that an interface gets addresses of: the
// first of each family among those.
func routesOf(n *v1alpha1.Network, among []intent.NetworkSubnet) []attachment.Route {
	var routes []attachment.Route
	seen := map[bool]bool{}
	for _, s := range n.Spec.Subnets {
		p, err := netip.ParsePrefix(s.CIDR)
		ours := slices.ContainsFunc(among, func(sn intent.NetworkSubnet) bool { return sn.Prefix == p.Masked() })
		if err != nil || !ours || seen[p.Addr().Is4()] {
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
