// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"net/netip"
	"slices"

	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/hostnet"
	"coelan.io/coelan/internal/intent"
)

// hostState is what the host's kernel must hold for a State. It is a pure function of its arguments.
func hostState(c config.Config, s *intent.State, uplink string, cards []string) hostnet.Desired {
	local := s.Local()
	d := hostnet.Desired{
		Gateway: hostnet.Gateway{Name: c.GatewayInterface, MTU: local.MTU},
		SNAT:    hostnet.SNAT{Enabled: c.SNAT.Enabled, Direct: slices.Clone(c.SNAT.ExcludeCIDRs)},
		Uplink:  uplink,
		Cards:   cards,
	}
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
		for _, sn := range sharedSubnets(s, n) {
			d.SNAT.Pods, d.SNAT.Direct = append(d.SNAT.Pods, sn.Prefix), append(d.SNAT.Direct, sn.Prefix)
			if src, ok := gatewayOf(own, sn.Prefix.Addr()); ok {
				d.Routes = append(d.Routes, hostnet.Route{Destination: sn.Prefix, Via: sn.Gateway, Gateway: true, Source: src})
			}
		}
	}
	slices.SortFunc(d.Routes, func(a, b hostnet.Route) int {
		return cmp.Or(a.Destination.Addr().Compare(b.Destination.Addr()), cmp.Compare(a.Destination.Bits(), b.Destination.Bits()))
	})
	return d
}

// remoteRoute leads to the pods of another node: through the gateway interface and the tunnel, or by the node's own
// address. There is none to a node that lacks an address, or to a family that this node has no pods in.
func remoteRoute(local intent.Local, own, n intent.Node, sn intent.Subnet) (hostnet.Route, bool) {
	if !local.Encapsulation.Tunnelled() {
		via := n.AddressIn(sn.Prefix.Addr())
		return hostnet.Route{Destination: sn.Prefix, Via: via}, via.IsValid()
	}
	src, ok := gatewayOf(own, sn.Prefix.Addr())
	if !ok || !n.AddressIn(local.TunnelIP).IsValid() {
		return hostnet.Route{}, false
	}
	return hostnet.Route{Destination: sn.Prefix, Via: sn.Gateway, Gateway: true, Source: src}, true
}

// gatewayOf is the node's own gateway address of a family.
func gatewayOf(own intent.Node, like netip.Addr) (netip.Addr, bool) {
	i := slices.IndexFunc(own.Subnets, func(o intent.Subnet) bool { return o.Prefix.Addr().Is4() == like.Is4() })
	if i < 0 {
		return netip.Addr{}, false
	}
	return own.Subnets[i].Gateway, true
}

// sharedSubnets are those of a Network whose addresses all nodes know: they lead into the bridge, where the virtual router
// answers for their gateway.
func sharedSubnets(s *intent.State, n intent.Network) []intent.NetworkSubnet {
	if r, ok := s.Routers().Get(n.Router); !ok || n.Physical != 0 || r.Private() {
		return nil
	}
	return n.Subnets
}

// tunnelPeers are the underlay addresses of the other nodes.
func tunnelPeers(s *intent.State) []netip.Addr {
	local := s.Local()
	if !local.Encapsulation.Tunnelled() {
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
