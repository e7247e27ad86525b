// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// HasSCTP says whether the kernel has SCTP. Asking loads its module.
func HasSCTP() bool {
	fd, err := sctpSocket(netip.IPv4Unspecified())
	if err == nil {
		unix.Close(fd)
	}
	return err == nil
}

// ServeSCTP is Serve for associations of SCTP, each with one stream.
func ServeSCTP(ns Netns, at netip.AddrPort, handle func(net.Conn)) (*Server, error) {
	s := &Server{conns: map[net.Conn]struct{}{}}
	err := ns.Do(func() error {
		fd, err := sctpSocket(at.Addr())
		if err != nil {
			return err
		}
		f := os.NewFile(uintptr(fd), "sctp")
		defer f.Close()
		if err := errors.Join(unix.Bind(fd, sockaddr(at)), unix.Listen(fd, 16)); err != nil {
			return err
		}
		s.listener, err = net.FileListener(f)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("SCTP server: %w", err)
	}
	s.wg.Go(func() { s.accept(handle) })
	return s, nil
}

// DialSCTP is Dial for SCTP.
func DialSCTP(ctx context.Context, from Netns, dst netip.AddrPort) (conn net.Conn, err error) {
	wait := AnswerTimeout
	if end, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(end))
	}
	err = from.Do(func() error {
		fd, err := sctpSocket(dst.Addr())
		if err != nil {
			return err
		}
		f := os.NewFile(uintptr(fd), "sctp")
		defer f.Close()
		if err := connectSCTP(fd, dst, wait); err != nil {
			return fmt.Errorf("SCTP to %s: %w", dst, err)
		}
		conn, err = net.FileConn(f)
		return err
	})
	return conn, err
}

// connectSCTP returns when there is an association, or none will be.
func connectSCTP(fd int, dst netip.AddrPort, wait time.Duration) error {
	if err := unix.SetNonblock(fd, true); err != nil {
		return err
	}
	if err := unix.Connect(fd, sockaddr(dst)); !errors.Is(err, unix.EINPROGRESS) {
		return err
	}
	for end := time.Now().Add(wait); ; {
		left := time.Until(end)
		if left <= 0 {
			return os.ErrDeadlineExceeded
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, int(left.Milliseconds())+1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		if n > 0 {
			errno, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
			if err == nil && errno != 0 {
				err = unix.Errno(errno)
			}
			return err
		}
	}
}

func sctpSocket(of netip.Addr) (int, error) {
	domain := unix.AF_INET
	if of.Is6() {
		domain = unix.AF_INET6
	}
	return unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}
