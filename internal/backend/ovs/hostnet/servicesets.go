// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"go4.org/netipx"

	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
)

// serviceFamily is what differs between IPv4 and IPv6.
type serviceFamily struct {
	header
	ipv6 bool
	// gateway is the node's own address on the gateway interface.
	gateway netip.Addr
	// hop stands for the bridge: see datapath.NodePortIPv4.
	hop netip.Addr
	// masked is the address that clients are masqueraded with, and the next hop of routes to the
	// bridge unless that has another: see datapath.ServiceSourceIPv4.
	masked netip.Addr
	// bridge is the prefix of both.
	bridge netip.Prefix
	// never are addresses of the host at which no node ports are.
	never []netip.Prefix
}

// serviceFamilies are those that pods have.
func serviceFamilies(g Gateway) []serviceFamily {
	var all []serviceFamily
	for _, p := range g.Addresses {
		f := serviceFamily{
			header: header4, gateway: p.Addr(), hop: datapath.NodePortIPv4, masked: datapath.ServiceSourceIPv4,
			never: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		}
		bits := 30
		if p.Addr().Is6() {
			f = serviceFamily{
				header: header6, ipv6: true, gateway: p.Addr(), hop: datapath.NodePortIPv6,
				masked: datapath.ServiceSourceIPv6,
				never:  []netip.Prefix{netip.MustParsePrefix("::1/128"), netip.MustParsePrefix("fe80::/10")},
			}
			bits = 126
		}
		f.bridge, _ = f.hop.Prefix(bits)
		f.never = append(f.never, netip.PrefixFrom(f.gateway, f.gateway.BitLen()))
		if !slices.ContainsFunc(all, func(o serviceFamily) bool { return o.ipv6 == f.ipv6 }) {
			all = append(all, f)
		}
	}
	slices.SortFunc(all, func(a, b serviceFamily) int { return a.gateway.Compare(b.gateway) })
	return all
}

// nodePortHop stands for the bridge's node ports, in the family of an address.
func nodePortHop(like netip.Addr) netip.Addr {
	if like.Is6() {
		return datapath.NodePortIPv6
	}
	return datapath.NodePortIPv4
}

func (f serviceFamily) has(a netip.Addr) bool { return a.IsValid() && a.Is6() == f.ipv6 }

// kernelServices are the contents of one family's sets.
type kernelServices struct {
	f   serviceFamily
	via netip.Addr // the next hop of routes to the bridge
	// own are the host's addresses, whole those that are led to the bridge whole whatever the port:
	// announced ones that are not the host's.
	own, whole map[netip.Addr]bool
	// led are all that are led to the bridge whole, inside those of them that are ClusterIPs.
	led, inside []netipx.IPRange
	// wired are the floating IPs.
	wired map[netip.Addr]bool
	// floating are those of led that the bridge takes from wires, cluster the addresses of clients
	// that are not on one.
	floating, cluster []netipx.IPRange

	nodePorts, external, preserve, reject, restricted, allowed map[string]string

	hosts hostTranslation
	// byAddress is that of Services. Only then the rest matters.
	byAddress bool
	// within are frontends that lead clients inside to another one than those outside.
	within map[string]string
}

// servicesOf sorts all Services' ports into one family's sets. own are the host's addresses.
func servicesOf(s Services, f serviceFamily, own map[netip.Addr]bool) kernelServices {
	k := kernelServices{
		f: f, via: s.via(f), own: own, whole: map[netip.Addr]bool{}, wired: map[netip.Addr]bool{},
		nodePorts: map[string]string{}, external: map[string]string{}, preserve: map[string]string{},
		reject:     map[string]string{},
		restricted: map[string]string{}, allowed: map[string]string{},
		byAddress: s.ByAddress, within: map[string]string{}, hosts: newHostTranslation(),
	}
	for _, a := range s.Floating {
		k.wired[a] = true
	}
	inside := slices.Clone(s.Ranges)
	led := []netip.Prefix{f.bridge}
	for _, a := range s.Announced {
		if !own[a] {
			k.whole[a] = true
			led = append(led, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	for i := range s.Ports {
		p := &s.Ports[i]
		if p.IPv6 != f.ipv6 {
			continue
		}
		if p.ClusterIP.IsValid() {
			inside = append(inside, netip.PrefixFrom(p.ClusterIP, p.ClusterIP.BitLen()))
		}
		k.port(p)
	}
	k.led, k.inside = ranges(append(led, inside...), f.is), ranges(inside, f.is)
	floating := make([]netip.Prefix, 0, len(s.Floating))
	for _, a := range s.Floating {
		floating = append(floating, netip.PrefixFrom(a, a.BitLen()))
	}
	k.floating, k.cluster = ranges(floating, f.is), ranges(s.Cluster, f.is)
	return k
}

func (k *kernelServices) port(p *ServicePort) {
	// Where packets for external addresses go that the kernel takes the Service's port of.
	var instead string
	if k.f.has(p.ClusterIP) {
		k.frontend(p, p.ClusterIP, p.Port, false)
		instead = endpoint(p.ClusterIP, p.Port)
	}
	if p.NodePort != 0 {
		k.nodePorts[service(p.Protocol, p.NodePort)] = ""
		k.frontend(p, k.f.hop, p.NodePort, p.ExternalLocal && !p.Masked)
		instead = endpoint(k.f.hop, p.NodePort)
	}
	k.externalAddresses(p, p.ExternalIPs, instead)
	k.externalAddresses(p, p.LoadBalancerIPs, instead)
	k.restrict(p)
	k.hosts.port(p, k.f)
	if k.byAddress {
		k.leadWithin(p)
	}
}

// leadWithin leads clients inside to the ClusterIP, where a policy keeps those outside on the node.
func (k *kernelServices) leadWithin(p *ServicePort) {
	if !p.ExternalLocal || p.InternalLocal || !k.f.has(p.ClusterIP) {
		return
	}
	cluster := endpoint(p.ClusterIP, p.Port)
	if p.NodePort != 0 {
		k.within[frontend(k.f.hop, p.Protocol, p.NodePort)] = cluster
	}
	for _, a := range slices.Concat(p.ExternalIPs, p.LoadBalancerIPs) {
		if k.f.has(a) {
			k.within[frontend(a, p.Protocol, p.Port)] = cluster
		}
	}
}

// byNodePort says that an address that is led to the bridge whole leads to the node port all the
// same: the bridge has the address for clients inside alone, or for none.
func (k *kernelServices) byNodePort(p *ServicePort) bool {
	return k.byAddress && p.NodePort != 0 && (p.ExternalLocal || len(ranges(p.SourceRanges, k.f.is)) > 0)
}

// frontend notes what happens to packets for an address and a port that the bridge knows.
func (k *kernelServices) frontend(p *ServicePort, a netip.Addr, port uint16, preserve bool) {
	if p.Unserved {
		k.reject[frontend(a, p.Protocol, port)] = ""
	}
	if preserve {
		k.preserve[frontend(a, p.Protocol, port)] = ""
	}
}

func (k *kernelServices) externalAddresses(p *ServicePort, all []netip.Addr, instead string) {
	for _, a := range all {
		switch {
		case !k.f.has(a):
		case k.whole[a] && !k.byNodePort(p):
			// From a wire, the client comes to the kernel and from it by one interface: with one
			// address OVN would take both for one connection.
			k.frontend(p, a, p.Port, p.ExternalLocal && !p.Masked && (!k.byAddress || !k.wired[a]))
		case instead != "":
			k.external[frontend(a, p.Protocol, p.Port)] = instead
		}
	}
}

// restrict lets only the Service's ranges to the addresses of its load balancer. The host's
// own processes have the gateway's address there, in place of another one of the host that
// is in the ranges.
func (k *kernelServices) restrict(p *ServicePort) {
	sources := ranges(p.SourceRanges, k.f.is)
	if len(sources) == 0 {
		return
	}
	for own := range k.own {
		if slices.ContainsFunc(sources, func(r netipx.IPRange) bool { return r.Contains(own) }) {
			sources = ranges(append(slices.Clone(p.SourceRanges), netip.PrefixFrom(k.f.gateway, k.f.gateway.BitLen())),
				k.f.is)
			break
		}
	}
	for _, a := range p.LoadBalancerIPs {
		if !k.f.has(a) {
			continue
		}
		at := frontend(a, p.Protocol, p.Port)
		k.restricted[at] = ""
		for _, r := range sources {
			k.allowed[at+string(r.From().AsSlice())] = at + string(r.To().AsSlice())
		}
	}
}

// sets are the sets that the rules ask, named for their family.
func (k kernelServices) sets(nodePortAddresses []netip.Prefix) []set {
	n, addr := k.f.name, k.f.addr
	protoPort := concat(nftables.TypeInetProto, nftables.TypeInetService)
	at := concat(addr, nftables.TypeInetProto, nftables.TypeInetService)
	list := []set{
		{name: "services" + n, key: addr, ranges: k.led},
		{name: "clusterips" + n, key: addr, ranges: k.inside},
		{name: "floating" + n, key: addr, ranges: k.floating},
		{name: "cluster" + n, key: addr, ranges: k.cluster},
		{name: "node" + n, key: addr, ranges: k.f.nodeRanges(nodePortAddresses)},
		{name: "nodeports" + n, key: protoPort, kind: keys, elements: k.nodePorts},
		{name: "external" + n, key: at, value: concat(addr, nftables.TypeInetService), kind: keys,
			elements: k.external},
		{name: "preserve" + n, key: at, kind: keys, elements: k.preserve},
		{name: "reject" + n, key: at, kind: keys, elements: k.reject},
		{name: "restricted" + n, key: at, kind: keys, elements: k.restricted},
		{name: "allowed" + n, key: concat(addr, nftables.TypeInetProto, nftables.TypeInetService, addr), kind: runs,
			elements: k.allowed},
	}
	list = append(list, k.hosts.outsideSets(k.f)...)
	if k.byAddress {
		list = append(list, set{name: "within" + n, key: at, value: concat(addr, nftables.TypeInetService), kind: keys,
			elements: k.within})
		list = append(list, k.hosts.insideSets(k.f)...)
	}
	return list
}

func (f serviceFamily) is(a netip.Addr) bool { return a.Is6() == f.ipv6 }

// nodeRanges are the addresses that have node ports if they are the host's: those chosen,
// or all but never.
func (f serviceFamily) nodeRanges(chosen []netip.Prefix) []netipx.IPRange {
	if len(chosen) > 0 {
		return ranges(chosen, f.is)
	}
	all := netip.IPv4Unspecified()
	if f.ipv6 {
		all = netip.IPv6Unspecified()
	}
	var b netipx.IPSetBuilder
	b.AddPrefix(netip.PrefixFrom(all, 0))
	for _, p := range f.never {
		if f.is(p.Addr()) {
			b.RemovePrefix(p)
		}
	}
	return rangesIn(&b)
}

// concat cannot fail with few types.
func concat(types ...nftables.SetDatatype) nftables.SetDatatype {
	t, _ := nftables.ConcatSetType(types...)
	return t
}

// Keys of concatenated types: each field is padded to four bytes.

func service(p intent.Protocol, port uint16) string {
	return string(binary.BigEndian.AppendUint16([]byte{byte(p), 0, 0, 0}, port)) + "\x00\x00"
}

func frontend(a netip.Addr, p intent.Protocol, port uint16) string {
	return string(a.AsSlice()) + service(p, port)
}

func endpoint(a netip.Addr, port uint16) string {
	return string(binary.BigEndian.AppendUint16(a.AsSlice(), port)) + "\x00\x00"
}
