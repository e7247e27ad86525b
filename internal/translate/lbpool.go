// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"cmp"
	"net/netip"
	"slices"

	"go4.org/netipx"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ipam"
)

// AddressPools finds the LoadBalancerPool that an address is in effect of.
type AddressPools struct{ spans []poolSpan }

// poolSpan is a part of a pool.
type poolSpan struct {
	netipx.IPRange
	pool *v1alpha1.LoadBalancerPool
}

// NewAddressPools reads what the controller says is in effect, which may be more or less
// than the pools' specs.
func NewAddressPools(pools []*v1alpha1.LoadBalancerPool) AddressPools {
	var found AddressPools
	for _, p := range slices.SortedFunc(slices.Values(pools), Older) {
		for _, i := range PoolRanges(p) {
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

// LoadBalancerPools translates what the controller says is in effect of the pools. An address of
// several is of the oldest. The nodes that may answer are those that a pool selects and that
// neither keep load balancers away nor are about to go.
func LoadBalancerPools(pools []*v1alpha1.LoadBalancerPool, nodes []*corev1.Node) []intent.LoadBalancerPool {
	list := make([]intent.LoadBalancerPool, 0, len(pools))
	var taken netipx.IPSetBuilder
	for _, p := range slices.SortedFunc(slices.Values(pools), Older) {
		var own netipx.IPSetBuilder
		for _, r := range PoolRanges(p) {
			own.AddRange(r)
		}
		have, _ := taken.IPSet() // of ranges that are valid
		own.RemoveSet(have)
		left, _ := own.IPSet()
		taken.AddSet(left)
		pool := intent.LoadBalancerPool{Name: p.Name, Nodes: answeringNodes(p, nodes)}
		for _, r := range left.Ranges() {
			pool.Ranges = append(pool.Ranges, intent.AddressRange{First: r.From(), Last: r.To()})
		}
		list = append(list, pool)
	}
	slices.SortFunc(list, func(a, b intent.LoadBalancerPool) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// answeringNodes are the names of the nodes that may answer for a pool's addresses, sorted.
func answeringNodes(p *v1alpha1.LoadBalancerPool, nodes []*corev1.Node) []string {
	selector, err := Select(p.Spec.NodeSelector)
	if err != nil {
		return nil // the controller tells
	}
	var names []string
	for _, n := range nodes {
		if !withdrawn(n) && selector.Matches(labels.Set(n.Labels)) {
			names = append(names, n.Name)
		}
	}
	slices.Sort(names)
	return names
}

// PoolRanges are a pool's addresses by its status. What cannot be read was not
// written by the controller.
func PoolRanges(p *v1alpha1.LoadBalancerPool) []netipx.IPRange {
	var list []netipx.IPRange
	for _, text := range p.Status.Ranges {
		if i, err := ipam.ParseRange(text); err == nil {
			list = append(list, i)
		}
	}
	return list
}
