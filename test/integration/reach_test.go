// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// path is a way through the network.
type path struct {
	name     string
	from, to *lab.Host
	dst      func(lab.Family) netip.Addr
	// seen is the address that the receiver sees; nil: whichever.
	seen func(lab.Family) netip.Addr
}

// paths are all ways that packets go. With encapsulation a node reaches the
// pods of others by way of its gateway interface, without it from its own address.
func paths(w *world, encapsulated bool) []path {
	nodeSeen := w.n1.Address
	if encapsulated {
		nodeSeen = w.n1.Gateway
	}
	return []path{
		{"pod to pod on its node", w.a.Host, w.b.Host, w.b.Address, w.a.Address},
		{"pod to pod on another node", w.a.Host, w.c.Host, w.c.Address, w.a.Address},
		{"pod back to pod on another node", w.c.Host, w.a.Host, w.a.Address, w.c.Address},
		{"pod to its node", w.a.Host, w.n1.Host, w.n1.Address, w.a.Address},
		{"pod to its gateway", w.a.Host, w.n1.Host, w.n1.Gateway, w.a.Address},
		{"pod to another node", w.a.Host, w.n2.Host, w.n2.Address, w.n1.Address},
		{"node to its pod", w.n1.Host, w.a.Host, w.a.Address, w.n1.Gateway},
		{"node to pod on another node", w.n1.Host, w.c.Host, w.c.Address, nodeSeen},
		{"pod to the nodes' segment", w.a.Host, w.Outside, w.Outside.Address, w.n1.Address},
		{"pod to the internet", w.a.Host, w.Outside, lab.Internet, w.n1.Address},
	}
}

// errLost is what a probe says that itself worked.
var errLost = errors.New("packets were lost")

// probePath pings, sends UDP both ways and opens a TCP connection.
func probePath(ctx context.Context, p path, f lab.Family) error { return probeTo(ctx, p, f, p.dst) }

// probeTo is probePath to a receiver that knows itself by another address.
func probeTo(ctx context.Context, p path, f lab.Family, known func(lab.Family) netip.Addr) error {
	at, listen := netip.AddrPortFrom(p.dst(f), 8080), netip.AddrPortFrom(known(f), 8080)
	r, err := (probe.Ping{Dst: at.Addr(), Count: 2}).Run(ctx, p.from)
	if err != nil || r.Lost() > 0 || r.SendError != nil {
		return fmt.Errorf("ping: lost %d of %d, errors %v: %w", r.Lost(), r.Sent, r.Errors, cmp.Or(errors.Join(r.SendError, err), errLost))
	}
	udp, err := probe.StartUDP(p.from, p.to, at, listen, time.Millisecond)
	if err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, 2*probe.AnswerTimeout)
	defer cancel()
	err = udp.Wait(bounded, 3)
	if report := udp.Stop(); err != nil || len(report.Lost) > 0 {
		return fmt.Errorf("UDP: %s: %w", report, cmp.Or(err, errLost))
	}
	server, err := probe.Serve(p.to, listen, probe.WhoAmI)
	if err != nil {
		return err
	}
	defer server.Close()
	seen, err := probe.Seen(ctx, p.from, at)
	if err != nil {
		return fmt.Errorf("TCP: %w", err)
	}
	if p.seen != nil && seen.Addr() != p.seen(f) {
		return fmt.Errorf("TCP: the receiver sees %s, want %s", seen.Addr(), p.seen(f))
	}
	return nil
}

func TestReach(t *testing.T) {
	w := sharedWorld(t)
	eachFamily(t, func(t *testing.T, f lab.Family) { reach(t, w, true, f) })
}

func reach(t *testing.T, w *world, encapsulated bool, f lab.Family) {
	t.Helper()
	for _, p := range paths(w, encapsulated) {
		if err := probePath(t.Context(), p, f); err != nil {
			t.Errorf("%s %s: %v", f, p.name, err)
		}
	}
}

// TestReachOtherwise takes the same ways in clusters of another kind.
func TestReachOtherwise(t *testing.T) {
	for _, tc := range []struct {
		name    string
		options lab.Options
	}{
		{"geneve", lab.Options{Encapsulation: config.Geneve}},
		{"noEncap", lab.Options{Encapsulation: config.NoEncap}},
		{"only IPv4", lab.Options{Families: lab.IPv4}},
		{"only IPv6", lab.Options{Families: lab.IPv6}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := start(t, tc.options)
			families := tc.options.Families
			if families == 0 {
				families = lab.Dual
			}
			encapsulated := tc.options.Encapsulation != config.NoEncap
			for f := range families.Each {
				reach(t, w, encapsulated, f)
				fullSize(t, w, f)
			}
		})
	}
}

// TestFirstPacketToNewNode pings pods on nodes that join the cluster while others
// run; not even the first packet may be lost.
func TestFirstPacketToNewNode(t *testing.T) {
	w := start(t, lab.Options{})
	eachFamily(t, func(t *testing.T, f lab.Family) {
		ctx := within(t, 2*time.Minute)
		n, err := w.AddNode(ctx)
		if err != nil {
			t.Fatal(err)
		}
		p, err := n.AddPod(ctx, "on-"+n.Name)
		if err != nil {
			t.Fatal(err)
		}
		for _, from := range []*lab.Pod{w.a, w.c} {
			if r := ping(t, from, probe.Ping{Dst: p.Address(f), Count: 3}); r.Lost() > 0 {
				t.Errorf("from %s: lost %d of %d, came back %v, errors %v", from.Name, r.Lost(), r.Sent, r.Replies, r.Errors)
			}
		}
	})
}
