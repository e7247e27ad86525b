// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"fmt"
	"net/netip"

	"go4.org/netipx"
	corev1 "k8s.io/api/core/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/translate"
)

// FloatingIPVerdict is which address a FloatingIP is to have, or why it gets none.
type FloatingIPVerdict struct {
	// Reason is why not, with a message for people; empty: nothing is wrong.
	Reason, Message string
	Fixed           netip.Addr // as asked for
	// Pools, without Fixed: to take an address of the first that has one left.
	Pools []translate.Pool
}

// Held are addresses that a Network must not hand out, and what has them.
type Held struct {
	Range netipx.IPRange
	Owner string
}

// HeldAddresses are those of nodes and those of pools that are in effect.
func HeldAddresses(nodes []*corev1.Node, pools []*v1alpha1.LoadBalancerPool) []Held {
	var held []Held
	for _, n := range nodes {
		for _, address := range n.Status.Addresses {
			if a, err := netip.ParseAddr(address.Address); err == nil {
				held = append(held, Held{netipx.IPRangeFrom(a, a), "node " + n.Name})
			}
		}
	}
	for _, p := range pools {
		for _, r := range translate.PoolRanges(p) {
			held = append(held, Held{r, "loadbalancerpool " + p.Name})
		}
	}
	return held
}

// CheckFloatingIP judges a FloatingIP by its Network and its namespace, either of which may be nil
// because it is not there. Held addresses are not given to a FloatingIP; what it has in its status,
// it keeps. Whether its address is free is not decided here: that is asked of the API, see
// BlockName.
func CheckFloatingIP(f *v1alpha1.FloatingIP, n *v1alpha1.Network, namespace *corev1.Namespace,
	held []Held,
) FloatingIPVerdict {
	if n == nil {
		return refuseFloatingIP(v1alpha1.ReasonNetworkNotFound,
			"network %s does not exist: create it, or name an external Network that does", f.Spec.Network)
	}
	switch {
	case !n.Spec.External:
		return refuseFloatingIP(v1alpha1.ReasonNotExternal,
			"network %s has no addresses for FloatingIPs: name a Network with external: true", n.Name)
	case n.DeletionTimestamp != nil && f.Status.Address == "":
		return refuseFloatingIP(v1alpha1.ReasonNetworkNotReady, "network %s is being deleted: name another one", n.Name)
	case !translate.Admitted(n.Status.ID, n.Status.Conditions):
		return refuseFloatingIP(v1alpha1.ReasonNetworkNotReady,
			"network %s is not ready: its condition Ready says what to do", n.Name)
	case !translate.MayAttach(n, namespace, n.Spec.Node):
		return refuseFloatingIP(v1alpha1.ReasonNotAllowed,
			"network %s has no addresses for namespace %s: give the namespace the labels of its spec.namespaceSelector",
			n.Name, f.Namespace)
	}
	pools, err := translate.Pools(n)
	if err != nil {
		return refuseFloatingIP(v1alpha1.ReasonNetworkNotReady, "network %s: %v", n.Name, err)
	}
	if f.Spec.Address != "" {
		return checkAsked(f, n, pools, held)
	}
	family, ok := FloatingIPFamily(f, n)
	of := poolsOf(pools, family, held)
	if !ok || len(of) == 0 {
		return refuseFloatingIP(v1alpha1.ReasonWrongFamily,
			"network %s has no %s subnet: add one to it, or ask for the other ipFamily", n.Name, f.Spec.IPFamily)
	}
	return FloatingIPVerdict{Pools: of}
}

func refuseFloatingIP(reason, format string, args ...any) FloatingIPVerdict {
	return FloatingIPVerdict{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// checkAsked is CheckFloatingIP for one that asks for an address.
func checkAsked(f *v1alpha1.FloatingIP, n *v1alpha1.Network, pools []translate.Pool, held []Held) FloatingIPVerdict {
	a, err := netip.ParseAddr(f.Spec.Address)
	if err != nil || a.Is4In6() || a.Zone() != "" {
		return refuseFloatingIP(v1alpha1.ReasonInvalid, "spec.address: %q is not an address", f.Spec.Address)
	}
	if f.Spec.IPFamily != "" && (f.Spec.IPFamily == v1alpha1.IPv4) != a.Is4() {
		return refuseFloatingIP(v1alpha1.ReasonWrongFamily, "spec.ipFamily: %s is not the family of %s: leave it out",
			f.Spec.IPFamily, a)
	}
	reason, message := askable(a, f.Status.Address == a.String(), n, pools, held)
	if reason != "" {
		return refuseFloatingIP(reason, "spec.address: %s: ask for another one, or for none", message)
	}
	return FloatingIPVerdict{Fixed: a}
}

// askable says why an address of an external Network cannot be had on request, "" if it can as far
// as is known without asking the API. What a claimant has it keeps when the Network's rules change,
// or a node takes the address.
func askable(a netip.Addr, has bool, n *v1alpha1.Network, pools []translate.Pool,
	held []Held,
) (reason, message string) {
	if _, why := placed(a, pools); why != "" {
		return v1alpha1.ReasonAddressOutside, fmt.Sprintf("%s %s", a, why)
	}
	if has {
		return "", ""
	}
	if why := translate.FixedAddressRefused(n, a); why != "" {
		return v1alpha1.ReasonAddressOutside, why
	}
	for _, h := range held {
		if h.Range.Contains(a) {
			return v1alpha1.ReasonAddressTaken, fmt.Sprintf("%s is that of %s", a, h.Owner)
		}
	}
	return "", ""
}

// heldIn are the ranges that have addresses of a subnet.
func heldIn(held []Held, subnet netip.Prefix) []netipx.IPRange {
	var ranges []netipx.IPRange
	for _, h := range held {
		if h.Range.Overlaps(netipx.RangeOfPrefix(subnet)) {
			ranges = append(ranges, h.Range)
		}
	}
	return ranges
}

// FloatingIPFamily is the family of the address that a FloatingIP has or asks for, else that of the
// Network's first subnet; false if none of them says so, as when the Network is nil.
func FloatingIPFamily(f *v1alpha1.FloatingIP, n *v1alpha1.Network) (v1alpha1.IPFamily, bool) {
	for _, text := range []string{f.Spec.Address, f.Status.Address} {
		if a, err := netip.ParseAddr(text); err == nil {
			return familyOf(a), true
		}
	}
	if f.Spec.IPFamily != "" {
		return f.Spec.IPFamily, true
	}
	if n == nil || len(n.Spec.Subnets) == 0 {
		return "", false
	}
	p, err := netip.ParsePrefix(n.Spec.Subnets[0].CIDR)
	return familyOf(p.Addr()), err == nil
}

func familyOf(a netip.Addr) v1alpha1.IPFamily {
	if a.Is4() {
		return v1alpha1.IPv4
	}
	return v1alpha1.IPv6
}
