// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"coelan.io/coelan/internal/intent"
)

// minHostBits leaves room in a subnet for its own number, the gateway and a pod.
const minHostBits = 2

// Nodes translates Node objects: podCIDRs become the node's subnets in the
// default network, with the first address as gateway, and InternalIPs its
// addresses. The nodes come sorted by name.
//
// Of two nodes that claim overlapping podCIDRs or the same address, the older
// object has it, so that every agent decides alike and a newcomer takes nothing
// away from running pods. A node of which something cannot be used is there with
// the rest.
func Nodes(objects []*corev1.Node) ([]intent.Node, []Problem) {
	objects = slices.Clone(objects)
	slices.SortFunc(objects, func(a, b *corev1.Node) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	c := claims{addresses: map[netip.Addr]string{}}
	nodes := make([]intent.Node, len(objects))
	// All addresses come before all subnets: no subnet may hold a node's address.
	for i, o := range objects {
		nodes[i] = intent.Node{Name: o.Name, Addresses: c.nodeAddresses(o)}
	}
	c.sorted = slices.SortedFunc(maps.Keys(c.addresses), netip.Addr.Compare)
	for i, o := range objects {
		nodes[i].Subnets = c.nodeSubnets(o)
	}
	slices.SortFunc(nodes, func(a, b intent.Node) int { return cmp.Compare(a.Name, b.Name) })
	sortProblems(c.problems)
	return nodes, c.problems
}

// claims is what the nodes that were looked at so far have.
type claims struct {
	addresses map[netip.Addr]string // to node
	sorted    []netip.Addr          // the addresses, once all are known
	subnets   []claim               // disjoint, sorted
	problems  []Problem
}

type claim struct {
	prefix netip.Prefix
	node   string
}

func (c *claims) nodeAddresses(o *corev1.Node) (addresses []netip.Addr) {
	internal := false
	for i, a := range o.Status.Addresses {
		if a.Type != corev1.NodeInternalIP {
			continue
		}
		internal = true
		p := Problem{Object: "node " + o.Name, Field: fmt.Sprintf("status.addresses[%d]", i), Value: a.Address}
		ip, err := netip.ParseAddr(a.Address)
		switch owner := c.addresses[ip]; {
		case err != nil || ip.Is4In6():
			c.malformed(p, "is not an IP address")
		case !ip.IsGlobalUnicast() || ip.Zone() != "":
			c.malformed(p, "cannot be reached from other nodes")
		case owner != "":
			c.overlap(p, "is the address of node "+owner+" already")
		default:
			c.addresses[ip] = o.Name
			addresses = append(addresses, ip)
		}
	}
	if !internal {
		c.missing(Problem{Object: "node " + o.Name, Field: "status.addresses"},
			"no InternalIP, so other nodes cannot reach its pods; it comes from kubelet's --node-ip or the cloud provider")
	}
	return addresses
}

func (c *claims) nodeSubnets(o *corev1.Node) (subnets []intent.Subnet) {
	field, cidrs := "spec.podCIDRs", o.Spec.PodCIDRs
	if len(cidrs) == 0 && o.Spec.PodCIDR != "" {
		field, cidrs = "spec.podCIDR", []string{o.Spec.PodCIDR}
	}
	if len(cidrs) == 0 {
		c.missing(Problem{Object: "node " + o.Name, Field: field},
			"empty, so its pods get no addresses; kube-controller-manager sets it if it runs with --allocate-node-cidrs")
	}
	for i, cidr := range cidrs {
		p := Problem{Object: "node " + o.Name, Field: field, Value: cidr}
		if field == "spec.podCIDRs" {
			p.Field = fmt.Sprintf("%s[%d]", field, i)
		}
		prefix, err := netip.ParsePrefix(cidr)
		if err != nil || prefix.Addr().Is4In6() {
			c.malformed(p, "is not a CIDR")
			continue
		}
		prefix = prefix.Masked()
		twice := slices.ContainsFunc(subnets, func(s intent.Subnet) bool { return s.Prefix.Addr().Is4() == prefix.Addr().Is4() })
		switch {
		case prefix.Addr().BitLen()-prefix.Bits() < minHostBits:
			c.malformed(p, fmt.Sprintf("is too small: a /%d is the smallest that has room for the gateway and a pod", prefix.Addr().BitLen()-minHostBits))
		case !prefix.Addr().IsGlobalUnicast():
			c.malformed(p, "is not a range of unicast addresses")
		case twice:
			c.malformed(p, "is the second of its family; a node has at most one of each")
		case c.claim(p, prefix, o.Name):
			subnets = append(subnets, intent.Subnet{
				Network: intent.DefaultNetworkName, Prefix: prefix, Gateway: prefix.Addr().Next(),
			})
		}
	}
	return subnets
}

// claim gives a prefix to a node unless it overlaps what another object has.
func (c *claims) claim(p Problem, prefix netip.Prefix, node string) bool {
	first, _ := slices.BinarySearchFunc(c.sorted, prefix.Addr(), netip.Addr.Compare)
	if first < len(c.sorted) && prefix.Contains(c.sorted[first]) {
		ip := c.sorted[first]
		c.overlap(p, fmt.Sprintf("holds the address %s of node %s", ip, c.addresses[ip]))
		return false
	}
	at, _ := slices.BinarySearchFunc(c.subnets, prefix, func(c claim, p netip.Prefix) int {
		return c.prefix.Addr().Compare(p.Addr())
	})
	// Of disjoint prefixes, only the neighbours in the order can overlap a new one.
	for _, i := range []int{at - 1, at} {
		if i >= 0 && i < len(c.subnets) && c.subnets[i].prefix.Overlaps(prefix) {
			c.overlap(p, fmt.Sprintf("overlaps %s of node %s", c.subnets[i].prefix, c.subnets[i].node))
			return false
		}
	}
	c.subnets = slices.Insert(c.subnets, at, claim{prefix, node})
	return true
}

func (c *claims) missing(p Problem, text string)   { c.report(p, Missing, text) }
func (c *claims) malformed(p Problem, text string) { c.report(p, Malformed, text) }
func (c *claims) overlap(p Problem, text string)   { c.report(p, Overlap, text) }

func (c *claims) report(p Problem, reason Reason, text string) {
	p.Reason, p.Text = reason, text
	c.problems = append(c.problems, p)
}
