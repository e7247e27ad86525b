// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/vrf"
)

// ExternalIPSources are what decides which external IPs Services may have.
type ExternalIPSources struct {
	// Allowed are the only external IPs; none: see ExternalIPs.Refuse.
	Allowed  []netip.Prefix
	Services []netip.Prefix // of ClusterIPs
	Nodes    []*corev1.Node
	Routers  []*v1alpha1.Router
	Networks []*v1alpha1.Network
	Pools    []*v1alpha1.LoadBalancerPool
}

// ExternalIPs says which of spec.externalIPs take effect. Every user that may create Services may
// write any address there, so addresses that are known to have another owner are refused.
type ExternalIPs struct {
	allowed  []netip.Prefix
	nodes    map[netip.Addr]string
	cluster  []vrf.Holding // pods' and Services' ranges
	networks []externalNetwork
	pools    AddressPools
	exchange *vrf.Exchange
}

// externalNetwork is a subnet of a Network. Those of a physical network are in no Router.
type externalNetwork struct {
	vrf.Holding
	router string
}

// NewExternalIPs reads the sources. What it cannot read, has no effect elsewhere either.
func NewExternalIPs(s ExternalIPSources) *ExternalIPs {
	x := &ExternalIPs{
		allowed: s.Allowed, nodes: map[netip.Addr]string{}, pools: NewAddressPools(s.Pools),
		exchange: vrf.NewExchange(s.Routers),
	}
	for _, p := range s.Services {
		x.cluster = append(x.cluster, vrf.Holding{Prefix: p, Owner: "the cluster's Services"})
	}
	for _, n := range s.Nodes {
		cidrs := n.Spec.PodCIDRs
		if len(cidrs) == 0 {
			cidrs = []string{n.Spec.PodCIDR}
		}
		for _, text := range cidrs {
			if p, err := netip.ParsePrefix(text); err == nil {
				x.cluster = append(x.cluster, vrf.Holding{Prefix: p.Masked(), Owner: "the pods of node " + n.Name})
			}
		}
		for _, a := range n.Status.Addresses {
			if ip, err := netip.ParseAddr(a.Address); err == nil {
				x.nodes[ip] = n.Name
			}
		}
	}
	for _, n := range s.Networks {
		router := ""
		if n.Spec.Type != v1alpha1.VLAN && n.Spec.Type != v1alpha1.Flat {
			router = EffectiveRouter(n)
		}
		for _, subnet := range n.Spec.Subnets {
			if p, err := netip.ParsePrefix(subnet.CIDR); err == nil {
				x.networks = append(x.networks,
					externalNetwork{vrf.Holding{Prefix: p.Masked(), Owner: "network " + n.Name}, router})
			}
		}
	}
	return x
}

// Refuse says why a Service of a namespace in a Router must not have an external IP, "" if it may.
// Addresses of nodes, of pods, of ClusterIPs, of pools, and of Networks that the Router or the
// cluster has routes to, no Service gets. Of all others, a Service gets those that are allowed. If
// nothing is said of that, Services get any, except those of a private Router, of which the clients
// are elsewhere: they get none.
func (x *ExternalIPs) Refuse(router string, ip netip.Addr) string {
	if node, is := x.nodes[ip]; is {
		return "is an address of node " + node
	}
	for _, h := range x.cluster {
		if h.Prefix.Contains(ip) {
			return fmt.Sprintf("is in %s", h)
		}
	}
	if p := x.pools.Find(ip); p != nil {
		return fmt.Sprintf("is an address of LoadBalancerPool %s, which Services of type LoadBalancer get", p.Name)
	}
	listed := slices.ContainsFunc(x.allowed, func(p netip.Prefix) bool { return p.Contains(ip) })
	for _, n := range x.networks {
		if n.Prefix.Contains(ip) && (n.router == "" && !listed || n.router != "" && x.meets(n.router, router)) {
			return fmt.Sprintf("is in %s", n.Holding)
		}
	}
	switch {
	case listed:
		return ""
	case len(x.allowed) > 0:
		return fmt.Sprintf("is not in services.externalIPs, which an administrator sets: %s", textOfPrefixes(x.allowed))
	case x.private(router):
		return fmt.Sprintf("is of a Service in the private router %s, and such have external IPs only if an administrator lists them in services.externalIPs",
			router)
	}
	return ""
}

func textOfPrefixes(list []netip.Prefix) string {
	texts := make([]string, len(list))
	for i, p := range list {
		texts[i] = p.String()
	}
	return strings.Join(texts, ", ")
}

func (x *ExternalIPs) private(router string) bool {
	if router == intent.DefaultRouterName {
		return false
	}
	r, known := x.exchange.Router(router)
	return !known || !vrf.Shares(r)
}

// meets says whether a packet to an address of the Router of a Network may come by where external
// IPs of a Service in another one are looked for: the cluster's own space does everywhere, others
// do if there are routes between them.
func (x *ExternalIPs) meets(network, service string) bool {
	if !x.private(network) {
		return true
	}
	if network == service {
		return true
	}
	_, known := x.exchange.Router(network)
	if _, there := x.exchange.Router(service); !known || !there {
		return false
	}
	return slices.Contains(x.exchange.Spaces(service), x.exchange.Own(network))
}
