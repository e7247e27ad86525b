// SPDX-License-Identifier: Apache-2.0

// Package nexthops finds out which next hops on external Networks work, by ICMP echo (RFC 792, RFC
// 4443) or by single-hop BFD (RFC 5881).
//
// A next hop begins as one that works: a node that has just become active must not drop what it can
// send. From then on
//
//	ICMP  it is down after Failures intervals without an answer, and up after two answers in a row
//	BFD   it is up while its session is Up; a session has 3 s, or the detection time if that is
//	      longer, to become Up for the first time
//
// What cannot be sent, because a MAC is unknown or the switch is away, is not answered either.
package nexthops

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/packet"
	"coelan.io/coelan/internal/timers"
	"coelan.io/coelan/internal/trigger"
)

// Key names a Target: an address on a Network, and one of this node's from which it is used.
type Key struct {
	Network         string
	Source, NextHop netip.Addr
}

// Target is a next hop that is checked.
type Target struct {
	Key
	SourceMAC intent.MAC
	// Check has ICMP or BFD as its Protocol. An Interval below 10 ms counts as 10 ms, Failures
	// below 1 as 1, and above 255 with BFD as 255.
	Check intent.NextHopCheck
}

// Options are what a Prober works with. Log, Send and MAC are needed.
type Options struct {
	Log *slog.Logger
	// Send puts an untagged Ethernet frame onto the wire of a Network. Only Run calls it, one call
	// at a time, and waits for it: it must not block for long.
	Send func(ctx context.Context, network string, frame []byte) error
	// MAC is that of a host on the wire of a Network; false: it is not known yet. Only Run calls
	// it.
	MAC func(network string, a netip.Addr) (intent.MAC, bool)
	// Changed is called by Run after Down has another answer, once for changes that come together.
	Changed func()
	// Metrics is where the Prober registers its metrics; nil: nowhere.
	Metrics prometheus.Registerer
}

// Prober checks next hops. Its methods are safe for concurrent use, and only Run blocks. New makes
// it.
type Prober struct {
	Options
	wake trigger.Trigger

	mu      sync.Mutex
	targets map[Key]*target // by normal keys
	timers  timers.Queue
	out     []outgoing
	// changed says that Changed is to be called.
	changed bool
	// identifier is that of echo requests.
	identifier uint16
}

// New makes a Prober without Targets, which does nothing before Run.
func New(o Options) *Prober {
	p := &Prober{
		Options: o, wake: trigger.New(), targets: map[Key]*target{}, identifier: uint16(1 + random(1<<16-1)),
	}
	if o.Metrics != nil {
		o.Metrics.MustRegister(&stateCollector{p})
	}
	return p
}

// SetTargets replaces all Targets. Those that stay keep their state: what Down says of them as long
// as the protocol of the check is the same, and the session of BFD as long as the whole check is.
// Targets that cannot be checked, because their check has no protocol, or because their addresses
// are not of one family, are ignored, and never down.
func (p *Prober) SetTargets(list []Target) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	wanted := map[Key]bool{}
	for _, t := range list {
		if key := normal(t.Key); t.checkable() {
			wanted[key] = true
			p.set(key, t, now)
		}
	}
	for key, t := range p.targets {
		if !wanted[key] {
			p.changed = p.changed || t.down
			p.remove(key, t)
		}
	}
	p.wake.Fire()
}

// set adds a Target, or replaces the one with that key.
func (p *Prober) set(key Key, wanted Target, now time.Time) {
	old := p.targets[key]
	if old != nil && old.Check == wanted.Check {
		old.Target = wanted
		return
	}
	t := &target{Target: wanted, key: key}
	t.timer = timers.New(func(now time.Time) { p.tick(t, now) })
	wasDown := false
	if old != nil {
		wasDown = old.down && old.Check.Protocol == wanted.Check.Protocol
		p.changed = p.changed || old.down != wasDown
		p.remove(key, old)
	}
	t.down = wasDown
	if wanted.Check.Protocol == intent.CheckBFD {
		t.check = p.newSession(t, wasDown, now)
	} else {
		t.check = newEcho(key, wanted.Check, p.identifier, wasDown)
	}
	p.targets[key] = t
	p.timers.Set(&t.timer, now)
}

func (p *Prober) remove(key Key, t *target) {
	p.timers.Stop(&t.timer)
	delete(p.targets, key)
}

// normal has each address in the one form that packets have.
func normal(k Key) Key {
	k.Source, k.NextHop = k.Source.Unmap().WithZone(""), k.NextHop.Unmap().WithZone("")
	return k
}

// Down returns the next hops that do not work.
func (p *Prober) Down() map[Key]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	down := map[Key]bool{}
	for _, t := range p.targets {
		if t.down {
			down[t.Key] = true
		}
	}
	return down
}

// Received takes an Ethernet frame, without a tag, from the wire of a Network: an echo reply, or a
// packet of BFD. It ignores all that is not from the next hop of a Target to its Source.
func (p *Prober) Received(network string, frame []byte) {
	if ip, ok := parse(frame); ok {
		p.take(normal(Key{network, ip.Destination(), ip.Source()}), ip)
	}
}

func parse(frame []byte) (packet.IP, bool) {
	ip, ok := packet.Parse(frame)
	// With a tag, the packet begins later.
	return ip, ok && len(ip) == len(frame)-packet.EthernetLen
}

func (p *Prober) take(key Key, ip packet.IP) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.targets[key]
	if t == nil {
		return
	}
	now := time.Now()
	took, err := t.check.received(ip, now)
	if err != nil {
		p.Log.Debug("ignored a packet of a next hop", append(t.attributes(), "err", err)...)
	}
	if !took {
		return
	}
	p.judge(t, now)
	if t.check.urgent() {
		p.timers.Set(&t.timer, now)
	}
	p.wake.Fire()
}

// Run checks the Targets until ctx ends.
func (p *Prober) Run(ctx context.Context) error {
	clock := time.NewTimer(0)
	defer clock.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.wake:
		case <-clock.C:
		}
		clock.Stop()
		if next, ok := p.step(ctx); ok {
			clock.Reset(time.Until(next))
		}
	}
}

// step does what is due, and says when there is more to do.
func (p *Prober) step(ctx context.Context) (next time.Time, more bool) {
	out, changed := p.expire(time.Now())
	if changed && p.Changed != nil {
		p.Changed()
	}
	p.send(ctx, out)
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.timers.Next()
}

// outgoing is a packet to be sent.
type outgoing struct {
	Target
	packet packet.IP
}

// expire returns what the Targets that are due want to send, and whether Changed is to be called.
func (p *Prober) expire(now time.Time) (out []outgoing, changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timers.Expire(now)
	out, p.out = p.out, nil
	changed, p.changed = p.changed, false
	return out, changed
}

// tick has a Target's check do what is due.
func (p *Prober) tick(t *target, now time.Time) {
	packets, next := t.check.tick(now)
	for _, ip := range packets {
		p.out = append(p.out, outgoing{t.Target, ip})
	}
	p.judge(t, now)
	p.timers.Set(&t.timer, next)
}

func (p *Prober) send(ctx context.Context, out []outgoing) {
	for _, o := range out {
		mac, ok := p.MAC(o.Network, o.NextHop)
		if !ok {
			continue
		}
		frame := packet.Ethernet(mac[:], o.SourceMAC[:], o.packet.Type(), o.packet)
		if err := p.Send(ctx, o.Network, frame); err != nil {
			p.Log.Debug("cannot send to a next hop", append(o.attributes(), "err", err)...)
		}
	}
}
