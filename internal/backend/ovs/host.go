// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"

	"coelan.io/coelan/internal/backend/kernelview"
	"coelan.io/coelan/internal/backend/ovs/cards"
	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/backend/ovs/hostnet"
	"coelan.io/coelan/internal/backend/ovs/ovsdb"
	"coelan.io/coelan/internal/conditions"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/trigger"
)

// host is what the node's kernel does for Coelan.
type host struct {
	log        *slog.Logger
	config     config.Config
	intent     *intent.Store
	conditions *conditions.Set
	kernel     kernel
	ports      *kernelview.HostPorts
	services   *kernelview.Services
	keeper     *hostnet.Keeper
	neighbours *hostnet.Neighbours
	// reconcile is fired when something of the host has changed.
	reconcile trigger.Trigger

	mu     sync.Mutex
	uplink string
}

// kernel is the node's. *hostnet.Host is one.
type kernel interface {
	Run(ctx context.Context) error
	Set(d hostnet.Desired)
	Status() hostnet.Status
	Watch(ctx context.Context, update func(hostnet.Status)) error
	SetHostPorts(list []hostnet.HostPort) error
	CheckHostPorts() error
	Reserves(p intent.Protocol, port uint16) bool
	Confirm(name string, mac func(netip.Addr) (net.HardwareAddr, bool)) error
	Close()
}

// parts are what works on the kernel until its context ends.
func (h *host) parts() []func(context.Context) error {
	return []func(context.Context) error{
		h.kernel.Run, h.keeper.Run, h.neighbours.Run, h.watch, h.watchUplinks, h.followIntent,
	}
}

// watch follows the condition of the host's kernel.
func (h *host) watch(ctx context.Context) error {
	return h.kernel.Watch(ctx, func(s hostnet.Status) {
		var err error
		if !s.Synced {
			err = errors.New(cmp.Or(s.Error, "not configured yet"))
		}
		h.conditions.Set(condHost, err)
	})
}

// watchUplinks reconciles when the node's address changes or the MTU of its interface, and when
// network cards that lead to physical networks change.
func (h *host) watchUplinks(ctx context.Context) error {
	cards := map[string]bool{}
	for u := range h.intent.State().Uplinks().All() {
		cards[u.Card] = true
	}
	watched := func(name string) bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return name == h.uplink || cards[name]
	}
	return hostnet.WatchUplinks(ctx, watched, h.reconcile.Fire)
}

// followIntent reconciles when intent asks something else of the host than before. What changes
// most, endpoints and Networks that the host has no part in, does not matter to it.
func (h *host) followIntent(ctx context.Context) error {
	var last *intent.State
	for {
		state := h.intent.State()
		services := h.services.Follow(state)
		if services || hostAffected(last, state) {
			h.reconcile.Fire()
		}
		last = state
		select {
		case <-ctx.Done():
			return nil
		case <-state.Replaced():
		}
	}
}

// setUplink notes which interface has the node's address. If it is an Open vSwitch bridge's, on the
// userspace datapath it vanishes with ovs-vswitchd, so what it has is remembered. It returns the
// network cards of such a bridge.
func (h *host) setUplink(bridge *ovsdb.BridgeState, l intent.Local, uplink hostnet.Uplink) ([]string, error) {
	h.mu.Lock()
	h.uplink = uplink.Name
	h.mu.Unlock()
	if bridge == nil || l.Datapath != intent.DatapathNetdev {
		return nil, h.keeper.Set("", netip.Addr{})
	}
	if bridge.ExternalIDs[cards.ID] != "" {
		// What it has is remembered with the card.
		return nil, h.keeper.Set("", netip.Addr{})
	}
	cards := slices.DeleteFunc(slices.Clone(bridge.Ports), func(p string) bool { return p == bridge.Name })
	return cards, h.keeper.Set(uplink.Name, uplink.Address.Addr())
}

// set has the kernel hold what a State says.
func (h *host) set(s *intent.State, uplink string, cards, switchOnly []string) {
	d := hostState(s, uplink, cards)
	d.SwitchOnly = switchOnly
	d.Services = h.services.Of(s)
	h.kernel.Set(d)
}

// connected has the kernel know what a switch that has come back would answer it.
func (h *host) connected() {
	h.neighbours.Renew()
	state := h.intent.State()
	err := h.kernel.Confirm(h.config.GatewayInterface, func(address netip.Addr) (net.HardwareAddr, bool) {
		return gatewayNeighbour(state, address)
	})
	if err != nil {
		// The kernel finds them by itself, only later.
		h.log.Debug("cannot confirm the kernel's neighbour entries of the gateway interface", "err", err)
	}
}

// gatewayNeighbour is what the bridge answers the host's kernel that asks for an address: a pod of
// this node, or the router for what is behind another node.
func gatewayNeighbour(s *intent.State, address netip.Addr) (net.HardwareAddr, bool) {
	for p := range s.PortsWith(address) {
		// Others are behind the router, or mean nothing to the host.
		if p.Network == intent.DefaultNetworkName {
			return p.MAC.HardwareAddr(), true
		}
	}
	for p := range s.Ports().All() {
		n, _ := s.Networks().Get(p.Network)
		if slices.Contains(p.NodeAddresses, address) || n.FromNodes() && slices.Contains(p.Addresses, address) {
			return datapath.RouterMAC.HardwareAddr(), true
		}
	}
	for n := range s.Nodes().All() {
		for _, sn := range n.Subnets {
			if n.Name != s.Local().Node && sn.Gateway == address {
				return datapath.RouterMAC.HardwareAddr(), true
			}
		}
	}
	for n := range s.Networks().All() {
		for _, sn := range kernelview.SharedSubnets(s, n) {
			if sn.Gateway == address {
				return datapath.RouterMAC.HardwareAddr(), true
			}
		}
	}
	return nil, false
}
