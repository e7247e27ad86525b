// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"time"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy/evaluate"
	"coelan.io/coelan/internal/unixctl"
)

// Connections are those that conntrack knows on the bridge. The flows judge every packet of the direction in which a
// connection began, so nearly all end by themselves that are denied. Only a stream that is all replies has none: what is
// denied of these has to be marked, and the mark taken away when it is allowed again.
type Connections interface {
	// List returns the connections of a zone.
	List(ctx context.Context, zone uint16) ([]unixctl.Connection, error)
	// Mark says of connections whether they are denied.
	Mark(ctx context.Context, denied bool, which []unixctl.Connection) error
	// Denied and FromHost say what a connection's mark tells: that it is denied, and that a process of this node began it, which no policy
	// judges.
	Denied(mark uint32) bool
	FromHost(mark uint32) bool
	// Settled waits until packets follow the flows that are on the switch.
	Settled(ctx context.Context) error
}

// lookAtAll has all connections looked at when the flows of the present State are on the switch.
func (p *Policies) lookAtAll() {
	s := p.Intent.State()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.revision = s.Revision()
	for port := range s.Ports().All() {
		p.affected[port.SubjectKey()] = true
	}
	p.wake.Kick()
}

// The pauses before connections are looked at again that could not be looked at, or not be marked.
const (
	firstPause = time.Second
	lastPause  = time.Minute
)

// watchConnections looks at the connections of Ports whose policies have changed, until ctx ends.
func (p *Policies) watchConnections(ctx context.Context) {
	var again <-chan time.Time
	for pause := firstPause; ; {
		select {
		case <-ctx.Done():
			return
		case <-p.look:
		case <-again:
		}
		p.mu.Lock()
		subjects := p.affected
		p.affected = map[string]bool{}
		p.mu.Unlock()
		if len(subjects) == 0 {
			continue
		}
		// Once at once, and once more for what the datapath's older flows still let pass meanwhile.
		err := p.judge(ctx, subjects)
		if err == nil {
			err = p.Connections.Settled(ctx)
		}
		if err == nil {
			err = p.judge(ctx, subjects)
		}
		switch {
		case err == nil:
			again, pause = nil, firstPause
		case ctx.Err() == nil:
			p.Log.Warn("UDP streams that are denied may go on as long as nobody answers them, trying again", "err", err)
			p.mu.Lock()
			maps.Copy(p.affected, subjects)
			p.mu.Unlock()
			again, pause = time.After(pause), min(2*pause, lastPause)
		}
	}
}

// judge marks the connections of the Ports of these Subjects that are denied.
func (p *Policies) judge(ctx context.Context, subjects map[string]bool) error {
	s := p.Intent.State()
	if s.Local().PolicyMode != intent.EnforcedPolicies {
		return nil
	}
	spaces, stopped := spacesOf(s, subjects), map[string]bool{}
	for _, zone := range slices.Sorted(maps.Keys(spaces)) {
		list, err := p.Connections.List(ctx, zone)
		if err != nil {
			return err
		}
		denied, allowed := spaces[zone].judge(s, p.Connections, list, stopped)
		if err := p.Connections.Mark(ctx, true, denied); err != nil {
			return err
		}
		if err := p.Connections.Mark(ctx, false, allowed); err != nil {
			return err
		}
		if len(denied)+len(allowed) > 0 {
			p.Log.Info("UDP streams have been judged anew", "zone", zone, "denied", len(denied), "allowed", len(allowed))
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.stopped, func(key string, _ bool) bool { return subjects[key] })
	maps.Copy(p.stopped, stopped)
	return nil
}

// space is what has to be looked at of a zone.
type space struct {
	name  string
	ports map[netip.Addr]intent.Port // of this node, by the addresses that they have in the zone
	// changed are the addresses of the Ports whose policies have changed.
	changed map[netip.Addr]bool
	// within are the prefixes that mean something in a private Router; nil: all do. What has an end elsewhere is judged in the
	// cluster's zone.
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
		case p.OFPort == 0:
			continue
		case n.Physical != 0:
			add(intent.PhysicalZone, onWire, p, p.Addresses)
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

// prefixesOf are those of a private Router's Networks and static routes, and of the Routers' that it imports. What takes a default route is
// left out: it cannot be told from what is elsewhere.
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

// udp is the protocol whose streams may be all replies. What speaks TCP or SCTP acknowledges, and each echo has its request.
const udp = uint8(intent.UDP)

// judge returns the connections whose mark is wrong: those that are denied, and those that are allowed. It adds to stopped the keys
// of the Subjects of Ports with any that are denied.
func (sp *space) judge(s *intent.State, c Connections, list []unixctl.Connection, stopped map[string]bool) (denied, allowed []unixctl.Connection) {
	for _, k := range list {
		if k.Protocol != udp || !k.Reply.Src.IsValid() {
			continue
		}
		ok, known := sp.allows(s, k, c.FromHost(k.Mark))
		for _, a := range []netip.Addr{k.Orig.Src, k.Reply.Src} {
			if p, here := sp.ports[a]; here && known && !ok {
				stopped[p.SubjectKey()] = true
			}
		}
		switch {
		case !known || ok != c.Denied(k.Mark):
		case ok:
			allowed = append(allowed, k)
		default:
			denied = append(denied, k)
		}
	}
	return denied, allowed
}

// allows says what the policies of the Ports make of a connection; known: one of its ends is a Port whose policies have
// changed, and is judged here.
func (sp *space) allows(s *intent.State, k unixctl.Connection, fromHost bool) (ok, known bool) {
	c := evaluate.Connection{
		Space: sp.name, Source: k.Orig.Src, Destination: k.Reply.Src, Protocol: k.Protocol, Port: k.Reply.SrcPort, Host: fromHost,
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
