// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mdlayher/netlink"
	nl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"coelan.io/coelan/internal/trigger"
)

// TunnelTables are ovs-vswitchd's own neighbors and routes to single hosts, by which it sends its
// tunnels' packets. A call does nothing while ovs-vswitchd does not run.
type TunnelTables interface {
	SetNeighbour(ctx context.Context, bridge string, ip netip.Addr, mac net.HardwareAddr) error
	// HostRoutes lists the routes that were added, by any program. What ovs-vswitchd was told of
	// addresses before the call, it knows when the next one comes.
	HostRoutes(ctx context.Context) ([]TunnelRoute, error)
	SetRoute(ctx context.Context, r TunnelRoute) error
	DeleteRoute(ctx context.Context, dst netip.Addr) error
}

// Neighbours keeps the MAC addresses of the next hops to other nodes, and the ways to these, in
// ovs-vswitchd's own tables. The userspace datapath drops the packet that finds no entry there, so
// the entries come before the packets: the kernel knows the routes and resolves the next hops, and
// each event that changes one is passed on.
type Neighbours struct {
	log    *slog.Logger
	tables TunnelTables
	wake   trigger.Trigger
	// index is the bridge's interface, 0 before it was seen.
	index atomic.Int32

	mu     sync.Mutex
	bridge string
	peers  []netip.Addr
	// written is what ovs-vswitchd was told since it started, or since the last renewal.
	written map[netip.Addr]string
	// renewals counts the calls of Renew.
	renewals int
	// last is what was known of a neighbor at any time.
	last map[netip.Addr]net.HardwareAddr

	routes tunnelRoutes // only Run uses them
}

// renewal is well below the 15 minutes after which ovs-vswitchd forgets an
// entry (ovs: lib/tnl-neigh-cache.c).
const renewal = 4 * time.Minute

// NewNeighbours makes a Neighbors that knows no peers yet.
func NewNeighbours(log *slog.Logger, tables TunnelTables) *Neighbours {
	return &Neighbours{
		log: log, tables: tables, wake: trigger.New(),
		written: map[netip.Addr]string{}, last: map[netip.Addr]net.HardwareAddr{},
	}
}

// Set names the bridge that carries the node's address and the tunnel addresses of all other nodes.
func (n *Neighbours) Set(bridge string, peers []netip.Addr) {
	n.mu.Lock()
	n.bridge, n.peers = bridge, peers
	n.mu.Unlock()
	n.wake.Fire()
}

// Renew writes all entries again, as a restarted ovs-vswitchd needs.
func (n *Neighbours) Renew() {
	n.mu.Lock()
	clear(n.written)
	n.renewals++
	n.mu.Unlock()
	n.wake.Fire()
}

// Run passes entries on until ctx ends.
func (n *Neighbours) Run(ctx context.Context) error {
	events := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { events <- watch(ctx, neighbourGroups, n.relevant, n.wake.Fire) }()
	timer := time.NewTicker(renewal)
	defer timer.Stop()
	for {
		select {
		case err := <-events:
			return err
		case <-timer.C:
			n.Renew()
		case <-n.wake:
			if err := n.step(ctx); err != nil && ctx.Err() == nil {
				n.log.Warn("cannot update Open vSwitch's tunnel neighbours, retrying", "err", err)
			}
		}
	}
}

// relevant leaves out what a pod's interface brings with it.
func (n *Neighbours) relevant(_ int, m netlink.Message) bool {
	switch uint16(m.Header.Type) {
	case unix.RTM_DELNEIGH:
		return false
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		return !addressOfPod(m)
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		return routeProtocol(m) != unix.RTPROT_KERNEL || routeInterface(m) == n.index.Load()
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		return !strings.HasPrefix(linkName(m), "co")
	}
	return true
}

// known are the states in which an entry's address can be used.
const known = unix.NUD_REACHABLE | unix.NUD_STALE | unix.NUD_DELAY | unix.NUD_PROBE |
	unix.NUD_PERMANENT | unix.NUD_NOARP

func (n *Neighbours) step(ctx context.Context) error {
	n.mu.Lock()
	bridge, peers, renewals := n.bridge, n.peers, n.renewals
	n.mu.Unlock()
	if bridge == "" {
		return nil
	}
	link, err := nl.LinkByName(bridge)
	if err != nil {
		// It is not there while ovs-vswitchd is down; its return is an event.
		return nil
	}
	if index := int32(link.Attrs().Index); n.index.Swap(index) != index {
		// With a bridge ovs-vswitchd forgets its neighbors.
		n.mu.Lock()
		clear(n.written)
		n.mu.Unlock()
	}
	hops, err := nextHops(link, peers)
	if err != nil {
		return fmt.Errorf("next hops on %s: %w", bridge, err)
	}
	return errors.Join(n.route(ctx, link, renewals, hops), n.tellAll(ctx, link, hops))
}

// tellAll passes on the neighbors through which peers are reached.
func (n *Neighbours) tellAll(ctx context.Context, link nl.Link, hops []hop) error {
	entries, err := entriesOf(link)
	if err != nil {
		return fmt.Errorf("neighbours of %s: %w", link.Attrs().Name, err)
	}
	seen := map[netip.Addr]bool{}
	for _, hop := range hops {
		if seen[hop.addr] {
			continue
		}
		seen[hop.addr] = true
		if err := n.tell(ctx, link, hop, entries[hop.addr]); err != nil {
			return fmt.Errorf("neighbour %s on %s: %w", hop.addr, link.Attrs().Name, err)
		}
	}
	return nil
}

// tell passes on what the kernel knows of a neighbor. What it knows may be old, and it may have
// forgotten what ovs-vswitchd needs again: so it is asked to look once after each renewal, and what
// was known last does until then.
func (n *Neighbours) tell(ctx context.Context, link nl.Link, h hop, mac net.HardwareAddr) error {
	n.mu.Lock()
	old, again := n.written[h.addr]
	last := n.last[h.addr]
	n.mu.Unlock()
	if mac == nil || !again {
		if err := resolve(link, h); err != nil {
			return err
		}
	}
	if mac == nil && !again {
		mac = last
	}
	if mac == nil || old == mac.String() {
		return nil
	}
	return n.write(ctx, link.Attrs().Name, h.addr, mac)
}

func (n *Neighbours) write(ctx context.Context, bridge string, hop netip.Addr, mac net.HardwareAddr) error {
	n.mu.Lock()
	renewals := n.renewals
	n.mu.Unlock()
	if err := n.tables.SetNeighbour(ctx, bridge, hop, mac); err != nil {
		return err
	}
	n.log.Debug("tunnel neighbour set", "bridge", bridge, "neighbour", hop, "mac", mac.String())
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last[hop] = mac
	// An entry that was written before a restart of ovs-vswitchd is gone.
	if renewals == n.renewals {
		n.written[hop] = mac.String()
	}
	return nil
}

func entriesOf(link nl.Link) (map[netip.Addr]net.HardwareAddr, error) {
	var all []nl.Neigh
	for _, f := range []int{unix.AF_INET, unix.AF_INET6} {
		list, err := dump(func() ([]nl.Neigh, error) { return nl.NeighList(link.Attrs().Index, f) })
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	return usable(all), nil
}

// usable are the addresses of those entries that have one.
func usable(list []nl.Neigh) map[netip.Addr]net.HardwareAddr {
	entries := map[netip.Addr]net.HardwareAddr{}
	for _, e := range list {
		if e.State&known != 0 && len(e.HardwareAddr) == 6 {
			entries[addr(e.IP)] = e.HardwareAddr
		}
	}
	return entries
}

// hop is the neighbor through which a peer is reached.
type hop struct{ addr, peer netip.Addr }

// nextHops are the neighbors on link through which peers are reached. Peers that are reached by
// another interface, or not at all now, have none.
func nextHops(link nl.Link, peers []netip.Addr) ([]hop, error) {
	var hops []hop
	for _, p := range peers {
		routes, err := nl.RouteGet(p.AsSlice())
		if err != nil && !slices.ContainsFunc(unreachable, func(e error) bool { return errors.Is(err, e) }) {
			return nil, fmt.Errorf("route to %s: %w", p, err)
		}
		if h, ok := hopTo(p, routes, link.Attrs().Index); ok {
			hops = append(hops, h)
		}
	}
	return hops, nil
}

// hopTo reads the kernel's answer to which way leads to a peer; false: not through the interface.
func hopTo(peer netip.Addr, routes []nl.Route, device int) (hop, bool) {
	if len(routes) == 0 || routes[0].LinkIndex != device {
		return hop{}, false
	}
	if routes[0].Gw == nil {
		return hop{peer, peer}, true
	}
	return hop{addr(routes[0].Gw), peer}, true
}

// unreachable are the kernel's words for an address that no route leads to: none at all,
// unreachable, prohibit, blackhole.
var unreachable = []error{unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EACCES, unix.EINVAL}

// resolve asks the kernel to find the address; the answer comes as an event.
func resolve(link nl.Link, h hop) error {
	if h.addr.Is6() {
		// Asked without a packet, the kernel asks from the interface's link-local
		// address, and not at all while that is being checked for duplicates: for seconds
		// after the interface came up.
		return knock(h.peer)
	}
	return nl.NeighSet(&nl.Neigh{
		LinkIndex: link.Attrs().Index, Family: family(h.addr), IP: h.addr.AsSlice(), State: unix.NUD_NONE,
		Flags: nl.NTF_USE,
	})
}

// knock sends an empty datagram to the discard service (RFC 863), which need not run.
func knock(peer netip.Addr) error {
	const discard = 9
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(peer, discard)))
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	_, err = c.Write(nil)
	if errors.Is(err, unix.ECONNREFUSED) {
		err = nil
	}
	return err
}
