// SPDX-License-Identifier: Apache-2.0

package neutronfake

import (
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
)

// checkSubnetPool wants prefixes of one family, of which a change takes none away, and lengths in
// order. Neutron writes lengths as texts.
func (n *Neutron) checkSubnetPool(o object) *refused {
	prefixes := list(o["prefixes"])
	if len(prefixes) == 0 {
		return refuse(http.StatusBadRequest, "HTTPBadRequest", "Failed to parse request. Required attribute 'prefixes' not specified")
	}
	bits := 0
	for _, item := range prefixes {
		p, err := netip.ParsePrefix(fmt.Sprint(item))
		if err != nil {
			return refuse(http.StatusBadRequest, "HTTPBadRequest", "Invalid input for prefixes. Reason: '%v' is not a valid IP subnet.",
				item)
		}
		if bits != 0 && bits != p.Addr().BitLen() {
			return refuse(http.StatusBadRequest, "PrefixVersionMismatch", "Cannot mix IPv4 and IPv6 prefixes in a subnet pool.")
		}
		bits = p.Addr().BitLen()
	}
	if before := n.find("subnetpools", o["id"]); before != nil && !holds(prefixes, list(before["prefixes"])) {
		return refuse(http.StatusBadRequest, "IllegalSubnetPoolPrefixUpdate",
			"Illegal update to prefixes: Existing prefixes must be a subset of the new prefixes.")
	}
	least := length(o["min_prefixlen"], map[int]int{32: 8, 128: 64}[bits])
	most := length(o["max_prefixlen"], bits)
	usual := length(o["default_prefixlen"], least)
	for _, bad := range []struct {
		is          bool
		first, then string
	}{
		{least > most, "min_prefixlen", "max_prefixlen"},
		{usual > most, "default_prefixlen", "max_prefixlen"},
		{usual < least, "default_prefixlen", "min_prefixlen"},
	} {
		if bad.is {
			return refuse(http.StatusBadRequest, "IllegalSubnetPoolPrefixBounds",
				"Illegal prefix bounds: %s=%v, %s=%v.", bad.first, o[bad.first], bad.then, o[bad.then])
		}
	}
	o["ip_version"] = map[int]int{32: 4, 128: 6}[bits]
	o["min_prefixlen"], o["max_prefixlen"] = strconv.Itoa(least), strconv.Itoa(most)
	o["default_prefixlen"] = strconv.Itoa(usual)
	return nil
}

// length is a prefix length, a number or a text.
func length(value any, otherwise int) int {
	if n, err := strconv.Atoi(fmt.Sprint(value)); err == nil {
		return n
	}
	return otherwise
}

// holds reports whether each prefix of some is in one of all.
func holds(all, some []any) bool {
	for _, s := range some {
		in := false
		for _, a := range all {
			p, q := netip.MustParsePrefix(fmt.Sprint(a)), netip.MustParsePrefix(fmt.Sprint(s))
			in = in || p.Overlaps(q) && p.Bits() <= q.Bits()
		}
		if !in {
			return false
		}
	}
	return true
}

// checkAllocation wants all subnets of one family on a network to be of one pool or of none, and a
// new one of a pool to be in one of its prefixes, of a length that it allows, and no other one of
// the pool to overlap it.
func (n *Neutron) checkAllocation(o object, cidr netip.Prefix) *refused {
	if n.find("subnets", o["id"]) != nil {
		return nil
	}
	for _, other := range n.all["subnets"] {
		if other["network_id"] == o["network_id"] && other["subnetpool_id"] != o["subnetpool_id"] &&
			fmt.Sprint(other["ip_version"]) == fmt.Sprint(o["ip_version"]) {
			return refuse(http.StatusBadRequest, "NetworkSubnetPoolAffinityError",
				"Subnets hosted on the same network must be allocated from the same subnet pool.")
		}
	}
	if o["subnetpool_id"] == nil {
		return nil
	}
	pool := n.find("subnetpools", o["subnetpool_id"])
	if pool == nil {
		return refuse(http.StatusNotFound, "SubnetPoolNotFound", "Subnet pool %v could not be found.",
			o["subnetpool_id"])
	}
	switch least, most := length(pool["min_prefixlen"], 0), length(pool["max_prefixlen"], 0); {
	case cidr.Bits() < least:
		return refuse(http.StatusBadRequest, "MinPrefixSubnetAllocationError",
			"Unable to allocate subnet with prefix length %d, minimum allowed prefix is %d.", cidr.Bits(), least)
	case cidr.Bits() > most:
		return refuse(http.StatusBadRequest, "MaxPrefixSubnetAllocationError",
			"Unable to allocate subnet with prefix length %d, maximum allowed prefix is %d.", cidr.Bits(), most)
	}
	free := holds(list(pool["prefixes"]), []any{cidr.String()})
	for _, other := range n.all["subnets"] {
		overlaps := netip.MustParsePrefix(other["cidr"].(string)).Overlaps(cidr)
		free = free && !(other["subnetpool_id"] == pool["id"] && overlaps)
	}
	if !free {
		return refuse(http.StatusInternalServerError, "SubnetAllocationError", "Failed to allocate subnet: Cannot allocate requested "+
			"subnet from the available set of prefixes.")
	}
	return nil
}
