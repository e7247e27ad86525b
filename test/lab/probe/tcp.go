// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Server is a TCP server in a namespace. It answers as its handler does.
type Server struct {
	listener net.Listener
	wg       sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

// Serve listens on an address; handle runs for each connection.
func Serve(ns Netns, at netip.AddrPort, handle func(net.Conn)) (*Server, error) {
	s := &Server{conns: map[net.Conn]struct{}{}}
	err := ns.Do(func() (err error) {
		s.listener, err = net.Listen(network("tcp", at.Addr()), at.String())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("TCP server: %w", err)
	}
	s.wg.Go(func() { s.accept(handle) })
	return s, nil
}

func (s *Server) accept(handle func(net.Conn)) {
	for {
		c, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conns[c] = struct{}{}
		s.mu.Unlock()
		s.wg.Go(func() {
			handle(c)
			c.Close()
			s.mu.Lock()
			delete(s.conns, c)
			s.mu.Unlock()
		})
	}
}

// Close ends the server and its connections.
func (s *Server) Close() {
	s.listener.Close()
	s.mu.Lock()
	for c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// Echo sends back what comes.
func Echo(c net.Conn) { _, _ = io.Copy(c, c) }

// WhoAmI answers with the address that the client has for the server.
func WhoAmI(c net.Conn) { _, _ = io.WriteString(c, c.RemoteAddr().String()) }

// koopman has no processor's instructions for it, which an emulated machine
// would be slow at.
var koopman = crc32.MakeTable(crc32.Koopman)

// Digest reads to the end and answers with the CRC of what it read.
func Digest(c net.Conn) {
	h := crc32.New(koopman)
	if _, err := io.Copy(h, c); err == nil {
		_, _ = c.Write(h.Sum(nil))
	}
}

// Discard reads to the end.
func Discard(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

// Dial connects from a namespace. The wait for the answer is bounded.
func Dial(ctx context.Context, from Netns, dst netip.AddrPort) (*net.TCPConn, error) {
	var conn net.Conn
	err := from.Do(func() (err error) {
		d := net.Dialer{Timeout: AnswerTimeout, KeepAlive: -1}
		conn, err = d.DialContext(ctx, network("tcp", dst.Addr()), dst.String())
		return err
	})
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}

// Seen connects to a WhoAmI server and returns the client's address as the
// server sees it.
func Seen(ctx context.Context, from Netns, dst netip.AddrPort) (netip.AddrPort, error) {
	c, err := Dial(ctx, from, dst)
	if err != nil {
		return netip.AddrPort{}, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(AnswerTimeout))
	text, err := io.ReadAll(c)
	if err != nil {
		return netip.AddrPort{}, err
	}
	seen, err := netip.ParseAddrPort(string(text))
	return netip.AddrPortFrom(seen.Addr().Unmap(), seen.Port()), err
}

// AnswerFrom has an Answer server answer a byte, in a connection from a port that may have
// been used just before. When it returns, the server has acknowledged the end: there is nothing
// more of the connection in the network.
func AnswerFrom(ctx context.Context, from Netns, port int, dst netip.AddrPort) error {
	options := func(_, _ string, c syscall.RawConn) (err error) {
		opErr := c.Control(func(fd uintptr) {
			err = errors.Join(
				unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
				unix.SetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER,
					&unix.Linger{Onoff: 1, Linger: int32(AnswerTimeout / time.Second)}))
		})
		return errors.Join(err, opErr)
	}
	return from.Do(func() error {
		return oneAnswer(ctx, net.Dialer{
			Timeout: AnswerTimeout, KeepAlive: -1, LocalAddr: &net.TCPAddr{Port: port}, Control: options,
		}, dst)
	})
}

// Transfer sends bytes to a Digest server and compares what the server got.
// It returns the rate in bytes per second.
func Transfer(ctx context.Context, from Netns, dst netip.AddrPort, bytes int) (float64, error) {
	c, err := Dial(ctx, from, dst)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	block := make([]byte, 1<<16)
	_, _ = rand.Read(block)
	h, start := crc32.New(koopman), time.Now()
	for left := bytes; left > 0; left -= len(block) {
		part := block[:min(left, len(block))]
		h.Write(part)
		if _, err := c.Write(part); err != nil {
			return 0, fmt.Errorf("%d of %d bytes sent: %w", bytes-left, bytes, err)
		}
	}
	if err := c.CloseWrite(); err != nil {
		return 0, err
	}
	got, err := io.ReadAll(c)
	took := time.Since(start)
	switch {
	case err != nil:
		return 0, fmt.Errorf("all %d bytes sent, no answer: %w", bytes, err)
	case string(got) != string(h.Sum(nil)):
		return 0, errors.New("the bytes that arrived are not those that were sent")
	}
	return float64(bytes) / took.Seconds(), nil
}
