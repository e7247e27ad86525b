// SPDX-License-Identifier: Apache-2.0

package mapping

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"

	"github.com/openconfig/ygot/ygot"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/restconf/yangmodel"
)

type (
	poolNetwork = yangmodel.DhcpAllocationPool_DhcpAllocationPool_Network
	pool        = yangmodel.DhcpAllocationPool_DhcpAllocationPool_Network_AllocationPool
)

// maxNameservers is how many a Network has.
const maxNameservers = 3

// pools are the subnets of Networks as dhcp_allocation_pool.
func pools() *List {
	return &List{
		Container: "dhcp_allocation_pool", Name: "network",
		Reads:   []Resource{Networks},
		Guards:  []Resource{Ports},
		New:     func() ygot.GoStruct { return &poolNetwork{} },
		Entries: func(w *World) []ygot.GoStruct { return structs(poolNetworks(w)) },
		Write:   writer(writePools),
		Remove:  func(w *World, key string) error { return removeNetwork(w, key, "network-id") },
	}
}

// poolNetworks are the Networks with subnets of their own.
func poolNetworks(w *World) []*poolNetwork {
	var list []*poolNetwork
	for _, n := range sortedNetworks(w) {
		if len(n.Spec.Subnets) == 0 {
			continue
		}
		e := &poolNetwork{NetworkId: ygot.String(elanName(n)), AllocationPool: map[string]*pool{}}
		for i := range n.Spec.Subnets {
			p := showPool(n, &n.Spec.Subnets[i])
			e.AllocationPool[*p.Subnet] = p
		}
		list = append(list, e)
	}
	return list
}

func showPool(n *v1alpha1.Network, s *v1alpha1.Subnet) *pool {
	p := &pool{Subnet: ygot.String(canonicalPrefix(s.CIDR)), Gateway: optional(canonicalAddress(s.Gateway))}
	if len(s.Ranges) > 0 {
		p.AllocateFrom = ygot.String(canonicalAddress(s.Ranges[0].From))
		p.AllocateTo = ygot.String(canonicalAddress(s.Ranges[0].To))
	}
	if n.Spec.DNS != nil {
		for _, a := range n.Spec.DNS.Nameservers {
			if sameFamily(a, s.CIDR) {
				p.DnsServers = append(p.DnsServers, canonicalAddress(a))
			}
		}
	}
	return p
}

// writePools makes a Network have these pools. A subnet is left as it is if its pool is as before,
// with what pools have nothing for.
func writePools(w *World, e *poolNetwork) error {
	if len(e.AllocationPool) == 0 {
		return invalid("allocation-pool", "a network needs a pool")
	}
	n, err := editNetwork(w, text(e.NetworkId), "network-id")
	if err != nil {
		return err
	}
	before := n.DeepCopy()
	var subnets []v1alpha1.Subnet
	for _, s := range before.Spec.Subnets {
		if p := e.AllocationPool[canonicalPrefix(s.CIDR)]; p != nil {
			changed, err := writePool(before, &s, p)
			if err != nil {
				return err
			}
			subnets = append(subnets, *changed)
		}
	}
	for _, cidr := range slices.Sorted(maps.Keys(e.AllocationPool)) {
		known := func(s v1alpha1.Subnet) bool { return canonicalPrefix(s.CIDR) == cidr }
		if slices.ContainsFunc(before.Spec.Subnets, known) {
			continue
		}
		changed, err := writePool(before, &v1alpha1.Subnet{CIDR: cidr}, e.AllocationPool[cidr])
		if err != nil {
			return err
		}
		subnets = append(subnets, *changed)
	}
	n.Spec.Subnets = subnets
	return writeNameservers(n, e)
}

// writePool is a subnet as the pool says.
func writePool(n *v1alpha1.Network, s *v1alpha1.Subnet, p *pool) (*v1alpha1.Subnet, error) {
	s = s.DeepCopy()
	leaf := fmt.Sprintf("allocation-pool[subnet='%s']", s.CIDR)
	shown := showPool(n, s)
	shown.DnsServers = p.DnsServers
	if reflect.DeepEqual(shown, p) {
		return s, nil
	}
	s.Gateway = text(p.Gateway)
	from, to := text(p.AllocateFrom), text(p.AllocateTo)
	switch {
	case (from == "") != (to == ""):
		return nil, invalid(leaf, "allocate-from and allocate-to belong together")
	case from == "":
		s.Ranges = nil
	case !inside(from, s.CIDR) || !inside(to, s.CIDR):
		return nil, invalid(leaf, "allocate-from and allocate-to must lie in the subnet")
	case netip.MustParseAddr(to).Less(netip.MustParseAddr(from)):
		return nil, invalid(leaf, "allocate-from is after allocate-to")
	default:
		r := v1alpha1.AddressRange{From: from, To: to}
		s.Ranges = append([]v1alpha1.AddressRange{r}, s.Ranges[min(1, len(s.Ranges)):]...)
	}
	if s.Gateway != "" && !inside(s.Gateway, s.CIDR) {
		return nil, invalid(leaf+"/gateway", "must lie in the subnet")
	}
	return s, nil
}

// writeNameservers makes the name servers those of all pools.
func writeNameservers(n *v1alpha1.Network, e *poolNetwork) error {
	var servers []v1alpha1.Address
	for _, s := range n.Spec.Subnets {
		for _, a := range e.AllocationPool[canonicalPrefix(s.CIDR)].DnsServers {
			if !sameFamily(a, s.CIDR) {
				return invalid(fmt.Sprintf("allocation-pool[subnet='%s']/dns-servers", s.CIDR),
					a+" is of the other address family than the subnet")
			}
			if !slices.Contains(servers, a) {
				servers = append(servers, a)
			}
		}
	}
	if len(servers) > maxNameservers {
		return invalid("allocation-pool", fmt.Sprintf("there are %d different dns-servers, more than %d",
			len(servers), maxNameservers))
	}
	if n.Spec.DNS == nil && len(servers) == 0 {
		return nil
	}
	dns := &v1alpha1.DNS{}
	if n.Spec.DNS != nil {
		dns = n.Spec.DNS.DeepCopy()
	}
	dns.Nameservers = servers
	n.Spec.DNS = dns
	return nil
}

// canonicalAddress is an address in the form in which addresses are compared.
func canonicalAddress(s string) string {
	if a, err := netip.ParseAddr(s); err == nil {
		return a.String()
	}
	return s
}

func canonicalPrefix(s string) string {
	if p, err := netip.ParsePrefix(s); err == nil {
		return p.String()
	}
	return s
}

// inside reports whether an address lies in a prefix.
func inside(address, cidr string) bool {
	a, err1 := netip.ParseAddr(address)
	p, err2 := netip.ParsePrefix(cidr)
	return err1 == nil && err2 == nil && p.Contains(a)
}

func sameFamily(address, cidr string) bool {
	a, err1 := netip.ParseAddr(address)
	p, err2 := netip.ParsePrefix(cidr)
	return err1 == nil && err2 == nil && a.Is4() == p.Addr().Is4()
}
