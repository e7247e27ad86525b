// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ipam"
)

// fixedOf is what interfaces on a Network may ask for. On a physical network
// others live beside them.
func fixedOf(n *v1alpha1.Network) v1alpha1.Fixed {
	var f v1alpha1.Fixed
	if n.Spec.Fixed != nil {
		f = *n.Spec.Fixed
	}
	addresses, macs := v1alpha1.AnyAddress, v1alpha1.AnyMAC
	if n.Spec.Type == v1alpha1.VLAN || n.Spec.Type == v1alpha1.Flat {
		addresses, macs = v1alpha1.RangeAddresses, v1alpha1.LocalMACs
	}
	return v1alpha1.Fixed{Addresses: cmp.Or(f.Addresses, addresses), MACs: cmp.Or(f.MACs, macs)}
}

// FixedAddressRefused says why an interface on a Network may not ask for an address, "" if it may.
// Whether the address is of a subnet at all, and no gateway's, is not looked at.
func FixedAddressRefused(n *v1alpha1.Network, a netip.Addr) string {
	if n.Spec.IPAM == v1alpha1.DHCPServers {
		return fmt.Sprintf("address %s is asked for, and the DHCP servers of network %s choose: ask for a MAC, and "+
			"have the servers reserve the address for it", a, n.Name)
	}
	switch fixed := fixedOf(n); fixed.Addresses {
	case v1alpha1.AnyAddress:
		return ""
	case v1alpha1.RangeAddresses:
		pools, err := Pools(n)
		if err != nil {
			return fmt.Sprintf("address %s: which ones are handed out cannot be read: %v", a, err)
		}
		i := slices.IndexFunc(pools, func(p Pool) bool { return p.Prefix.Contains(a) })
		if i < 0 || pools[i].handsOut(a) {
			return ""
		}
		return fmt.Sprintf("address %s is not one that network %s hands out, and spec.fixed.addresses is Ranges", a,
			n.Name)
	default:
		return fmt.Sprintf("address %s is asked for, and spec.fixed.addresses of network %s is %s", a, n.Name,
			fixed.Addresses)
	}
}

// Obtainable are the addresses of a Network's subnets that it hands out, and those that may be
// asked for.
func Obtainable(n *v1alpha1.Network) (*netipx.IPSet, error) {
	pools, err := Pools(n)
	if err != nil {
		return nil, err
	}
	anyOne := fixedOf(n).Addresses == v1alpha1.AnyAddress
	var b netipx.IPSetBuilder
	for _, p := range pools {
		if anyOne || len(p.Only) == 0 {
			b.AddPrefix(p.Prefix)
		} else {
			for _, r := range p.Only {
				b.AddRange(r)
			}
		}
		except := ipam.Reserved(p.Prefix, p.Gateway)
		if !anyOne {
			except = append(except, p.Except...)
		}
		for _, r := range except {
			b.RemoveRange(r)
		}
	}
	return b.IPSet()
}

// handsOut says whether an address of the subnet is in its ranges, and not in its exclusions.
func (p Pool) handsOut(a netip.Addr) bool {
	has := func(i netipx.IPRange) bool { return i.Contains(a) }
	return (len(p.Only) == 0 || slices.ContainsFunc(p.Only, has)) && !slices.ContainsFunc(p.Except, has)
}

// FixedMACRefused says why an interface on a Network may not ask for a MAC, "" if it may.
func FixedMACRefused(n *v1alpha1.Network, mac intent.MAC) string {
	const locally = 2 // the bit of the first byte
	switch fixed := fixedOf(n); {
	case fixed.MACs == v1alpha1.AnyMAC || fixed.MACs == v1alpha1.LocalMACs && mac[0]&locally != 0:
		return ""
	case fixed.MACs == v1alpha1.LocalMACs:
		return fmt.Sprintf("MAC %s is not a locally administered one, and spec.fixed.macs of network %s is Local: begin it with 02, for instance",
			mac, n.Name)
	default:
		return fmt.Sprintf("MAC %s is asked for, and spec.fixed.macs of network %s is %s", mac, n.Name, fixed.MACs)
	}
}
