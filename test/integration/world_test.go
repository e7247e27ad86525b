// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// world is a cluster of two nodes with four pods.
type world struct {
	*lab.Lab
	n1, n2  *lab.Node
	a, b, d *lab.Pod // on n1
	c       *lab.Pod // on n2
}

func newWorld(ctx context.Context, o lab.Options) (*world, error) {
	l, err := lab.Start(ctx, o)
	w := &world{Lab: l}
	if err != nil {
		return w, err
	}
	w.n1, w.n2 = l.Nodes[0], l.Nodes[1]
	for _, p := range []struct {
		pod  **lab.Pod
		node *lab.Node
		name string
	}{{&w.a, w.n1, "a"}, {&w.b, w.n1, "b"}, {&w.d, w.n1, "d"}, {&w.c, w.n2, "c"}} {
		if *p.pod, err = p.node.AddPod(ctx, p.name); err != nil {
			return w, err
		}
	}
	return w, nil
}

// start makes a world of the test's own.
func start(t *testing.T, o lab.Options) *world {
	t.Helper()
	w, err := newWorld(t.Context(), o)
	t.Cleanup(w.Close)
	w.ReportOn(t)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// sharedLab is a world of the tests that leave it as it was.
type sharedLab struct {
	once sync.Once
	w    *world
	err  error
}

// shared is the world of most tests. In proxied, Services are kube-proxy's, which tests play.
var shared, proxied sharedLab

// excluded is the outside's address that pods reach with their own addresses.
var excluded = []netip.Prefix{netip.MustParsePrefix("203.0.113.77/32"), netip.MustParsePrefix("2001:db8:113::77/128")}

func sharedWorld(t *testing.T) *world {
	t.Helper()
	return shared.of(t, func(*config.Config) {})
}

func proxiedWorld(t *testing.T) *world {
	t.Helper()
	return proxied.of(t, proxiedServices)
}

// proxiedServices leaves Services to kube-proxy.
func proxiedServices(c *config.Config) { c.Services.Mode = config.KubeProxy }

func (l *sharedLab) of(t *testing.T, configure func(*config.Config)) *world {
	t.Helper()
	l.once.Do(func() {
		l.w, l.err = newWorld(context.Background(), lab.Options{Configure: func(c *config.Config) {
			c.SNAT.ExcludeCIDRs = excluded
			configure(c)
		}})
	})
	l.w.ReportOn(t)
	if l.err != nil {
		t.Fatal(l.err)
	}
	return l.w
}

func TestMain(m *testing.M) {
	lab.Main(m, func() {
		for _, l := range []*sharedLab{&shared, &proxied} {
			if l.w != nil {
				l.w.Close()
			}
		}
	})
}

// eachFamily runs a subtest for IPv4 and one for IPv6.
func eachFamily(t *testing.T, test func(*testing.T, lab.Family)) {
	t.Helper()
	for f := range lab.Dual.Each {
		t.Run(f.String(), func(t *testing.T) { test(t, f) })
	}
}

// ping sends echo requests and fails the test only if that cannot be done.
func ping(t *testing.T, from probe.Netns, p probe.Ping) probe.PingResult {
	t.Helper()
	r, err := p.Run(t.Context(), from)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// wire listens on a host's eth0 until the test ends.
func wire(t *testing.T, h *lab.Host) *probe.Wire {
	t.Helper()
	w, err := probe.OpenWire(h, "eth0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

// serve runs a TCP server until the test ends.
func serve(t *testing.T, h probe.Netns, at netip.AddrPort, handle func(net.Conn)) {
	t.Helper()
	s, err := probe.Serve(h, at, handle)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
}

// run runs a program on a host, also while the test cleans up.
func run(t *testing.T, h *lab.Host, name string, args ...string) string {
	t.Helper()
	out, err := h.Run(context.WithoutCancel(t.Context()), name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// iptables adds a rule of the address's family until the test ends.
func iptables(t *testing.T, h *lab.Host, f lab.Family, rule ...string) {
	t.Helper()
	tool := map[lab.Family]string{lab.IPv4: "iptables", lab.IPv6: "ip6tables"}[f]
	run(t, h, tool, append([]string{"-w", "-t", "nat", "-A"}, rule...)...)
	t.Cleanup(func() { run(t, h, tool, append([]string{"-w", "-t", "nat", "-D"}, rule...)...) })
}

// within bounds a step of a test.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), d, fmt.Errorf("not within %s", d))
	t.Cleanup(cancel)
	return ctx
}
