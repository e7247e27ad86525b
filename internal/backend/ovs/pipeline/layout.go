// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"slices"

	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
)

// ConntrackLayout numbers the meanings of what flows leave in conntrack: the bits of ct_mark, and
// which zone a connection is in. Connections outlive the flows that committed them, and those of a
// release with another layout must not be judged by this one's flows: where the number differs,
// agents forget them all.
//
// It stays the same when a bit gets a meaning that older releases left 0 and ignored, and flows
// that find it 0 do what was done before.
const ConntrackLayout = 1

// Zones are the conntrack zones that connections of the bridge are in.
func Zones(s *intent.State) []uint16 {
	zones := []uint16{clusterZone, sourceZone, uint16(datapath.PhysicalZone)}
	for r := range s.Routers().All() {
		if r.Private() {
			zones = append(zones, uint16(r.ID))
		}
	}
	for g := range s.GatewayAddressesAt(s.Local().Node) {
		if r, ok := s.Routers().Get(g.Router); ok {
			zones = append(zones, datapath.GatewayZone(r.ID))
		}
	}
	for e := range s.EgressAddressesAt(s.Local().Node) {
		if r, ok := s.Routers().Get(e.Router); ok {
			zones = append(zones, datapath.GatewayZone(r.ID))
		}
	}
	slices.Sort(zones)
	return slices.Compact(zones)
}
