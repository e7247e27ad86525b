// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/backend/ovs/hostnet"
	"coelan.io/coelan/internal/backend/ovs/neighbours"
	"coelan.io/coelan/internal/backend/ovs/nexthops"
	"coelan.io/coelan/internal/backend/ovs/pipeline"
	"coelan.io/coelan/internal/backend/ovs/toobig"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/packet"
	"coelan.io/coelan/internal/trigger"
	"coelan.io/coelan/openflow"
)

// kindNeighbour is the kind of what is remembered of neighbors on external Networks.
const kindNeighbour = "neighbour"

// external is what the bridge cannot do by itself for floating IPs: it finds the MACs of next hops,
// announces addresses that are new on this node, and translates what ICMP errors quote.
type external struct {
	log     *slog.Logger
	intent  *intent.Store
	numbers *numbers
	flows   *flows
	// send has the switch send packets.
	send     func(ctx context.Context, messages []openflow.Message) error
	resolver *neighbours.Resolver
	nextHops *nexthops.Prober
	// egress gets what other nodes say on the wire; moved fires when this node may answer for other
	// addresses though intent is the same.
	egress *egress
	moved  trigger.Trigger
	tooBig *prometheus.CounterVec // by outcome
}

// newExternal makes what knows the neighbors that were known before a restart: the first flows lead
// to them.
func newExternal(o backend.Options, n *numbers, f *flows, tooBig *prometheus.CounterVec,
	send func(ctx context.Context, messages []openflow.Message) error,
) *external {
	e := &external{
		log: o.Log, intent: o.Intent, numbers: n, flows: f, send: send, tooBig: tooBig, moved: trigger.New(),
		egress: newEgress(o, n, hostnet.BootID()),
	}
	e.egress.send = e.toWire
	e.egress.changed = func() {
		f.wake.Fire()
		e.moved.Fire()
	}
	e.resolver = neighbours.New(neighbours.Options{
		Log: o.Log, Send: e.toWire, Changed: e.learned, Saved: o.Attachments.Objects(kindNeighbour),
		Save:    func(known map[string][]byte) error { return o.Attachments.SaveObjects(kindNeighbour, known) },
		Metrics: o.Metrics,
	})
	n.setNeighbours(known(e.resolver))
	e.nextHops = nexthops.New(nexthops.Options{
		Log: o.Log, Send: e.toWire, MAC: e.resolver.MAC, Changed: e.hopsChanged, Metrics: o.Metrics,
	})
	return e
}

// learned has flows lead to the neighbors that are known now.
func (e *external) learned() {
	e.numbers.setNeighbours(known(e.resolver))
	e.flows.wake.Fire()
}

// hopsChanged has flows lead to the next hops that work now.
func (e *external) hopsChanged() {
	down := map[pipeline.NextHopKey]bool{}
	for k := range e.nextHops.Down() {
		down[pipeline.NextHopKey(k)] = true
	}
	e.numbers.setNextHopsDown(down)
	e.flows.wake.Fire()
}

func known(r *neighbours.Resolver) map[pipeline.NeighbourKey]intent.MAC {
	table := map[pipeline.NeighbourKey]intent.MAC{}
	for k, mac := range r.Table() {
		table[pipeline.NeighbourKey(k)] = mac
	}
	return table
}

// run works until ctx ends.
func (e *external) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return e.resolver.Run(ctx) })
	g.Go(func() error { return e.nextHops.Run(ctx) })
	g.Go(func() error { return e.follow(ctx) })
	g.Go(func() error { return e.egress.run(ctx) })
	return g.Wait()
}

// follow has the resolver know what this node answers for, and announces what is new of it as soon
// as the flows are on the switch. It leaves out States from before the node is known, in which
// nothing is this node's: the resolver would drop the neighbors that it remembers.
func (e *external) follow(ctx context.Context) error {
	var last *intent.State
	moved := false
	announced := map[pipeline.LocalAddress]bool{}
	for {
		state := e.intent.State()
		if e.flows.wait(ctx, state.Revision()) != nil {
			return nil // ctx has ended
		}
		if state.Local().Node != "" && (moved || answeredMayDiffer(last, state)) {
			announced, last = e.answer(ctx, state, announced), state
		}
		moved = false
		select {
		case <-ctx.Done():
			return nil
		case <-state.Replaced():
		case <-e.moved:
			moved = true
		}
	}
}

// answeredMayDiffer reports whether the node may answer for other addresses than in an earlier
// State; nil: there was none.
func answeredMayDiffer(last, state *intent.State) bool {
	if last == nil {
		return true
	}
	delta := intent.Diff(last, state)
	return len(delta.FloatingIPs)+len(delta.ChosenAddresses)+len(delta.GatewayAddresses)+
		len(delta.EgressAddresses)+len(delta.EgressPaths)+len(delta.Ports)+len(delta.Networks)+
		len(delta.Routers) > 0
}

// answer has the resolver know the addresses that this node answers for or lets out by. It
// announces those that the node has begun to answer for, which are not among announced, and ends
// with those that are gone. It returns all of them.
func (e *external) answer(
	ctx context.Context, state *intent.State, announced map[pipeline.LocalAddress]bool,
) map[pipeline.LocalAddress]bool {
	in := pipeline.Input{State: state, Numbers: e.numbers.get()}
	addresses, hops := pipeline.LocalAddresses(in), pipeline.NextHopTargets(in)
	e.resolver.SetSegments(segments(state, addresses, hops))
	e.nextHops.SetTargets(checked(hops))
	now := make(map[pipeline.LocalAddress]bool, len(addresses))
	for _, a := range addresses {
		if now[a] = true; !announced[a] && !a.Silent {
			e.resolver.Announce(a.Network, a.Address, a.MAC)
		}
	}
	for a := range announced {
		if !now[a] && a.Zone != 0 && !mayBeActive(state, a) {
			e.forget(ctx, a)
		}
	}
	return now
}

// mayBeActive reports whether an address is one that this node may be active for.
func mayBeActive(s *intent.State, a pipeline.LocalAddress) bool {
	e, ok := s.EgressAddress(a.Network, a.Address)
	return ok && slices.Contains(e.Nodes, s.Local().Node)
}

// forget has conntrack forget what was translated to an address that this node does not answer for
// any more. Those connections would not get another address, however long they go on.
func (e *external) forget(ctx context.Context, a pipeline.LocalAddress) {
	ctx, cancel := context.WithTimeout(ctx, ovsTimeout)
	defer cancel()
	if err := e.send(ctx, []openflow.Message{&openflow.CTFlushZone{Zone: a.Zone}}); err != nil {
		e.log.Warn("cannot flush conntrack's zone of a gateway; its connections are lost until they time out",
			"address", a.Address, "network", a.Network, "err", err)
	}
}

// checked are the next hops that are to be checked.
func checked(hops []pipeline.NextHopTarget) (list []nexthops.Target) {
	for _, h := range hops {
		if h.Check.Protocol != "" {
			list = append(list, nexthops.Target{
				Key: nexthops.Key(h.NextHopKey), SourceMAC: h.SourceMAC, Check: h.Check,
			})
		}
	}
	return list
}

// segments are the external Networks with the addresses that this node answers for, and the next
// hops of these.
func segments(
	s *intent.State, addresses []pipeline.LocalAddress, hops []pipeline.NextHopTarget,
) []neighbours.Segment {
	var list []neighbours.Segment
	for _, a := range addresses { // sorted by Network
		if last := len(list) - 1; last < 0 || list[last].Network != a.Network {
			segment := neighbours.Segment{Network: a.Network, Sources: map[netip.Addr]intent.MAC{}}
			n, _ := s.Networks().Get(a.Network)
			for _, subnet := range n.Subnets {
				segment.Gateways = append(segment.Gateways, subnet.Gateway)
				segment.Subnets = append(segment.Subnets, subnet.Prefix)
			}
			list = append(list, segment)
		}
		list[len(list)-1].Sources[a.Address] = a.MAC
	}
	for i := range list {
		for _, h := range hops {
			if h.Network == list[i].Network && !slices.Contains(list[i].Gateways, h.NextHop) {
				list[i].Gateways = append(list[i].Gateways, h.NextHop)
			}
		}
	}
	return list
}

// toWire puts a frame onto the wire of an external Network.
func (e *external) toWire(ctx context.Context, network string, frame []byte) error {
	ctx, cancel := context.WithTimeout(ctx, ovsTimeout)
	defer cancel()
	actions, err := pipeline.ToWire(e.input(), network)
	if err != nil {
		return err
	}
	return e.send(ctx, []openflow.Message{
		&openflow.PacketOut{InPort: openflow.PortController, Packet: frame, Actions: actions},
	})
}

func (e *external) input() pipeline.Input {
	return pipeline.Input{State: e.intent.State(), Numbers: e.numbers.get()}
}

// heard takes what a neighbor tells.
func (e *external) heard(_ context.Context, m *openflow.PacketIn2) {
	if network, ok := pipeline.NetworkOf(e.intent.State(), m); ok {
		e.resolver.Received(network, m.Packet)
		e.egress.heard(network, m.Packet)
	}
}

// answered takes what a next hop answers to a check.
func (e *external) answered(_ context.Context, m *openflow.PacketIn2) {
	if network, ok := pipeline.NetworkOf(e.intent.State(), m); ok {
		e.nextHops.Received(network, m.Packet)
	}
}

// unresolved takes a packet that goes by a next hop with an unknown MAC: the one that the flow
// names, or its own destination.
func (e *external) unresolved(_ context.Context, m *openflow.PacketIn2) {
	network, ok := pipeline.NetworkOf(e.intent.State(), m)
	if !ok {
		return
	}
	_, detail := pipeline.Kind(m.Userdata)
	hop, err := netip.ParseAddr(detail)
	if err != nil {
		p, ok := packet.Parse(m.Packet)
		if !ok {
			return
		}
		hop = p.Destination()
	}
	e.resolver.Resolve(network, hop, m.Packet)
}

// quote translates the packet that an ICMP error quotes, and has the error go on. One that cannot
// be translated goes on as it is.
func (e *external) quote(ctx context.Context, m *openflow.PacketIn2) {
	resumed := *m
	if p, ok := packet.Parse(m.Packet); ok {
		in := e.input()
		if was, is, ok := pipeline.Quoted(in, m, p.Source(), p.Destination()); ok {
			if frame, ok := packet.TranslateQuote(m.Packet, was, is); ok {
				resumed.Packet = frame
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, ovsTimeout)
	defer cancel()
	if err := e.send(ctx, []openflow.Message{&openflow.Resume{PacketIn: resumed}}); err != nil {
		e.log.Debug("cannot send on an ICMP error; dropped it", "err", err)
	}
}

// oversize answers a packet from the wire that is too big for its Port, as a router would.
func (e *external) oversize(ctx context.Context, m *openflow.PacketIn2) {
	outcome := toobig.Dropped
	if network, ok := pipeline.NetworkOf(e.intent.State(), m); ok {
		var err error
		if outcome, err = e.fit(ctx, network, m.Packet, pipeline.OversizeOf(m)); err != nil {
			e.log.Debug("cannot answer a packet that exceeds the path MTU; dropped it", "err", err)
		}
	}
	e.tooBig.WithLabelValues(string(outcome)).Inc()
}

func (e *external) fit(ctx context.Context, network string, frame []byte, mtu int) (toobig.Outcome, error) {
	frames, outcome := toobig.FromOutside(frame, mtu)
	in := e.input()
	actions, inPort, err := pipeline.FromWire(in, network)
	if outcome == toobig.Answered {
		inPort = openflow.PortController
		actions, err = pipeline.ToWire(in, network)
	}
	if err != nil {
		return toobig.Dropped, err
	}
	var messages []openflow.Message
	for _, frame := range frames {
		messages = append(messages, &openflow.PacketOut{InPort: inPort, Packet: frame, Actions: actions})
	}
	ctx, cancel := context.WithTimeout(ctx, ovsTimeout)
	defer cancel()
	if err := e.send(ctx, messages); err != nil {
		return toobig.Dropped, err
	}
	return outcome, nil
}
