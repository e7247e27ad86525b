// SPDX-License-Identifier: Apache-2.0

// Package neighbours resolves next hops on external Networks: it finds the MACs of gateways and of
// other hosts of a Network's subnets by ARP and neighbor discovery, because Open vSwitch does not.
//
// A gateway is resolved as soon as its Segment is set, and for as long as the node has a Source of
// its family. Other hosts are resolved when a packet wants to go by them. Each neighbour is in one
// of these phases:
//
//	phase      requests                            ends with
//	asking     to all stations, once a second,     its MAC: reachable
//	           to a gateway slower and for ever    3 of a host unanswered: failed
//	reachable  none                                30 s without a claim: probing
//	probing    to its MAC only, once a second      a claim of that MAC: reachable
//	                                               3 unanswered: a gateway is asking, a host gone
//	failed     none                                its MAC: reachable
//	                                               5 s: gone
//
// A gateway keeps its MAC while it is asked for again, because an old one is better than none.
//
// MACs are learned from ARP messages and neighbor advertisements, but only those of neighbours in
// one of these phases: what was not asked for makes no entry. An unasked claim with another MAC is
// believed at once, because that is how a gateway's address moves to another router, and is
// verified a second later. A second change within that second is not believed: all stations are
// asked instead.
//
// What a pod can cause is bounded: requests a second for each floating IP and for each Network,
// entries, and packets that wait.
package neighbours

import (
	"cmp"
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/packet"
	"coelan.io/coelan/internal/retry"
	"coelan.io/coelan/internal/timers"
	"coelan.io/coelan/internal/trigger"
)

// Key names a neighbour: an address on a Network.
type Key struct {
	Network string
	Address netip.Addr
}

// Segment is the part of an external Network that this node takes part in.
type Segment struct {
	Network string
	// Sources are the addresses that this node answers for, and their MACs: floating IPs.
	// Neighbours of a family can be resolved only if there is a Source of it.
	Sources map[netip.Addr]intent.MAC
	// Gateways are always kept resolved. They may lie outside of Subnets, such as link-local ones.
	Gateways []netip.Addr
	// Subnets have the addresses of all other neighbours.
	Subnets []netip.Prefix
}

// Options are what a Resolver works with. Log and Send are needed.
type Options struct {
	Log *slog.Logger
	// Send puts an untagged Ethernet frame onto the wire of a Network. Only Run calls it, one call
	// at a time, and waits for it: it must not block for long. Requests that it fails to send do
	// not count as unanswered.
	Send func(ctx context.Context, network string, frame []byte) error
	// Changed is called by Run after the table has changed, once for changes that come together.
	Changed func()
	// Saved is what Save was called with last, before a restart. It is in the table at once.
	Saved map[string][]byte
	// Save replaces what is remembered over a restart. Run calls it within a second after the table
	// has changed, when it ends, and again after a failure.
	Save func(map[string][]byte) error
	// Metrics is where the Resolver registers its metrics.
	Metrics prometheus.Registerer
}

// Resolver keeps the table of neighbours. Its methods are safe for concurrent use, and only Run
// blocks. New makes it.
type Resolver struct {
	Options
	metrics *metrics
	wake    trigger.Trigger

	mu       sync.Mutex
	networks map[string]*network
	timers   timers.Queue
	out      outbox
	// waiting is the number of bytes of packets that wait for their next hop.
	waiting       int
	announcements map[Key]*announcement
	// announced counts frames of announcements in the burst that began at burstBegan.
	announced  int
	burstBegan time.Time
	// changed says that Changed is to be called, unsaved that Save is, when save fires.
	changed bool
	unsaved bool
	save    timers.Timer
	saveDue bool
	retry   *retry.Backoff
}

// New makes a Resolver that knows the neighbours that were saved, and does nothing before Run.
func New(o Options) *Resolver {
	r := &Resolver{
		Options: o, metrics: newMetrics(), wake: trigger.New(), networks: map[string]*network{},
		announcements: map[Key]*announcement{}, retry: retry.New(time.Second, time.Minute),
	}
	r.save = timers.New(func(time.Time) { r.saveDue = true })
	r.restore(o.Saved)
	if o.Metrics != nil {
		r.metrics.register(o.Metrics, r)
	}
	return r
}

// SetSegments replaces all Segments; there is at most one of a Network. Entries that no Segment has
// room for any more are dropped, also saved ones: the first call has to have all Segments.
// Announcements of addresses that are no Sources any more end.
func (r *Resolver) SetSegments(segments []Segment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	wanted := map[string]bool{}
	for _, s := range segments {
		wanted[s.Network] = true
		r.network(s.Network).configure(s, now)
	}
	for name, n := range r.networks {
		if wanted[name] {
			continue
		}
		for _, e := range n.entries {
			r.drop(e)
		}
		delete(r.networks, name)
	}
	for key, a := range r.announcements {
		if !r.owned(key, a.mac) {
			r.timers.Stop(&a.timer)
			delete(r.announcements, key)
		}
	}
	r.wake.Fire()
}

// MAC is that of a neighbour; false if it is not known.
func (r *Resolver) MAC(network string, a netip.Addr) (intent.MAC, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := r.networks[network]; n != nil && n.entries[a] != nil {
		return n.entries[a].mac, n.entries[a].known()
	}
	return intent.MAC{}, false
}

// Table returns the neighbours with known MACs.
func (r *Resolver) Table() map[Key]intent.MAC {
	r.mu.Lock()
	defer r.mu.Unlock()
	table := map[Key]intent.MAC{}
	for e := range r.entries() {
		if e.known() {
			table[Key{e.network.name, e.address}] = e.mac
		}
	}
	return table
}

// Neighbour is a next hop, or an address that may be one.
type Neighbour struct {
	Key
	// Gateway says that it is one of a Segment's Gateways.
	Gateway bool
	MAC     intent.MAC // zero: not known
	// Silent says that it has not answered. A gateway keeps its MAC nevertheless.
	Silent bool
}

// Neighbours are all in the table, sorted by Network and address.
func (r *Resolver) Neighbours() []Neighbour {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []Neighbour
	for e := range r.entries() {
		list = append(list, Neighbour{
			Key: Key{e.network.name, e.address}, Gateway: e.gateway, MAC: e.mac, Silent: e.silent || e.phase == failed,
		})
	}
	slices.SortFunc(list, func(a, b Neighbour) int {
		return cmp.Or(cmp.Compare(a.Network, b.Network), a.Address.Compare(b.Address))
	})
	return list
}

// Sources are those of all Segments, with their MACs.
func (r *Resolver) Sources() map[Key]intent.MAC {
	r.mu.Lock()
	defer r.mu.Unlock()
	sources := map[Key]intent.MAC{}
	for _, n := range r.networks {
		for a, mac := range n.macs {
			sources[Key{n.name, a}] = mac
		}
	}
	return sources
}

// Received takes an ARP or neighbor discovery frame, without a tag, from the wire of a Network. It
// ignores all that says nothing of a neighbour that is in the table or is asked for.
func (r *Resolver) Received(network string, frame []byte) {
	c, ok := packet.ParseClaim(frame)
	if !ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.networks[network]
	if n == nil || n.entries[c.Address] == nil {
		return
	}
	r.claimed(n.entries[c.Address], c, time.Now())
	r.wake.Fire()
}

// Resolve has a next hop resolved that a packet wants to go by. The packet, if it is not nil, is an
// Ethernet frame that is complete but for its destination MAC. It is sent when that is known, and
// dropped if that takes too long, or too many wait. A hop that cannot be a neighbour is ignored.
func (r *Resolver) Resolve(network string, hop netip.Addr, waiting []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, hop := time.Now(), hop.Unmap().WithZone("")
	e, refusal := r.wanted(r.networks[network], hop, waiting, now)
	switch {
	case refusal != "":
	case len(waiting) < packet.EthernetLen:
		waiting = nil
	case e.known():
		refusal = r.deliver(e, waiting)
	default:
		refusal = r.keep(e, waiting)
	}
	if refusal != "" && waiting != nil {
		r.metrics.lost(refusal, 1)
	}
	r.wake.Fire()
}

// Announce has the stations of a Network learn that a Source has its MAC: at once and four times
// within the next second, or until it is not a Source with that MAC any more. An address that is no
// Source is not announced.
func (r *Resolver) Announce(network string, a netip.Addr, mac intent.MAC) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := Key{network, a.Unmap()}
	if !r.owned(key, mac) {
		return
	}
	if old := r.announcements[key]; old != nil {
		r.timers.Stop(&old.timer)
	}
	said := &announcement{key: key, mac: mac, started: time.Now()}
	said.timer = timers.New(func(now time.Time) { r.say(said, now) })
	r.announcements[key] = said
	r.timers.Set(&said.timer, said.started)
	r.wake.Fire()
}

// Run sends what there is to send until ctx ends.
func (r *Resolver) Run(ctx context.Context) error {
	clock := time.NewTimer(0)
	defer clock.Stop()
	for {
		select {
		case <-ctx.Done():
			r.mu.Lock()
			r.saveDue = r.unsaved
			r.mu.Unlock()
			r.remember()
			return nil
		case <-r.wake:
		case <-clock.C:
		}
		clock.Stop()
		if next, ok := r.step(ctx); ok {
			clock.Reset(time.Until(next))
		}
	}
}

// step does what is due, and says when there is more to do.
func (r *Resolver) step(ctx context.Context) (next time.Time, more bool) {
	r.mu.Lock()
	r.timers.Expire(time.Now())
	frames, changed := r.out.take(), r.changed
	r.changed = false
	r.mu.Unlock()
	if changed && r.Changed != nil {
		r.Changed()
	}
	r.send(ctx, frames)
	r.remember()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.timers.Next()
}
