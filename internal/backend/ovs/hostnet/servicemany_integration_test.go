// SPDX-License-Identifier: Apache-2.0

//go:build integration

package hostnet

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"coelan.io/coelan/internal/intent"
)

// many are Services with everything that costs the kernel something: each has a ClusterIP outside
// of all ranges, a node port, an external address, one of a load balancer and source ranges.
func many(n int) Services {
	s := Services{Native: true}
	next := func(a *netip.Addr) netip.Addr {
		*a = a.Next()
		return *a
	}
	cluster, external, balanced := netip.MustParseAddr("172.16.0.0"), netip.MustParseAddr("198.18.0.0"), netip.MustParseAddr("203.0.0.0")
	for i := range n {
		p := ServicePort{
			Protocol: intent.TCP, Port: 443, NodePort: uint16(10000 + i), ClusterIP: next(&cluster), ExternalLocal: true, Unserved: i%2 == 0,
			ExternalIPs: []netip.Addr{next(&external)}, LoadBalancerIPs: []netip.Addr{next(&balanced)},
			SourceRanges: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
		}
		s.Announced = append(s.Announced, p.LoadBalancerIPs[0])
		s.Ports = append(s.Ports, p)
	}
	return s
}

// TestManyServices writes 10,000 Services, changes one, and changes none.
func TestManyServices(t *testing.T) {
	veth(t, "gw0")
	h := newHost(t)
	t.Cleanup(func() { must(t, RemoveServices()); must(t, h.RemoveRoutes()) })
	for _, tc := range []struct {
		name string
		s    Services
	}{{"worst", many(10000)}, {"plain", plain(10000)}} {
		t.Run(tc.name, func(t *testing.T) {
			d := overlay("gw0")
			d.Services = tc.s
			timed := func(what string, limit time.Duration, writes func(int) bool) {
				t.Helper()
				start := time.Now()
				n, err := h.Apply(d)
				must(t, err)
				took := time.Since(start)
				t.Logf("%s: %v, %d writes", what, took, n)
				if !writes(n) || took > limit {
					t.Errorf("%s: %d writes in %v", what, n, took)
				}
			}
			// A machine that is busy, and the race detector, make all of it slower.
			timed("all", 20*time.Second, func(n int) bool { return n > 0 })
			timed("nothing", 5*time.Second, func(n int) bool { return n == 0 })
			d.Services.Ports = slices.Clone(d.Services.Ports)
			d.Services.Ports[77].Unserved = !d.Services.Ports[77].Unserved
			// A set, and the chains that ask it.
			timed("one", 5*time.Second, func(n int) bool { return n == 1 || n == 2 })
			h.doubt.Store(true)
			timed("after a doubt", 20*time.Second, func(n int) bool { return n == 0 })
			again := newHost(t)
			start := time.Now()
			n, err := again.Apply(d)
			t.Logf("another process: %v", time.Since(start))
			if n != 0 || err != nil {
				t.Errorf("another process: %d writes, %v", n, err)
			}
		})
	}
}

// plain are Services with ClusterIPs of a range alone.
func plain(n int) Services {
	s := Services{Native: true, Ranges: pfx("172.16.0.0/12")}
	for _, p := range many(n).Ports {
		s.Ports = append(s.Ports, ServicePort{Protocol: p.Protocol, Port: p.Port, ClusterIP: p.ClusterIP})
	}
	return s
}

// TestOneChangeOfManyIsSeenOnce has Run write the change of one Service, and not look at all of
// them for what it wrote itself.
func TestOneChangeOfManyIsSeenOnce(t *testing.T) {
	veth(t, "gw0")
	h := newHost(t)
	t.Cleanup(func() { must(t, RemoveServices()); must(t, h.RemoveRoutes()) })
	d := overlay("gw0")
	d.Services = plain(100)
	_, err := h.Apply(d)
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	defer func() { cancel(); must(t, <-done) }()
	time.Sleep(200 * time.Millisecond)
	h.applying.Lock()
	sets := h.services.sets
	h.applying.Unlock()
	d.Services.Ports = slices.Clone(d.Services.Ports)
	d.Services.Ports[7].Unserved = true
	h.Set(d)
	time.Sleep(200 * time.Millisecond)
	if h.doubt.Load() {
		t.Error("the Host doubts because of what it wrote itself")
	}
	h.applying.Lock()
	defer h.applying.Unlock()
	refused := slices.IndexFunc(h.services.sets, func(s set) bool { return s.name == "reject4" })
	if len(h.services.sets) != len(sets) || refused < 0 || len(h.services.sets[refused].elements) != 1 {
		t.Errorf("not written: %+v", h.services.sets)
	}
}

// TestChainsComeAndGo has Services without endpoints, and with source ranges, come and go: the
// table gets and loses chains for them, and all others stay as they are.
func TestChainsComeAndGo(t *testing.T) {
	veth(t, "gw0")
	h := newHost(t)
	t.Cleanup(func() { must(t, RemoveServices()); must(t, h.RemoveRoutes()) })
	d := overlay("gw0")
	d.Services = plain(10)
	chains := func() map[string]string {
		t.Helper()
		_, err := h.Apply(d)
		must(t, err)
		handles := map[string]string{}
		for line := range strings.Lines(run(t, "nft", "-a", "list", "chains", "inet")) {
			if name, handle, ok := strings.Cut(strings.TrimSpace(line), " { # handle "); ok {
				handles[name] = handle
			}
		}
		return handles
	}
	usual := chains()
	if usual["chain snat-postrouting"] == "" {
		t.Fatalf("no chains of Services: %v", usual)
	}
	for name, change := range map[string]func(*ServicePort){
		"chain reject-output": func(p *ServicePort) { p.Unserved = true },
		"chain sources-output": func(p *ServicePort) {
			p.LoadBalancerIPs = []netip.Addr{netip.MustParseAddr("203.0.113.5")}
			p.SourceRanges = pfx("198.51.100.0/24")
		},
	} {
		d.Services.Ports = slices.Clone(d.Services.Ports)
		change(&d.Services.Ports[7])
		more := chains()
		if more[name] == "" {
			t.Errorf("no %s: %v", name, more)
		}
		maps.DeleteFunc(more, func(name, _ string) bool { return usual[name] == "" })
		if !maps.Equal(more, usual) {
			t.Errorf("with %s the others were made anew: %v, before %v", name, more, usual)
		}
		d.Services = plain(10)
		if less := chains(); !maps.Equal(less, usual) {
			t.Errorf("without %s: %v, before %v", name, less, usual)
		}
	}
}

// TestManyChangesAreNotAFight has Run follow one change after the other without a rest: no other
// program is writing.
func TestManyChangesAreNotAFight(t *testing.T) {
	veth(t, "gw0")
	h := newHost(t)
	t.Cleanup(func() { must(t, RemoveServices()); must(t, h.RemoveRoutes()) })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	defer func() { cancel(); must(t, <-done) }()
	d := overlay("gw0")
	start := time.Now()
	for i := range 50 {
		d.Services = plain(51)
		d.Services.Ports[i].Unserved = true
		h.Set(d)
		eventually(t, "the change is written", func() bool {
			h.applying.Lock()
			defer h.applying.Unlock()
			return h.services.sets != nil && h.services.plan.of.equal(d.Services)
		})
	}
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("50 changes took %v", took)
	}
}
