// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"fmt"
	"net/netip"
	"slices"

	"go4.org/netipx"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/ipam"
	"coelan.io/coelan/internal/reserved"
)

// The largest pools have this many bits to count in.
const (
	maxPoolBits4 = 16
	maxPoolBits6 = 64
)

// checkPool reads a pool by itself; its addresses are sorted and do not overlap. The API server
// refuses most of what is an error here; an API server with older definitions may not.
func checkPool(p *v1alpha1.LoadBalancerPool) ([]netipx.IPRange, error) {
	if _, err := metav1.LabelSelectorAsSelector(p.Spec.NodeSelector); err != nil {
		return nil, fmt.Errorf("spec.nodeSelector: %w", err)
	}
	if _, err := metav1.LabelSelectorAsSelector(p.Spec.NamespaceSelector); err != nil {
		return nil, fmt.Errorf("spec.namespaceSelector: %w", err)
	}
	if len(p.Spec.Addresses) == 0 {
		return nil, fmt.Errorf("spec.addresses: there are none")
	}
	var list []netipx.IPRange
	for n, text := range p.Spec.Addresses {
		i, err := ipam.ParseRange(text)
		if err != nil {
			return nil, fmt.Errorf("spec.addresses[%d]: %w", n, err)
		}
		if err := checkPoolAddresses(i); err != nil {
			return nil, fmt.Errorf("spec.addresses[%d]: %q %w", n, text, err)
		}
		list = append(list, i)
	}
	return setOf(list).Ranges(), nil
}

func checkPoolAddresses(i netipx.IPRange) error {
	bits := maxPoolBits6
	if i.From().Is4() {
		bits = maxPoolBits4
	}
	size := i.From().BitLen() - bits
	whole, err := i.From().Prefix(size)
	switch {
	case err != nil || !whole.Contains(i.To()):
		return fmt.Errorf("is larger than a /%d", size)
	case !isUnicast(i.From()) || !isUnicast(i.To()):
		return fmt.Errorf("has addresses that are not unicast: unspecified, loopback, link-local, multicast or reserved")
	case slices.ContainsFunc(reserved.NodeLocalIPv6[:], i.Contains):
		return fmt.Errorf("has addresses that nodes use within themselves (%s, %s)", reserved.NodeLocalIPv6[0],
			reserved.NodeLocalIPv6[1])
	}
	return nil
}

func isUnicast(a netip.Addr) bool {
	if a.Is4() {
		first := a.As4()[0]
		return a.IsGlobalUnicast() && first > 0 && first < 224
	}
	return a.IsGlobalUnicast()
}

// setOf is the set of addresses in ranges, all of which are valid.
func setOf(list []netipx.IPRange) *netipx.IPSet {
	var b netipx.IPSetBuilder
	for _, r := range list {
		b.AddRange(r)
	}
	set, _ := b.IPSet()
	return set
}

// sizeOf counts addresses, as far as numbers in JSON reach.
func sizeOf(list []netipx.IPRange) int64 {
	var sum uint64
	for _, i := range list {
		if sum += min(ipam.Size(i), maxCount); sum >= maxCount {
			return maxCount
		}
	}
	return int64(sum)
}
