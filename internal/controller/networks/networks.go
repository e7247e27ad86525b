// SPDX-License-Identifier: Apache-2.0

// Package networks has the reconcilers of Networks and what belongs to them: numbers, the Networks
// and Routers of namespaces, users' Ports, FloatingIPs, the gateways of Routers, Egresses, blocks
// of addresses, and how many addresses are used.
package networks

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"coelan.io/coelan/internal/allocate"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policystream/server"
)

// Options are what the reconcilers are made with.
type Options struct {
	Mapping config.Mapping
	// Pools are what each namespace has the subnets of its Network of, in the mapping by namespace;
	// none: it has a Network on each node, of the node's podCIDRs.
	Pools []intent.SubnetPool
	// Taken reads the prefixes, beside those that the API has, that a new subnet must not overlap.
	Taken func(context.Context) ([]netip.Prefix, error)
	// ServiceCIDRs are prefixes of ClusterIPs beside those of the API.
	ServiceCIDRs []netip.Prefix
	// VNIs to allocate from.
	VNIs allocate.Range
	// UsageInterval is the least time between two writes of how many addresses of
	// a Network are used.
	UsageInterval time.Duration
	// Refusals are checked RefusedInterval after they have changed.
	Refusals        Refusals
	RefusedInterval time.Duration
}

// NoneTaken is for a cluster that shares its Pools with nothing.
func NoneTaken(context.Context) ([]netip.Prefix, error) { return nil, nil }

// Refusals are the objects that nodes' switches refuse.
type Refusals interface {
	Refused() map[intent.PolicyRef][]server.NodeRefusal
	// RefusedChanged has an element after Refused has changed.
	RefusedChanged() <-chan struct{}
}

// Setup adds the reconcilers to a manager.
func Setup(m manager.Manager, a *reconcile.Access, monitor *heartbeat.Monitor, o Options) error {
	numbering := &numbering{Access: a, numbers: allocate.Numbers{VNIs: o.VNIs}, refused: o.Refusals.Refused}
	if err := numbering.setup(m, monitor, o); err != nil {
		return fmt.Errorf("numbering: %w", err)
	}
	namespaces := &namespaces{Access: a, mapping: o.Mapping, subnets: newSubnets(a, o)}
	if err := namespaces.setup(m, monitor); err != nil {
		return fmt.Errorf("namespaces: %w", err)
	}
	claims := claims{a}
	if err := (&ports{Access: a, claims: claims}).setup(m, monitor); err != nil {
		return fmt.Errorf("ports: %w", err)
	}
	if err := (&floatingIPs{Access: a, claims: claims}).setup(m, monitor); err != nil {
		return fmt.Errorf("floatingips: %w", err)
	}
	if err := (&gateways{Access: a, claims: claims}).setup(m, monitor); err != nil {
		return fmt.Errorf("gateways: %w", err)
	}
	if err := (&egresses{Access: a, claims: claims}).setup(m, monitor); err != nil {
		return fmt.Errorf("egresses: %w", err)
	}
	if err := (&blocks{Access: a, claims: claims}).setup(m, monitor); err != nil {
		return fmt.Errorf("blocks: %w", err)
	}
	if err := (&usage{Access: a, interval: o.UsageInterval}).setup(m, monitor); err != nil {
		return fmt.Errorf("usage: %w", err)
	}
	return nil
}
