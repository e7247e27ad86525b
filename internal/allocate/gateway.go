// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/translate"
)

// GatewayCluster is what a Router's gateway is judged by.
type GatewayCluster struct {
	Network  *v1alpha1.Network   // that the gateway names; nil: there is none
	Networks []*v1alpha1.Network // of the Router
	Nodes    []*corev1.Node
	// Present are the nodes that have a Port or a block of the Router's Networks.
	Present map[string]bool
	// Having are the nodes that have an address of the gateway's Network for the Router.
	Having map[string]bool
	// Has are the addresses of the gateway's Network that the Router itself has, see
	// CheckCentralized.
	Has  []netip.Addr
	Held []Held
}

// GatewayVerdict is which nodes are to have addresses of a gateway, or why none is.
type GatewayVerdict struct {
	// Reason is why not, with a message for people; empty: nothing is wrong.
	Reason, Message string
	// Keep, with a Reason, says that nodes keep the addresses that they have.
	Keep bool
	// Nodes are to have addresses, sorted.
	Nodes []string
	// Unconnected are the nodes that would have addresses if they were connected, sorted.
	Unconnected []string
	// Pools are those of each family: to take an address of the first that has one left.
	Pools [][]translate.Pool
}

// CheckGateway judges the gateway of a Router that is not centralized. Whether addresses are free
// is not decided here: that is asked of the API, see BlockName.
func CheckGateway(r *v1alpha1.Router, c GatewayCluster) GatewayVerdict {
	selected, v := checkGatewaySpec(r, c.Network)
	if v.Reason != "" {
		return v
	}
	pools, err := translate.Pools(c.Network)
	if err != nil {
		return keepGateway(v1alpha1.ReasonNetworkNotReady, "network %s: %v", c.Network.Name, err)
	}
	families := c.families()
	if v.Pools = gatewayPools(pools, families, c.Held); len(v.Pools) == 0 {
		return GatewayVerdict{Reason: v1alpha1.ReasonWrongFamily, Message: fmt.Sprintf(
			"network %s has no %s subnet: add one to it, or name an external Network that has",
			c.Network.Name, strings.Join(families, " or "))}
	}
	physical, connected := c.Network.Spec.PhysicalNetwork, false
	for _, n := range c.Nodes {
		if !selected.Matches(labels.Set(n.Labels)) {
			continue
		}
		on := c.connected(n)
		connected = connected || on
		switch {
		case !c.Present[n.Name] && !c.handsOut(n):
		case on:
			v.Nodes = append(v.Nodes, n.Name)
		default:
			v.Unconnected = append(v.Unconnected, n.Name)
		}
	}
	slices.Sort(v.Nodes)
	slices.Sort(v.Unconnected)
	switch {
	case !connected:
		v.Reason, v.Message = v1alpha1.ReasonNoConnectedNode, fmt.Sprintf(
			"no node that may be a gateway is connected to physical network %s: %s", physical, connectNodes)
	case len(v.Nodes) == 0 && len(v.Unconnected) > 0:
		v.Reason, v.Message = v1alpha1.ReasonNoConnectedNode, fmt.Sprintf(
			"of the nodes that have something of the Router, none is connected to physical network %s, not %s: %s",
			physical, enumerateNodes(v.Unconnected), connectNodes)
	}
	return v
}

// connectNodes is how nodes get connected to a physical network.
const connectNodes = "name it in their bridgeMappings or uplinks"

// checkGatewaySpec is CheckGateway as far as no node is looked at.
func checkGatewaySpec(r *v1alpha1.Router, n *v1alpha1.Network) (labels.Selector, GatewayVerdict) {
	selected, err := translate.Select(r.Spec.Gateway.Nodes)
	if err != nil {
		return nil, keepGateway(v1alpha1.ReasonInvalid, "spec.gateway.nodes: %v", err)
	}
	for _, route := range r.Spec.Routes {
		if p, err := netip.ParsePrefix(route.Destination); err == nil && p.Bits() == 0 {
			return nil, GatewayVerdict{Reason: v1alpha1.ReasonRouteConflict, Message: fmt.Sprintf(
				"spec.routes has a route for %s, which is where the gateway leads: remove the route, or the gateway", p)}
		}
	}
	reason, message := wayOut(r.Spec.Gateway.Network, n)
	return selected, GatewayVerdict{Reason: reason, Message: message, Keep: mayPass(reason)}
}

// mayPass reports whether something may be wrong for a while only, which costs no addresses.
func mayPass(reason string) bool {
	return reason == v1alpha1.ReasonNetworkNotFound || reason == v1alpha1.ReasonNetworkNotReady
}

// wayOut says why nothing can leave the cluster by the Network of that name, "" if it can. The
// Network is nil if there is none.
func wayOut(name string, n *v1alpha1.Network) (reason, message string) {
	switch {
	case n == nil:
		return v1alpha1.ReasonNetworkNotFound,
			fmt.Sprintf("network %s does not exist: create it, or name an external Network that does", name)
	case !n.Spec.External:
		return v1alpha1.ReasonNotExternal,
			fmt.Sprintf("network %s does not lead out of the cluster: name a Network with external: true", name)
	case n.DeletionTimestamp != nil:
		return v1alpha1.ReasonNetworkNotReady, fmt.Sprintf("network %s is being deleted: name another one", name)
	case !translate.Admitted(n.Status.ID, n.Status.Conditions):
		return v1alpha1.ReasonNetworkNotReady,
			fmt.Sprintf("network %s is not ready: its condition Ready says what to do", name)
	}
	return "", ""
}

func keepGateway(reason, format string, args ...any) GatewayVerdict {
	return GatewayVerdict{Reason: reason, Message: fmt.Sprintf(format, args...), Keep: true}
}

// connected says whether a node is connected to the gateway's physical network. One with an address
// that says nothing of its networks stays so: its agent may be about to write it.
func (c GatewayCluster) connected(n *corev1.Node) bool {
	text, says := n.Annotations[v1alpha1.AnnotationPhysicalNetworks]
	if !says {
		return c.Having[n.Name]
	}
	return slices.Contains(strings.Split(text, ","), c.Network.Spec.PhysicalNetwork)
}

// Knows reports whether there is a node of that name.
func (c GatewayCluster) Knows(node string) bool {
	return slices.ContainsFunc(c.Nodes, func(n *corev1.Node) bool { return n.Name == node })
}

// handsOut says whether a node hands out podCIDRs as addresses of one of the Router's Networks.
func (c GatewayCluster) handsOut(n *corev1.Node) bool {
	return n.Spec.PodCIDR != "" && slices.ContainsFunc(c.Networks, func(o *v1alpha1.Network) bool {
		return o.Spec.IPAM == v1alpha1.PodCIDR && (o.Spec.Node == "" || o.Spec.Node == n.Name)
	})
}

// families are those of the addresses of the Router's Networks, IPv4 first; all while there are
// none.
func (c GatewayCluster) families() []string {
	var cidrs []string
	for _, n := range c.Networks {
		for _, s := range n.Spec.Subnets {
			cidrs = append(cidrs, s.CIDR)
		}
	}
	for _, n := range c.Nodes {
		if c.handsOut(n) {
			cidrs = append(append(cidrs, n.Spec.PodCIDR), n.Spec.PodCIDRs...)
		}
	}
	var families []string
	for _, text := range cidrs {
		if p, err := netip.ParsePrefix(text); err == nil {
			families = append(families, string(familyOf(p.Addr())))
		}
	}
	if len(families) == 0 {
		return []string{string(v1alpha1.IPv4), string(v1alpha1.IPv6)}
	}
	return slices.Compact(slices.Sorted(slices.Values(families)))
}

// gatewayPools are those of each of the families that there are pools of.
func gatewayPools(pools []translate.Pool, families []string, held []Held) [][]translate.Pool {
	var all [][]translate.Pool
	for _, family := range families {
		of := poolsOf(pools, v1alpha1.IPFamily(family), held)
		if len(of) > 0 {
			all = append(all, of)
		}
	}
	return all
}

// poolsOf are those of a family, which hand out nothing that is held.
func poolsOf(pools []translate.Pool, family v1alpha1.IPFamily, held []Held) []translate.Pool {
	of := slices.DeleteFunc(slices.Clone(pools), func(p translate.Pool) bool {
		return familyOf(p.Prefix.Addr()) != family
	})
	for i := range of {
		of[i].Except = slices.Concat(of[i].Except, heldIn(held, of[i].Prefix))
	}
	return of
}

// GatewayRefusal is what keeps a node from having its addresses.
type GatewayRefusal struct{ Node, Reason, Message string }

// GatewayReady is the condition GatewayReady of a gateway, of which count nodes have an address.
func GatewayReady(v GatewayVerdict, n *v1alpha1.Network, count int, refused []GatewayRefusal) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionGatewayReady, Status: metav1.ConditionFalse}
	switch {
	case v.Reason != "":
		c.Reason, c.Message = v.Reason, v.Message
		return c
	case len(refused) > 0:
		var nodes []string
		for _, r := range refused {
			nodes = append(nodes, r.Node)
		}
		c.Reason = refused[0].Reason
		c.Message = fmt.Sprintf("no address for %s: %s", enumerateNodes(nodes), refused[0].Message)
		return c
	}
	c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonReady
	switch count {
	case 0:
		c.Message = "no node has anything of the Router"
	case 1:
		c.Message = "1 node is a gateway"
	default:
		c.Message = fmt.Sprintf("%d nodes are gateways", count)
	}
	if len(v.Unconnected) > 0 {
		c.Reason = v1alpha1.ReasonNodesNotConnected
		c.Message += fmt.Sprintf("; not connected to physical network %s: %s, which the Router leaves as without a gateway",
			n.Spec.PhysicalNetwork, enumerateNodes(v.Unconnected))
	}
	return c
}

// maxNodes is how many nodes a message names.
const maxNodes = 3

// enumerateNodes names the first nodes of a sorted list, each once, and counts the rest.
func enumerateNodes(nodes []string) string {
	nodes = slices.Compact(slices.Clone(nodes))
	what := "node "
	if len(nodes) > 1 {
		what = "nodes "
	}
	if more := len(nodes) - maxNodes; more > 0 {
		return fmt.Sprintf("%s%s and %d more", what, strings.Join(nodes[:maxNodes], ", "), more)
	}
	return what + strings.Join(nodes, ", ")
}
