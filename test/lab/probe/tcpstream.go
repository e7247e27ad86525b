// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// TCPStream is one long-lived connection to an Echo server over which a number
// goes there and back every interval. It runs until Stop.
type TCPStream struct {
	conn   *net.TCPConn
	done   chan struct{}
	end    sync.Once
	wg     sync.WaitGroup
	broken atomic.Pointer[error]

	report TCPReport // of the goroutine until it has ended
}

// TCPReport is the outcome of a TCPStream.
type TCPReport struct {
	Rounds int           // numbers that went there and back
	Slow   time.Duration // the longest round
	Err    error         // why the connection broke
}

// String is the report in one line.
func (r TCPReport) String() string {
	return fmt.Sprintf("%d rounds, slowest %s, error %v", r.Rounds, r.Slow.Round(time.Millisecond), r.Err)
}

// StartTCP connects to an Echo server and starts the stream.
func StartTCP(ctx context.Context, from Netns, dst netip.AddrPort, interval time.Duration) (*TCPStream, error) {
	c, err := Dial(ctx, from, dst)
	if err != nil {
		return nil, fmt.Errorf("TCP stream: %w", err)
	}
	s := &TCPStream{conn: c, done: make(chan struct{})}
	s.wg.Go(func() {
		defer c.Close()
		if s.report.Err = s.run(interval); s.report.Err != nil {
			s.broken.Store(&s.report.Err)
		}
	})
	return s, nil
}

func (s *TCPStream) run(interval time.Duration) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	buf := make([]byte, 8)
	for n := uint64(0); ; n++ {
		start := time.Now()
		if _, err := s.conn.Write(binary.BigEndian.AppendUint64(nil, n)); err != nil {
			return err
		}
		if _, err := io.ReadFull(s.conn, buf); err != nil {
			return err
		}
		if binary.BigEndian.Uint64(buf) != n {
			return errors.New("another number came back")
		}
		s.report.Rounds, s.report.Slow = s.report.Rounds+1, max(s.report.Slow, time.Since(start))
		select {
		case <-s.done:
			return nil
		case <-tick.C:
		}
	}
}

// Broken returns why the connection broke; nil while it lasts.
func (s *TCPStream) Broken() error {
	if err := s.broken.Load(); err != nil {
		return *err
	}
	return nil
}

// Stop ends the stream after its current round and reports. A round that does
// not end within 20 s counts as a broken connection.
func (s *TCPStream) Stop() TCPReport {
	s.end.Do(func() { close(s.done) })
	_ = s.conn.SetDeadline(time.Now().Add(10 * AnswerTimeout))
	s.wg.Wait()
	return s.report
}

// Close breaks the connection, also after Stop.
func (s *TCPStream) Close() {
	s.end.Do(func() { close(s.done) })
	s.conn.Close()
	s.wg.Wait()
}
