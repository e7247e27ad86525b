// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"crypto/sha256"
	"fmt"
	"net/netip"
	"slices"

	"go4.org/netipx"
	corev1 "k8s.io/api/core/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ipam"
	"coelan.io/coelan/internal/reserved"
	"coelan.io/coelan/internal/translate"
)

// PortVerdict is what a user's Port is to have, or why it gets nothing.
type PortVerdict struct {
	// Reason is why not, with a message for people; empty: nothing is wrong.
	Reason, Message string
	MAC             *intent.MAC      // nil: to be made from the first address
	Fixed           []netip.Addr     // as asked for, in order
	Pools           []translate.Pool // without Fixed: to take one address of each
}

// CheckPort judges a user's Port by its Network and its namespace, either of which may be nil
// because it is not there, and by the other Ports of the Network. Whether its addresses are free is
// not decided here: that is asked of the API, see BlockName.
func CheckPort(p *v1alpha1.Port, n *v1alpha1.Network, namespace *corev1.Namespace,
	others []*v1alpha1.Port,
) PortVerdict {
	refuse := func(reason, format string, args ...any) PortVerdict {
		return PortVerdict{Reason: reason, Message: fmt.Sprintf(format, args...)}
	}
	has := len(p.Status.Addresses) > 0 || p.Status.MAC != ""
	switch {
	case n == nil:
		return refuse(v1alpha1.ReasonNetworkNotFound, "network %s does not exist", p.Spec.Network)
	case n.DeletionTimestamp != nil && !has:
		return refuse(v1alpha1.ReasonNetworkNotReady, "network %s is being deleted", n.Name)
	case !translate.Admitted(n.Status.ID, n.Status.Conditions):
		return refuse(v1alpha1.ReasonNetworkNotReady, "network %s is not ready", n.Name)
	case n.Spec.IPAM == v1alpha1.PodCIDR:
		return refuse(v1alpha1.ReasonInvalid,
			"network %s has its addresses from the nodes' podCIDRs, for pods only: name a Network with subnets", n.Name)
	case n.Spec.IPAM == v1alpha1.DHCPServers && len(p.Spec.Addresses) > 0:
		return refuse(v1alpha1.ReasonInvalid,
			"spec.addresses: the DHCP servers of network %s give addresses: have them reserve one for the MAC", n.Name)
	case !translate.MayAttach(n, namespace, p.Spec.Node):
		return refuse(v1alpha1.ReasonNotAllowed, "network %s does not take Ports of namespace %s", n.Name, p.Namespace)
	}
	pools, err := translate.Pools(n)
	if err != nil {
		return refuse(v1alpha1.ReasonNetworkNotReady, "network %s: %v", n.Name, err)
	}
	var v PortVerdict
	if p.Spec.MAC != "" {
		mac, err := intent.ParseMAC(p.Spec.MAC)
		if err != nil || mac[0]&1 != 0 || mac == (intent.MAC{}) {
			return refuse(v1alpha1.ReasonInvalid, "spec.mac: %q is not the address of an interface", p.Spec.MAC)
		}
		if !mayAskFor(p, mac) {
			return refuse(v1alpha1.ReasonMACTaken,
				"MAC %s is of the range 0a:ce that pods' addresses make, and not that of spec.addresses[0]", mac)
		}
		if why := translate.FixedMACRefused(n, mac); why != "" && !translate.SameMAC(p.Status.MAC, mac) {
			return refuse(v1alpha1.ReasonFixedMAC, "spec.mac: %s", why)
		}
		if owner := MACOwner(p, mac, others); owner != "" {
			return refuse(v1alpha1.ReasonMACTaken, "MAC %s is that of %s", mac, owner)
		}
		v.MAC = &mac
	}
	for i, text := range p.Spec.Addresses {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Is4In6() || a.Zone() != "" {
			return refuse(v1alpha1.ReasonInvalid, "spec.addresses[%d]: %q is not an address", i, text)
		}
		if reason, message := placed(a, pools); reason != "" {
			return refuse(reason, "spec.addresses[%d]: %s %s", i, a, message)
		}
		// What a Port has it keeps when the Network's rules change.
		if why := translate.FixedAddressRefused(n, a); why != "" && !slices.Contains(p.Status.Addresses, a.String()) {
			return refuse(v1alpha1.ReasonFixedAddress, "spec.addresses[%d]: %s", i, why)
		}
		v.Fixed = append(v.Fixed, a)
	}
	if len(v.Fixed) == 0 {
		v.Pools = firstOfFamilies(pools)
	}
	return v
}

// placed says why an interface cannot have an address, "" if it can.
func placed(a netip.Addr, pools []translate.Pool) (reason, message string) {
	i := slices.IndexFunc(pools, func(p translate.Pool) bool { return p.Prefix.Contains(a) })
	if i < 0 {
		return v1alpha1.ReasonAddressOutside, "is in no subnet of the Network"
	}
	p := pools[i]
	if a == p.Gateway {
		return v1alpha1.ReasonAddressTaken, "is the gateway of " + p.Prefix.String()
	}
	if slices.ContainsFunc(ipam.Reserved(p.Prefix, p.Gateway), func(r netipx.IPRange) bool { return r.Contains(a) }) {
		return v1alpha1.ReasonAddressOutside, "is not an address of an interface in " + p.Prefix.String()
	}
	return "", ""
}

// firstOfFamilies are the pools that interfaces have an address of: the first of each family.
func firstOfFamilies(pools []translate.Pool) []translate.Pool {
	var first []translate.Pool
	for _, p := range pools {
		if !slices.ContainsFunc(first, func(o translate.Pool) bool {
			return o.Prefix.Addr().Is4() == p.Prefix.Addr().Is4()
		}) {
			first = append(first, p)
		}
	}
	return first
}

// mayAskFor says whether a MAC may be requested. Those that are derived from an address belong to
// that address, also while it is free.
func mayAskFor(p *v1alpha1.Port, mac intent.MAC) bool {
	if !reserved.IsPodMAC(mac) {
		return true
	}
	if len(p.Spec.Addresses) == 0 {
		return false
	}
	a, err := netip.ParseAddr(p.Spec.Addresses[0])
	return err == nil && mac == reserved.PodMAC(a)
}

// MACOwner is the other owner on the Network of a MAC that a Port wants, "" if there is none: a
// Port that has it already, an older one that asks for it, or Coelan's own interfaces.
func MACOwner(p *v1alpha1.Port, mac intent.MAC, others []*v1alpha1.Port) string {
	if reserved.IsRouterMAC(mac) {
		return "Coelan's router"
	}
	is := func(text string) bool { return translate.SameMAC(text, mac) }
	mine := is(p.Status.MAC)
	for _, o := range others {
		if o.UID == p.UID && o.Name == p.Name && o.Namespace == p.Namespace {
			continue
		}
		first := translate.Older(o, p) < 0
		holds := is(o.Status.MAC) && (!mine || first)
		asks := o.Status.MAC == "" && AsksForMAC(o, mac) && !mine && first
		if holds || asks {
			return fmt.Sprintf("port %s/%s", o.Namespace, o.Name)
		}
	}
	return ""
}

// AsksForMAC says whether a Port asks for a MAC and may get it: one that was refused, or that must
// not ask for it, keeps it from no other.
func AsksForMAC(p *v1alpha1.Port, mac intent.MAC) bool {
	return translate.SameMAC(p.Spec.MAC, mac) && p.Status.Phase != v1alpha1.PortFailed && mayAskFor(p, mac)
}

// MACOfUID is the MAC of a Port without addresses: 0a:cf and four bytes of a hash, apart from those
// that are made of addresses.
func MACOfUID(uid string) intent.MAC {
	sum := sha256.Sum256([]byte(uid))
	return intent.MAC{0x0a, 0xcf, sum[0], sum[1], sum[2], sum[3]}
}
