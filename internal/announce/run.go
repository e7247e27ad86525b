// SPDX-License-Identifier: Apache-2.0

package announce

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"coelan.io/coelan/internal/announce/keyring"
	"coelan.io/coelan/internal/backend/ovs/hostnet"
	"coelan.io/coelan/internal/rendezvous"
)

const (
	// look is how often the kernel's entries are compared without an event: the kernel sends none
	// when an entry is deleted.
	look = 30 * time.Second
	// retry is how soon after an error.
	retry = 3 * time.Second
)

// repeats are when an address is announced after this node has taken it over; one
// frame may be lost.
var repeats = []time.Duration{0, 500 * time.Millisecond, 2 * time.Second}

// series is what is left to be said of an address.
type series struct {
	started time.Time
	said    int
}

// runner is what belongs to Run alone.
type runner struct {
	*Announcer
	kernel *kernel
	sender *sender
	// members is nil while there is nothing to announce.
	members *members
	peers   []Peer
	// used are the keys that members have.
	used [][]byte
	// decided says that it was decided once what this node answers for.
	decided  bool
	arrivals int
	// entries are the kernel's as they should be, by address.
	entries map[netip.Addr][]wire
	// bridged are the addresses that the bridge answers for. Their entries, of the interface to the
	// pods, make no kernel answer: an agent that starts again finds them there.
	bridged map[netip.Addr]bool
	series  map[netip.Addr]*series
}

// Run takes part until ctx ends. The kernel goes on answering after that, until an agent that
// starts again decides anew.
func (a *Announcer) Run(ctx context.Context) error {
	r := &runner{Announcer: a, series: map[netip.Addr]*series{}}
	var err error
	if r.kernel, err = newKernel(); err != nil {
		return err
	}
	defer r.kernel.close()
	if r.sender, err = newSender(); err != nil {
		// Hosts that ask are answered all the same.
		r.log.Error("cannot send gratuitous ARP and neighbour advertisements when load balancer addresses move",
			"err", err)
	}
	defer func() {
		if r.sender != nil {
			r.sender.close()
		}
		if r.members != nil {
			r.members.stop()
		}
	}()
	return r.loop(ctx)
}

func (r *runner) loop(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events := make(chan error, 1)
	// An interface that is recreated gets its addresses anew.
	go func() { events <- hostnet.WatchUplinks(ctx, func(string) bool { return false }, r.wake.Fire) }()
	timer := time.NewTimer(look)
	defer timer.Stop()
	// again is when the next step is due without an event; in between there may be
	// something to be said.
	var again time.Time
	for {
		woken := false
		select {
		case err := <-events:
			// It also ends with ctx.
			return err
		case <-r.wake:
			woken = true
		case <-timer.C:
		}
		if now := time.Now(); woken || !now.Before(again) {
			err := r.watched()
			r.failed(err)
			again = now.Add(look)
			if err != nil {
				again = now.Add(retry)
			}
		}
		wait := time.Until(again)
		if next, more := r.speak(time.Now()); more {
			wait = min(wait, next)
		}
		timer.Reset(max(wait, 0))
	}
}

func (r *runner) failed(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.status.Error
	r.status.Error = ""
	if err != nil {
		r.status.Error = err.Error()
	}
	switch {
	case err != nil && r.status.Error != before:
		r.log.Error("cannot answer for load balancers' addresses, retrying", "err", err)
	case err == nil && before != "":
		r.log.Info("answering for load balancers' addresses works again")
	}
}

// watched is step, of which the beginning and the end are reported.
func (r *runner) watched() error {
	if r.opts.Step != nil {
		defer r.opts.Step()()
	}
	return r.step()
}

// step decides and brings the kernel's entries there.
func (r *runner) step() error {
	r.mu.Lock()
	d, keys := r.desired, r.keys
	r.mu.Unlock()
	if d == nil {
		return nil
	}
	r.bridged = map[netip.Addr]bool{}
	for _, a := range d.Addresses {
		if a.Bridge {
			r.bridged[a.Addr] = true
		}
	}
	if len(d.Addresses) == 0 {
		if r.members != nil {
			r.members.leave()
			r.members, r.decided = nil, false
		}
		return r.apply(nil, nil)
	}
	if err := r.takePart(d.Peers, keys); err != nil {
		return err
	}
	if !r.members.isSettled() {
		return nil
	}
	// A member that joins after this look causes another step.
	arrivals := r.members.arrivals()
	alive := r.members.alive()
	err := r.apply(alive, r.owned(d, alive))
	if !r.decided || arrivals != r.arrivals {
		// Members that join may have answered for these addresses until now.
		for a := range r.entries {
			if r.bridged[a] {
				continue
			}
			r.series[a] = &series{started: time.Now()}
		}
	}
	r.decided, r.arrivals = true, arrivals
	return err
}

// errNoKey says why a node takes no part.
var errNoKey = errors.New("this node has not joined the memberlist: it has no memberlist key, which the controller keeps in" +
	" the Secret " + keyring.Secret)

func (r *runner) takePart(peers []Peer, keys [][]byte) error {
	if len(keys) == 0 {
		return errNoKey
	}
	if r.members == nil {
		var err error
		r.members, err = join(r.opts, r.log, peers, keys, r.wake.Fire, r.configure)
		r.peers, r.used = peers, keys
		return err
	}
	if !slices.Equal(peers, r.peers) {
		r.peers = peers
		r.members.set(peers)
	}
	if slices.EqualFunc(keys, r.used, bytes.Equal) {
		return nil
	}
	if err := r.members.setKeys(keys); err != nil {
		return err
	}
	r.used = keys
	r.log.Info("memberlist keys changed", "keys", len(keys))
	return nil
}

// owned are this node's addresses.
func (r *runner) owned(d *Desired, alive []string) []netip.Addr {
	var own []netip.Addr
	for _, a := range d.Addresses {
		candidates := make([]string, 0, len(a.Nodes))
		for _, n := range a.Nodes {
			if _, ok := slices.BinarySearch(alive, n); ok {
				candidates = append(candidates, n)
			}
		}
		if rendezvous.Choose(a.Addr, candidates) == r.opts.Node {
			own = append(own, a.Addr.Unmap())
		}
	}
	slices.SortFunc(own, netip.Addr.Compare)
	return slices.Compact(own)
}

// apply makes the kernel answer for own and nothing else.
func (r *runner) apply(alive []string, own []netip.Addr) error {
	have, err := r.kernel.list()
	if err != nil {
		return err
	}
	all, inside, err := wires(r.opts.Gateway)
	if err != nil {
		return err
	}
	answered := map[netip.Addr]bool{}
	for p := range have {
		answered[p.addr] = true
	}
	var errs []error
	r.entries = map[netip.Addr][]wire{}
	var chosen []netip.Addr
	for _, a := range own {
		on := wiresOf(all, a, r.opts.Address)
		if r.bridged[a] {
			chosen, on = append(chosen, a), inside
		}
		if err := r.answer(a, on, have, answered[a]); err != nil {
			errs = append(errs, fmt.Errorf("address %s: %w", a, err))
		}
	}
	// What is left belongs to no address any more, or to another interface now.
	for p := range have {
		if err := r.kernel.remove(p); err != nil {
			errs = append(errs, fmt.Errorf("address %s: delete: %w", p.addr, err))
			continue
		}
		if _, still := r.entries[p.addr]; !still && answered[p.addr] {
			delete(answered, p.addr)
			delete(r.series, p.addr)
			r.log.Info("load balancer address released", "address", p.addr)
			if r.opts.Lost != nil {
				r.opts.Lost(p.addr)
			}
		}
	}
	if r.opts.Chosen != nil {
		r.opts.Chosen(chosen)
	}
	r.mu.Lock()
	r.status.Alive, r.status.Owned = alive, own
	r.mu.Unlock()
	return errors.Join(errs...)
}

// answer makes the entries of one address, and takes them out of have.
func (r *runner) answer(a netip.Addr, on []wire, have map[proxy]bool, answered bool) error {
	if len(on) == 0 {
		return errors.New("no interface of this host has a subnet with it, nor the node's own address")
	}
	r.entries[a] = on
	fresh := false
	for _, w := range on {
		p := proxy{w.index, a}
		if !r.bridged[a] {
			if err := prepare(r.opts.SysctlDir, w, a.Is6()); err != nil {
				return err
			}
		}
		if have[p] {
			delete(have, p)
			continue
		}
		if err := r.kernel.add(p); err != nil {
			return fmt.Errorf("proxy entry on %s: %w", w.name, err)
		}
		fresh = true
	}
	if fresh && !r.bridged[a] {
		r.series[a] = &series{started: time.Now()}
	}
	if fresh && !answered {
		r.log.Info("load balancer address announced", "address", a)
		if r.opts.Gained != nil {
			r.opts.Gained(a)
		}
	}
	return nil
}

// Frames go out in bursts that no queue is too short for.
const (
	burst = 50
	pause = time.Millisecond
)

// speak announces what is due, as far as one burst goes, and says when the next is.
func (r *runner) speak(now time.Time) (next time.Duration, more bool) {
	next = look
	sent := 0
	for a, s := range r.series {
		if s.started.Add(repeats[s.said]).After(now) {
			next = min(next, s.started.Add(repeats[s.said]).Sub(now))
			continue
		}
		if sent >= burst {
			return pause, true
		}
		sent += r.tell(a)
		if s.said++; s.said == len(repeats) {
			delete(r.series, a)
			continue
		}
		next = min(next, max(s.started.Add(repeats[s.said]).Sub(now), 0))
	}
	return next, len(r.series) > 0
}

// tell announces an address once, and returns the number of frames.
func (r *runner) tell(a netip.Addr) (sent int) {
	for _, w := range r.entries[a] {
		if r.sender == nil || a.Is6() && !w.local.IsValid() {
			continue
		}
		for _, f := range frames(a, w.mac, w.local) {
			if err := r.sender.send(w.index, f); err != nil {
				// It is down, or gone, which is an event.
				r.log.Debug("cannot announce a load balancer address", "address", a, "interface", w.name, "err", err)
			}
			sent++
		}
	}
	return sent
}
