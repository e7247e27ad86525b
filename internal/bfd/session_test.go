// SPDX-License-Identifier: Apache-2.0

package bfd

import (
	"testing"
	"time"
)

const (
	fast = 50 * time.Millisecond
	half = 0.5 // of the jitter
)

func config(discriminator uint32) Config {
	return Config{Discriminator: discriminator, Interval: fast, DetectMult: 3, Jitter: func() float64 { return half }}
}

// system is a Session with its side of the wire.
type system struct {
	*Session
	next time.Time
	sent []sent
	lost bool // what it sends does not arrive
}

type sent struct {
	at time.Time
	Packet
}

// delivery is a packet that is under way.
type delivery struct {
	at    time.Time
	to    int
	bytes []byte
}

// wire is two systems with a clock.
type wire struct {
	t     *testing.T
	now   time.Time
	start time.Time
	sides [2]*system
	way   []delivery
	// seen are the states that each side had.
	seen [2][]State
}

const latency = time.Millisecond

func newWire(t *testing.T, a, b Config) *wire {
	w := &wire{t: t, start: time.Unix(1000, 0)}
	w.now = w.start
	for i, c := range []Config{a, b} {
		w.sides[i] = &system{Session: New(c), next: w.now}
	}
	return w
}

// run lets time pass.
func (w *wire) run(d time.Duration) {
	w.t.Helper()
	for end := w.now.Add(d); ; {
		at := end
		for _, s := range w.sides {
			if s.next.Before(at) {
				at = s.next
			}
		}
		for _, p := range w.way {
			if p.at.Before(at) {
				at = p.at
			}
		}
		if at.Before(w.now) {
			w.t.Fatalf("something is due at %v, and it is %v", at.Sub(w.start), w.now.Sub(w.start))
		}
		w.now = at
		w.arrive()
		for i := range w.sides {
			w.tick(i)
		}
		if !w.now.Before(end) {
			return
		}
	}
}

func (w *wire) arrive() {
	way := w.way
	w.way = nil
	for _, p := range way {
		if p.at.After(w.now) {
			w.way = append(w.way, p)
			continue
		}
		if err := w.sides[p.to].Receive(w.now, p.bytes); err != nil {
			w.t.Logf("side %d: %v", p.to, err)
		}
		w.tick(p.to)
	}
}

func (w *wire) tick(i int) {
	s := w.sides[i]
	var packets [][]byte
	packets, s.next = s.Tick(w.now)
	for _, b := range packets {
		p, err := Decode(b)
		if err != nil {
			w.t.Fatalf("side %d sends %x: %v", i, b, err)
		}
		s.sent = append(s.sent, sent{w.now, p})
		if !s.lost {
			w.way = append(w.way, delivery{w.now.Add(latency), 1 - i, b})
		}
	}
	if n := len(w.seen[i]); n == 0 || w.seen[i][n-1] != s.State() {
		w.seen[i] = append(w.seen[i], s.State())
	}
}

func (w *wire) states(a, b State) {
	w.t.Helper()
	if w.sides[0].State() != a || w.sides[1].State() != b {
		w.t.Fatalf("after %v: %s and %s, want %s and %s", w.now.Sub(w.start), w.sides[0].State(), w.sides[1].State(), a, b)
	}
}

func (w *wire) up() {
	w.t.Helper()
	w.run(3 * time.Second)
	w.states(Up, Up)
	w.sides[0].sent, w.sides[1].sent, w.seen = nil, nil, [2][]State{}
}

// The state machine of RFC 5880, section 6.2, from each state with each packet.
func TestStates(t *testing.T) {
	reach := map[State][]State{Down: nil, Init: {Down}, Up: {Init}}
	for from, by := range reach {
		for packet, want := range map[State]map[State]State{
			AdminDown: {Down: Down, Init: Down, Up: Down},
			Down:      {Down: Init, Init: Init, Up: Down},
			Init:      {Down: Up, Init: Up, Up: Up},
			Up:        {Down: Down, Init: Up, Up: Up},
		} {
			s, now := New(config(1)), time.Unix(1000, 0)
			for _, p := range append(by, packet) {
				b := Packet{State: p, DetectMult: 3, MyDiscriminator: 2, YourDiscriminator: 1, RequiredMinRxInterval: 1}.Encode()
				if err := s.Receive(now, b); err != nil {
					t.Fatal(err)
				}
			}
			if s.State() != want[from] {
				t.Errorf("%s receives %s: %s, want %s", from, packet, s.State(), want[from])
			}
			diagnostic := NoDiagnostic
			if from != Down && want[from] == Down {
				diagnostic = NeighbourDown
			}
			if s.Diagnostic() != diagnostic {
				t.Errorf("%s receives %s: %s", from, packet, s.Diagnostic())
			}
		}
	}
}

func TestUpInTime(t *testing.T) {
	w := newWire(t, config(1), config(2))
	w.run(10 * time.Millisecond) // the first packets go out at once
	w.states(Up, Up)
	for _, s := range w.sides {
		if s.Diagnostic() != NoDiagnostic {
			t.Errorf("diagnostic %s", s.Diagnostic())
		}
	}
	w.run(time.Minute)
	w.states(Up, Up)
	if len(w.seen[0]) > 3 || len(w.seen[1]) > 3 {
		t.Errorf("states %v, %v", w.seen[0], w.seen[1])
	}
}

// Not more often than once a second before the session is Up.
func TestSlowWhileDown(t *testing.T) {
	w := newWire(t, config(1), config(2))
	w.sides[0].lost, w.sides[1].lost = true, true
	w.run(time.Minute)
	for _, s := range w.sides {
		if n := len(s.sent); n < 60 || n > 81 {
			t.Errorf("%d packets in a minute", n)
		}
		for _, p := range s.sent {
			if p.DesiredMinTxInterval != 1e6 || p.RequiredMinRxInterval != 5e4 || p.State != Down || p.YourDiscriminator != 0 || p.Poll {
				t.Fatalf("%+v", p.Packet)
			}
		}
	}
	w.sides[0].lost, w.sides[1].lost = false, false
	w.run(1100 * time.Millisecond)
	w.states(Up, Up)
}

// The poll sequence has the fast interval take effect, also if packets of it are lost.
func TestPollSequence(t *testing.T) {
	w := newWire(t, config(1), config(2))
	lossy := func(lost bool) { w.sides[1].lost = lost }
	for w.sides[0].State() != Up {
		w.run(100 * time.Microsecond)
	}
	lossy(true)
	w.run(100 * time.Millisecond) // below the detection time
	for _, p := range w.sides[0].sent {
		if !p.Final && (p.State == Up) != p.Poll {
			t.Errorf("without an answer: %+v", p.Packet)
		}
	}
	lossy(false)
	w.up()
	w.run(time.Second)
	for _, s := range w.sides {
		if n := len(s.sent); n < 20 || n > 27 {
			t.Errorf("%d packets in a second", n)
		}
		for _, p := range s.sent {
			if p.Poll || p.Final || p.DesiredMinTxInterval != 5e4 {
				t.Fatalf("after the poll sequence: %+v", p.Packet)
			}
		}
	}
}

// Without a change of the interval there is no poll sequence.
func TestNoPollSequence(t *testing.T) {
	a, b := config(1), config(2)
	a.Interval, b.Interval = 2*time.Second, 2*time.Second
	w := newWire(t, a, b)
	w.run(time.Minute)
	w.states(Up, Up)
	for _, p := range append(w.sides[0].sent, w.sides[1].sent...) {
		if p.Poll || p.Final || p.DesiredMinTxInterval != 2e6 {
			t.Fatalf("%+v", p.Packet)
		}
	}
}

func TestDownAfterDetectionTime(t *testing.T) {
	a, b := config(1), config(2)
	b.DetectMult, b.Interval = 5, 100*time.Millisecond
	// What side 1 sends is missed for 5 × 100 ms, its own multiplier and the slower interval.
	for lost, detection := range map[int]time.Duration{1: 500 * time.Millisecond, 0: 300 * time.Millisecond} {
		w := newWire(t, a, b)
		w.up()
		w.sides[lost].lost = true
		w.sides[lost].sent = nil
		deaf := 1 - lost
		w.run(detection - 100*time.Millisecond - latency)
		w.states(Up, Up)
		w.run(100*time.Millisecond + 2*latency)
		if s := w.sides[deaf]; s.State() != Down || s.Diagnostic() != DetectionExpired {
			t.Fatalf("side %d: %s, %s", deaf, s.State(), s.Diagnostic())
		}
		w.run(2 * latency) // the other one is told
		if s := w.sides[lost]; s.State() == Up {
			t.Fatalf("side %d: %s", lost, s.State())
		}
		w.run(10 * time.Second)
		if s := w.sides[deaf]; s.State() != Down {
			t.Fatalf("side %d: %s", deaf, s.State())
		}
		w.sides[lost].lost = false
		w.run(1100 * time.Millisecond)
		w.states(Up, Up)
	}
}

// Two of three packets may be lost.
func TestLossBelowDetectMult(t *testing.T) {
	w := newWire(t, config(1), config(2))
	w.up()
	for range 100 {
		w.sides[0].lost = true
		w.run(85 * time.Millisecond)
		w.sides[0].lost = false
		w.run(60 * time.Millisecond)
	}
	w.states(Up, Up)
	if len(w.seen[0])+len(w.seen[1]) != 2 {
		t.Errorf("states %v, %v", w.seen[0], w.seen[1])
	}
}

// A system that starts again with another discriminator takes the session down and up again.
func TestRestart(t *testing.T) {
	w := newWire(t, config(1), config(2))
	w.up()
	w.sides[1].Session = New(config(3))
	w.sides[1].next = w.now
	w.run(20 * time.Millisecond)
	w.states(Up, Up)
	downs := 0
	for _, p := range w.sides[0].sent {
		if p.State == Down {
			downs++
			if p.Diagnostic != NeighbourDown || p.YourDiscriminator != 3 {
				t.Errorf("%+v", p.Packet)
			}
		}
	}
	if downs == 0 {
		t.Errorf("side 0 was %v", w.seen[0])
	}
	w.run(time.Minute)
	w.states(Up, Up)
	if p := w.sides[0].sent[len(w.sides[0].sent)-1]; p.YourDiscriminator != 3 {
		t.Errorf("%+v", p.Packet)
	}
}

// The intervals are from 75 to 100 % of the negotiated one, to 90 % if no packet may be missed.
func TestJitter(t *testing.T) {
	for mult, bounds := range map[uint8][2]time.Duration{
		1: {37500 * time.Microsecond, 45 * time.Millisecond},
		2: {37500 * time.Microsecond, 50 * time.Millisecond},
	} {
		for _, j := range []float64{0, 0.3, 1 - 1e-9} {
			a := config(1)
			a.DetectMult, a.Jitter = mult, func() float64 { return j }
			w := newWire(t, a, config(2))
			w.up()
			w.run(time.Second)
			list := w.sides[0].sent
			for i := range list[1:] {
				if pause := list[i+1].at.Sub(list[i].at); pause < bounds[0] || pause > bounds[1] {
					t.Fatalf("Detect Mult %d: %v between two packets", mult, pause)
				}
			}
		}
	}
}

// peer is a Session that is Up with a peer that the test plays.
func peer(t *testing.T, now time.Time, p Packet) *Session {
	t.Helper()
	s := New(config(1))
	for _, state := range []State{Init, p.State} {
		p := p
		p.State = state
		if err := s.Receive(now, p.Encode()); err != nil {
			t.Fatal(err)
		}
	}
	if s.State() != Up {
		t.Fatalf("%s", s.State())
	}
	return s
}

func upPacket() Packet {
	return Packet{
		State: Up, DetectMult: 3, MyDiscriminator: 2, YourDiscriminator: 1,
		DesiredMinTxInterval: 1e6, RequiredMinRxInterval: 1e5,
	}
}

func TestSlowReceiver(t *testing.T) {
	now := time.Unix(1000, 0)
	s := peer(t, now, upPacket())
	_, _ = s.Tick(now)
	if _, next := s.Tick(now); next.Sub(now) != 87500*time.Microsecond {
		t.Errorf("next packet in %v, want that of 100 ms", next.Sub(now))
	}
	slower := upPacket()
	slower.RequiredMinRxInterval = 2e6
	if err := s.Receive(now, slower.Encode()); err != nil {
		t.Fatal(err)
	}
	if _, next := s.Tick(now); next.Sub(now) != 1750*time.Millisecond {
		t.Errorf("next packet in %v, want that of 2 s", next.Sub(now))
	}
}

// A system that wants no packets gets none but answers to its polls, and can still be missed.
func TestSilence(t *testing.T) {
	none, demand := upPacket(), upPacket()
	none.RequiredMinRxInterval = 0
	demand.Demand, demand.Final = true, true
	for name, p := range map[string]Packet{"Required Min RX 0": none, "demand mode": demand} {
		now := time.Unix(1000, 0)
		s := peer(t, now, p)
		send, next := s.Tick(now)
		if len(send) != 0 || next != now.Add(3*time.Second) {
			t.Errorf("%s: %d packets, next in %v", name, len(send), next.Sub(now))
		}
		p.Poll = true
		if err := s.Receive(now, p.Encode()); err != nil {
			t.Fatal(err)
		}
		send, _ = s.Tick(now)
		if len(send) != 1 {
			t.Fatalf("%s: %d packets answer a poll", name, len(send))
		}
		if got, err := Decode(send[0]); err != nil || !got.Final || got.Poll || got.State != Up {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		send, _ = s.Tick(next)
		if s.State() != Down || s.Diagnostic() != DetectionExpired || len(send) != 1 {
			t.Errorf("%s: %s, %s, %d packets", name, s.State(), s.Diagnostic(), len(send))
		}
	}
}

// What is not for this session, or no packet at all, changes nothing.
func TestNotForThisSession(t *testing.T) {
	now := time.Unix(1000, 0)
	foreign := upPacket()
	foreign.State, foreign.YourDiscriminator, foreign.Poll = Down, 9, true
	for name, b := range map[string][]byte{"other discriminator": foreign.Encode(), "text": []byte("text"), "nothing": nil} {
		s := peer(t, now, upPacket())
		_, next := s.Tick(now)
		if err := s.Receive(now, b); err == nil {
			t.Errorf("%s: no error", name)
		}
		if send, again := s.Tick(now); s.State() != Up || len(send) != 0 || again != next {
			t.Errorf("%s: %s, %d packets", name, s.State(), len(send))
		}
	}
}

// Values that make no sense have a Session that works nevertheless.
func TestConfigBounds(t *testing.T) {
	for _, d := range []time.Duration{-time.Second, 0, time.Nanosecond, 100 * time.Hour} {
		s := New(Config{Discriminator: 1, Interval: d, Jitter: func() float64 { return 0 }})
		send, next := s.Tick(time.Unix(1000, 0))
		if len(send) != 1 || !next.After(time.Unix(1000, 0)) {
			t.Fatalf("%v: %d packets", d, len(send))
		}
		if p, err := Decode(send[0]); err != nil || p.DetectMult != 1 || p.RequiredMinRxInterval == 0 {
			t.Errorf("%v: %+v, %v", d, p, err)
		}
	}
}

// FuzzReceive expects that whatever comes, the Session sends packets that are right, and has
// something to do later.
func FuzzReceive(f *testing.F) {
	f.Add(upPacket().Encode(), upPacket().Encode(), uint32(1000))
	f.Add(Packet{State: Init, Poll: true, DetectMult: 1, MyDiscriminator: 2, YourDiscriminator: 1}.Encode(), []byte{}, uint32(0))
	f.Fuzz(func(t *testing.T, one, two []byte, later uint32) {
		s, now := New(config(1)), time.Unix(1000, 0)
		for _, b := range [][]byte{one, two, one} {
			_ = s.Receive(now, b)
			send, next := s.Tick(now)
			for _, b := range send {
				if p, err := Decode(b); err != nil || p.Poll && p.Final || p.MyDiscriminator != 1 {
					t.Fatalf("%x: %v", b, err)
				}
			}
			if !next.After(now) || s.State() == AdminDown {
				t.Fatalf("next is in %v, %s", next.Sub(now), s.State())
			}
			now = now.Add(time.Duration(later) * time.Microsecond)
		}
	})
}
