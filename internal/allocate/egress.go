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

// EgressVerdict is which addresses that fail over between nodes a Router's gateway or an Egress is
// to have, or why it gets none.
type EgressVerdict struct {
	// Reason is why not, with a message for people; empty: it is to have some.
	Reason, Message string
	// Keep, with a Reason, says that it keeps those that it has.
	Keep bool
	// Fixed are those that it asks for and may have.
	Fixed []netip.Addr
	// Pools, where none is asked for, are those of each family: to take Count addresses of the
	// first that have some left.
	Pools [][]translate.Pool
	Count int
	// Refused are addresses that it asks for and cannot have.
	Refused []EgressRefusal
	// Unserved says which destinations of an Egress have another family than all addresses.
	Unserved string
	// Nodes may be active, sorted. NoNode is why there is none.
	Nodes  []string
	NoNode string
}

// EgressRefusal is why an address cannot be had.
type EgressRefusal struct {
	Reason, Message string
	IPv4            bool // the family
}

// egressWish is what is asked for.
type egressWish struct {
	field     string // the one of the spec that has the addresses and nodes
	addresses []v1alpha1.GatewayAddress
	count     int             // of each family if there are no addresses
	families  []string        // that are of use, sorted
	has       []netip.Addr    // already
	selected  labels.Selector // nodes that may be active
	unused    string          // why addresses of other families are of no use
}

// CheckCentralized judges the centralized gateway of a Router. Addresses stay the Router's also
// while no node may be active for them, or no Network of the Router has their family.
func CheckCentralized(r *v1alpha1.Router, c GatewayCluster) EgressVerdict {
	selected, v := checkGatewaySpec(r, c.Network)
	if v.Reason != "" {
		return EgressVerdict{Reason: v.Reason, Message: v.Message, Keep: v.Keep}
	}
	families := c.families()
	return checkEgress(egressWish{
		field: "spec.gateway", addresses: r.Spec.Gateway.Addresses, count: 1, families: families, has: c.Has,
		selected: selected,
		unused:   fmt.Sprintf("the Router's Networks have %s addresses alone", strings.Join(families, " and ")),
	}, c.Network, c.Nodes, c.Held)
}

// EgressCluster is what an Egress is judged by.
type EgressCluster struct {
	Network *v1alpha1.Network // that the Egress names; nil: there is none
	Nodes   []*corev1.Node
	Has     []netip.Addr // addresses of the Network that the Egress has
	Held    []Held
}

// CheckEgress judges an Egress. Addresses stay the Egress's also while no node may be active for
// them. Whether an older Egress selects the same pods is not looked at, see EgressRivals.
func CheckEgress(e *v1alpha1.Egress, c EgressCluster) EgressVerdict {
	destinations, err := translate.EgressDestinations(e)
	if err == nil {
		_, err = translate.SelectorOfEgress(e)
	}
	selected, invalid := translate.Select(e.Spec.Nodes)
	if err == nil && invalid != nil {
		err = fmt.Errorf("spec.nodes: %w", invalid)
	}
	if err != nil {
		return EgressVerdict{Reason: v1alpha1.ReasonInvalid, Message: err.Error(), Keep: true}
	}
	if reason, message := wayOut(e.Spec.Network, c.Network); reason != "" {
		return EgressVerdict{Reason: reason, Message: message, Keep: mayPass(reason)}
	}
	w := egressWish{
		field: "spec", addresses: e.Spec.Addresses, count: max(int(e.Spec.Count), 1),
		families: []string{string(v1alpha1.IPv4), string(v1alpha1.IPv6)}, has: c.Has, selected: selected,
	}
	if e.Spec.PolicyRoute != nil {
		var reason, message string
		if w.families, reason, message = checkHops(e, c.Network, c.Held); reason != "" {
			return EgressVerdict{Reason: reason, Message: message, Keep: true}
		}
		w.unused = fmt.Sprintf("the next hops have %s addresses alone", strings.Join(w.families, " and "))
	}
	v := checkEgress(w, c.Network, c.Nodes, c.Held)
	for _, family := range w.families {
		if e.Spec.PolicyRoute != nil && v.Reason == "" && !v.has(family) {
			v.Unserved = fmt.Sprintf("spec.policyRoute.nextHops: they have %s addresses, and no address of the Egress is: "+
				"ask for one that is, or leave them out", family)
		}
	}
	for _, d := range destinations {
		if !v.serves(d.Addr()) {
			v.Unserved = fmt.Sprintf("spec.destinations: %s is %s, and no address of the Egress is: ask for one that is, "+
				"or leave the destination out", d, familyOf(d.Addr()))
		}
	}
	return v
}

// serves reports whether an address of the verdict has the family of a destination.
func (v EgressVerdict) serves(d netip.Addr) bool {
	same := func(a netip.Addr) bool { return a.Is4() == d.Is4() }
	return slices.ContainsFunc(v.Fixed, same) || slices.ContainsFunc(v.Pools, func(pools []translate.Pool) bool {
		return same(pools[0].Prefix.Addr())
	})
}

// has reports whether an address of the verdict is of a family.
func (v EgressVerdict) has(family string) bool {
	if family == string(v1alpha1.IPv4) {
		return v.serves(netip.IPv4Unspecified())
	}
	return v.serves(netip.IPv6Unspecified())
}

func checkEgress(w egressWish, n *v1alpha1.Network, nodes []*corev1.Node, held []Held) EgressVerdict {
	pools, err := translate.Pools(n)
	if err != nil {
		return EgressVerdict{
			Reason: v1alpha1.ReasonNetworkNotReady, Message: fmt.Sprintf("network %s: %v", n.Name, err), Keep: true,
		}
	}
	v := EgressVerdict{Count: w.count}
	if len(w.addresses) > 0 {
		v.Fixed, v.Refused = w.ask(n, pools, held)
	} else if v.Pools = gatewayPools(pools, w.familiesWith(), held); len(v.Pools) == 0 {
		return EgressVerdict{Reason: v1alpha1.ReasonWrongFamily, Message: fmt.Sprintf(
			"network %s has no %s subnet: add one to it, or name an external Network that has",
			n.Name, strings.Join(w.families, " or "))}
	}
	v.Nodes, v.NoNode = activeNodes(nodes, w.selected, n.Spec.PhysicalNetwork)
	return v
}

// familiesWith are the families that are of use, and those of the addresses that it has.
func (w egressWish) familiesWith() []string {
	families := slices.Clone(w.families)
	for _, a := range w.has {
		families = append(families, string(familyOf(a)))
	}
	slices.Sort(families)
	return slices.Compact(families)
}

// ask sorts the addresses that are asked for into those that can be had and those that cannot.
func (w egressWish) ask(n *v1alpha1.Network, pools []translate.Pool,
	held []Held,
) (fixed []netip.Addr, refused []EgressRefusal) {
	for i, text := range w.addresses {
		field := fmt.Sprintf("%s.addresses[%d]: ", w.field, i)
		a, err := netip.ParseAddr(text)
		if err != nil || a.Is4In6() || a.Zone() != "" {
			refused = append(refused, EgressRefusal{
				Reason: v1alpha1.ReasonInvalid, Message: fmt.Sprintf("%s%q is not an address", field, text),
			})
			continue
		}
		has, family := slices.Contains(w.has, a), string(familyOf(a))
		reason, message := askable(a, has, n, pools, held)
		switch {
		case reason != "":
			message += ": ask for another one, or for none"
		case !has && !slices.Contains(w.families, family):
			reason = v1alpha1.ReasonWrongFamily
			message = fmt.Sprintf("%s would not be used, %s: leave it out", a, w.unused)
		default:
			fixed = append(fixed, a)
			continue
		}
		refused = append(refused, EgressRefusal{Reason: reason, Message: field + message, IPv4: a.Is4()})
	}
	return fixed, refused
}

// activeNodes are the names of the nodes that may be active, sorted, or why there is none.
func activeNodes(nodes []*corev1.Node, selected labels.Selector, physical string) (names []string, none string) {
	for _, n := range nodes {
		if translate.MayBeActive(n, selected, physical) {
			names = append(names, n.Name)
		}
	}
	slices.Sort(names)
	if len(names) == 0 {
		none = fmt.Sprintf("no node that may be active is connected to physical network %s: %s", physical, connectNodes)
	}
	return names, none
}

// EgressReady is the condition of that type of addresses that fail over, of which it has those
// given; refused are those that could not be claimed.
func EgressReady(kind string, v EgressVerdict, has []netip.Addr, refused []EgressRefusal) metav1.Condition {
	c := metav1.Condition{Type: kind, Status: metav1.ConditionFalse}
	refused = slices.Concat(v.Refused, refused)
	switch {
	case v.Reason != "":
		c.Reason, c.Message = v.Reason, v.Message
	case len(refused) > 0:
		c.Reason, c.Message = refused[0].Reason, refused[0].Message
		if more := len(refused) - 1; more > 0 {
			c.Message += fmt.Sprintf("; and %d more", more)
		}
	case v.Unserved != "":
		c.Reason, c.Message = v1alpha1.ReasonWrongFamily, v.Unserved
	case v.NoNode != "":
		c.Reason, c.Message = v1alpha1.ReasonNoConnectedNode, v.NoNode
	default:
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonReady
		nodes := "1 node may be active"
		if len(v.Nodes) > 1 {
			nodes = fmt.Sprintf("%d nodes may be active", len(v.Nodes))
		}
		c.Message = fmt.Sprintf("%s for %s", nodes, enumerateAddresses(has))
	}
	return c
}

func enumerateAddresses(list []netip.Addr) string {
	var texts []string
	for _, a := range list[:min(len(list), maxNodes)] {
		texts = append(texts, a.String())
	}
	text := strings.Join(texts, ", ")
	if more := len(list) - maxNodes; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// EgressRivals are pods that an Egress selects and that leave by an older one.
type EgressRivals struct {
	Count  int
	Pod    string // namespace/name of one of them
	Egress string // by which that one leaves
}

// WithRivals is the condition of an Egress of which some pods leave by an older one.
func WithRivals(c metav1.Condition, r EgressRivals) metav1.Condition {
	if r.Count == 0 || c.Status != metav1.ConditionTrue {
		return c
	}
	pods := fmt.Sprintf("pod %s leaves by Egress %s, which is older", r.Pod, r.Egress)
	if r.Count > 1 {
		pods = fmt.Sprintf("%d pods leave by older Egresses, such as %s by %s", r.Count, r.Pod, r.Egress)
	}
	c.Reason = v1alpha1.ReasonPodsTaken
	c.Message += fmt.Sprintf("; %s: change the selectors of one of them", pods)
	return c
}
