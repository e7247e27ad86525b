// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// headers is the length of an IP and an ICMP header.
var headers = map[lab.Family]int{lab.IPv4: 28, lab.IPv6: 48}

// mtuOf is the MTU of a host's eth0.
func mtuOf(t *testing.T, h *lab.Host) int {
	t.Helper()
	var mtu int
	err := h.Do(func() error {
		i, err := net.InterfaceByName("eth0")
		if err == nil {
			mtu = i.MTU
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return mtu
}

// fullSize sends packets of exactly the MTU with DF set on every way, and one
// byte more.
func fullSize(t *testing.T, w *world, f lab.Family) {
	t.Helper()
	size := mtuOf(t, w.a.Host) - headers[f]
	for name, to := range map[string]netip.Addr{
		"same node": w.b.Address(f), "other node": w.c.Address(f), "its node": w.n1.Address(f), "outside": lab.Internet(f),
	} {
		if r := ping(t, w.a, probe.Ping{Dst: to, Size: size, Count: 2}); r.Lost() > 0 || r.SendError != nil {
			t.Errorf("%s to %s: %d bytes of data: lost %d, errors %v, %v", f, name, size, r.Lost(), r.Errors, r.SendError)
		}
		if r := ping(t, w.a, probe.Ping{Dst: to, Size: size + 1}); !errors.Is(r.SendError, syscall.EMSGSIZE) {
			t.Errorf("%s to %s: one byte too many: sent %d, replies %v, %v", f, name, r.Sent, r.Replies, r.SendError)
		}
	}
}

func TestFullSize(t *testing.T) {
	w := sharedWorld(t)
	if got := mtuOf(t, w.a.Host); got != 1450 {
		t.Errorf("MTU of a pod behind VXLAN over an MTU of 1500: %d", got)
	}
	eachFamily(t, func(t *testing.T, f lab.Family) { fullSize(t, w, f) })
}

// TestTooBigFromOutside sends to a pod what does not fit: the node tells the sender.
func TestTooBigFromOutside(t *testing.T) {
	w := sharedWorld(t)
	eachFamily(t, func(t *testing.T, f lab.Family) {
		routeToPods(t, w, f)
		r := ping(t, w.Outside, probe.Ping{Dst: w.a.Address(f), Size: 1500 - headers[f]})
		want := tooBig[f]
		if len(r.Errors) != 1 || r.Errors[0].Type != want[0] || r.Errors[0].Code != want[1] || r.Errors[0].MTU != 1450 {
			t.Errorf("replies %v, errors %v; want type %d code %d with MTU 1450", r.Replies, r.Errors, want[0], want[1])
		}
	})
}

// routeToPods lets the outside send to the pods of n1.
func routeToPods(t *testing.T, w *world, f lab.Family) {
	t.Helper()
	for _, p := range w.n1.PodCIDRs {
		if lab.FamilyOf(p.Addr()) == f {
			run(t, w.Outside, "ip", "route", "replace", p.String(), "via", w.n1.Address(f).String())
			t.Cleanup(func() { run(t, w.Outside, "ip", "route", "del", p.String()) })
		}
	}
}

// TestFragments sends what takes three packets, as an echo request and as a
// datagram. The first echo request may be lost where the answer comes in
// fragments larger than the pods' MTU: no router cuts those of IPv6 again, so
// their sender has to be told (RFC 8200, section 5).
func TestFragments(t *testing.T) {
	w := sharedWorld(t)
	eachFamily(t, func(t *testing.T, f lab.Family) {
		for _, p := range paths(w, true) {
			mayLose := 0
			if f == lab.IPv6 {
				mayLose = 1
			}
			if r := ping(t, p.from, probe.Ping{Dst: p.dst(f), Count: 2, Size: 4000, MayFragment: true, Wait: time.Second}); r.Lost() > mayLose {
				t.Errorf("%s: ICMP: lost %d, errors %v, %v", p.name, r.Lost(), r.Errors, r.SendError)
			}
			at := netip.AddrPortFrom(p.dst(f), 8081)
			text := strings.Repeat("fragment", 500)
			if got, err := probe.AskUDP(t.Context(), p.from, p.to, at, at, text); err != nil || got != text {
				t.Errorf("%s: UDP: %d bytes came back, %v", p.name, len(got), err)
			}
		}
	})
}

// TestBulk sends megabytes over TCP with segmentation and checksums offloaded as far as possible,
// and compares every byte.
func TestBulk(t *testing.T) {
	w := sharedWorld(t)
	eachFamily(t, func(t *testing.T, f lab.Family) {
		for _, p := range paths(w, true) {
			at := netip.AddrPortFrom(p.dst(f), 8082)
			server, err := probe.Serve(p.to, at, probe.Digest)
			if err != nil {
				t.Fatal(err)
			}
			rate, err := probe.Transfer(within(t, bulkTimeout), p.from, at, bulkBytes)
			server.Close()
			if err != nil {
				t.Errorf("%s: %v", p.name, err)
			}
			t.Logf("%s: %.0f Mbit/s", p.name, rate*8/1e6)
		}
	})
}
