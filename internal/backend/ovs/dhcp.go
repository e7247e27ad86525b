// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"bytes"
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/dhcp"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// advertisedEvery is the time between router advertisements that no machine has asked for (RFC
// 4861, section 6.2.1: MaxRtrAdvInterval).
const advertisedEvery = 10 * time.Minute

// dhcpServer answers machines that ask about their addresses, and advertises the virtual router to
// them. All that it says follows from intent.
type dhcpServer struct {
	log     *slog.Logger
	intent  *intent.Store
	numbers *numbers
	count   *prometheus.CounterVec // by protocol and outcome
	// wait returns when the flows of a revision of the intent are on the switch.
	wait func(ctx context.Context, revision uint64) error
	// send has the switch send packets, and returns when it has.
	send func(ctx context.Context, messages []openflow.Message) error
	// reply does not wait for the switch: so many machines may ask at the same moment that a round
	// trip for each answer would have the last ones ask again.
	reply func(ctx context.Context, messages []openflow.Message) error
	// leased and asked are those of backend.Hooks.
	leased func(backend.Lease)
	asked  func(intent.Port, []byte)
}

// lost counts a request that found the queue full.
func (d *dhcpServer) lost() { d.counted(dhcp.Answer{Protocol: dhcp.DHCPv4, Outcome: dhcp.Ignored}) }

func (d *dhcpServer) counted(a dhcp.Answer) {
	d.count.WithLabelValues(string(a.Protocol), string(a.Outcome)).Inc()
}

// answer answers what the machine of a Port asks.
func (d *dhcpServer) answer(ctx context.Context, m *openflow.PacketIn2) {
	s := d.intent.State()
	id, _ := d.numbers.get().PortAt(m.InPort())
	p, _ := s.Ports().Get(id)
	if n, _ := s.Networks().Get(p.Network); n.Leased {
		d.asked(p, m.Packet)
		return
	}
	l, ok := dhcp.LeaseOf(s, p, datapath.RouterMAC)
	if !ok {
		return // the Port is gone, or its Network does not answer any more
	}
	a := dhcp.Handle(m.Packet, l)
	d.counted(a)
	if a.Outcome == dhcp.Declined {
		d.log.Debug("a machine says that another one uses its address", "port", p.Name(), "addresses", p.Addresses)
	}
	var answer []openflow.Message
	if a.Frame != nil {
		answer = append(answer, toMachine(m.InPort(), a.Frame))
	}
	if err := bounded(ctx, answer, d.reply); err != nil {
		d.log.Debug("cannot answer a machine that asks about its address; it will ask again", "port", p.Name(), "err", err)
		return
	}
	if len(a.Given) > 0 || a.Outcome == dhcp.Released {
		d.leased(backend.Lease{
			Port: p, IPv6: a.Protocol == dhcp.DHCPv6, HostName: a.HostName, Addresses: a.Given, Duration: l.DHCP.Lease,
		})
	}
}

// toMachine has the switch send a frame out of a port.
func toMachine(port uint32, frame []byte) *openflow.PacketOut {
	return &openflow.PacketOut{
		InPort: openflow.PortController, Packet: frame, Actions: []openflow.Action{openflow.Output(port)},
	}
}

// bounded passes messages on to send, which gets a bounded time, if there are any.
func bounded(ctx context.Context, messages []openflow.Message,
	send func(context.Context, []openflow.Message) error,
) error {
	if len(messages) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, ovsTimeout)
	defer cancel()
	return send(ctx, messages)
}

// advertised is what the machine of a Port was told of the virtual router last.
type advertised struct {
	frame, withdrawal []byte
}

// advertise tells machines of the virtual router: as soon as their Ports work, whenever that
// changes, and from time to time. It works until ctx ends.
func (d *dhcpServer) advertise(ctx context.Context) error {
	again := time.NewTicker(advertisedEvery)
	defer again.Stop()
	var last *intent.State
	known := map[string]advertised{} // by the Port's ID
	all := false
	for {
		s := d.intent.State()
		if d.wait(ctx, s.Revision()) != nil {
			return nil //nolint:nilerr // ctx has ended
		}
		if s.Local().Node != "" && (all || advertisementsMayDiffer(last, s)) {
			now := advertisements(s)
			if err := bounded(ctx, d.announcements(known, now, all), d.send); err != nil {
				d.log.Debug("cannot advertise the router to machines; they are told later", "err", err)
			} else {
				known, last = now, s
			}
		}
		all = false
		select {
		case <-ctx.Done():
			return nil
		case <-s.Replaced():
		case <-again.C:
			all = true
		}
	}
}

// advertisementsMayDiffer reports whether machines may have to be told of a difference to an
// earlier State; nil: there was none.
func advertisementsMayDiffer(last, s *intent.State) bool {
	if last == nil {
		return true
	}
	delta := intent.Diff(last, s)
	return delta.Local || len(delta.Ports)+len(delta.Networks) > 0
}

// advertisements are what the machines of this node's Ports are told, by the Ports' IDs.
func advertisements(s *intent.State) map[string]advertised {
	all := map[string]advertised{}
	for p := range s.PortsAt(s.Local().Node) {
		l, ok := dhcp.LeaseOf(s, p, datapath.RouterMAC)
		if !ok {
			continue
		}
		if frame := dhcp.Advertisement(l); frame != nil {
			all[p.ID] = advertised{frame, dhcp.Withdrawal(l)}
		}
	}
	return all
}

// announcements tell the machines that are told something else now, or all of them. Those that are
// told nothing any more give the router up.
func (d *dhcpServer) announcements(was, is map[string]advertised, all bool) (list []openflow.Message) {
	numbers := d.numbers.get()
	add := func(id string, frame []byte) {
		if number := numbers.Port(id); number != 0 {
			list = append(list, toMachine(number, frame))
		}
	}
	for id, now := range is {
		if all || !bytes.Equal(was[id].frame, now.frame) {
			add(id, now.frame)
		}
	}
	for id, before := range was {
		if _, still := is[id]; !still {
			add(id, before.withdrawal)
		}
	}
	return list
}
