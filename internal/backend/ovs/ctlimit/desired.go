// SPDX-License-Identifier: Apache-2.0

package ctlimit

import (
	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
)

// Names of the zones that are not one Router's. A Router cannot have them.
const (
	// Physical is the zone of all physical networks.
	Physical = "(physical)"
	// Hairpin is that of endpoints of Services that are their own clients.
	Hairpin = "(hairpin)"
)

// zone is a conntrack zone with its limit, 0: none.
type zone struct {
	router string
	// gateway says that it is the zone of what leaves by the Router's gateway.
	gateway bool
	limit   int
}

// Shares of the table.
const (
	shareOfDefault = 2
	shareOfRouter  = 10
)

// zonesOf are the zones of a State, each with the limit that the settings give it in a table of
// that size.
func zonesOf(s *intent.State, c config.Conntrack, table int) map[uint16]zone {
	share := func(limit, part int) int {
		if limit == 0 {
			limit = max(1, table/part)
		}
		return limit
	}
	each, ofDefault := share(c.MaxPerRouter, shareOfRouter), share(c.MaxDefault, shareOfDefault)
	zones := map[uint16]zone{
		uint16(intent.DefaultRouter):  {router: intent.DefaultRouterName, limit: ofDefault},
		uint16(datapath.PhysicalZone): {router: Physical, limit: each},
		uint16(datapath.HairpinZone):  {router: Hairpin, limit: each},
	}
	for r := range s.PrivateRouters() {
		zones[uint16(r.ID)] = zone{router: r.Name, limit: each}
	}
	ofGateway := func(router string) {
		if r, ok := s.Routers().Get(router); ok {
			limit := each
			if r.Name == intent.DefaultRouterName {
				limit = ofDefault
			}
			zones[datapath.GatewayZone(r.ID)] = zone{r.Name, true, limit}
		}
	}
	for g := range s.GatewayAddressesAt(s.Local().Node) {
		ofGateway(g.Router)
	}
	for e := range s.EgressAddressesAt(s.Local().Node) {
		ofGateway(e.Router)
	}
	return zones
}

// limits reports whether the settings ask for limits on a datapath.
func limits(c config.Conntrack, d intent.Datapath) bool {
	switch c.Limits {
	case config.AlwaysLimits:
		return true
	case config.NeverLimits:
		return false
	default:
		return d == intent.DatapathNetdev
	}
}
