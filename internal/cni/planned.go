// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/containernetworking/cni/pkg/utils"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ipam"
	"coelan.io/coelan/internal/reserved"
)

// plan asks the Planner, and checks what it says.
func (s *Server) plan(ctx context.Context, c call, node Node) ([]attachment.Plan, error) {
	list, err := s.opts.Planner.Plan(ctx, c.Request)
	if err != nil {
		return nil, err
	}
	switch {
	case len(list) == 0 || list[0].IfName != c.IfName:
		return nil, fmt.Errorf("no plan for the interface %s", c.IfName)
	case len(list) > 1 && c.Delegate():
		return nil, fmt.Errorf("a plan of %d interfaces where just %s is meant", len(list), c.IfName)
	}
	taken := map[string]string{} // the interface that has each
	for _, a := range s.opts.Store.Of(c.ContainerID) {
		taken[a.IfName] = "Network " + a.NetworkName
	}
	for n := range list {
		i := planned{&list[n]}
		if !i.BlockSpace {
			i.Subnets = node.subnets()
		}
		if i.MTU == 0 || i.MTU > node.MTU {
			i.MTU = node.MTU
		}
		if n == 0 {
			if err := s.applyConfig(i, c); err != nil {
				return nil, err
			}
		}
		if err := i.check(taken); err != nil {
			return nil, err
		}
		taken[i.IfName] = "Network " + i.NetworkName
	}
	return list, nil
}

// subnets are the node's podCIDRs.
func (n Node) subnets() []intent.NetworkSubnet {
	var list []intent.NetworkSubnet
	for _, p := range n.PodCIDRs {
		list = append(list, intent.NetworkSubnet{Prefix: p, Gateway: p.Addr().Next()})
	}
	return list
}

// planned is a plan that is checked.
type planned struct{ *attachment.Plan }

// refused makes a *PlanError about an interface.
func (i planned) refused(reason, format string, args ...any) error {
	return &PlanError{Reason: reason,
		Message: fmt.Sprintf("interface %s on Network %s: ", i.IfName, i.NetworkName) + fmt.Sprintf(format, args...)}
}

// check returns a *PlanError if the kernel, or a neighbor on the Network, could not
// live with the interface.
func (i planned) check(taken map[string]string) error {
	if err := utils.ValidateInterfaceName(i.IfName); err != nil {
		return i.refused(v1alpha1.ReasonInvalid, "its name cannot be used: %s %s", err.Msg, err.Details)
	}
	if by, twice := taken[i.IfName]; twice || i.IfName == "lo" {
		if !twice {
			by = "the loopback interface"
		}
		return i.refused(v1alpha1.ReasonInvalid, "the pod has an interface of this name already, for %s", by)
	}
	if i.MAC != nil {
		if err := i.checkMAC(*i.MAC); err != nil {
			return err
		}
	}
	for n, addr := range i.Addresses {
		if slices.Contains(i.Addresses[:n], addr) {
			return i.refused(v1alpha1.ReasonInvalid, "address %s is asked for twice", addr)
		}
		if err := i.checkAddress(addr); err != nil {
			return err
		}
	}
	return i.checkRoutes()
}

func (i planned) checkMAC(mac intent.MAC) error {
	switch {
	case mac == intent.MAC{} || mac[0]&1 == 1:
		return i.refused(v1alpha1.ReasonInvalid, "MAC %s is not the address of one interface", mac)
	case reserved.IsRouterMAC(mac):
		return i.refused(v1alpha1.ReasonMACTaken, "MAC %s belongs to the Network's router", mac)
	case reserved.IsPodMAC(mac) && (len(i.Addresses) == 0 || mac != reserved.PodMAC(i.Addresses[0])):
		// Also if it is free now: a Port that gets the address later gets this MAC with it.
		return i.refused(v1alpha1.ReasonMACTaken,
			"MAC %s is of the range 0a:ce that pods' addresses make, and not that of its own first address", mac)
	}
	return nil
}

func (i planned) checkAddress(addr netip.Addr) error {
	subnet, ok := i.Subnet(addr)
	if !ok {
		return i.refused(v1alpha1.ReasonAddressOutside, "address %s is outside of its subnets %s", addr, i.prefixes())
	}
	if addr == subnet.Gateway {
		return i.refused(v1alpha1.ReasonAddressTaken, "address %s is the gateway of %s", addr, subnet.Prefix)
	}
	for _, r := range ipam.Reserved(subnet.Prefix, subnet.Gateway) {
		if r.Contains(addr) {
			return i.refused(v1alpha1.ReasonInvalid, "address %s is no interface's address in %s", addr, subnet.Prefix)
		}
	}
	return nil
}

func (i planned) prefixes() []netip.Prefix {
	var list []netip.Prefix
	for _, s := range i.Subnets {
		list = append(list, s.Prefix)
	}
	return list
}

func (i planned) checkRoutes() error {
	for _, gw := range i.Gateways {
		if _, ok := i.Subnet(gw); !ok {
			return i.refused(v1alpha1.ReasonInvalid, "gateway %s is outside of its subnets %s", gw, i.prefixes())
		}
	}
	for _, r := range i.Routes {
		_, reached := i.Subnet(r.NextHop)
		switch {
		case !r.Destination.IsValid():
			return i.refused(v1alpha1.ReasonInvalid, "a route without a destination")
		case !r.NextHop.IsValid():
		case r.NextHop.Is4() != r.Destination.Addr().Is4():
			return i.refused(v1alpha1.ReasonInvalid, "route to %s has the next hop %s of the other family",
				r.Destination, r.NextHop)
		case !reached:
			return i.refused(v1alpha1.ReasonInvalid, "route to %s has the next hop %s outside of its subnets %s",
				r.Destination, r.NextHop, i.prefixes())
		}
	}
	return nil
}
