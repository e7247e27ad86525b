// SPDX-License-Identifier: Apache-2.0

package nexthops

import (
	"encoding/binary"
	"time"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/packet"
)

// Types of echo messages (RFC 792; RFC 4443, section 4).
const (
	echoRequest  = 8
	echoReply    = 0
	echoRequest6 = 128
	echoReply6   = 129
)

const (
	// answersToReturn is how many answers in a row have a next hop work again.
	answersToReturn = 2
	// maxOutstanding is how many requests at most can still be answered.
	maxOutstanding = 64
	echoHopLimit   = 64
)

// echo checks a next hop by ICMP: once an interval it looks whether anything was answered, and
// sends another request.
type echo struct {
	key        Key
	interval   time.Duration
	failures   int
	identifier uint16
	sequence   uint16 // of the last request
	// outstanding has a bit for each of the last requests that is not answered, the lowest one for
	// the last. Each answer counts once.
	outstanding uint64
	// missed counts intervals without an answer, and answers those in a row while it is down.
	missed, answers int
	answered        bool // in this interval
	begun           bool // the first request has been made
	isDown          bool
}

func newEcho(key Key, c intent.NextHopCheck, identifier uint16, down bool) *echo {
	return &echo{
		key: key, interval: max(c.Interval, minInterval), failures: max(c.Failures, 1), identifier: identifier,
		sequence: uint16(random(1 << 16)), isDown: down,
	}
}

func (e *echo) tick(now time.Time) ([]packet.IP, time.Time) {
	if e.begun && !e.answered {
		e.answers = 0
		e.missed = min(e.missed+1, e.failures)
		e.isDown = e.isDown || e.missed == e.failures
	}
	e.begun, e.answered = true, false
	e.sequence++
	e.outstanding = e.outstanding<<1 | 1
	return []packet.IP{e.request()}, now.Add(e.interval)
}

func (e *echo) request() packet.IP {
	from, to, number := e.key.Source, e.key.NextHop, uint32(e.identifier)<<16|uint32(e.sequence)
	h := packet.Header{Source: from, Destination: to, Protocol: packet.ICMP, HopLimit: echoHopLimit}
	if from.Is4() {
		return h.Packet(packet.ICMPv4(echoRequest, 0, number, nil))
	}
	h.Protocol = packet.ICMPv6
	return h.Packet(packet.ICMPv6From(from, to, echoRequest6, 0, number, nil))
}

// received takes an answer to one of the last requests, no more of them than may go unanswered.
func (e *echo) received(ip packet.IP, _ time.Time) (bool, error) {
	m, ok := ip.ICMPMessage()
	reply := byte(echoReply)
	if ip.Is6() {
		reply = echoReply6
	}
	if !ok || m[0] != reply || m[1] != 0 || binary.BigEndian.Uint16(m[4:]) != e.identifier {
		return false, nil
	}
	age := e.sequence - binary.BigEndian.Uint16(m[6:])
	if int(age) >= min(e.failures, maxOutstanding) || e.outstanding>>age&1 == 0 {
		return false, nil
	}
	e.outstanding &^= 1 << age
	e.answered, e.missed = true, 0
	if e.answers++; e.answers >= answersToReturn {
		e.isDown = false
	}
	return true, nil
}

func (e *echo) urgent() bool { return false }

func (e *echo) down(time.Time) bool { return e.isDown }

func (e *echo) reason() string { return "no answer to echo requests" }
