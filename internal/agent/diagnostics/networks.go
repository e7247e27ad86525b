// SPDX-License-Identifier: Apache-2.0

package diagnostics

import (
	"net/netip"

	"coelan.io/coelan/internal/agentapi"
)

func (d *Diagnostics) networks() []agentapi.NetworkInfo {
	s, objects := d.Intent.State(), d.View.State().Networks
	uplinks, infos := d.Backend.Uplinks(), []agentapi.NetworkInfo{}
	for n := range s.Networks().All() {
		i := agentapi.NetworkInfo{
			Name: n.Name, ID: uint32(n.ID), VNI: n.VNI, Router: n.Router, Uplink: uplinks[n.Physical], VLAN: n.VLAN,
			Subnets: []netip.Prefix{}, Blocks: []netip.Prefix{},
		}
		for _, sn := range n.Subnets {
			i.Subnets = append(i.Subnets, sn.Prefix)
		}
		if own, ok := s.LocalNode(); ok && n.FromNodes() {
			i.Subnets = own.Prefixes()
		}
		for b := range s.BlocksOf(n.Name) {
			if b.Node == d.Node {
				i.Blocks = append(i.Blocks, b.Prefix)
			}
		}
		for p := range s.PortsOf(n.Name) {
			if p.Node == d.Node {
				i.Ports++
			}
		}
		if o := objects.Get(n.Name); o != nil && o.Status.Neutron != nil {
			i.Neutron = o.Status.Neutron.ID
		}
		infos = append(infos, i)
	}
	return infos
}

func (d *Diagnostics) routers() []agentapi.RouterInfo {
	s, objects := d.Intent.State(), d.View.State().Routers
	infos := []agentapi.RouterInfo{}
	for r := range s.Routers().All() {
		i := agentapi.RouterInfo{
			Name: r.Name, ID: uint16(r.ID), VNI: r.VNI, Shared: !r.Private(),
			Imports: append([]string{}, r.Imports...), Networks: []string{}, Routes: []agentapi.RouteInfo{},
		}
		for n := range s.NetworksOf(r.Name) {
			i.Networks = append(i.Networks, n.Name)
		}
		for _, route := range r.Routes {
			i.Routes = append(i.Routes, agentapi.RouteInfo{Destination: route.Destination, NextHop: route.NextHop})
		}
		if o := objects.Get(r.Name); o != nil && o.Status.Neutron != nil {
			i.Neutron = o.Status.Neutron.ID
		}
		infos = append(infos, i)
	}
	return infos
}
