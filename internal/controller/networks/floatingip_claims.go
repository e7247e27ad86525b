// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"context"
	"net/netip"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/allocate"
	"coelan.io/coelan/internal/names"
	"coelan.io/coelan/internal/translate"
)

// address claims the one that a FloatingIP is to have. The outcome says why it has none yet. Of
// what it has claimed otherwise, as an earlier one of its name, it keeps nothing.
func (c claims) address(ctx context.Context, f *v1alpha1.FloatingIP, network *v1alpha1.Network,
	v allocate.FloatingIPVerdict,
) (netip.Addr, *outcome, error) {
	by := claimantFloatingIP(f)
	for _, a := range by.had {
		stands, err := c.stands(ctx, by, a, network, v)
		if err != nil {
			return netip.Addr{}, nil, err
		}
		if stands {
			return a, nil, c.release(ctx, by, network.Name, a)
		}
	}
	blocks, ports, err := c.blocksAndPorts(ctx, network)
	if err != nil {
		return netip.Addr{}, nil, err
	}
	var refusal *outcome
	a := v.Fixed
	if a.IsValid() {
		refusal, err = c.fixed(ctx, by, blocks, []netip.Addr{a}, ports)
	} else {
		a, refusal, err = c.any(ctx, by, blocks, v.Pools, ports)
	}
	if err != nil {
		return netip.Addr{}, nil, err
	}
	if refusal != nil {
		refusal.message += fixes[refusal.reason]
	}
	return a, refusal, c.release(ctx, by, network.Name, a)
}

// fixes are what can be done about a refusal.
var fixes = map[string]string{
	v1alpha1.ReasonAddressTaken: ": ask for another one, or for none",
	v1alpha1.ReasonExhausted:    ": add a subnet to the Network, or delete FloatingIPs that are not needed",
}

// stands reports whether the claim of an address in the status makes it the claimant's. It looks at
// no other block: all FloatingIPs are looked at when the controller starts.
func (c claims) stands(ctx context.Context, by claimant, a netip.Addr, network *v1alpha1.Network,
	v allocate.FloatingIPVerdict,
) (bool, error) {
	pools, err := translate.Pools(network)
	i := slices.IndexFunc(pools, func(p translate.Pool) bool { return p.Prefix.Contains(a) })
	if err != nil || i < 0 {
		return false, nil
	}
	claim, around := &v1alpha1.AddressBlock{}, &v1alpha1.AddressBlock{}
	there, err := c.Find(ctx, "", names.BlockName(network.Name, netip.PrefixFrom(a, a.BitLen())), claim)
	if err != nil || !there || !by.claimed(claim) {
		return false, err
	}
	_, err = c.Find(ctx, "", names.BlockName(network.Name, netip.PrefixFrom(a, pools[i].BlockBits)), around)
	if err != nil {
		return false, err
	}
	answer := translate.Answer(claim, around.Spec.Node)
	return answer != nil && answer.Status == metav1.ConditionTrue || !v.Fixed.IsValid() && around.Spec.Node == "", nil
}
