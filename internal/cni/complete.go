// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/ipam"
)

// complete adds to the plans what the call and the node say.
func (s *Server) complete(ctx context.Context, c call, node Node, plans []attachment.Plan) error {
	podCIDRs, err := ipam.Parse(node.PodCIDRs)
	if err != nil && slices.ContainsFunc(plans, func(p attachment.Plan) bool {
		return !p.BlockSpace || p.NodeAddresses
	}) {
		return err
	}
	for n := range plans {
		p := &plans[n]
		p.ContainerID, p.ConfName, p.Netns = c.ContainerID, c.conf.Name, c.netns
		p.PodUID, p.PodNamespace, p.PodName = c.PodUID, c.PodNamespace, c.PodName
		if n > 0 {
			p.MadeWith = plans[0].IfName
		} else {
			p.HostPorts = c.hostPorts
		}
		switch {
		case p.Leased:
			if err := s.obtain(ctx, p); err != nil {
				return err
			}
		case len(p.Addresses) > 0:
		case !p.BlockSpace:
			p.Ranges = podCIDRs
		case len(p.Subnets) > 0:
			if p.Ranges, err = s.opts.Planner.Ranges(ctx, p.NetworkName, p.Subnets, nil); err != nil {
				return err
			}
		}
		if p.NodeAddresses {
			p.NodeRanges = podCIDRs
			if !slices.ContainsFunc(podCIDRs, func(r ipam.Range) bool { return p.Has(r.Is4()) }) {
				return planned{p}.refused(v1alpha1.ReasonInvalid,
					"it has no address of a family of the node's podCIDRs %v, by which the node could reach it",
					node.PodCIDRs)
			}
		}
	}
	for _, is4 := range []bool{true, false} {
		if giveDefault(plans, is4) > 0 && plans[0].Has(is4) {
			plans[0].Routes = append(slices.Clone(plans[0].Routes), node.wayToCluster(is4)...)
		}
	}
	return nil
}

// wayToCluster are the routes that a pod's first interface needs when another one has the default
// route: without them the pod could not answer its node.
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

// giveDefault lets one interface have the default route of a family: the first further one
// that asks and has addresses of it, or else the pod's first. It returns which one, also if
// that does not ask.
func giveDefault(plans []attachment.Plan, is4 bool) int {
	asks := func(n int) bool { return plans[n].DefaultRoute && plans[n].Has(is4) }
	chosen := 0
	for n := 1; n < len(plans); n++ {
		if asks(n) {
			chosen = n
			break
		}
	}
	if asks(chosen) && is4 {
		plans[chosen].Default4 = true
	} else if asks(chosen) {
		plans[chosen].Default6 = true
	}
	return chosen
}

// maxClaims bounds how many blocks one ADD claims for one interface because others took the
// addresses of the last one.
const maxClaims = 4

// allocate records the attachments. When the ranges of a Network have no free address left, another
// block is asked for.
func (s *Server) allocate(ctx context.Context, plans []attachment.Plan) ([]attachment.Attachment, error) {
	claimed := make([]int, len(plans))
	for {
		list, err := s.allocateFree(ctx, plans)
		var failed *attachment.AllocationError
		var exhausted *ipam.ExhaustedError
		if !errors.As(err, &failed) || !errors.As(err, &exhausted) || !exhausted.Blocks {
			return list, err
		}
		n := failed.Index
		network := plans[n].NetworkName
		if claimed[n]++; claimed[n] > maxClaims {
			return nil, &PlanError{Reason: v1alpha1.ReasonExhausted, Retry: true,
				Message: fmt.Sprintf("Network %s has no free address left: %v, and %d more were used up", network,
					exhausted, maxClaims)}
		}
		if plans[n].Ranges, err = s.opts.Planner.Ranges(ctx, network, plans[n].Subnets, exhausted.CIDRs); err != nil {
			return nil, err
		}
	}
}

// maxWaitForFree bounds how long an ADD waits for addresses of pods that have just gone.
const maxWaitForFree = 10 * time.Second

func (s *Server) allocateFree(ctx context.Context, plans []attachment.Plan) ([]attachment.Attachment, error) {
	ctx, cancel := context.WithTimeout(ctx, maxWaitForFree)
	defer cancel()
	return s.opts.Store.AllocateAllWhenFree(ctx, plans...)
}
