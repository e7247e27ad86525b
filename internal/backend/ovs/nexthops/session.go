// SPDX-License-Identifier: Apache-2.0

package nexthops

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"time"

	"coelan.io/coelan/internal/bfd"
	"coelan.io/coelan/internal/packet"
)

// Single-hop BFD (RFC 5881, sections 4 and 5): the ports that it is sent from, and the hop limit
// that shows that no router has forwarded a packet.
const (
	firstBFDPort  = 49152
	numBFDPorts   = 1<<16 - firstBFDPort
	bfdHopLimit   = 255
	trafficClass  = 6 << 5 // the class selector of routing protocols (RFC 4594, section 3.2)
	graceForFirst = 3 * time.Second
)

// session checks a next hop by BFD.
type session struct {
	*bfd.Session
	key  Key
	port uint16
	// grace is until when the session, which has not been Up yet, counts as Up.
	grace time.Time
}

// newSession makes the session of a Target, which is not Up, with a discriminator and a port that
// no other one has.
func (p *Prober) newSession(t *target, down bool, now time.Time) *session {
	c := bfd.Config{
		Interval:   max(t.Check.Interval, minInterval),
		DetectMult: uint8(min(max(t.Check.Failures, 1), math.MaxUint8)), //nolint:gosec // in its range
		Jitter:     rand.Float64,
	}
	discriminators, ports := map[uint32]bool{0: true}, map[uint16]bool{}
	for _, other := range p.targets {
		if s, ok := other.check.(*session); ok {
			discriminators[s.Discriminator], ports[s.port] = true, true
		}
	}
	for discriminators[c.Discriminator] {
		c.Discriminator = rand.Uint32()
	}
	s := &session{Session: bfd.New(c), key: t.key, port: freePort(ports)}
	if !down {
		s.grace = now.Add(max(graceForFirst, time.Duration(c.DetectMult)*c.Interval))
	}
	return s
}

// freePort is a port that is not taken, if there is one.
func freePort(taken map[uint16]bool) uint16 {
	first := random(numBFDPorts)
	for i := range uint32(numBFDPorts) {
		if port := uint16(firstBFDPort + (first+i)%numBFDPorts); !taken[port] {
			return port
		}
	}
	return uint16(firstBFDPort + first) //nolint:gosec // in its range
}

func (s *session) tick(now time.Time) (send []packet.IP, next time.Time) {
	packets, next := s.Tick(now)
	for _, b := range packets {
		send = append(send, s.packet(b))
	}
	if s.grace.After(now) && s.grace.Before(next) {
		next = s.grace
	}
	return send, next
}

func (s *session) packet(control []byte) packet.IP {
	from, to := netip.AddrPortFrom(s.key.Source, s.port), netip.AddrPortFrom(s.key.NextHop, bfd.Port)
	return packet.Header{
		Source: from.Addr(), Destination: to.Addr(), Protocol: packet.UDP, HopLimit: bfdHopLimit,
		TrafficClass: trafficClass,
	}.Packet(packet.UDPFrom(from, to, control))
}

func (s *session) received(ip packet.IP, now time.Time) (bool, error) {
	_, port, control, ok := ip.Datagram()
	if !ok || port != bfd.Port {
		return false, nil
	}
	if limit := ip.HopLimit(); limit != bfdHopLimit {
		return false, fmt.Errorf("BFD packet with a hop limit of %d, and not %d: a router has forwarded it",
			limit, bfdHopLimit)
	}
	if err := s.Receive(now, control); err != nil {
		return false, err
	}
	if s.State() == bfd.Up {
		s.grace = time.Time{}
	}
	return true, nil
}

func (s *session) urgent() bool { return true }

func (s *session) down(now time.Time) bool { return s.State() != bfd.Up && !now.Before(s.grace) }

func (s *session) reason() string {
	return fmt.Sprintf("BFD session %s, diagnostic: %s", s.State(), s.Diagnostic())
}
