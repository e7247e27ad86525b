// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"fmt"
	"net/netip"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ipam"
)

// AddressPools finds the LoadBalancerPool that an address is in effect of.
type AddressPools struct{ spans []poolSpan }

// poolSpan is a part of a pool.
type poolSpan struct {
	ipam.Interval
	pool *v1alpha1.LoadBalancerPool
}

// NewAddressPools reads what the controller says is in effect, which may be more or less than the pools' specs.
func NewAddressPools(pools []*v1alpha1.LoadBalancerPool) AddressPools {
	var found AddressPools
	for _, p := range inOrder(pools, func(*v1alpha1.LoadBalancerPool) int32 { return 0 }) {
		for _, i := range inEffect(p) {
			found.spans = append(found.spans, poolSpan{i, p})
		}
	}
	return found
}

// Find is nil for an address of no pool.
func (p AddressPools) Find(a netip.Addr) *v1alpha1.LoadBalancerPool {
	for _, s := range p.spans {
		if s.Contains(a) {
			return s.pool
		}
	}
	return nil
}

// inEffect are a pool's addresses by its status. What cannot be read was not written by the controller.
func inEffect(p *v1alpha1.LoadBalancerPool) []ipam.Interval {
	var list []ipam.Interval
	for _, text := range p.Status.Ranges {
		if i, err := ipam.ParseInterval(text); err == nil {
			list = append(list, i)
		}
	}
	return list
}

// The largest pools have this many bits to count in.
const (
	maxPoolBits4 = 16
	maxPoolBits6 = 64
)

// checkPool reads a pool by itself; its addresses are sorted and do not overlap. The API server refuses most of what is
// an error here; an API server with older definitions may not.
func checkPool(p *v1alpha1.LoadBalancerPool) ([]ipam.Interval, error) {
	if s := p.Spec.NodeSelector; s != nil {
		if _, err := metav1.LabelSelectorAsSelector(s); err != nil {
			return nil, fmt.Errorf("spec.nodeSelector: %w", err)
		}
	}
	if len(p.Spec.Addresses) == 0 {
		return nil, fmt.Errorf("spec.addresses: there are none")
	}
	var list []ipam.Interval
	for n, text := range p.Spec.Addresses {
		i, err := ipam.ParseInterval(text)
		if err != nil {
			return nil, fmt.Errorf("spec.addresses[%d]: %w", n, err)
		}
		if err := checkPoolAddresses(i); err != nil {
			return nil, fmt.Errorf("spec.addresses[%d]: %q %w", n, text, err)
		}
		list = append(list, i)
	}
	return union(list), nil
}

func checkPoolAddresses(i ipam.Interval) error {
	bits := maxPoolBits6
	if i.From.Is4() {
		bits = maxPoolBits4
	}
	size := i.From.BitLen() - bits
	whole, err := i.From.Prefix(size)
	switch {
	case err != nil || !whole.Contains(i.To):
		return fmt.Errorf("is larger than a /%d", size)
	case !isUnicast(i.From) || !isUnicast(i.To):
		return fmt.Errorf("has addresses that are not unicast: unspecified, loopback, link-local, multicast or reserved")
	case i.Overlaps(ipam.Interval{From: intent.ServiceSourceIPv6, To: intent.NodePortIPv6}):
		return fmt.Errorf("has addresses that nodes use within themselves (%s, %s)", intent.ServiceSourceIPv6, intent.NodePortIPv6)
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

// union sorts intervals, and makes one of those that overlap or touch.
func union(list []ipam.Interval) []ipam.Interval {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b ipam.Interval) int { return a.From.Compare(b.From) })
	var out []ipam.Interval
	for _, i := range list {
		last := len(out) - 1
		if last < 0 || !out[last].Contains(i.From) && out[last].To.Next() != i.From {
			out = append(out, i)
		} else if out[last].To.Less(i.To) {
			out[last].To = i.To
		}
	}
	return out
}

// covered says whether all of a list, sorted by union, is in another one.
func covered(list, by []ipam.Interval) bool {
	for _, i := range list {
		if !slices.ContainsFunc(by, func(b ipam.Interval) bool { return b.Contains(i.From) && b.Contains(i.To) }) {
			return false
		}
	}
	return true
}

// sizeOf counts addresses, as far as numbers in JSON reach.
func sizeOf(list []ipam.Interval) int64 {
	var sum uint64
	for _, i := range list {
		if sum += min(i.Size(), maxCount); sum >= maxCount {
			return maxCount
		}
	}
	return int64(sum)
}
