// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"iter"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"go4.org/netipx"
	"golang.org/x/time/rate"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/packet"
)

// Bounds of what packets of pods can cause on a Network. Each new host costs at most attempts
// requests.
const (
	maxKnown      = 4096
	maxUnresolved = 1024
	// New hosts a second, for a Source and for all Sources of a Network.
	sourceRate, sourceBurst   = 10, 20
	networkRate, networkBurst = 50, 100
)

// Why packets are lost.
const (
	lostNotNeighbour = "not_a_neighbour"
	lostRate         = "rate"
	lostNoAnswer     = "no_answer"
	lostOverflow     = "overflow"
	lostSendFailed   = "send_failed"
)

// network is what is known of a Network.
type network struct {
	resolver *Resolver
	name     string
	sources  []netip.Addr // sorted
	macs     map[netip.Addr]intent.MAC
	gateways []netip.Addr
	subnets  []netip.Prefix
	entries  map[netip.Addr]*entry
	// all bounds requests for new hosts, and limits those by the Source of the packet; the invalid
	// address stands for packets from no Source.
	all    *rate.Limiter
	limits map[netip.Addr]*rate.Limiter
}

// network is the one of that name, made if it is new.
func (r *Resolver) network(name string) *network {
	n := r.networks[name]
	if n == nil {
		n = &network{
			resolver: r, name: name, entries: map[netip.Addr]*entry{}, limits: map[netip.Addr]*rate.Limiter{},
			all: rate.NewLimiter(networkRate, networkBurst),
		}
		r.networks[name] = n
	}
	return n
}

// entries are those of all Networks.
func (r *Resolver) entries() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for _, n := range r.networks {
			for _, e := range n.entries {
				if !yield(e) {
					return
				}
			}
		}
	}
}

// owned reports whether the address is a Source with that MAC.
func (r *Resolver) owned(key Key, mac intent.MAC) bool {
	n := r.networks[key.Network]
	if n == nil {
		return false
	}
	own, ok := n.macs[key.Address]
	return ok && own == mac
}

// configure takes over a Segment, and begins to ask for gateways.
func (n *network) configure(s Segment, now time.Time) {
	n.macs = make(map[netip.Addr]intent.MAC, len(s.Sources))
	for a, mac := range s.Sources {
		n.macs[a.Unmap()] = mac
	}
	n.sources = slices.SortedFunc(maps.Keys(n.macs), netip.Addr.Compare)
	n.subnets = slices.Clone(s.Subnets)
	n.gateways = nil
	for _, g := range s.Gateways {
		n.gateways = append(n.gateways, g.Unmap().WithZone(""))
	}
	maps.DeleteFunc(n.limits, func(a netip.Addr, _ *rate.Limiter) bool {
		_, ok := n.macs[a]
		return !ok && a.IsValid()
	})
	for a, e := range n.entries {
		if !n.allows(a) {
			n.resolver.drop(e)
		}
	}
	for _, g := range n.gateways {
		if n.allows(g) && n.entries[g] == nil {
			n.add(g, now)
		}
		if e := n.entries[g]; e != nil {
			n.adopt(e, true, now)
		}
	}
	for a, e := range n.entries {
		if !slices.Contains(n.gateways, a) {
			n.adopt(e, false, now)
		}
	}
}

// adopt fits an entry to a new Segment.
func (n *network) adopt(e *entry, gateway bool, now time.Time) {
	r := n.resolver
	became := gateway && !e.gateway
	e.gateway = gateway
	if e.known() && n.ownMAC(e.mac) {
		e.mac = intent.MAC{}
		r.tableChanged(now)
		r.ask(e, now)
		return
	}
	switch {
	case became && (!e.known() || !e.timer.Pending()):
		r.ask(e, now)
	case !e.timer.Pending():
		// A saved one. All of them at once would be a burst.
		r.timers.Set(&e.timer, now.Add(rand.N(confirmation)))
	}
}

// allows reports whether the address can be a neighbour that this node can ask for.
func (n *network) allows(a netip.Addr) bool {
	if _, own := n.macs[a]; own || !n.source(a).IsValid() || !a.IsGlobalUnicast() && !a.IsLinkLocalUnicast() {
		return false
	}
	return slices.Contains(n.gateways, a) ||
		slices.ContainsFunc(n.subnets, func(p netip.Prefix) bool { return hostOf(p, a) })
}

// hostOf reports whether the address can be a host's of the subnet, which the first and the last
// one of IPv4 cannot (but RFC 3021).
func hostOf(p netip.Prefix, a netip.Addr) bool {
	if !p.Contains(a) || a.Is6() || p.Bits() > 30 {
		return p.Contains(a)
	}
	return a != p.Masked().Addr() && a != netipx.PrefixLastIP(p)
}

// source is the Source from which to ask for an address: the first one of a subnet of that address,
// else of its family.
func (n *network) source(a netip.Addr) (source netip.Addr) {
	for _, s := range n.sources {
		if s.Is4() != a.Is4() {
			continue
		}
		if slices.ContainsFunc(n.subnets, func(p netip.Prefix) bool { return p.Contains(s) && p.Contains(a) }) {
			return s
		}
		if !source.IsValid() {
			source = s
		}
	}
	return source
}

// ownMAC reports whether a Source has the MAC.
func (n *network) ownMAC(mac intent.MAC) bool {
	for _, own := range n.macs {
		if own == mac {
			return true
		}
	}
	return false
}

// add makes an entry. Nothing happens to it before a timer is set.
func (n *network) add(a netip.Addr, now time.Time) *entry {
	e := newEntry(n, a, now)
	n.entries[a] = e
	return e
}

// wanted is the entry of a hop that a packet wants to go by, made if it is new; else why the
// packet is lost.
func (r *Resolver) wanted(n *network, hop netip.Addr, waiting []byte, now time.Time) (*entry, string) {
	if n == nil || !n.allows(hop) {
		return nil, lostNotNeighbour
	}
	if e := n.entries[hop]; e != nil {
		if e.phase == failed {
			return nil, lostNoAnswer
		}
		if e.phase == asking && !e.known() && e.gateway && now.Sub(e.asked) >= pause {
			r.request(e, now) // sooner than backed off
		}
		return e, ""
	}
	if !n.limit(waiting).AllowN(now, 1) || !n.all.AllowN(now, 1) {
		return nil, lostRate
	}
	n.makeRoom(false)
	e := n.add(hop, now)
	r.ask(e, now)
	return e, ""
}

// limit is that of the packet's Source, so that one pod's scan of a subnet does not keep the others
// from new hosts.
func (n *network) limit(waiting []byte) *rate.Limiter {
	var source netip.Addr
	if p, ok := packet.Parse(waiting); ok {
		if _, own := n.macs[p.Source()]; own {
			source = p.Source()
		}
	}
	l := n.limits[source]
	if l == nil {
		l = rate.NewLimiter(sourceRate, sourceBurst)
		n.limits[source] = l
	}
	return l
}

// makeRoom drops the oldest host if there are as many as may be with a known MAC, or without one.
// The two have bounds of their own, so that a scan does not displace neighbours.
func (n *network) makeRoom(known bool) {
	var oldest *entry
	count, most := 0, maxUnresolved
	if known {
		most = maxKnown
	}
	for _, e := range n.entries {
		if e.gateway || e.known() != known {
			continue
		}
		count++
		if oldest == nil || e.made.Before(oldest.made) {
			oldest = e
		}
	}
	if count >= most {
		n.resolver.drop(oldest)
	}
}
