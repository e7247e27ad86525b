// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// ICMP errors by family: type and code.
var (
	ttlExceeded = map[lab.Family][2]int{lab.IPv4: {11, 0}, lab.IPv6: {3, 0}}
	hostUnknown = map[lab.Family][2]int{lab.IPv4: {3, 1}, lab.IPv6: {1, 3}}
	tooBig      = map[lab.Family][2]int{lab.IPv4: {3, 4}, lab.IPv6: {2, 0}}
)

// TestTTL looks at the TTL of what comes back: one less for each router.
func TestTTL(t *testing.T) {
	w := sharedWorld(t)
	eachFamily(t, func(t *testing.T, f lab.Family) {
		for _, tc := range []struct {
			name string
			dst  netip.Addr
			want int
		}{
			{"pod on the same node", w.b.Address(f), 64},
			{"gateway", w.n1.Gateway(f), 64},
			{"pod on another node", w.c.Address(f), 63},
			{"outside", lab.Internet(f), 63},
		} {
			r := ping(t, w.a, probe.Ping{Dst: tc.dst, Count: 2})
			if r.Lost() > 0 {
				t.Errorf("%s: lost %d of %d", tc.name, r.Lost(), r.Sent)
			}
			for _, reply := range r.Replies {
				if reply.TTL != tc.want {
					t.Errorf("%s: TTL %d, want %d", tc.name, reply.TTL, tc.want)
				}
			}
		}
	})
}

// TestTraceroute sends packets with a TTL that ends on the way: the gateway reports that.
func TestTraceroute(t *testing.T) {
	w := sharedWorld(t)
	eachFamily(t, func(t *testing.T, f lab.Family) {
		for name, dst := range map[string]netip.Addr{"pod on another node": w.c.Address(f), "outside": lab.Internet(f)} {
			first := ping(t, w.a, probe.Ping{Dst: dst, TTL: 1})
			if want := ttlExceeded[f]; len(first.Errors) != 1 || first.Errors[0].Type != want[0] ||
				first.Errors[0].Code != want[1] || first.Errors[0].From != w.n1.Gateway(f) {
				t.Errorf("%s: TTL 1: replies %v, errors %v; want type %d code %d from %s",
					name, first.Replies, first.Errors, want[0], want[1], w.n1.Gateway(f))
			}
			if second := ping(t, w.a, probe.Ping{Dst: dst, TTL: 2}); second.Lost() > 0 {
				t.Errorf("%s: TTL 2: errors %v, want a reply", name, second.Errors)
			}
		}
	})
}

// TestUnreachable sends to addresses that are not in use, and expects errors by ICMP.
func TestUnreachable(t *testing.T) {
	w := sharedWorld(t)
	eachFamily(t, func(t *testing.T, f lab.Family) {
		for _, tc := range []struct {
			name string
			dst  netip.Addr
			from netip.Addr
		}{
			{"unused on the same node", nth(w.a.Addresses, f, 99), w.a.Address(f)},
			{"unused on another node", nth(w.c.Addresses, f, 99), w.n2.Gateway(f)},
		} {
			r := ping(t, w.a, probe.Ping{Dst: tc.dst, Wait: 6 * time.Second})
			if want := hostUnknown[f]; len(r.Errors) != 1 || r.Errors[0].Type != want[0] || r.Errors[0].Code != want[1] {
				t.Errorf("%s: replies %v, errors %v; want type %d code %d", tc.name, r.Replies, r.Errors, want[0], want[1])
			} else if r.Errors[0].From != tc.from {
				t.Errorf("%s: the error is %s, want it from %s", tc.name, r.Errors[0], tc.from)
			}
		}
	})
}

// nth is the n-th address of the subnet of a family.
func nth(addresses []netip.Prefix, f lab.Family, n byte) netip.Addr {
	for _, p := range addresses {
		if lab.FamilyOf(p.Addr()) == f {
			b := p.Masked().Addr().AsSlice()
			b[len(b)-1] = n
			a, _ := netip.AddrFromSlice(b)
			return a
		}
	}
	return netip.Addr{}
}

// TestClosedPort expects to be refused, by ICMP for UDP and by a reset for TCP.
func TestClosedPort(t *testing.T) {
	w := sharedWorld(t)
	eachFamily(t, func(t *testing.T, f lab.Family) {
		for name, dst := range map[string]netip.Addr{
			"same node": w.b.Address(f), "other node": w.c.Address(f), "its node": w.n1.Address(f), "outside": lab.Internet(f),
		} {
			at := netip.AddrPortFrom(dst, 9)
			if err := refusedUDP(w.a, at); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("%s: UDP: %v", name, err)
			}
			c, err := probe.Dial(t.Context(), w.a, at)
			if !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("%s: TCP: %v", name, err)
			}
			if c != nil {
				c.Close()
			}
		}
	})
}

// refusedUDP sends a datagram and returns what the socket has to say.
func refusedUDP(from probe.Netns, dst netip.AddrPort) error {
	var c *net.UDPConn
	err := from.Do(func() (err error) {
		c, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(dst))
		return err
	})
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Write([]byte("?")); err != nil {
		return err
	}
	_ = c.SetReadDeadline(time.Now().Add(3 * time.Second))
	_, err = c.Read(make([]byte, 1))
	return err
}
