// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"

	"coelan.io/coelan/internal/backend/kernelview"
	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/internal/backend/ovs/hostnet"
	"coelan.io/coelan/internal/conditions"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/trigger"
)

// host is what the node's kernel does for pods.
type host struct {
	conditions *conditions.Set
	intent     *intent.Store
	kernel     kernel
	keeper     keeper
	ports      *kernelview.HostPorts
	services   *kernelview.Services
	find       findUplink
	wake       trigger.Trigger
	// spanning is that of the Backend.
	spanning bool

	mu     sync.Mutex
	uplink string
	card   string // that of a machine of OpenStack
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
}

// keeper keeps what the bridge with the node's address has. *hostnet.Keeper is one.
type keeper interface {
	Run(ctx context.Context) error
	Set(link string, node netip.Addr) error
}

// findUplink finds the interface that has the node's address.
type findUplink func(node netip.Addr) (hostnet.Uplink, error)

// parts are what works on the kernel until its context ends.
func (h *host) parts() []func(context.Context) error {
	return []func(context.Context) error{h.kernel.Run, h.keeper.Run, h.watch, h.watchUplink, h.followIntent}
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

// watchUplink reconciles when the interface with the node's address changes.
func (h *host) watchUplink(ctx context.Context) error {
	return hostnet.WatchUplinks(ctx, func(name string) bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return name == h.uplink || name == h.card
	}, h.wake.Fire)
}

// followIntent reconciles when intent asks something else of the host than before.
func (h *host) followIntent(ctx context.Context) error {
	var last *intent.State
	for {
		state := h.intent.State()
		if h.services.Follow(state) || last == nil || affected(intent.Diff(last, state)) {
			h.wake.Fire()
		}
		last = state
		select {
		case <-ctx.Done():
			return nil
		case <-state.Replaced():
		}
	}
}

// affected says whether the host's kernel may have to follow a change.
func affected(d intent.Delta) bool {
	return d.Local || len(d.Nodes)+len(d.Networks)+len(d.Routers)+len(d.GuardedPorts) > 0
}

// follow reconciles when a card changes.
func (h *host) follow(card string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.card = card
}

// uplinkBridge is the bridge of Open vSwitch that has the node's address on its own interface. The
// zero value: the interface with the address is not one of a bridge.
type uplinkBridge struct {
	exists     bool
	remembered bool     // package cards restores the interface's addresses and routes
	cards      []string // that lead out of it
	switchOnly []string // of cards, what the kernel takes in nothing from
}

// set has the kernel hold what a State says.
func (h *host) set(s *intent.State, uplink hostnet.Uplink, bridge uplinkBridge) error {
	h.mu.Lock()
	h.uplink = uplink.Name
	h.mu.Unlock()
	netdev := s.Local().Datapath == intent.DatapathNetdev
	var err error
	if bridge.exists && !bridge.remembered && netdev {
		err = h.keeper.Set(uplink.Name, uplink.Address.Addr())
	} else {
		err = h.keeper.Set("", netip.Addr{})
	}
	if err != nil {
		return err
	}
	var cards []string
	if netdev {
		cards = bridge.cards
	}
	d := desired(s, uplink.Name, cards)
	d.SwitchOnly = bridge.switchOnly
	d.Services = h.services.Of(s)
	if own, _ := s.LocalNode(); h.spanning {
		for _, sn := range own.Subnets {
			d.Services.Via = append(d.Services.Via, sn.Gateway)
		}
	}
	h.kernel.Set(d)
	return nil
}

// desired is what the host's kernel must hold for a State, but for Services: the management
// addresses on the gateway interface, routes to all pods by the logical router, and the
// masquerading of what leaves the cluster. It is a pure function of its arguments.
func desired(s *intent.State, uplink string, cards []string) hostnet.Desired {
	local := s.Local()
	router, _ := s.Routers().Get(intent.DefaultRouterName)
	d := hostnet.Desired{
		Gateway: hostnet.Gateway{Name: local.Gateway, MTU: local.MTU},
		SNAT:    hostnet.SNAT{Enabled: router.SNAT.Enabled, Direct: slices.Clone(router.SNAT.Direct)},
		Guard:   kernelview.Guard(s), Uplink: uplink, Cards: cards, HideClientsOfHostPorts: true,
	}
	own, _ := s.LocalNode()
	for _, sn := range own.Subnets {
		address, ok := names.ManagementAddress(sn.Prefix)
		if !ok {
			continue
		}
		d.Gateway.Addresses = append(d.Gateway.Addresses, netip.PrefixFrom(address, sn.Prefix.Bits()))
		d.SNAT.Pods = append(d.SNAT.Pods, sn.Prefix)
		d.Routes = append(d.Routes, hostnet.Route{Destination: sn.Prefix, Gateway: true, Source: address})
	}
	route := func(p netip.Prefix) {
		i := slices.IndexFunc(own.Subnets, func(sn intent.Subnet) bool {
			return sn.Prefix.Addr().Is4() == p.Addr().Is4()
		})
		if i < 0 {
			return // this node has no pods of the family
		}
		if address, ok := names.ManagementAddress(own.Subnets[i].Prefix); ok {
			d.Routes = append(d.Routes,
				hostnet.Route{Destination: p, Via: own.Subnets[i].Gateway, Gateway: true, Source: address})
		}
	}
	for n := range s.Nodes().All() {
		for _, sn := range n.Subnets {
			d.SNAT.Direct = append(d.SNAT.Direct, sn.Prefix)
			if n.Name != own.Name {
				route(sn.Prefix)
			}
		}
	}
	for n := range s.Networks().All() {
		for _, sn := range kernelview.SharedSubnets(s, n) {
			d.SNAT.Pods, d.SNAT.Direct = append(d.SNAT.Pods, sn.Prefix), append(d.SNAT.Direct, sn.Prefix)
			route(sn.Prefix)
		}
	}
	slices.SortFunc(d.Routes, func(a, b hostnet.Route) int {
		return cmp.Or(a.Destination.Addr().Compare(b.Destination.Addr()),
			cmp.Compare(a.Destination.Bits(), b.Destination.Bits()))
	})
	return d
}
