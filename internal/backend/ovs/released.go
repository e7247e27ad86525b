// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"slices"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
)

// released are an attachment's addresses with the conntrack zones that know connections of them.
func released(s *intent.State, at attachment.Attachment) []attachment.ReleasedAddress {
	var list []attachment.ReleasedAddress
	space := ""
	if at.BlockSpace {
		space = at.NetworkName
	}
	zones := zonesOf(s, at.NetworkName)
	for _, p := range at.Addresses {
		list = append(list, attachment.ReleasedAddress{Address: p.Addr(), Space: space, Zones: zones})
	}
	known := append(gatewayZones(s, at.NetworkName), clusterZones...)
	for _, p := range at.NodeAddresses {
		list = append(list, attachment.ReleasedAddress{Address: p.Addr(), Zones: known})
	}
	return list
}

// clusterZones are those of addresses that the whole cluster knows: the default Router's, and that
// of endpoints that are their own clients.
var clusterZones = []uint16{uint16(intent.DefaultRouter), uint16(datapath.HairpinZone)}

// zonesOf are the zones in which connections of a Network's ports are tracked; none if the Network
// is not known.
func zonesOf(s *intent.State, network string) []uint16 {
	n, ok := s.Networks().Get(network)
	if !ok {
		return nil
	}
	if n.Physical != "" {
		return []uint16{uint16(datapath.PhysicalZone)}
	}
	r, ok := s.Routers().Get(n.Router)
	if !ok {
		return nil
	}
	var zones []uint16
	add := func(r intent.Router) {
		if r.Private() {
			zones = append(zones, uint16(r.ID)) //nolint:gosec // the low 16 bits are the zone
		} else {
			zones = append(zones, clusterZones...)
		}
	}
	add(r)
	for importer := range s.Importers(r.Name) {
		add(importer)
	}
	for _, name := range r.Imports {
		if imported, ok := s.Routers().Get(name); ok {
			add(imported)
		}
	}
	zones = append(zones, gatewayZones(s, network)...)
	slices.Sort(zones)
	return slices.Compact(zones)
}

// gatewayZones are the zones of connections by which a Network's ports leave the cluster by a
// gateway that this node is; none if it is none of their Router.
func gatewayZones(s *intent.State, network string) []uint16 {
	n, _ := s.Networks().Get(network)
	r, ok := s.Routers().Get(n.Router)
	if !ok {
		return nil
	}
	for range s.GatewayAddressesOf(s.Local().Node, r.Name) {
		return []uint16{datapath.GatewayZone(r.ID)}
	}
	return nil
}
