// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// balancer joins each connection to one of the servers, in turn, and takes the next one if that
// does not answer. It is as simple as TCP load balancers are: it does not look into what it passes
// on.
type balancer struct {
	servers []netip.AddrPort
	next    atomic.Uint64
	dialer  net.Dialer
}

// How soon a server without power is noticed. Its clients cannot notice: their connections are to
// the load balancer.
const (
	serverTimeout     = time.Second
	keepAliveIdle     = 2 * time.Second
	keepAliveInterval = time.Second
	keepAliveCount    = 3
	userTimeout       = 5 * time.Second
)

func newBalancer(servers []netip.AddrPort) *balancer {
	return &balancer{servers: servers, dialer: net.Dialer{
		Timeout: serverTimeout,
		KeepAliveConfig: net.KeepAliveConfig{
			Enable: true, Idle: keepAliveIdle, Interval: keepAliveInterval, Count: keepAliveCount,
		},
		Control: boundUnacknowledged,
	}}
}

// boundUnacknowledged ends a connection on which nothing is acknowledged for userTimeout.
func boundUnacknowledged(_, _ string, c syscall.RawConn) error {
	var failed error
	err := c.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT,
			int(userTimeout/time.Millisecond))
	})
	return cmp.Or(err, failed)
}

// bindAnyway lets a socket be bound to an address that is not there yet.
func bindAnyway(network, _ string, c syscall.RawConn) error {
	level, option := unix.IPPROTO_IP, unix.IP_FREEBIND
	if network == "tcp6" {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_FREEBIND
	}
	var failed error
	err := c.Control(func(fd uintptr) {
		failed = errors.Join(
			unix.SetsockoptInt(int(fd), level, option, 1),
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		)
	})
	return cmp.Or(err, failed)
}

// serve passes on the connections of a listener, which may be in another network namespace.
func (b *balancer) serve(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			slog.Error("cannot accept connections to the API servers' load balancer", "err", err)
			return
		}
		go b.join(conn)
	}
}

func (b *balancer) join(conn net.Conn) {
	defer conn.Close()
	far, err := b.dial()
	if err != nil {
		return // the client sees its connection closed and tries again
	}
	defer far.Close()
	go func() {
		_, _ = io.Copy(far, conn)
		_ = far.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(conn, far)
}

// dial connects to the next server that answers.
func (b *balancer) dial() (net.Conn, error) {
	first := b.next.Add(1)
	var errs []error
	for i := range b.servers {
		server := b.servers[(first+uint64(i))%uint64(len(b.servers))]
		conn, err := b.dialer.DialContext(context.Background(), "tcp", server.String())
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}
