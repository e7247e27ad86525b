// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/wellknown"
)

// minHostBits leaves room in a subnet for its own number, the gateway and a pod.
const minHostBits = 2

// nodeObject begins the Object of a Problem of a node.
const nodeObject = "node "

// Nodes translates Node objects: podCIDRs become the node's subnets in the
// default network, with the first address as gateway, and InternalIPs its
// addresses. The nodes come sorted by name.
//
// Where the podCIDRs or addresses of two nodes overlap, the older object has
// them, so that every agent decides alike and a newcomer takes nothing away from
// running pods. A node of which something cannot be used is there with the rest.
func Nodes(objects []*corev1.Node) ([]intent.Node, []Problem) {
	objects = slices.Clone(objects)
	slices.SortFunc(objects, func(a, b *corev1.Node) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	var c claims
	nodes := make([]intent.Node, len(objects))
	for i, o := range objects {
		nodes[i] = intent.Node{
			Name: o.Name, Addresses: c.nodeAddresses(o), Subnets: c.nodeSubnets(o), MTU: c.nodeMTU(o),
			Zone: o.Labels[corev1.LabelTopologyZone], PhysicalNetworks: physicalNetworks(o), Withdrawn: withdrawn(o),
			TrunkPort: o.Annotations[v1alpha1.AnnotationTrunkPort],
		}
	}
	slices.SortFunc(nodes, func(a, b intent.Node) int { return cmp.Compare(a.Name, b.Name) })
	sortProblems(c.problems)
	return nodes, c.problems
}

// claims is what the nodes that were looked at so far have: both lists disjoint
// and sorted.
type claims struct {
	addresses []claim
	subnets   []claim
	problems  []Problem
}

type claim struct {
	prefix netip.Prefix
	node   string
}

// overlapping finds the claim that overlaps prefix, and where prefix would go in
// the list. Of disjoint prefixes, only its neighbors can overlap it.
func overlapping(list []claim, prefix netip.Prefix) (at int, c claim, found bool) {
	at, _ = slices.BinarySearchFunc(list, prefix, func(c claim, p netip.Prefix) int {
		return c.prefix.Addr().Compare(p.Addr())
	})
	for _, i := range []int{at, at - 1} {
		if i >= 0 && i < len(list) && list[i].prefix.Overlaps(prefix) {
			return at, list[i], true
		}
	}
	return at, claim{}, false
}

func (c *claims) nodeAddresses(o *corev1.Node) (addresses []netip.Addr) {
	internal := false
	for i, a := range o.Status.Addresses {
		if a.Type != corev1.NodeInternalIP {
			continue
		}
		internal = true
		p := Problem{Object: nodeObject + o.Name, Field: fmt.Sprintf("status.addresses[%d]", i), Value: a.Address}
		ip, err := netip.ParseAddr(a.Address)
		switch {
		case slices.Contains(addresses, ip):
		case err != nil || ip.Is4In6():
			c.malformed(p, "is not an IP address")
		case !ip.IsGlobalUnicast() || ip.Zone() != "":
			c.malformed(p, "cannot be reached from other nodes")
		case c.claimAddress(p, ip, o.Name):
			addresses = append(addresses, ip)
		}
	}
	if !internal {
		c.missing(Problem{Object: nodeObject + o.Name, Field: "status.addresses"},
			"no InternalIP, so other nodes cannot reach its pods; it comes from kubelet's --node-ip or the cloud provider")
	}
	return addresses
}

// nodeMTU is what the node's agent has written; 0: nothing, or nothing that can be used.
func (c *claims) nodeMTU(o *corev1.Node) int {
	text, ok := o.Annotations[v1alpha1.AnnotationMTU]
	if !ok {
		return 0
	}
	mtu, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		c.malformed(Problem{
			Object: nodeObject + o.Name, Field: "metadata.annotations[" + v1alpha1.AnnotationMTU + "]", Value: text,
		}, "is not an MTU")
		return 0
	}
	return int(mtu) //nolint:gosec // of 16 bits
}

// physicalNetworks are those that the node's agent has written; none if it has written nothing.
func physicalNetworks(o *corev1.Node) []string {
	list := strings.Split(o.Annotations[v1alpha1.AnnotationPhysicalNetworks], ",")
	slices.Sort(list)
	list = slices.DeleteFunc(slices.Compact(list), func(name string) bool { return name == "" })
	if len(list) == 0 {
		return nil
	}
	return list
}

// withdrawn reports whether a node is to answer for no address of the outside any more: it is about
// to leave the cluster, or is excluded from load balancers.
func withdrawn(o *corev1.Node) bool {
	_, excluded := o.Labels[corev1.LabelNodeExcludeBalancers]
	return excluded || wellknown.NodeLeaving(o)
}

// PodSubnets returns the node's podCIDRs as subnets of the default Network. It leaves out what it
// cannot read, of which Nodes reports a problem.
func PodSubnets(o *corev1.Node) []intent.Subnet {
	var own claims
	return own.nodeSubnets(o)
}

func (c *claims) nodeSubnets(o *corev1.Node) (subnets []intent.Subnet) {
	field, cidrs := "spec.podCIDRs", o.Spec.PodCIDRs
	if len(cidrs) == 0 && o.Spec.PodCIDR != "" {
		field, cidrs = "spec.podCIDR", []string{o.Spec.PodCIDR}
	}
	if len(cidrs) == 0 {
		c.missing(Problem{Object: nodeObject + o.Name, Field: field},
			"empty, so its pods get no addresses; kube-controller-manager sets it if it runs with --allocate-node-cidrs")
	}
	for i, cidr := range cidrs {
		p := Problem{Object: nodeObject + o.Name, Field: field, Value: cidr}
		if field == "spec.podCIDRs" {
			p.Field = fmt.Sprintf("%s[%d]", field, i)
		}
		prefix, err := netip.ParsePrefix(cidr)
		if err != nil || prefix.Addr().Is4In6() {
			c.malformed(p, "is not a CIDR")
			continue
		}
		prefix = prefix.Masked()
		twice := slices.ContainsFunc(subnets, func(s intent.Subnet) bool {
			return s.Prefix.Addr().Is4() == prefix.Addr().Is4()
		})
		switch {
		case prefix.Addr().BitLen()-prefix.Bits() < minHostBits:
			c.malformed(p, fmt.Sprintf("is too small: a /%d is the smallest that has room for the gateway and a pod",
				prefix.Addr().BitLen()-minHostBits))
		case !prefix.Addr().IsGlobalUnicast():
			c.malformed(p, "is not a range of unicast addresses")
		case twice:
			c.malformed(p, "is the second of its family; a node has at most one of each")
		case c.claimSubnet(p, prefix, o.Name):
			subnets = append(subnets, intent.Subnet{
				Network: intent.DefaultNetworkName, Prefix: prefix, Gateway: prefix.Addr().Next(),
			})
		}
	}
	return subnets
}

// claimAddress gives an address to a node unless an older one has it.
func (c *claims) claimAddress(p Problem, ip netip.Addr, node string) bool {
	prefix := netip.PrefixFrom(ip, ip.BitLen())
	if _, other, found := overlapping(c.subnets, prefix); found {
		c.overlap(p, fmt.Sprintf("is in the podCIDR %s of node %s", other.prefix, other.node))
		return false
	}
	at, other, found := overlapping(c.addresses, prefix)
	if found {
		c.overlap(p, fmt.Sprintf("is the address of node %s already", other.node))
		return false
	}
	c.addresses = slices.Insert(c.addresses, at, claim{prefix, node})
	return true
}

// claimSubnet gives a prefix to a node unless it overlaps what an older one has.
func (c *claims) claimSubnet(p Problem, prefix netip.Prefix, node string) bool {
	if _, other, found := overlapping(c.addresses, prefix); found {
		c.overlap(p, fmt.Sprintf("holds the address %s of node %s", other.prefix.Addr(), other.node))
		return false
	}
	at, other, found := overlapping(c.subnets, prefix)
	if found {
		c.overlap(p, fmt.Sprintf("overlaps %s of node %s", other.prefix, other.node))
		return false
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
