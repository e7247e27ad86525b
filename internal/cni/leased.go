// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"net/netip"
	"slices"

	"github.com/containernetworking/cni/pkg/types"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/dhcp/client"
	"coelan.io/coelan/internal/intent"
)

// Leases asks DHCP servers of physical networks for interfaces' addresses. Its methods may be
// called for several interfaces at once.
type Leases interface {
	// Obtain returns when a server has given a lease that is stored, and is renewed from then on.
	// It waits for a bounded time; the error may be a *PlanError. There is no lease then.
	Obtain(ctx context.Context, p attachment.Plan) (client.Lease, error)
	// Release gives it back. That there is none is no error.
	Release(ctx context.Context, k attachment.Key)
}

// obtain fills in what a DHCP server gives.
func (s *Server) obtain(ctx context.Context, p *attachment.Plan) error {
	l, err := s.opts.Leases.Obtain(ctx, *p)
	if err != nil {
		return err
	}
	p.Addresses = []netip.Addr{l.Address.Addr()}
	p.Subnets = []intent.NetworkSubnet{{Prefix: l.Address.Masked(), Gateway: l.Gateway}}
	for _, r := range l.Routes {
		p.Routes = append(slices.Clone(p.Routes), attachment.Route{Destination: r.Destination, NextHop: r.Router})
	}
	if l.MTU > 0 {
		p.MTU = min(p.MTU, l.MTU)
	}
	if p.DNS == nil && len(l.DNS) > 0 {
		p.DNS = &types.DNS{Search: l.Domains}
		for _, a := range l.DNS {
			p.DNS.Nameservers = append(p.DNS.Nameservers, a.String())
		}
	}
	return nil
}

// releaseAll gives back the leases of interfaces that were not made.
func (s *Server) releaseAll(ctx context.Context, plans []attachment.Plan) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	for _, p := range plans {
		if p.Leased && p.ContainerID != "" {
			s.opts.Leases.Release(ctx, p.Key)
		}
	}
}
