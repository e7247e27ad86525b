// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"coelan.io/coelan/internal/backend/ovs/datapath"
)

// groups are multicast groups of one netlink family.
type groups struct {
	family int
	ids    []uint32
}

var (
	// hostGroups tell of everything that Host writes. RTNLGRP_*_NETCONF carry changes of sysctls.
	hostGroups = []groups{
		{unix.NETLINK_ROUTE, []uint32{
			unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_ROUTE,
			unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_IPV4_NETCONF, unix.RTNLGRP_IPV6_NETCONF, unix.RTNLGRP_NEIGH,
			unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE,
		}},
		{unix.NETLINK_NETFILTER, []uint32{unix.NFNLGRP_NFTABLES}},
	}
	// linkGroups tell of interfaces, their addresses and routes.
	linkGroups = []groups{{unix.NETLINK_ROUTE, []uint32{
		unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_ROUTE,
		unix.RTNLGRP_IPV6_ROUTE,
	}}}
	// addressGroups tell of interfaces and their addresses.
	addressGroups = []groups{{unix.NETLINK_ROUTE, []uint32{
		unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
	}}}
	// neighbourGroups tell of resolved next hops and of the ways to them.
	neighbourGroups = []groups{{unix.NETLINK_ROUTE, []uint32{
		unix.RTNLGRP_NEIGH, unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
		unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE,
	}}}
)

// receiveBuffer is large enough for the events of some thousand interfaces at once; an overflow
// only costs a comparison.
const receiveBuffer = 1 << 20

// lost stands for messages that the kernel dropped.
var lost = netlink.Message{Header: netlink.Header{Type: netlink.Overrun}}

// watch calls changed once it listens, and for every message that relevant picks, until ctx ends.
// Messages that the kernel dropped count as relevant, whatever relevant says of lost. A closed
// socket is the only error.
func watch(ctx context.Context, all []groups, relevant func(family int, m netlink.Message) bool, changed func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make(chan error, len(all))
	for _, g := range all {
		conn, err := listen(g)
		if err != nil {
			cancel()
			return err
		}
		context.AfterFunc(ctx, func() { _ = conn.Close() })
		go func() { errs <- receive(ctx, conn, g.family, relevant, changed) }()
	}
	changed()
	var err error
	for range all {
		err = errors.Join(err, <-errs)
		cancel()
	}
	return err
}

func listen(g groups) (*netlink.Conn, error) {
	conn, err := netlink.Dial(g.family, nil)
	if err != nil {
		return nil, fmt.Errorf("netlink socket: %w", err)
	}
	_ = conn.SetReadBuffer(receiveBuffer)
	for _, id := range g.ids {
		if err := conn.JoinGroup(id); err != nil {
			_ = conn.Close()
			return nil, fmt.Errorf("netlink group %d of family %d: %w", id, g.family, err)
		}
	}
	return conn, nil
}

func receive(ctx context.Context, conn *netlink.Conn, family int, relevant func(int, netlink.Message) bool,
	changed func(),
) error {
	for {
		messages, err := conn.Receive()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS):
			relevant(family, lost)
			changed()
			continue
		case err != nil:
			return fmt.Errorf("netlink events: %w", err)
		}
		concerned := false
		for _, m := range messages {
			// Each is shown, for relevant may remember it.
			concerned = relevant(family, m) || concerned
		}
		if concerned {
			changed()
		}
	}
}

// relevant leaves out the events of pods that come and go: what is neither the gateway's nor the
// uplink's, nor a route of ours, nor in our table, changes nothing that Host compares.
func (h *Host) relevant(family int, m netlink.Message) bool {
	h.mu.Lock()
	d := h.desired
	h.mu.Unlock()
	if d == nil {
		return false
	}
	if family == unix.NETLINK_NETFILTER {
		// The cached state of the table of Services is valid until another program writes there.
		if m.Header.Type == netlink.Overrun || concernsTable(m, servicesTable) && !h.nft.own(m) {
			h.doubt.Store(true)
			return true
		}
		return concernsTable(m, tableName) || concernsTable(m, hostPortsTable)
	}
	switch uint16(m.Header.Type) {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		name := linkName(m)
		return name == d.Gateway.Name || name == d.Uplink || slices.Contains(d.Cards, name) ||
			slices.Contains(d.SwitchOnly, name)
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		return !addressOfPod(m)
	case unix.RTM_NEWNETCONF, unix.RTM_DELNETCONF:
		i := netconfIndex(m)
		return i < 0 || i == int(h.gateway.Load())
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		return routeProtocol(m) == uint8(Protocol)
	case unix.RTM_NEWRULE, unix.RTM_DELRULE:
		return len(d.Services.Floating) > 0
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		i, a := neighbour(m)
		return i == int(h.gateway.Load()) && (a == datapath.ServiceSourceIPv4 || a == datapath.ServiceSourceIPv6)
	}
	return false
}
