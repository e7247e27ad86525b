// SPDX-License-Identifier: Apache-2.0

package bfd

import (
	"fmt"
	"math"
	"time"
)

// idleInterval is the least Desired Min TX Interval of a session that is not Up (RFC 5880, section
// 6.8.3).
const idleInterval = time.Second

// Config is what a Session is made of.
type Config struct {
	// Discriminator names the session on this system: not 0, and unique.
	Discriminator uint32
	// Interval is the Desired Min TX Interval while the session is Up and the Required Min RX
	// Interval, in whole microseconds: between one and about 71 minutes.
	Interval time.Duration
	// DetectMult is how many packets the other system may miss. 0 counts as 1.
	DetectMult uint8
	// Jitter returns numbers from 0 up to but not including 1, at random.
	Jitter func() float64
}

// remote is what the other system has said last.
type remote struct {
	discriminator uint32 // 0: nothing is known
	state         State
	detectMult    uint8
	desiredMinTx  time.Duration
	requiredMinRx time.Duration
	demand        bool
}

// Session is a session's state on this system, which takes the active role. New makes it. It is not
// safe for concurrent use.
type Session struct {
	Config
	state      State
	diagnostic Diagnostic
	remote     remote
	received   time.Time // when the last packet was
	polling    bool      // a poll sequence is under way (section 6.5)
	final      bool      // a poll is to be answered
	sent, due  time.Time // the last periodic packet, and the next one
}

// New makes a Session that is Down.
func New(c Config) *Session {
	c.Interval = min(max(c.Interval.Truncate(time.Microsecond), time.Microsecond), math.MaxUint32*time.Microsecond)
	c.DetectMult = max(c.DetectMult, 1)
	s := &Session{Config: c, state: Down}
	s.forget()
	return s
}

// State is the session's on this system.
func (s *Session) State() State { return s.state }

// Diagnostic is why the session is not Up any more.
func (s *Session) Diagnostic() Diagnostic { return s.diagnostic }

// Receive takes a control packet that came at that time. What is wrong with it is an error, and it
// changes nothing (RFC 5880, section 6.8.6). Tick is to be called next: there may be something to
// send at once.
func (s *Session) Receive(now time.Time, packet []byte) error {
	p, err := Decode(packet)
	if err != nil {
		return err
	}
	if p.YourDiscriminator != 0 && p.YourDiscriminator != s.Discriminator {
		return fmt.Errorf("BFD packet for discriminator %d, which is not that of the session, %d",
			p.YourDiscriminator, s.Discriminator)
	}
	was := s.transmitInterval()
	s.remote = remote{
		discriminator: p.MyDiscriminator, state: p.State, detectMult: p.DetectMult, demand: p.Demand,
		desiredMinTx: duration(p.DesiredMinTxInterval), requiredMinRx: duration(p.RequiredMinRxInterval),
	}
	s.received = now
	if p.Final {
		s.polling = false
	}
	if p.Poll {
		s.final = true
	}
	if s.transmitInterval() != was {
		s.due = s.sent.Add(s.pause())
	}
	s.follow(p.State, now)
	return nil
}

// follow changes the state to what the other system's asks for (RFC 5880, sections 6.2 and 6.8.6).
func (s *Session) follow(other State, now time.Time) {
	switch {
	case other == AdminDown && s.state != Down, other == Down && s.state == Up:
		s.change(Down, NeighbourDown, now)
	case other == Down && s.state == Down:
		s.change(Init, s.diagnostic, now)
	case other == Init && s.state != Up, other == Up && s.state == Init:
		s.change(Up, NoDiagnostic, now)
	}
}

// change takes another state, and has the other system learn of it at once. A changed interval of
// this system begins a poll sequence (RFC 5880, section 6.8.3).
func (s *Session) change(to State, d Diagnostic, now time.Time) {
	was := s.desiredMinTx()
	s.state, s.diagnostic, s.due = to, d, now
	if s.desiredMinTx() != was {
		s.polling = true
	}
}

// forget returns to what holds before the other system has said anything (RFC 5880, section 6.8.1).
func (s *Session) forget() {
	s.remote = remote{state: Down, requiredMinRx: time.Microsecond}
	s.polling = false
	s.due = s.sent.Add(s.pause())
}

// Tick does what is due: it ends a session of which nothing has been received for the detection
// time, and returns the packets to send now. It is to be called again at the time next, and after
// Receive.
func (s *Session) Tick(now time.Time) (send [][]byte, next time.Time) {
	if s.remote.discriminator != 0 && !now.Before(s.expiry()) {
		s.forget()
		if s.state != Down {
			s.change(Down, DetectionExpired, now)
			s.polling = false // there is no system to answer
		}
	}
	if s.final {
		s.final = false
		send = append(send, s.packet(false, true))
	}
	if !s.silent() && !now.Before(s.due) {
		send = append(send, s.packet(s.polling, false))
		s.sent, s.due = now, now.Add(s.pause())
	}
	return send, s.next()
}

// next is when Tick has something to do: there is always a packet due, or a session that expires.
func (s *Session) next() time.Time {
	switch {
	case s.remote.discriminator == 0:
		return s.due
	case s.silent() || s.expiry().Before(s.due):
		return s.expiry()
	}
	return s.due
}

// packet is one of this moment (RFC 5880, section 6.8.7).
func (s *Session) packet(poll, final bool) []byte {
	return Packet{
		Diagnostic: s.diagnostic, State: s.state, Poll: poll, Final: final, DetectMult: s.DetectMult,
		MyDiscriminator: s.Discriminator, YourDiscriminator: s.remote.discriminator,
		DesiredMinTxInterval: microseconds(s.desiredMinTx()), RequiredMinRxInterval: microseconds(s.Interval),
	}.Encode()
}

// silent reports whether the other system wants no periodic packets: none at all, or, in demand
// mode, none but those of poll sequences while both systems are Up (RFC 5880, section 6.8.7).
func (s *Session) silent() bool {
	r := s.remote
	return r.requiredMinRx == 0 || r.demand && s.state == Up && r.state == Up && !s.polling
}

// desiredMinTx is the least interval at which this system wants to send.
func (s *Session) desiredMinTx() time.Duration {
	if s.state == Up {
		return s.Interval
	}
	return max(s.Interval, idleInterval)
}

// transmitInterval is that of periodic packets, without jitter (RFC 5880, section 6.8.2).
func (s *Session) transmitInterval() time.Duration {
	return max(s.desiredMinTx(), s.remote.requiredMinRx)
}

// pause is the transmit interval with jitter: up to a quarter less, and at least a tenth if the
// loss of one packet ends the session (RFC 5880, section 6.8.7).
func (s *Session) pause() time.Duration {
	share := 1 - s.Jitter()/4
	if s.DetectMult == 1 {
		share = 0.9 - s.Jitter()*0.15
	}
	return time.Duration(share * float64(s.transmitInterval()))
}

// expiry is the end of the detection time (RFC 5880, section 6.8.4).
func (s *Session) expiry() time.Time {
	return s.received.Add(time.Duration(s.remote.detectMult) * max(s.Interval, s.remote.desiredMinTx))
}

func duration(microseconds uint32) time.Duration {
	return time.Duration(microseconds) * time.Microsecond
}

func microseconds(d time.Duration) uint32 {
	return uint32(d / time.Microsecond) //nolint:gosec // bounded
}
