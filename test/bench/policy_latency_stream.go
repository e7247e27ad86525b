// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"coelan.io/coelan/test/lab/probe"
)

const (
	// numberedInterval is the time between two packets.
	numberedInterval = time.Millisecond
	// numberedSilence is how long nothing comes when a stream is denied; what is denied
	// for less is lost.
	numberedSilence = 300 * time.Millisecond
	// numberedSteady is how many packets come before a stream flows.
	numberedSteady = 200
)

// numbered is a stream of numbered UDP packets, always of the same connection, without answers.
type numbered struct {
	client, server *net.UDPConn
	stop           chan struct{}
	wg             sync.WaitGroup

	mu  sync.Mutex
	log packetLog
	err error // of the client's socket
}

func startNumbered(client, server probe.Netns, to netip.AddrPort) (*numbered, error) {
	s := &numbered{stop: make(chan struct{}), log: packetLog{last: -1}}
	address := net.UDPAddrFromAddrPort(to)
	err := server.Do(func() (err error) {
		s.server, err = net.ListenUDP("udp", address)
		return err
	})
	if err != nil {
		return nil, err
	}
	err = client.Do(func() (err error) {
		s.client, err = net.DialUDP("udp", nil, address)
		return err
	})
	if err != nil {
		s.server.Close()
		return nil, err
	}
	s.wg.Go(s.send)
	s.wg.Go(s.receive)
	return s, nil
}

func (s *numbered) close() {
	close(s.stop)
	s.client.Close()
	s.server.Close()
	s.wg.Wait()
}

func (s *numbered) send() {
	tick := time.NewTicker(numberedInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-s.stop:
			return
		}
		s.mu.Lock()
		number := s.log.add(time.Now())
		s.mu.Unlock()
		if _, err := s.client.Write(binary.BigEndian.AppendUint64(nil, uint64(number))); err != nil {
			s.mu.Lock()
			s.err = err
			s.mu.Unlock()
			return
		}
	}
}

func (s *numbered) receive() {
	buf := make([]byte, 16)
	for {
		n, err := s.server.Read(buf)
		if err != nil {
			return // the socket is closed
		}
		if n != 8 {
			continue
		}
		now := time.Now()
		s.mu.Lock()
		s.log.arrive(int(binary.BigEndian.Uint64(buf)), now) //nolint:gosec // a number of a packet of this stream
		s.mu.Unlock()
	}
}

// flows returns when packets have come for a while.
func (s *numbered) flows(ctx context.Context) error {
	first := -1
	return s.until(ctx, "arrive", func(l *packetLog) bool {
		if first < 0 {
			first = l.arrived
		}
		return l.arrived-first >= numberedSteady
	})
}

// denied returns when the first packet was sent of those that do not come any more.
func (s *numbered) denied(ctx context.Context) (at time.Time, err error) {
	err = s.until(ctx, "be denied", func(l *packetLog) (done bool) {
		at, done = l.deniedAt(time.Now())
		return done
	})
	return at, err
}

// allowed returns when the first packet has come since.
func (s *numbered) allowed(ctx context.Context, since time.Time) (at time.Time, err error) {
	err = s.until(ctx, "be allowed", func(l *packetLog) (done bool) {
		at, done = l.allowedAt(since)
		return done
	})
	return at, err
}

// latest is how late the packet came that came latest of those since.
func (s *numbered) latest(since time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.latest(since)
}

func (s *numbered) until(ctx context.Context, what string, done func(*packetLog) bool) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		s.mu.Lock()
		yes, err := done(&s.log), s.err
		s.mu.Unlock()
		if yes || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("packets to %s do not %s: %w", s.server.LocalAddr(), what, ctx.Err())
		}
	}
}

// packetLog knows when each packet was sent, by its number, and when those came that did.
type packetLog struct {
	sent, came []time.Time
	last       int // the highest number that has come; -1 if none has
	arrived    int // how many have come
}

func (l *packetLog) add(now time.Time) (number int) {
	l.sent, l.came = append(l.sent, now), append(l.came, time.Time{})
	return len(l.sent) - 1
}

func (l *packetLog) arrive(number int, now time.Time) {
	if number >= len(l.came) || !l.came[number].IsZero() {
		return
	}
	l.came[number] = now
	l.last = max(l.last, number)
	l.arrived++
}

// deniedAt is when the first of the packets was sent of which none has come, if that
// is long enough ago.
func (l *packetLog) deniedAt(now time.Time) (time.Time, bool) {
	first := l.last + 1
	if first >= len(l.sent) || now.Sub(l.sent[first]) < numberedSilence {
		return time.Time{}, false
	}
	return l.sent[first], true
}

// allowedAt is when the first packet came since a time.
func (l *packetLog) allowedAt(since time.Time) (time.Time, bool) {
	var first time.Time
	for number := l.last; number >= 0 && l.sent[number].After(since.Add(-numberedSilence)); number-- {
		if at := l.came[number]; at.After(since) && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first, !first.IsZero()
}

// latest is how long the slowest packet took that was sent since a time and has come.
func (l *packetLog) latest(since time.Time) (d time.Duration) {
	for number, sent := range l.sent {
		if at := l.came[number]; !at.IsZero() && !sent.Before(since) {
			d = max(d, at.Sub(sent))
		}
	}
	return d
}
