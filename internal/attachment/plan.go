// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"fmt"
	"net/netip"
	"slices"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ipam"
)

// Requested is what a user can ask of an interface, in a CNI configuration, in CNI_ARGS
// or in an annotation.
type Requested struct {
	// Addresses are fixed ones; empty: one of each family from the ranges.
	Addresses []netip.Addr
	MAC       *intent.MAC // nil: made from the first address, or from the key if there is none
	// DefaultRoute asks for the default route of each family that the interface has an address of.
	DefaultRoute bool
	// Gateways, at most one of each family, take the place of the subnets' for the default route.
	Gateways []netip.Addr
}

// Override returns what r asks for where over asks for nothing else. The default route is
// led as over says.
func (r Requested) Override(over Requested) Requested {
	if len(over.Addresses) > 0 {
		r.Addresses = over.Addresses
	}
	if over.MAC != nil {
		r.MAC = over.MAC
	}
	r.DefaultRoute = r.DefaultRoute || over.DefaultRoute
	r.Gateways = over.Gateways
	return r
}

// Plan is an interface that is to be attached: its Spec, and what its addresses are chosen by.
type Plan struct {
	Spec
	Requested
	// Subnets of the Network: fixed addresses get their prefix length and gateway from the one they
	// are in. One that is in none has its full length and no gateway.
	Subnets []intent.NetworkSubnet
	// NodeAddresses asks for an address of the podCIDRs of each family that the interface has, by
	// which the node reaches it: those are its addresses for the runtime.
	NodeAddresses bool

	// Ranges to take one address of each family from, unless Addresses are given: of the first one
	// of a family that has a free one. The address of the first family decides the MAC.
	Ranges []ipam.Range
	// NodeRanges are the node's podCIDRs, for NodeAddresses.
	NodeRanges []ipam.Range
	// Default4 and Default6 decide that the interface has the default route of the family: through
	// one of Gateways, or else through the gateway of the family's first address.
	Default4, Default6 bool
}

// Subnet finds the one of an address.
func (p *Plan) Subnet(addr netip.Addr) (intent.NetworkSubnet, bool) {
	i := slices.IndexFunc(p.Subnets, func(s intent.NetworkSubnet) bool { return s.Prefix.Contains(addr) })
	if i < 0 {
		return intent.NetworkSubnet{}, false
	}
	return p.Subnets[i], true
}

// Has reports whether the attachment will get an address of a family.
func (p *Plan) Has(is4 bool) bool {
	return slices.ContainsFunc(p.Addresses, func(a netip.Addr) bool { return a.Is4() == is4 }) ||
		slices.ContainsFunc(p.Ranges, func(r ipam.Range) bool { return r.Is4() == is4 })
}

// AllocationError names the plan for which nothing could be allocated.
type AllocationError struct {
	Index int // of the plan
	Key   Key
	Err   error // ErrExists, *ipam.ExhaustedError, *TakenError or ErrNoPort
}

func (e *AllocationError) Error() string { return fmt.Sprintf("attachment %s: %v", e.Key, e.Err) }

func (e *AllocationError) Unwrap() error { return e.Err }

// TakenError says that a fixed address or MAC belongs to another attachment.
type TakenError struct {
	Network string // Coelan Network
	What    string // such as "address 10.0.0.5" or "MAC 0a:ce:00:00:00:01"
	MAC     bool   // it is a MAC
	// namespace/name/interface of the pod, or namespace/name of the Port, that has it.
	By string
	// Released says that it has had the address, which is free when no connections are known
	// of it any more.
	Released bool
}

func (e *TakenError) Error() string {
	if e.Released {
		return fmt.Sprintf("%s on Network %s is kept until connections of %s are forgotten", e.What, e.Network, e.By)
	}
	return fmt.Sprintf("%s on Network %s belongs to %s", e.What, e.Network, e.By)
}
