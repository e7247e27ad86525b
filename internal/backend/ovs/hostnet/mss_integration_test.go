// SPDX-License-Identifier: Apache-2.0

//go:build integration

package hostnet

import (
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// segment is the size of segments that a connection sends, without TCP's options.
func segment(t *testing.T, c net.Conn) (size int) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	must(t, err)
	must(t, raw.Control(func(fd uintptr) {
		size, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG)
	}))
	must(t, err)
	return size
}

// segments are what both ends of a connection from a pod to the outside send.
func segments(t *testing.T, from, to string) (client, server int) {
	t.Helper()
	var l net.Listener
	must(t, in(outside, func() {
		var err error
		l, err = net.Listen("tcp", net.JoinHostPort(to, "7777"))
		must(t, err)
	}))
	defer l.Close()
	must(t, in(bridge, func() {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 10 * time.Second}
		c, err := d.DialContext(t.Context(), "tcp", l.Addr().String())
		must(t, err)
		defer c.Close()
		s, err := l.Accept()
		must(t, err)
		defer s.Close()
		client, server = segment(t, c), segment(t, s)
	}))
	return client, server
}

// TestSegmentsFitBothRoutes has a pod connect to the outside over a route with a smaller MTU than
// either end knows of, and over the gateway, where only the pod knows the MTU.
func TestSegmentsFitBothRoutes(t *testing.T) {
	h := makeWorld(t)
	const narrow, options = 1300, 12 // TCP's timestamps
	headers := map[string]int{"IPv4": 40, "IPv6": 60}
	for _, tc := range []struct {
		name    string
		clamped bool
	}{{"without the table", false}, {"with it", true}} {
		if tc.clamped {
			d := overlay("gw0")
			_, err := h.Apply(d)
			must(t, err)
			if out := run(t, "nft", "list", "table", "inet", "coelan"); strings.Count(out, "maxseg size set rt mtu") != 2 {
				t.Fatalf("nft does not know the rules:\n%s", out)
			}
		} else {
			run(t, "nft", "delete", "table", "inet", "coelan")
		}
		for _, name := range []string{"IPv4", "IPv6"} {
			w, long := worlds[name], "/32"
			if name == "IPv6" {
				long = "/128"
			}
			run(t, "ip", "route", "replace", w.client+long, "dev", "up0", "mtu", "1300")
			client, server := segments(t, w.pod, w.client)
			want := narrow - headers[name] - options
			if fits := client <= want && server <= want; fits != tc.clamped {
				t.Errorf("%s, %s: segments of %d and %d, fit: %v, want at most %d", name, tc.name, client, server, fits, want)
			}
			run(t, "ip", "route", "del", w.client+long, "dev", "up0")
		}
	}
}
