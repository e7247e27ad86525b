// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"coelan.io/coelan/internal/intent"
)

// The algorithms: OVN knows only the first one, others spread connections more evenly by the
// second.
const (
	sourceIPPort = "SOURCE_IP_PORT"
	roundRobin   = "ROUND_ROBIN"
)

// ReasonOutside is the reason of endpoints that are in no subnet that Neutron has of the cluster,
// which may come yet.
const ReasonOutside = "EndpointsOutside"

// Options are what Compile needs beside a Service.
type Options struct {
	Provider string
	// Subnet is the id of the subnet that addresses are of, and Prefix what it has.
	Subnet string
	Prefix netip.Prefix
	// SubnetOf is the id of the subnet that an endpoint's address is of; false: none.
	SubnetOf func(netip.Addr) (string, bool)
}

// Compile makes the load balancer of a Service.
func Compile(s intent.Service, o Options) *Balancer {
	c := compiler{o, s, &Balancer{Key: s.Namespace + "/" + s.Name, Provider: o.Provider, Subnet: o.Subnet}}
	if s.Router != intent.DefaultRouterName {
		c.problem("RouterUnsupported", "it is of the Router %s, and load balancers of Octavia are of the Router %s: use the class "+
			"coelan.io/pool", s.Router, intent.DefaultRouterName)
		return c.out
	}
	if s.AffinitySeconds > 0 && o.Provider == ProviderOVN {
		c.problem("AffinityByProvider", "affinity is asked for as SOURCE_IP: Octavia's provider ovn before release 4.0 ignores that, "+
			"and none looks at timeoutSeconds")
	}
	sources, open := c.sources()
	left := map[string]bool{}
	for _, p := range s.Ports {
		if p.IPv6 != o.Prefix.Addr().Is6() {
			left[family(p.IPv6)] = true
			continue
		}
		if open {
			c.out.Listeners = append(c.out.Listeners, c.listener(p, sources))
		}
	}
	for _, name := range []string{"IPv4", "IPv6"} {
		if left[name] {
			c.problem("FamilyUnsupported", "its load balancer has no %s address: the subnet for addresses has %s", name, o.Prefix)
		}
	}
	return c.out
}

func family(v6 bool) string {
	if v6 {
		return "IPv6"
	}
	return "IPv4"
}

type compiler struct {
	Options
	service intent.Service
	out     *Balancer
}

func (c *compiler) problem(reason, format string, args ...any) {
	p := Problem{reason, "load balancer of Octavia: " + fmt.Sprintf(format, args...)}
	if !slices.Contains(c.out.Problems, p) {
		c.out.Problems = append(c.out.Problems, p)
	}
}

// sources are the prefixes that are served; not open: a listener would serve others, too.
func (c *compiler) sources() (list []string, open bool) {
	for _, p := range c.service.SourceRanges {
		if p.Addr().Is6() != c.Prefix.Addr().Is6() {
			continue
		}
		if p.Bits() == 0 {
			return nil, true
		}
		list = append(list, p.String())
	}
	if len(list) > 0 && c.Provider == ProviderOVN {
		c.problem("SourceRangesUnsupported", "the provider ovn serves all sources, so nothing is served: leave out "+
			"loadBalancerSourceRanges, or use another provider")
		return nil, false
	}
	slices.Sort(list)
	return list, true
}

func (c *compiler) listener(p intent.ServicePort, sources []string) Listener {
	l := Listener{
		Protocol: p.Protocol.String(), Port: p.Port, Algorithm: roundRobin, Sticky: c.service.AffinitySeconds > 0,
		Sources: sources,
	}
	if c.Provider == ProviderOVN {
		l.Algorithm = sourceIPPort
	}
	ready := slices.ContainsFunc(p.Endpoints, func(e intent.ServiceEndpoint) bool { return !e.Terminating })
	var outside []string
	for _, e := range p.Endpoints {
		if e.Terminating && ready {
			continue
		}
		subnet, ok := c.SubnetOf(e.Address)
		if !ok {
			outside = append(outside, e.Address.String())
			continue
		}
		if c.Provider == ProviderOVN {
			// It needs only the router, which is that of the addresses. At the pods' network it
			// fails to find it: Neutron makes one port of a router for all IPv6 subnets of a
			// network, and the provider expects one subnet of each port.
			subnet = c.Subnet
		}
		l.Members = append(l.Members, Member{e.Address, e.Port, subnet})
	}
	if len(outside) > 0 {
		slices.Sort(outside)
		c.problem(ReasonOutside, "endpoints that are in no subnet of the cluster in Neutron get nothing: %s",
			strings.Join(slices.Compact(outside), ", "))
	}
	slices.SortFunc(l.Members, compareMembers)
	l.Members = slices.Compact(l.Members)
	return l
}
