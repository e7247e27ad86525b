// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"fmt"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/translate"
)

// hopRefused is why a host cannot be a next hop on a Network; empty: it can. It has to be in reach
// without a router, and no address of the cluster's, now or ever.
func hopRefused(hop netip.Addr, n *v1alpha1.Network, pools []translate.Pool, held []Held) (reason, message string) {
	i := slices.IndexFunc(pools, func(p translate.Pool) bool { return p.Prefix.Contains(hop) })
	if i < 0 {
		return v1alpha1.ReasonAddressOutside,
			fmt.Sprintf("%s is in no subnet of network %s: name a host of the Network", hop, n.Name)
	}
	for _, h := range held {
		if h.Range.Contains(hop) {
			return v1alpha1.ReasonAddressTaken,
				fmt.Sprintf("%s is that of %s: name a host outside of the cluster", hop, h.Owner)
		}
	}
	p := pools[i]
	has := func(r netipx.IPRange) bool { return r.Contains(hop) }
	if hop == p.Gateway || slices.ContainsFunc(p.Except, has) {
		return "", ""
	}
	if len(p.Only) == 0 || slices.ContainsFunc(p.Only, has) {
		return v1alpha1.ReasonAddressTaken, fmt.Sprintf("%s is among the addresses that network %s hands out: "+
			"set ranges or exclusions of its subnet so that it is not", hop, n.Name)
	}
	return "", ""
}

// checkHops judges the next hops of an Egress, and says which families they have.
func checkHops(e *v1alpha1.Egress, n *v1alpha1.Network, held []Held) (families []string, reason, message string) {
	hops, err := translate.PolicyNextHops(e)
	if err != nil {
		return nil, v1alpha1.ReasonInvalid, err.Error()
	}
	pools, err := translate.Pools(n)
	if err != nil {
		return nil, "", "" // checkEgress tells
	}
	for _, hop := range hops {
		if reason, message := hopRefused(hop, n, pools, held); reason != "" {
			return nil, reason, "spec.policyRoute.nextHops: " + message
		}
		families = append(families, string(familyOf(hop)))
	}
	slices.Sort(families)
	return slices.Compact(families), "", ""
}
