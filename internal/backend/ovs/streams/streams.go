// SPDX-License-Identifier: Apache-2.0

// Package streams has UDP connections end that policies deny and of which no packet can be judged:
// those of which the server alone still sends.
package streams

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"coelan.io/coelan/internal/backend/ovs/conntrack"
	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy/evaluate"
	"coelan.io/coelan/internal/retry"
	"coelan.io/coelan/internal/trigger"
)

// Connections are those that conntrack knows on the bridge. The flows judge every packet of the
// direction in which a connection began, so nearly all end by themselves that are denied. Only a
// stream that is all replies has none: what is denied of these has to be marked, and the mark taken
// away when it is allowed again.
type Connections interface {
	// Each calls fn for the UDP connections of a zone. ErrTooMany: they cannot
	// be listed without harm.
	Each(ctx context.Context, zone uint16, fn func(conntrack.Connection)) error
	// Forget forgets the UDP connections of a zone that one of these addresses began or answers,
	// and may forget others.
	Forget(ctx context.Context, zone uint16, addresses []netip.Addr) error
	// Mark says of connections whether they are denied.
	Mark(ctx context.Context, denied bool, which []conntrack.Connection) error
	// Denied and FromHost say what a connection's mark tells: that it is denied, and that a process
	// of this node began it, which no policy judges.
	Denied(mark uint32) bool
	FromHost(mark uint32) bool
	// Settled waits until packets follow the flows that are on the switch.
	Settled(ctx context.Context) error
}

// ErrTooMany says that there are more connections than can be listed.
var ErrTooMany = errors.New("too many connections to list")

// Options are what a Follower works with. All are needed.
type Options struct {
	Log    *slog.Logger
	Intent *intent.Store
	// Applied waits until the flows of that revision of the intent, or of a newer one,
	// are on the switch.
	Applied func(ctx context.Context, revision uint64) error
	// Connections are those that conntrack knows.
	Connections Connections
}

// Follower checks the connections of Ports when their policies change.
type Follower struct {
	Options
	look trigger.Trigger // asks for a look at connections

	mu sync.Mutex
	// keys of Subjects, of Ports with streams that were denied when they were looked at last.
	stopped  map[string]bool
	affected map[string]bool // keys of Subjects, of Ports with connections to be checked
}

// New makes a Follower.
func New(o Options) *Follower {
	return &Follower{Options: o, look: trigger.New(), affected: map[string]bool{}, stopped: map[string]bool{}}
}

// Run follows the intent's policies until ctx ends. What conntrack knew before is
// looked at as well.
func (f *Follower) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { f.watchConnections(ctx) })
	state := f.Intent.State()
	for p := range state.Ports().All() {
		f.affected[p.SubjectKey()] = true
	}
	for {
		for f.Applied(ctx, state.Revision()) != nil {
			if ctx.Err() != nil {
				return nil
			}
		}
		f.look.Fire()
		select {
		case <-ctx.Done():
			return nil
		case <-state.Replaced():
		}
		next := f.Intent.State()
		f.mu.Lock()
		for _, key := range affected(state, next, f.stopped) {
			f.affected[key] = true
		}
		f.mu.Unlock()
		state = next
	}
}

// The pauses before connections are checked again that could not be checked, or not be marked.
const (
	firstPause = time.Second
	lastPause  = time.Minute
)

// longLook is how long a look at connections may take without a pause after it.
const longLook = 100 * time.Millisecond

// watchConnections checks the connections of Ports when their policies have
// changed, until ctx ends.
func (f *Follower) watchConnections(ctx context.Context) {
	var again <-chan time.Time
	for backoff := retry.New(firstPause, lastPause); ; {
		select {
		case <-ctx.Done():
			return
		case <-f.look:
		case <-again:
		}
		f.mu.Lock()
		subjects := f.affected
		f.affected = map[string]bool{}
		f.mu.Unlock()
		if len(subjects) == 0 {
			continue
		}
		// Once at once, and once more for what the datapath's older flows still let pass meanwhile.
		took := time.Duration(0)
		look := func(settled bool) error {
			start := time.Now()
			defer func() { took = max(took, time.Since(start)) }()
			return f.judge(ctx, subjects, settled)
		}
		err := look(false)
		if err == nil {
			err = f.Connections.Settled(ctx)
		}
		if err == nil {
			err = look(true)
		}
		if took > longLook {
			// Changes that follow each other share the next look.
			if !retry.Sleep(ctx, took) {
				return
			}
		}
		again = backoff.After(err)
		if err != nil && ctx.Err() == nil {
			f.Log.Warn("cannot find UDP connections that policies now deny; one-way streams may continue, retrying",
				"err", err)
			f.mu.Lock()
			maps.Copy(f.affected, subjects)
			f.mu.Unlock()
		}
	}
}

// judge marks the connections of the Ports of these Subjects that are denied. Those that are too
// many to list are forgotten only when packets follow the flows that are on the switch: what comes
// before would be tracked again, and each search keeps ovs-vswitchd from all else.
func (f *Follower) judge(ctx context.Context, subjects map[string]bool, settled bool) error {
	s := f.Intent.State()
	if s.Local().PolicyMode != intent.EnforcedPolicies {
		return nil
	}
	spaces, stopped := spacesOf(s, subjects), map[string]bool{}
	for _, zone := range slices.Sorted(maps.Keys(spaces)) {
		sp := spaces[zone]
		var denied, allowed []conntrack.Connection
		err := f.Connections.Each(ctx, zone, func(k conntrack.Connection) {
			switch ok, wrong := sp.judge(s, f.Connections, k, stopped); {
			case !wrong:
			case ok:
				allowed = append(allowed, k)
			default:
				denied = append(denied, k)
			}
		})
		if errors.Is(err, ErrTooMany) && !settled {
			continue
		}
		if errors.Is(err, ErrTooMany) {
			// Whichever goes on is judged as a new one: what is denied ends, also if
			// its client is silent.
			addresses := slices.SortedFunc(maps.Keys(sp.changed), netip.Addr.Compare)
			if err := f.Connections.Forget(ctx, zone, addresses); err != nil {
				return err
			}
			f.Log.Info("deleted UDP connections of Ports whose policies changed from conntrack",
				"zone", zone, "addresses", len(addresses))
			continue
		}
		if err != nil {
			return err
		}
		if err := f.Connections.Mark(ctx, true, denied); err != nil {
			return err
		}
		if err := f.Connections.Mark(ctx, false, allowed); err != nil {
			return err
		}
		if len(denied)+len(allowed) > 0 {
			f.Log.Info("checked UDP connections of Ports whose policies changed",
				"zone", zone, "denied", len(denied), "allowed", len(allowed))
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.stopped, func(key string, _ bool) bool { return subjects[key] })
	maps.Copy(f.stopped, stopped)
	return nil
}

// space is what has to be checked of a zone.
type space struct {
	name  string
	ports map[netip.Addr]intent.Port // of this node, by the addresses that they have in the zone
	// changed are the addresses of the Ports with changed policies.
	changed map[netip.Addr]bool
	// within are the prefixes that mean something in a private Router; nil: all do. What has an end
	// elsewhere is judged in the cluster's zone.
	within []netip.Prefix
}

// onWire is the space of physical networks, in which no Peer is.
const onWire = ""

// spacesOf are the spaces in which Ports of these Subjects have addresses, by zone.
func spacesOf(s *intent.State, subjects map[string]bool) map[uint16]*space {
	spaces := map[uint16]*space{}
	add := func(zone intent.RouterID, name string, p intent.Port, addresses []netip.Addr) {
		sp := spaces[uint16(zone)]
		if sp == nil {
			sp = &space{name: name, ports: map[netip.Addr]intent.Port{}, changed: map[netip.Addr]bool{}}
			spaces[uint16(zone)] = sp
			if name != intent.DefaultRouterName && name != onWire {
				sp.within = prefixesOf(s, name)
			}
		}
		for _, a := range addresses {
			sp.ports[a] = p
			if subjects[p.SubjectKey()] {
				sp.changed[a] = true
			}
		}
	}
	for p := range s.Ports().All() {
		n, _ := s.Networks().Get(p.Network)
		r, ok := s.Routers().Get(n.Router)
		in := func(r intent.Router) {
			if r.Private() {
				add(r.ID, r.Name, p, p.Addresses)
			} else {
				add(intent.DefaultRouter, intent.DefaultRouterName, p, p.Addresses)
			}
		}
		switch {
		case p.Node != s.Local().Node:
			continue
		case n.Physical != "":
			add(datapath.PhysicalZone, onWire, p, p.Addresses)
		case ok:
			in(r)
			for importer := range s.Importers(r.Name) {
				in(importer)
			}
		}
		add(intent.DefaultRouter, intent.DefaultRouterName, p, p.NodeAddresses)
	}
	maps.DeleteFunc(spaces, func(_ uint16, sp *space) bool { return len(sp.changed) == 0 })
	return spaces
}

// prefixesOf are those of a private Router's Networks and static routes, and of the Routers' that
// it imports. What takes a default route is left out: it cannot be told from what is elsewhere.
func prefixesOf(s *intent.State, router string) []netip.Prefix {
	r, _ := s.Routers().Get(router)
	list := []netip.Prefix{}
	for _, name := range append([]string{router}, r.Imports...) {
		of, _ := s.Routers().Get(name)
		for _, route := range of.Routes {
			if route.Destination.Bits() > 0 {
				list = append(list, route.Destination)
			}
		}
		for n := range s.NetworksOf(name) {
			for _, sn := range n.Subnets {
				list = append(list, sn.Prefix)
			}
			if !n.FromNodes() {
				continue
			}
			for node := range s.Nodes().All() {
				for _, sn := range node.Subnets {
					list = append(list, sn.Prefix)
				}
			}
		}
	}
	return list
}

func (sp *space) has(a netip.Addr) bool {
	return sp.within == nil || slices.ContainsFunc(sp.within, func(p netip.Prefix) bool { return p.Contains(a) })
}

// udp is the only protocol with streams that may be replies alone: TCP and SCTP acknowledge, and
// each echo has its request.
const udp = uint8(intent.UDP)

// judge says whether a connection is allowed, and whether its mark is wrong. It adds to stopped the
// keys of the Subjects of its Ports if it is denied.
func (sp *space) judge(s *intent.State, c Connections, k conntrack.Connection,
	stopped map[string]bool,
) (ok, wrong bool) {
	if k.Protocol != udp || !k.Reply.Src.IsValid() {
		return false, false
	}
	ok, known := sp.allows(s, k, c.FromHost(k.Mark))
	for _, a := range []netip.Addr{k.Orig.Src, k.Reply.Src} {
		if p, here := sp.ports[a]; here && known && !ok {
			stopped[p.SubjectKey()] = true
		}
	}
	return ok, known && ok == c.Denied(k.Mark)
}

// allows says what the policies of the Ports make of a connection; known: one of its ends is a Port
// with changed policies, and is judged here.
func (sp *space) allows(s *intent.State, k conntrack.Connection, fromHost bool) (ok, known bool) {
	c := evaluate.Connection{
		Space: sp.name, Source: k.Orig.Src, Destination: k.Reply.Src, Protocol: k.Protocol, Port: k.Reply.SrcPort,
		Host: fromHost,
	}
	switch {
	case !sp.changed[c.Source] && !sp.changed[c.Destination] || !sp.has(c.Source) || !sp.has(c.Destination):
		return false, false
	case s.Local().ServiceMode != intent.NativeServices && isService(s, c.Destination):
		// The kernel has not chosen an endpoint yet: the connection to that is another one.
		return false, false
	}
	ok = true
	if p, local := sp.ports[c.Source]; local {
		ok = evaluate.Egress(s, p, c).Allowed
	}
	if p, local := sp.ports[c.Destination]; local {
		ok = ok && evaluate.Ingress(s, p, c).Allowed
	}
	return ok, true
}

func isService(s *intent.State, a netip.Addr) bool {
	for r := range s.ServiceRanges().All() {
		if r.Prefix.Contains(a) {
			return true
		}
	}
	return false
}
