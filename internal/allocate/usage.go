// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/ipam"
	"coelan.io/coelan/internal/translate"
)

// Usage is how much of a Network is used.
type Usage struct {
	Blocks     int32 // that nodes have claimed
	Used, Free int64 // addresses
}

// maxCount is what a number in JSON holds exactly.
const maxCount = 1 << 53

// BlockUsage counts the addresses that Ports, FloatingIPs, gateways of Routers and Egresses have of
// a Network's subnets, and the blocks of nodes. The addresses of all but Ports are blocks of their
// own.
func BlockUsage(n *v1alpha1.Network, ports []*v1alpha1.Port, blocks []*v1alpha1.AddressBlock) Usage {
	var u Usage
	for _, b := range blocks {
		if b.Spec.Node != "" && b.Spec.Port == "" {
			u.Blocks++
		}
	}
	pools, err := translate.Pools(n)
	if err != nil {
		return u
	}
	var ranges []ipam.Range
	for _, p := range pools {
		if r, err := p.Whole().Range(); err == nil {
			ranges = append(ranges, r)
		}
	}
	used := addressesOf(ports)
	for _, b := range blocks {
		if p, err := netip.ParsePrefix(b.Spec.CIDR); err == nil && translate.ClaimedOutside(b) {
			used[p.Addr()] = true
		}
	}
	u.Used = int64(len(used))
	u.Free = free64(sortRanges(ranges), used)
	return u
}

// PodCIDRUsage counts the addresses that Ports have of the nodes' podCIDRs. Free is what is left of
// these by all pods.
func PodCIDRUsage(nodes []*corev1.Node, pods []*corev1.Pod, ports []*v1alpha1.Port) Usage {
	return Usage{Used: int64(len(addressesOf(ports))), Free: free64(podRanges(nodes), podAddresses(pods, nil))}
}

// DefaultUsage counts the addresses of the pods that are on no other primary Network; elsewhere has
// the UIDs of those that are.
func DefaultUsage(nodes []*corev1.Node, pods []*corev1.Pod, elsewhere map[string]bool) Usage {
	ranges := podRanges(nodes)
	u := Usage{Free: free64(ranges, podAddresses(pods, nil))}
	for a := range podAddresses(pods, elsewhere) {
		if inRanges(ranges, a) {
			u.Used++
		}
	}
	return u
}

func addressesOf(ports []*v1alpha1.Port) map[netip.Addr]bool {
	used := map[netip.Addr]bool{}
	for _, p := range ports {
		for _, text := range p.Status.Addresses {
			if a, err := netip.ParseAddr(text); err == nil {
				used[a] = true
			}
		}
	}
	return used
}

func podAddresses(pods []*corev1.Pod, without map[string]bool) map[netip.Addr]bool {
	used := map[netip.Addr]bool{}
	for _, p := range pods {
		if !translate.OnPodNetwork(p) || without[string(p.UID)] {
			continue
		}
		for _, ip := range p.Status.PodIPs {
			if a, err := netip.ParseAddr(ip.IP); err == nil {
				used[a] = true
			}
		}
	}
	return used
}

func podRanges(nodes []*corev1.Node) []ipam.Range {
	var ranges []ipam.Range
	for _, n := range nodes {
		for _, text := range n.Spec.PodCIDRs {
			prefix, err := netip.ParsePrefix(text)
			if err != nil {
				continue
			}
			if r, err := ipam.New(prefix.Masked()); err == nil {
				ranges = append(ranges, r)
			}
		}
	}
	return sortRanges(ranges)
}

// free64 is how many addresses of the ranges, which are in order, are not used.
func free64(ranges []ipam.Range, used map[netip.Addr]bool) int64 {
	var sum uint64
	for _, r := range ranges {
		sum = min(sum+min(r.Size(), maxCount), maxCount)
	}
	for a := range used {
		if inRanges(ranges, a) {
			sum--
		}
	}
	return int64(sum) //nolint:gosec // at most maxCount
}

// inRanges says whether one of the ranges, which are in order, can hand out an address.
func inRanges(ranges []ipam.Range, a netip.Addr) bool {
	at, exact := slices.BinarySearchFunc(ranges, a, func(r ipam.Range, a netip.Addr) int {
		return r.Prefix().Addr().Compare(a)
	})
	if !exact {
		at--
	}
	return at >= 0 && ranges[at].Contains(a)
}

func sortRanges(ranges []ipam.Range) []ipam.Range {
	slices.SortFunc(ranges, func(x, y ipam.Range) int { return x.Prefix().Addr().Compare(y.Prefix().Addr()) })
	return ranges
}
