// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"coelan.io/coelan/internal/trigger"
)

// UDPStream sends a numbered packet every interval, which the other end sends
// back. It runs until Stop.
type UDPStream struct {
	client, server *net.UDPConn
	interval       time.Duration
	stop           chan struct{}
	end            sync.Once
	stopped        chan struct{}   // nothing more is sent
	news           trigger.Trigger // an echo came; Wait and Stop look at all that came
	wg             sync.WaitGroup

	mu      sync.Mutex
	sent    []time.Time
	arrived []int       // how often each packet came to the server
	echoed  []time.Time // when its echo came back; zero if not
	back    int         // how many echoes came back
	errs    []error
}

// UDPReport is the outcome of a UDPStream.
type UDPReport struct {
	Sent       int
	Lost       []int // numbers of packets without an echo
	LostThere  int   // of these, how many did not reach the server
	Duplicated int
	// Gap is the longest time between the sending of two packets that came back
	// and between which all were lost: how long the path was interrupted.
	Gap time.Duration
	// Late is the longest time between a packet's sending and its echo.
	Late   time.Duration
	Errors []error // of the sockets, such as "network is unreachable"
}

// String is the report in one line.
func (r UDPReport) String() string {
	return fmt.Sprintf("sent %d, lost %d (%d on the way there), duplicated %d, longest gap %s, latest %s, errors %v",
		r.Sent, len(r.Lost), r.LostThere, r.Duplicated, r.Gap.Round(time.Millisecond), r.Late.Round(time.Millisecond),
		r.Errors)
}

// StartUDP starts a stream to the address dst, behind which the server answers
// on the port of at. They differ when something translates addresses.
func StartUDP(client, server Netns, dst netip.AddrPort, at netip.AddrPort, interval time.Duration) (*UDPStream, error) {
	s := &UDPStream{interval: interval, stop: make(chan struct{}), stopped: make(chan struct{}),
		news: trigger.New()}
	err := server.Do(func() (err error) {
		if s.server, err = net.ListenUDP(network("udp", at.Addr()), net.UDPAddrFromAddrPort(at)); err != nil {
			return err
		}
		return enlarge(s.server)
	})
	if err == nil {
		err = client.Do(func() (err error) {
			if s.client, err = net.DialUDP(network("udp", dst.Addr()), nil, net.UDPAddrFromAddrPort(dst)); err != nil {
				return err
			}
			return enlarge(s.client)
		})
	}
	if err != nil {
		if s.server != nil {
			s.server.Close()
		}
		return nil, fmt.Errorf("UDP stream to %s: %w", dst, err)
	}
	s.wg.Go(s.serve)
	s.wg.Go(s.collect)
	s.wg.Go(s.send)
	return s, nil
}

// enlarge lets a socket hold what comes while the test itself has to wait for a
// processor.
func enlarge(c *net.UDPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var setErr error
	err = raw.Control(func(fd uintptr) {
		setErr = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20)
	})
	return errors.Join(err, setErr)
}

// Wait returns when n more echoes have come back.
func (s *UDPStream) Wait(ctx context.Context, n int) error {
	s.mu.Lock()
	want := s.back + n
	s.mu.Unlock()
	for {
		s.mu.Lock()
		missing := want - s.back
		s.mu.Unlock()
		if missing <= 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("UDP stream to %s: %d of %d echoes did not come back: %w", s.client.RemoteAddr(), missing,
				n, ctx.Err())
		case <-s.news:
		}
	}
}

// Stop ends the stream, waits for late echoes and reports.
func (s *UDPStream) Stop() UDPReport {
	s.end.Do(func() { close(s.stop) })
	<-s.stopped
	late := time.NewTimer(AnswerTimeout)
	defer late.Stop()
	for waiting := true; waiting && !s.complete(); {
		select {
		case <-s.news:
			late.Reset(AnswerTimeout)
		case <-late.C:
			waiting = false
		}
	}
	s.Close()
	return s.report()
}

// Close ends the stream without a report, also after Stop.
func (s *UDPStream) Close() {
	s.end.Do(func() { close(s.stop) })
	s.client.Close()
	s.server.Close()
	s.wg.Wait()
}

func (s *UDPStream) complete() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.back == len(s.sent)
}

func (s *UDPStream) send() {
	defer close(s.stopped)
	tick := time.NewTicker(s.interval)
	defer tick.Stop()
	for {
		s.mu.Lock()
		n := len(s.sent)
		s.sent, s.arrived, s.echoed = append(s.sent, time.Now()), append(s.arrived, 0), append(s.echoed, time.Time{})
		s.mu.Unlock()
		if _, err := s.client.Write(binary.BigEndian.AppendUint64(nil, uint64(n))); err != nil {
			s.fail(err)
		}
		select {
		case <-s.stop:
			return
		case <-tick.C:
		}
	}
}

func (s *UDPStream) serve() {
	buf := make([]byte, 64)
	for {
		n, from, err := s.server.ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			s.fail(err)
			continue
		}
		if n != 8 {
			continue
		}
		s.mu.Lock()
		if i := int(binary.BigEndian.Uint64(buf)); i < len(s.arrived) {
			s.arrived[i]++
		}
		s.mu.Unlock()
		if _, err := s.server.WriteToUDPAddrPort(buf[:n], from); err != nil && !errors.Is(err, net.ErrClosed) {
			s.fail(err)
		}
	}
}

func (s *UDPStream) collect() {
	buf := make([]byte, 64)
	for {
		n, err := s.client.Read(buf)
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			s.fail(err)
		case n == 8:
			s.mu.Lock()
			if i := int(binary.BigEndian.Uint64(buf)); i < len(s.echoed) && s.echoed[i].IsZero() {
				s.echoed[i] = time.Now()
				s.back++
			}
			s.mu.Unlock()
			s.news.Fire()
		}
	}
}

// fail notes an error of a socket; the stream goes on.
func (s *UDPStream) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.errs) < 10 {
		s.errs = append(s.errs, err)
	}
}

func (s *UDPStream) report() UDPReport {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := UDPReport{Sent: len(s.sent), Errors: s.errs}
	last := s.sent[0]
	for i, sent := range s.sent {
		r.Duplicated += max(0, s.arrived[i]-1)
		if s.echoed[i].IsZero() {
			r.Lost = append(r.Lost, i)
			if s.arrived[i] == 0 {
				r.LostThere++
			}
			r.Gap = max(r.Gap, sent.Sub(last))
			continue
		}
		if len(r.Lost) > 0 && r.Lost[len(r.Lost)-1] == i-1 {
			r.Gap = max(r.Gap, sent.Sub(last))
		}
		last = sent
		r.Late = max(r.Late, s.echoed[i].Sub(sent))
	}
	return r
}

// AskUDP sends one datagram to dst, behind which a server at the address at
// sends it back, and returns what came back.
func AskUDP(ctx context.Context, client, server Netns, dst, at netip.AddrPort, text string) (string, error) {
	var listener, conn *net.UDPConn
	err := server.Do(func() (err error) {
		listener, err = net.ListenUDP(network("udp", at.Addr()), net.UDPAddrFromAddrPort(at))
		return err
	})
	if err != nil {
		return "", err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer listener.Close()
	wg.Go(func() {
		buf := make([]byte, 1<<16)
		if n, from, err := listener.ReadFromUDPAddrPort(buf); err == nil {
			_, _ = listener.WriteToUDPAddrPort(buf[:n], from) // a lost answer is seen by the client
		}
	})
	err = client.Do(func() (err error) {
		conn, err = net.DialUDP(network("udp", dst.Addr()), nil, net.UDPAddrFromAddrPort(dst))
		return err
	})
	if err != nil {
		return "", err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, err := conn.Write([]byte(text)); err != nil {
		return "", err
	}
	_ = conn.SetReadDeadline(time.Now().Add(AnswerTimeout))
	buf := make([]byte, 1<<16)
	n, err := conn.Read(buf)
	return string(buf[:n]), err
}

// ListenForeign listens for UDP at an address that the namespace need not have, to send from it.
func ListenForeign(ctx context.Context, in Netns, at netip.AddrPort) (conn net.PacketConn, err error) {
	level, option := unix.SOL_IP, unix.IP_TRANSPARENT
	if at.Addr().Is6() {
		level, option = unix.SOL_IPV6, unix.IPV6_TRANSPARENT
	}
	foreign := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var set error
		err := c.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), level, option, 1) })
		return errors.Join(err, set)
	}}
	err = in.Do(func() (err error) { conn, err = foreign.ListenPacket(ctx, "udp", at.String()); return err })
	return conn, err
}
