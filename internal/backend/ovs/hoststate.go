// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"cmp"
	"net/netip"
	"slices"

	"coelan.io/coelan/internal/backend/kernelview"
	"coelan.io/coelan/internal/backend/ovs/hostnet"
	"coelan.io/coelan/internal/backend/ovs/pipeline"
	"coelan.io/coelan/internal/intent"
)

// hostState is what the host's kernel must hold for a State, with the interface of the node's
// address and its network cards. It is a pure function of its arguments.
func hostState(s *intent.State, uplink string, cards []string) hostnet.Desired {
	local := s.Local()
	router, _ := s.Routers().Get(intent.DefaultRouterName)
	d := hostnet.Desired{
		Gateway: hostnet.Gateway{Name: local.Gateway, MTU: local.MTU},
		SNAT:    hostnet.SNAT{Enabled: router.SNAT.Enabled, Direct: slices.Clone(router.SNAT.Direct)},
		Guard:   kernelview.Guard(s),
		Uplink:  uplink,
		Cards:   cards,
	}
	d.Guard.TunnelMark = tunnelMark(local)
	own, _ := s.LocalNode()
	for _, sn := range own.Subnets {
		d.Gateway.Addresses = append(d.Gateway.Addresses, netip.PrefixFrom(sn.Gateway, sn.Prefix.Bits()))
		d.SNAT.Pods = append(d.SNAT.Pods, sn.Prefix)
		d.Routes = append(d.Routes, hostnet.Route{Destination: sn.Prefix, Gateway: true, Source: sn.Gateway})
	}
	for n := range s.Nodes().All() {
		for _, sn := range n.Subnets {
			d.SNAT.Direct = append(d.SNAT.Direct, sn.Prefix)
			if n.Name == own.Name {
				continue
			}
			if r, ok := remoteRoute(local, own, n, sn); ok {
				d.Routes = append(d.Routes, r)
			}
		}
	}
	for n := range s.Networks().All() {
		for _, sn := range kernelview.SharedSubnets(s, n) {
			d.SNAT.Pods, d.SNAT.Direct = append(d.SNAT.Pods, sn.Prefix), append(d.SNAT.Direct, sn.Prefix)
			if src, ok := gatewayOf(own, sn.Prefix.Addr()); ok {
				d.Routes = append(d.Routes,
					hostnet.Route{Destination: sn.Prefix, Via: sn.Gateway, Gateway: true, Source: src})
			}
		}
	}
	slices.SortFunc(d.Routes, func(a, b hostnet.Route) int {
		return cmp.Or(a.Destination.Addr().Compare(b.Destination.Addr()),
			cmp.Compare(a.Destination.Bits(), b.Destination.Bits()))
	})
	return d
}

// hostAffected says whether a reconciliation may have something else to do in the State to than in
// the State from: whether what hostState, tunnelPeers, the node's Local and the wires to physical
// networks are made of has changed. Services are followed elsewhere.
func hostAffected(from, to *intent.State) bool {
	if from == nil {
		return true
	}
	d := intent.Diff(from, to)
	return len(d.Nodes)+len(d.GuardedPorts)+len(d.Uplinks) > 0 ||
		slices.ContainsFunc(d.Routers, func(name string) bool {
			return name == intent.DefaultRouterName || kernelview.Shared(from, name) != kernelview.Shared(to, name)
		}) ||
		slices.ContainsFunc(d.Networks, func(name string) bool {
			old, _ := from.Networks().Get(name)
			now, _ := to.Networks().Get(name)
			// Overlays limit the MTU of the node's pods.
			return (old.Physical == "") != (now.Physical == "") ||
				!slices.Equal(kernelview.SharedSubnets(from, old), kernelview.SharedSubnets(to, now))
		})
}

// remoteRoute leads to the pods of another node: through the gateway interface and the tunnel, or
// by the node's own address. There is none to a node that lacks an address, or to a family that
// this node has no pods in.
func remoteRoute(local intent.Local, own, n intent.Node, sn intent.Subnet) (hostnet.Route, bool) {
	mtu := pipeline.PathMTU(local, n)
	if mtu == local.MTU {
		mtu = 0 // that of the interface
	}
	if !local.Encapsulation.Tunneled() {
		via := n.AddressIn(sn.Prefix.Addr())
		return hostnet.Route{Destination: sn.Prefix, Via: via, MTU: mtu}, via.IsValid()
	}
	src, ok := gatewayOf(own, sn.Prefix.Addr())
	if !ok || !n.AddressIn(local.TunnelIP).IsValid() {
		return hostnet.Route{}, false
	}
	return hostnet.Route{Destination: sn.Prefix, Via: sn.Gateway, Gateway: true, Source: src, MTU: mtu}, true
}

// gatewayOf is the node's own gateway address of a family.
func gatewayOf(own intent.Node, like netip.Addr) (netip.Addr, bool) {
	i := slices.IndexFunc(own.Subnets, func(o intent.Subnet) bool { return o.Prefix.Addr().Is4() == like.Is4() })
	if i < 0 {
		return netip.Addr{}, false
	}
	return own.Subnets[i].Gateway, true
}

// tunnelPeers are the underlay addresses of the other nodes.
func tunnelPeers(s *intent.State) []netip.Addr {
	local := s.Local()
	if !local.Encapsulation.Tunneled() {
		return nil
	}
	var peers []netip.Addr
	for n := range s.Nodes().All() {
		if a := n.AddressIn(local.TunnelIP); n.Name != local.Node && a.IsValid() {
			peers = append(peers, a)
		}
	}
	return peers
}
