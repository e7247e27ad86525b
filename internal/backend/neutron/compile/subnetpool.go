// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"net/netip"
	"strconv"

	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/intent"
)

// Given are the subnet pools of other programs that the subnets of namespaces are of.
type Given struct {
	// Pools are, by the prefix that subnets are of, where Neutron has them.
	Pools    map[netip.Prefix]GivenPool
	Problems []resource.Problem
}

// GivenPool is one of them.
type GivenPool struct {
	Ref    resource.Ref
	Shared bool // subnets in all projects may be of it
}

// Give finds the pools of other programs that have the prefixes of pools. While one of them is not
// there, subnets of the pools that have none wait for it.
func Give(pools []intent.SubnetPool, ids []string, have *resource.Inventory) Given {
	g := Given{Pools: map[netip.Prefix]GivenPool{}}
	var missing []resource.Ref
	for _, id := range ids {
		ref := resource.LentSubnetPool(id)
		loan, known := have.Loan(ref)
		if !known || loan.Refused != "" {
			missing = append(missing, ref)
		}
		switch {
		case !known: // the next reading says
		case loan.Refused != "":
			g.say("SubnetPoolNotFound", "new namespaces wait: %s; --neutron-subnet-pools of the controller is to name those that "+
				"there are", loan.Refused)
		default:
			g.take(pools, ref, id, loan)
		}
	}
	for _, p := range pools {
		_, given := g.Pools[p.Prefix]
		if _, own := have.Get(SubnetPoolRef(p.Prefix)); !given && !own && len(missing) > 0 {
			g.Pools[p.Prefix] = GivenPool{Ref: missing[0]}
		}
	}
	return g
}

func (g *Given) say(reason, message string, args ...any) {
	g.Problems = append(g.Problems, resource.Problem{
		Object: NetworkObject(intent.DefaultNetworkName), Reason: reason, Message: fmt.Sprintf(message, args...),
	})
}

// take has the subnets of the pool of one family be of a subnet pool of Neutron.
func (g *Given) take(pools []intent.SubnetPool, ref resource.Ref, id string, loan resource.Loan) {
	const reason = "SubnetPoolUnsuitable"
	version := fmt.Sprint(loan.Attributes["ip_version"])
	for _, p := range pools {
		if p.Prefix.Addr().Is4() != (version == "4") {
			continue
		}
		if _, twice := g.Pools[p.Prefix]; twice {
			g.say(reason, "the subnet pool %s is of one family with that which %s is of already: leave one of them out of "+
				"--neutron-subnet-pools of the controller", id, p)
			return
		}
		shared, _ := loan.Attributes["shared"].(bool)
		g.Pools[p.Prefix] = GivenPool{ref, shared}
		if prefixes := loan.Attributes["prefixes"]; !within(p.Prefix, prefixes) {
			g.say(reason, "the subnet pool %s has the prefixes %v: --namespace-subnets of the controller is to have a part of one of "+
				"them in place of %s", id, prefixes, p)
			return
		}
		least, most := length(loan.Attributes["min_prefixlen"]), length(loan.Attributes["max_prefixlen"])
		if p.Bits < least || p.Bits > most {
			g.say(reason, "the subnet pool %s has subnets with prefix lengths from %d to %d: --namespace-subnets of the controller is to "+
				"have one of them in place of %s", id, least, most, p)
		}
		return
	}
	g.say(reason, "the subnet pool %s is of IPv%s, and --namespace-subnets of the controller has no pool of this family", id, version)
}

// within reports whether a prefix is a part of one of a list of a pool.
func within(p netip.Prefix, prefixes any) bool {
	list, _ := prefixes.([]any)
	for _, item := range list {
		text, _ := item.(string)
		if of, err := netip.ParsePrefix(text); err == nil && isPart(p, of) {
			return true
		}
	}
	return false
}

// isPart reports whether all addresses of a prefix are of another one.
func isPart(p, of netip.Prefix) bool { return of.Overlaps(p) && of.Bits() <= p.Bits() }

// length is a prefix length of a pool: JSON's numbers have several types.
func length(value any) int {
	n, _ := strconv.Atoi(fmt.Sprint(value))
	return n
}

// subnetPool makes a pool, unless another program has. Its subnets may have other lengths than
// those that are made now: the setting may have been another one.
func (c *compiler) subnetPool(p intent.SubnetPool) {
	object := NetworkObject(intent.DefaultNetworkName)
	if given, is := c.Given.Pools[p.Prefix]; is { // nothing is asked of it, and none is made
		c.set.Add(resource.Resource{Ref: given.Ref, Object: object, Optional: true})
		return
	}
	c.set.Add(resource.Resource{
		Ref: SubnetPoolRef(p.Prefix), Object: object,
		Fixed: resource.Attributes{"prefixes": []any{p.Prefix.String()}},
		Mutable: resource.Attributes{
			"name": c.name("namespaces " + p.Prefix.String()), "default_prefixlen": p.Bits,
			"min_prefixlen": p.Prefix.Bits(), "max_prefixlen": p.Prefix.Addr().BitLen(),
		},
	})
}

// pooled has a new subnet of a namespace's Network be of the pool that it is in: Neutron then
// refuses to make another one of the pool that overlaps it. One that is there cannot be given to a
// pool. In another project only a shared pool has subnets.
func (c *compiler) pooled(n intent.Network, r *resource.Resource, sn intent.NetworkSubnet) {
	if n.Namespace == "" {
		return
	}
	for _, p := range c.SubnetPools {
		given, is := c.Given.Pools[p.Prefix]
		if !isPart(sn.Prefix, p.Prefix) || r.Project != "" && !given.Shared {
			continue
		}
		ref := SubnetPoolRef(p.Prefix)
		if is {
			ref = given.Ref
		}
		r.Initial = resource.Attributes{"subnetpool_id": ref}
	}
}
