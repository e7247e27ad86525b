// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"go4.org/netipx"
	corev1 "k8s.io/api/core/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
)

// smallestSubnet is how many bits an address has beyond the longest prefix of a subnet: a gateway
// and an interface have room.
const smallestSubnet = 2

// ParseSubnetPools reads pools with commas between them, at most one of each family: each a CIDR
// and the prefix length of its subnets, such as 10.128.0.0/14/24,fd00:128::/48/64.
func ParseSubnetPools(text string) (pools []intent.SubnetPool, err error) {
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		p, err := parseSubnetPool(part)
		if err != nil {
			return nil, err
		}
		for _, other := range pools {
			if other.Prefix.Addr().Is4() == p.Prefix.Addr().Is4() {
				return nil, fmt.Errorf("%s and %s are of one family: leave one of them out", other, p)
			}
		}
		pools = append(pools, p)
	}
	return pools, nil
}

func parseSubnetPool(text string) (intent.SubnetPool, error) {
	var p intent.SubnetPool
	end := strings.LastIndex(text, "/")
	prefix, err := netip.ParsePrefix(text[:max(end, 0)])
	if err != nil || prefix.Addr().Is4In6() {
		return p, fmt.Errorf("%q is not a CIDR and a prefix length, such as 10.128.0.0/14/24", text)
	}
	bits, err := strconv.ParseUint(text[end+1:], 10, 8)
	if err != nil {
		return p, fmt.Errorf("%q: %q is not a prefix length", text, text[end+1:])
	}
	p.Prefix, p.Bits = prefix, int(bits)
	longest := prefix.Addr().BitLen() - smallestSubnet
	switch {
	case prefix != prefix.Masked():
		return p, fmt.Errorf("%q: %s has bits set after its length: write %s", text, prefix, prefix.Masked())
	case !prefix.Addr().IsGlobalUnicast():
		return p, fmt.Errorf("%q: %s is not a range of unicast addresses", text, prefix)
	case p.Bits < prefix.Bits() || p.Bits > longest:
		return p, fmt.Errorf("%q: the prefix length of subnets is %d, not between %d, that of the pool, and %d", text, p.Bits,
			prefix.Bits(), longest)
	}
	return p, nil
}

// ErrPoolUsedUp is wrapped by the error of a pool that has no free subnet.
var ErrPoolUsedUp = errors.New("has no free subnet")

// NextSubnet is the first subnet of a pool after a given one that overlaps nothing that is taken;
// after the last one comes the first. So one that was just freed is the last to be taken again.
func NextSubnet(pool intent.SubnetPool, taken []netip.Prefix, after netip.Prefix) (netip.Prefix, error) {
	var inPool []netip.Prefix
	for _, t := range taken {
		if t.IsValid() && t.Overlaps(pool.Prefix) {
			inPool = append(inPool, t.Masked())
		}
	}
	slices.SortFunc(inPool, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	if after.IsValid() && pool.Prefix.Overlaps(after) {
		if p, ok := firstFree(pool, inPool, following(pool, after)); ok {
			return p, nil
		}
	}
	if p, ok := firstFree(pool, inPool, pool.Prefix.Addr()); ok {
		return p, nil
	}
	return netip.Prefix{}, fmt.Errorf("the pool %s %w", pool, ErrPoolUsedUp)
}

// firstFree is the first free subnet that begins at an address or after it. What is taken is in the
// order of its first addresses.
func firstFree(pool intent.SubnetPool, taken []netip.Prefix, at netip.Addr) (netip.Prefix, bool) {
	for _, t := range taken {
		if p := netip.PrefixFrom(at, pool.Bits); pool.Prefix.Contains(at) && p.Overlaps(t) {
			at = following(pool, t)
		}
	}
	return netip.PrefixFrom(at, pool.Bits), pool.Prefix.Contains(at)
}

// following is the first address of the subnet after the one that a prefix ends in; it may be out
// of the pool.
func following(pool intent.SubnetPool, p netip.Prefix) netip.Addr {
	last := netip.PrefixFrom(netipx.PrefixLastIP(p), pool.Bits).Masked()
	return netipx.PrefixLastIP(last).Next()
}

// PodCIDRs are the prefixes of nodes; what cannot be read is none.
func PodCIDRs(nodes []*corev1.Node) (prefixes []netip.Prefix) {
	for _, n := range nodes {
		cidrs := n.Spec.PodCIDRs
		if len(cidrs) == 0 {
			cidrs = []string{n.Spec.PodCIDR}
		}
		prefixes = AppendPrefixes(prefixes, cidrs)
	}
	return prefixes
}

// Subnets are those of Networks; what cannot be read is none.
func Subnets(networks []*v1alpha1.Network) (prefixes []netip.Prefix) {
	for _, n := range networks {
		for _, s := range n.Spec.Subnets {
			prefixes = AppendPrefixes(prefixes, []string{s.CIDR})
		}
	}
	return prefixes
}

// AppendPrefixes adds prefixes that are written as texts, masked; what cannot be read is none.
func AppendPrefixes(prefixes []netip.Prefix, texts []string) []netip.Prefix {
	for _, text := range texts {
		if p, err := netip.ParsePrefix(text); err == nil {
			prefixes = append(prefixes, p.Masked())
		}
	}
	return prefixes
}
