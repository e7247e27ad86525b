// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/intent"
)

// subnetPool makes a pool. Its subnets may have other lengths than those that are made now: the
// setting may have been another one.
func (c *compiler) subnetPool(p intent.SubnetPool) {
	c.set.Add(resource.Resource{
		Ref: SubnetPoolRef(p.Prefix), Object: NetworkObject(intent.DefaultNetworkName),
		Fixed: resource.Attributes{"prefixes": []any{p.Prefix.String()}},
		Mutable: resource.Attributes{
			"name": c.name("namespaces " + p.Prefix.String()), "default_prefixlen": p.Bits,
			"min_prefixlen": p.Prefix.Bits(), "max_prefixlen": p.Prefix.Addr().BitLen(),
		},
	})
}

// pooled has a new subnet of a namespace's Network be of the pool that it is in: Neutron then
// refuses to make another one of the pool that overlaps it. One that is there cannot be given to a
// pool.
func (c *compiler) pooled(n intent.Network, r *resource.Resource, sn intent.NetworkSubnet) {
	if n.Namespace == "" || r.Project != "" {
		return
	}
	for _, p := range c.SubnetPools {
		if p.Prefix.Overlaps(sn.Prefix) && p.Prefix.Bits() <= sn.Prefix.Bits() {
			r.Initial = resource.Attributes{"subnetpool_id": SubnetPoolRef(p.Prefix)}
		}
	}
}
