// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/ipam"
)

// requests are what the store is asked for, one for each interface of a plan.
func (s *Server) requests(ctx context.Context, c call, node Node, plan []Interface) ([]attachment.Request, error) {
	podCIDRs, err := ipam.Parse(node.PodCIDRs)
	if err != nil && slices.ContainsFunc(plan, func(i Interface) bool { return i.PodCIDR || i.NodeAddresses }) {
		return nil, err
	}
	list := make([]attachment.Request, len(plan))
	for n, i := range plan {
		r := attachment.Request{
			Key: attachment.Key{ContainerID: c.key.ContainerID, IfName: i.IfName}, Network: c.conf.Name,
			PodUID: c.pod.uid, PodNamespace: c.pod.namespace, PodName: c.pod.name, Netns: c.netns,
			NetworkName: i.Network, NetworkID: i.NetworkID, BlockSpace: !i.PodCIDR, Primary: i.Primary, MTU: i.MTU,
			MAC: i.MAC, Via: i.Gateways, Routes: i.Routes, NAD: i.NAD,
		}
		if n > 0 {
			r.MadeWith = plan[0].IfName
		}
		if !i.DNS.IsEmpty() {
			r.DNS = &i.DNS
		}
		switch {
		case len(i.Addresses) > 0:
			r.Fixed = i.fixed()
		case i.PodCIDR:
			r.Ranges = podCIDRs
		case len(i.Subnets) > 0:
			if r.Ranges, err = s.opts.Planner.Ranges(ctx, i.Network, nil); err != nil {
				return nil, err
			}
		}
		if i.NodeAddresses {
			r.NodeRanges = podCIDRs
			if !slices.ContainsFunc(podCIDRs, func(p ipam.Range) bool { return has(r, p.Is4()) }) {
				return nil, i.refused(v1alpha1.ReasonInvalid, "it has no address of a family of the node's podCIDRs %v, by which the node could reach it", node.PodCIDRs)
			}
		}
		list[n] = r
	}
	for _, is4 := range []bool{true, false} {
		if giveDefault(plan, list, is4) > 0 && has(list[0], is4) {
			list[0].Routes = append(slices.Clone(list[0].Routes), node.wayToCluster(is4)...)
		}
	}
	return list, nil
}

// wayToCluster are the routes that a pod's first interface needs when another one has the default route: without them the
// pod could not answer its node.
func (n Node) wayToCluster(is4 bool) []attachment.Route {
	if n.Cluster == nil {
		return nil
	}
	var list []attachment.Route
	for _, p := range ipam.Merge(n.Cluster()) {
		if p.Addr().Is4() == is4 {
			list = append(list, attachment.Route{Destination: p})
		}
	}
	return list
}

// giveDefault lets one interface have the default route of a family: the first further one that asks and has addresses of
// it, or else the pod's first. It returns which one, also if that does not ask.
func giveDefault(plan []Interface, list []attachment.Request, is4 bool) int {
	asks := func(n int) bool { return plan[n].DefaultRoute && has(list[n], is4) }
	chosen := 0
	for n := 1; n < len(plan); n++ {
		if asks(n) {
			chosen = n
			break
		}
	}
	if asks(chosen) && is4 {
		list[chosen].Default4 = true
	} else if asks(chosen) {
		list[chosen].Default6 = true
	}
	return chosen
}

// has says whether a request will get an address of a family.
func has(r attachment.Request, is4 bool) bool {
	return slices.ContainsFunc(r.Fixed, func(f attachment.Fixed) bool { return f.Address.Addr().Is4() == is4 }) ||
		slices.ContainsFunc(r.Ranges, func(rng ipam.Range) bool { return rng.Is4() == is4 })
}

func (i *Interface) fixed() []attachment.Fixed {
	var list []attachment.Fixed
	for _, addr := range i.Addresses {
		subnet, _ := i.subnet(addr)
		list = append(list, attachment.Fixed{Address: netip.PrefixFrom(addr, subnet.Prefix.Bits()), Gateway: subnet.Gateway})
	}
	return list
}

// maxClaims bounds how many blocks one ADD claims for one interface because others took the addresses of the last one.
const maxClaims = 4

// allocate records the attachments. When the ranges of a Network have no free address left, another block is asked for.
func (s *Server) allocate(ctx context.Context, plan []Interface, requests []attachment.Request) ([]attachment.Attachment, error) {
	claimed := make([]int, len(plan))
	for {
		list, err := s.opts.Store.AllocateAll(requests...)
		var failed *attachment.RequestError
		var exhausted *ipam.ExhaustedError
		if !errors.As(err, &failed) || !errors.As(err, &exhausted) || !exhausted.Blocks {
			return list, err
		}
		n := failed.Index
		network := plan[n].Network
		if claimed[n]++; claimed[n] > maxClaims {
			return nil, &PlanError{Reason: v1alpha1.ReasonExhausted, Retry: true,
				Message: fmt.Sprintf("Network %s has no free address left: %v, and %d more were used up", network, exhausted, maxClaims)}
		}
		if requests[n].Ranges, err = s.opts.Planner.Ranges(ctx, network, exhausted.CIDRs); err != nil {
			return nil, err
		}
	}
}
