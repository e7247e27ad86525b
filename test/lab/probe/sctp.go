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
		timeout := unix.NsecToTimeval(int64(wait))
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &timeout); err != nil {
			return err
		}
		if err := unix.Connect(fd, sockaddr(dst)); err != nil {
			return fmt.Errorf("SCTP to %s: %w", dst, err)
		}
		conn, err = net.FileConn(f)
		return err
	})
	return conn, err
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
