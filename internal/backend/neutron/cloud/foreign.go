// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"net/netip"
	"net/url"
	"slices"

	"coelan.io/coelan/internal/backend/neutron/resource"
)

// otherInterface is that of a router of the cluster for a subnet that is not the cluster's.
type otherInterface struct {
	router          resource.Ref
	subnet, address string
}

// readForeign adds the subnets that others have put on routers of the cluster, if their hosts
// answer by the router: it is their gateway, or a route of theirs leads there.
func (s *session) readForeign(ctx context.Context, have *resource.Inventory, list []otherInterface) error {
	for some := range slices.Chunk(list, maxProjects) {
		var ids []string
		for _, i := range some {
			ids = append(ids, i.subnet)
		}
		subnets, err := listSubnets(s.getter(ctx), url.Values{"id": ids})
		if err != nil {
			return err
		}
		for _, i := range some {
			for _, sn := range subnets {
				if sn.ID == i.subnet && sn.by(i.address) {
					have.PutForeign(i.router, sn.CIDR)
				}
			}
		}
	}
	return nil
}

// otherSubnet is a subnet that is not the cluster's.
type otherSubnet struct {
	ID      string
	CIDR    netip.Prefix
	Gateway string                     `json:"gateway_ip"`
	Routes  []struct{ NextHop string } `json:"host_routes"`
}

// by reports whether hosts of the subnet know a way by an address.
func (s otherSubnet) by(address string) bool {
	return s.Gateway == address ||
		slices.ContainsFunc(s.Routes, func(r struct{ NextHop string }) bool { return r.NextHop == address })
}

// listSubnets are those that a filter leaves, of all projects that the user is shown.
func listSubnets(get getter, filter url.Values) ([]otherSubnet, error) {
	of := collections[resource.Subnet]
	return list[otherSubnet](get, of.path, of.plural, filter)
}
