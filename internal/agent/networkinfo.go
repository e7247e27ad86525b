// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/netip"

	"coelan.io/coelan/internal/intent"
)

// NetworkInfo is an element of the answer to GET /v1/networks: a Network as it is in effect on the node.
type NetworkInfo struct {
	Name   string `json:"name"`
	ID     uint32 `json:"id"`
	VNI    uint32 `json:"vni,omitempty"`
	Router string `json:"router,omitempty"`
	// Uplink is the OpenFlow port that leads to the physical network, VLAN the tag on it.
	Uplink  uint32         `json:"uplink,omitempty"`
	VLAN    uint16         `json:"vlan,omitempty"`
	Subnets []netip.Prefix `json:"subnets"` // those of the node's podCIDRs if it has none of its own
	Blocks  []netip.Prefix `json:"blocks"`  // of this node
	Ports   int            `json:"ports"`   // of this node
}

// RouterInfo is an element of the answer to GET /v1/routers: a Router as it is in effect on the node.
type RouterInfo struct {
	Name string `json:"name"`
	ID   uint16 `json:"id"`
	VNI  uint32 `json:"vni"`
	// Shared says that its addresses are known to the whole cluster.
	Shared   bool        `json:"shared"`
	Imports  []string    `json:"imports"`
	Networks []string    `json:"networks"`
	Routes   []RouteInfo `json:"routes"`
}

// RouteInfo is a static route of a Router.
type RouteInfo struct {
	Destination netip.Prefix `json:"destination"`
	NextHop     netip.Addr   `json:"nextHop"`
}

func (a *Agent) networks() []NetworkInfo {
	s := a.intent.State()
	infos := []NetworkInfo{}
	for n := range s.Networks().All() {
		i := NetworkInfo{
			Name: n.Name, ID: uint32(n.ID), VNI: n.VNI, Router: n.Router, Uplink: n.Physical, VLAN: n.VLAN,
			Subnets: []netip.Prefix{}, Blocks: []netip.Prefix{},
		}
		for _, sn := range n.Subnets {
			i.Subnets = append(i.Subnets, sn.Prefix)
		}
		if own, ok := s.LocalNode(); ok && n.FromNodes() {
			i.Subnets = podCIDRs(own)
		}
		for b := range s.BlocksOf(n.Name) {
			if b.Node == a.opts.NodeName {
				i.Blocks = append(i.Blocks, b.Prefix)
			}
		}
		for p := range s.PortsOf(n.Name) {
			if p.OFPort != 0 {
				i.Ports++
			}
		}
		infos = append(infos, i)
	}
	return infos
}

func (a *Agent) routers() []RouterInfo {
	s := a.intent.State()
	infos := []RouterInfo{}
	for r := range s.Routers().All() {
		i := RouterInfo{
			Name: r.Name, ID: uint16(r.ID), VNI: r.VNI, Shared: !r.Private(),
			Imports: append([]string{}, r.Imports...), Networks: []string{}, Routes: []RouteInfo{},
		}
		for n := range s.NetworksOf(r.Name) {
			i.Networks = append(i.Networks, n.Name)
		}
		for _, route := range r.Routes {
			i.Routes = append(i.Routes, RouteInfo{route.Destination, route.NextHop})
		}
		infos = append(infos, i)
	}
	return infos
}

// portNumbered is the port of this node with an OpenFlow port number.
func portNumbered(s *intent.State, port uint32) (intent.Port, bool) {
	for p := range s.Ports().All() {
		if p.OFPort == port && port != 0 {
			return p, true
		}
	}
	return intent.Port{}, false
}
