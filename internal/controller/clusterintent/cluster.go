// SPDX-License-Identifier: Apache-2.0

package clusterintent

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/translate"
)

// cluster is all objects, and what was made of them. It does no I/O and is for one goroutine.
type cluster struct {
	Settings
	networks    *translate.NetworkSet
	nodes       *translate.NodeSet
	ports       *translate.PortSet
	floatingIPs *translate.FloatingIPSet
	gateways    *translate.GatewaySet
	egresses    *translate.EgressSet
	services    *services
	attached    *attached
	tenants     *tenants

	nodeObjects map[string]*corev1.Node
	pools       map[string]*v1alpha1.LoadBalancerPool
	cidrs       map[string][]netip.Prefix // by the name of the ServiceCIDR
	// poolsChanged and rangesChanged say that other pools or prefixes of ClusterIPs may be in
	// effect.
	poolsChanged, rangesChanged bool
}

func newCluster(o Settings) *cluster {
	c := &cluster{
		Settings: o,
		networks: translate.NewNetworkSet(translate.NetworkView{
			Everywhere: true, Connected: func(string) bool { return true }, SNAT: o.SNAT,
		}),
		nodes: translate.NewNodeSet(), ports: translate.NewPortSet(o.NodeAddress, o.Unbound),
		floatingIPs: translate.NewFloatingIPSet(), gateways: translate.NewGatewaySet(),
		egresses: translate.NewEgressSet(), attached: newAttached(o), tenants: newTenants(o.Projects),
		nodeObjects: map[string]*corev1.Node{}, pools: map[string]*v1alpha1.LoadBalancerPool{},
		cidrs: map[string][]netip.Prefix{}, poolsChanged: true, rangesChanged: true,
	}
	c.services = newServices(o, c.externalIPs)
	return c
}

// orNil is the object, or nil if it is gone.
func orNil[T any](o *T, gone bool) *T {
	if gone {
		return nil
	}
	return o
}

// change takes the newest version of an object, or the last one of an object that is gone.
func (c *cluster) change(obj client.Object, gone bool) {
	name := obj.GetName()
	key := obj.GetNamespace() + "/" + name
	switch o := obj.(type) {
	case *corev1.Node:
		c.changeNode(name, orNil(o, gone))
	case *corev1.Namespace:
		c.services.setNamespace(name, orNil(o, gone))
		c.attached.setNamespace(name, orNil(o, gone))
		c.tenants.setNamespace(name, orNil(o, gone))
	case *corev1.Pod:
		c.attached.setPod(key, orNil(o, gone))
	case *v1alpha1.Router:
		c.networks.SetRouter(name, orNil(o, gone))
		c.gateways.SetRouter(name, orNil(o, gone))
		c.services.setRouter(name, orNil(o, gone))
	case *v1alpha1.Network:
		c.networks.SetNetwork(name, orNil(o, gone))
		c.gateways.SetNetwork(name, orNil(o, gone))
		c.egresses.SetNetwork(name, orNil(o, gone))
		c.services.setNetwork(name, orNil(o, gone))
		c.tenants.setNetwork(name, orNil(o, gone))
	case *v1alpha1.AddressBlock:
		c.changeBlock(name, orNil(o, gone))
	case *v1alpha1.Port:
		c.ports.SetPort(key, orNil(o, gone))
		c.attached.setObject(translate.RemoteID(o.Namespace, name), orNil(o, gone))
	case *v1alpha1.FloatingIP:
		c.floatingIPs.Set(key, orNil(o, gone))
	case *v1alpha1.Egress:
		c.egresses.Set(name, orNil(o, gone))
	case *v1alpha1.LoadBalancerPool:
		set(c.pools, name, orNil(o, gone))
		c.poolsChanged = true
		c.services.externalIPsChanged()
	case *networkingv1.ServiceCIDR:
		c.changeCIDRs(name, orNil(o, gone))
	case *corev1.Service, *discoveryv1.EndpointSlice:
		c.services.change(obj, gone)
	}
}

func (c *cluster) changeNode(name string, o *corev1.Node) {
	c.nodes.Set(name, o)
	c.gateways.SetNode(name, o)
	c.egresses.SetNode(name, o)
	set(c.nodeObjects, name, o)
	c.poolsChanged = true
	c.services.externalIPsChanged()
}

// changeBlock gives the NetworkSet only what nodes hand addresses out of: a claim of one address is
// no block, and there are as many as Ports.
func (c *cluster) changeBlock(name string, o *v1alpha1.AddressBlock) {
	several := o
	if o != nil {
		if p, err := netip.ParsePrefix(o.Spec.CIDR); err == nil && p.IsSingleIP() {
			several = nil
		}
	}
	c.networks.SetBlock(name, several)
	c.ports.SetBlock(name, o)
	c.floatingIPs.SetBlock(name, o)
	c.gateways.SetBlock(name, o)
	c.egresses.SetBlock(name, o)
}

// changeCIDRs takes prefixes of ClusterIPs. The API server has checked them.
func (c *cluster) changeCIDRs(name string, o *networkingv1.ServiceCIDR) {
	delete(c.cidrs, name)
	if o != nil {
		for _, text := range o.Spec.CIDRs {
			if p, err := netip.ParsePrefix(text); err == nil {
				c.cidrs[name] = append(c.cidrs[name], p.Masked())
			}
		}
	}
	c.rangesChanged = true
	c.services.externalIPsChanged()
}

// externalIPs are the sources that say which external IPs Services have.
func (c *cluster) externalIPs() translate.ExternalIPSources {
	return translate.ExternalIPSources{
		Allowed: c.ExternalIPs, Services: c.ranges(), Nodes: values(c.nodeObjects), Pools: values(c.pools),
	}
}

// ranges are the prefixes of ClusterIPs.
func (c *cluster) ranges() []netip.Prefix {
	list := slices.Clone(c.ServiceCIDRs)
	for _, prefixes := range c.cidrs {
		list = append(list, prefixes...)
	}
	slices.SortFunc(list, netip.Prefix.Compare)
	return slices.Compact(list)
}

// apply brings intent to the objects, and reports whether problems may differ.
func (c *cluster) apply(tx *intent.Tx) (problems bool) {
	tx.SetLocal(intent.Local{PolicyMode: c.PolicyMode})
	networks := c.networks.Changes()
	apply(networks.Routers, tx.SetRouter, func(r intent.Router) { tx.DeleteRouter(r.Name) })
	c.tenants.apply(tx, networks.Networks)
	apply(networks.Blocks, tx.SetBlock, tx.DeleteBlock)
	nodes, ofNodes := c.nodes.Changes()
	apply(nodes, tx.SetNode, func(n intent.Node) { tx.DeleteNode(n.Name) })
	c.ports.Follow(networks)
	c.ports.FollowNodes(nodes)
	ports, ofPorts := c.ports.Changes()
	c.attached.apply(tx, ports, c.egresses.Selectors())
	apply(c.floatingIPs.Changes(), tx.SetFloatingIP, func(f intent.FloatingIP) { tx.DeleteFloatingIP(f.Name) })
	c.applyGateways(tx)
	c.services.apply(tx)
	if c.poolsChanged {
		tx.ReplaceLoadBalancerPools(translate.LoadBalancerPools(values(c.pools), values(c.nodeObjects)))
	}
	if c.rangesChanged {
		var list []intent.ServiceRange
		for _, p := range c.ranges() {
			list = append(list, intent.ServiceRange{Prefix: p})
		}
		tx.ReplaceServiceRanges(list)
	}
	c.poolsChanged, c.rangesChanged = false, false
	return networks.Problems || ofNodes || ofPorts
}

// applyGateways brings intent to the addresses of gateways and of Egresses. An address may go from
// one to another, so what is gone goes first.
func (c *cluster) applyGateways(tx *intent.Tx) {
	g, e := c.gateways.Changes(), c.egresses.Changes()
	apply(g.Nodes, tx.SetGatewayAddress, func(g intent.GatewayAddress) {
		tx.DeleteGatewayAddress(g.Network, g.Address)
	})
	apply(translate.Change[intent.EgressAddress]{
		Set: slices.Concat(g.Shared.Set, e.Addresses.Set), Gone: slices.Concat(g.Shared.Gone, e.Addresses.Gone),
	}, tx.SetEgressAddress, func(e intent.EgressAddress) { tx.DeleteEgressAddress(e.Network, e.Address) })
	apply(e.Paths, tx.SetEgressPath, func(e intent.EgressPath) { tx.DeleteEgressPath(e.Name) })
}

// problems are values in objects that were left out. What is wrong with Services, package
// loadbalancers reports.
func (c *cluster) problems() []translate.Problem {
	return slices.Concat(c.nodes.Problems(), c.networks.Problems(true), c.ports.Problems())
}

func apply[T any](c translate.Change[T], set, gone func(T)) {
	for _, o := range c.Gone {
		gone(o)
	}
	for _, o := range c.Set {
		set(o)
	}
}

// set adds or replaces an entry; nil removes it.
func set[T any](m map[string]*T, key string, o *T) {
	delete(m, key)
	if o != nil {
		m[key] = o
	}
}

func values[T any](m map[string]*T) []*T {
	list := make([]*T, 0, len(m))
	for _, o := range m {
		list = append(list, o)
	}
	return list
}
