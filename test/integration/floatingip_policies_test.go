// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// blocks are those of one address each.
func blocks(addresses ...netip.Addr) []netip.Prefix {
	var list []netip.Prefix
	for _, a := range addresses {
		list = append(list, netip.PrefixFrom(a, a.BitLen()))
	}
	slices.SortFunc(list, netip.Prefix.Compare)
	return list
}

// both are an address in both families.
func both(address func(lab.Family) netip.Addr) []netip.Addr {
	return []netip.Addr{address(lab.IPv4), address(lab.IPv6)}
}

// floatingPolicies has policies judge what comes and goes by FloatingIPs.
func floatingPolicies(t *testing.T, w *external, s floatingIPs) {
	web := func(address func(lab.Family) netip.Addr, f lab.Family) netip.AddrPort {
		return netip.AddrPortFrom(address(f), 8080)
	}
	for f := range lab.Dual.Each {
		for _, x := range []floating{s.a, s.b, s.c, s.blue} {
			serve(t, x.host, web(x.own, f), probe.WhoAmI)
		}
		serve(t, w.near, web(w.near.Address, f), probe.WhoAmI)
		serve(t, w.far, web(w.far.Address, f), probe.WhoAmI)
	}
	expect := func(t *testing.T, outcomes map[string]func(lab.Family) func(context.Context) error) {
		t.Helper()
		for name, outcome := range outcomes {
			for f := range lab.Dual.Each {
				becomes(t, f.String()+" "+name, outcome(f))
			}
		}
	}
	reaching := func(from probe.Netns, address func(lab.Family) netip.Addr) func(lab.Family) func(context.Context) error {
		return func(f lab.Family) func(context.Context) error { return reaches(from, web(address, f)) }
	}
	failing := func(from probe.Netns, address func(lab.Family) netip.Addr) func(lab.Family) func(context.Context) error {
		return func(f lab.Family) func(context.Context) error { return unreached(from, web(address, f)) }
	}
	outcomes := func(pairs ...any) map[string]func(lab.Family) func(context.Context) error {
		m := map[string]func(lab.Family) func(context.Context) error{}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i].(string)] = pairs[i+1].(func(lab.Family) func(context.Context) error)
		}
		return m
	}

	t.Run("ingress sees true sources", func(t *testing.T) {
		w.rules.isolate(w.a, intent.Ingress, intent.Rule{Blocks: blocks(both(w.far.Address)...), Ports: tcpPort(8080, 8080)})
		w.rules.publish(t)
		expect(t, outcomes(
			"from the address that is allowed", reaching(w.far, s.a.address),
			"from another host", failing(w.near, s.a.address),
			"from a pod", failing(w.d, s.a.own),
			"from a pod by the FloatingIP", failing(w.b, s.a.address),
			"from a tenant by the FloatingIP", failing(w.red[0], s.a.address),
			"the pod itself goes out", reaching(w.a, w.near.Address),
		))
	})
	t.Run("a FloatingIP is outside", func(t *testing.T) {
		// The rule for the pod is about its own address, that for the tenant about its FloatingIP.
		w.rules.isolate(w.a, intent.Ingress,
			intent.Rule{Groups: w.rules.group("c", w.c)}, intent.Rule{Blocks: blocks(both(s.red.address)...)})
		w.rules.publish(t)
		expect(t, outcomes(
			"a pod by its own address", reaching(w.c, s.a.own),
			"the same pod by FloatingIPs", failing(w.c, s.a.address),
			"a tenant by FloatingIPs", reaching(w.red[0], s.a.address),
			"another tenant", failing(w.blue[0], s.a.address),
		))
		w.rules.open(w.a)
	})
	t.Run("egress before translation", func(t *testing.T) {
		w.rules.isolate(w.a, intent.Egress, intent.Rule{
			Blocks: blocks(slices.Concat(both(w.far.Address), both(s.b.address), both(s.c.own))...), Ports: tcpPort(8080, 8080),
		})
		w.rules.publish(t)
		expect(t, outcomes(
			"to the address that is allowed", reaching(w.a, w.far.Address),
			"to another host", failing(w.a, w.near.Address),
			"to a neighbour's FloatingIP", reaching(w.a, s.b.address),
			"to the neighbour's own address", failing(w.a, s.b.own),
			"to an own address", reaching(w.a, s.c.own),
			"to the FloatingIP in front of it", failing(w.a, s.c.address),
			"from outside", reaching(w.near, s.a.address),
		))
		w.rules.open(w.a)
	})
	t.Run("live connections", func(t *testing.T) { floatingLive(t, w, s) })
}

// floatingLive has streams to and from a FloatingIP stop, and go on again; others lose nothing.
func floatingLive(t *testing.T, w *external, s floatingIPs) {
	w.rules.publish(t)
	for f := range lab.Dual.Each {
		streams := map[string]*probe.UDPStream{}
		for name, way := range map[string]struct {
			from, to probe.Netns
			dst, at  netip.Addr
			port     uint16
		}{
			"in, allowed": {w.far, w.a, s.a.address(f), s.a.own(f), 5000}, "in, denied": {w.near, w.a, s.a.address(f), s.a.own(f), 5001},
			"out, allowed": {w.b, w.far, w.far.Address(f), w.far.Address(f), 5002}, "out, denied": {w.b, w.near, w.near.Address(f), w.near.Address(f), 5003},
		} {
			u, err := probe.StartUDP(way.from, way.to, netip.AddrPortFrom(way.dst, way.port), netip.AddrPortFrom(way.at, way.port), probeInterval)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(u.Close)
			streams[name] = u
		}
		settle := func(names ...string) {
			t.Helper()
			for _, name := range names {
				if err := streams[name].Wait(within(t, 10*time.Second), 5); err != nil {
					t.Errorf("%s %s: %v", f, name, err)
				}
			}
		}
		settle("in, allowed", "in, denied", "out, allowed", "out, denied")
		w.rules.isolate(w.a, intent.Ingress, intent.Rule{Blocks: blocks(w.far.Address(f))})
		w.rules.isolate(w.b, intent.Egress, intent.Rule{Blocks: blocks(w.far.Address(f))})
		w.rules.publish(t)
		for name, h := range map[string]*lab.Host{"in": w.a.Host, "out": w.near} {
			src, dst := w.near.Address(f), s.a.own(f)
			if name == "out" {
				src, dst = s.b.address(f), w.near.Address(f)
			}
			becomes(t, f.String()+" "+name+", denied", func(context.Context) error {
				return wire(t, h).Quiet(200*time.Millisecond, func(frame probe.Frame) bool {
					from, to := frame.IPs()
					return frame.Type() == etherType[f] && from == src && to == dst
				})
			})
		}
		settle("in, allowed", "out, allowed")
		w.rules.open(w.a)
		w.rules.open(w.b)
		w.rules.publish(t)
		settle("in, denied", "out, denied")
		var wg sync.WaitGroup
		for name, u := range streams {
			wg.Go(func() {
				r := u.Stop()
				if denied := name == "in, denied" || name == "out, denied"; denied != (len(r.Lost) > 0) {
					t.Errorf("%s %s: %s", f, name, r)
				}
			})
		}
		wg.Wait()
	}
}
