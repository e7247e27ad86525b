// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// tables are what an ovs-vswitchd was told.
type tables struct {
	entries chan string

	mu      sync.Mutex
	routes  map[netip.Addr]TunnelRoute
	written int
	// refused is a gateway that is on no link of the bridge.
	refused netip.Addr
}

func newTables() *tables {
	return &tables{entries: make(chan string, 16), routes: map[netip.Addr]TunnelRoute{}}
}

func (s *tables) SetNeighbour(_ context.Context, bridge string, ip netip.Addr, mac net.HardwareAddr) error {
	s.entries <- bridge + " " + ip.String() + " " + mac.String()
	return nil
}

func (s *tables) HostRoutes(context.Context) ([]TunnelRoute, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]TunnelRoute, 0, len(s.routes))
	for _, r := range s.routes {
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b TunnelRoute) int { return a.Dst.Compare(b.Dst) })
	return list, nil
}

func (s *tables) SetRoute(_ context.Context, r TunnelRoute) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Gateway.IsValid() && r.Gateway == s.refused {
		return errors.New("error while inserting route")
	}
	s.routes[r.Dst] = r
	s.written++
	return nil
}

func (s *tables) DeleteRoute(_ context.Context, dst netip.Addr) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.routes, dst)
	return nil
}

// clear is the end of ovs-vswitchd.
func (s *tables) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.routes)
}

// count is how many routes were written in all.
func (s *tables) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written
}

func (s *tables) expect(t *testing.T, want string) {
	t.Helper()
	select {
	case got := <-s.entries:
		if got != want {
			t.Errorf("got entry %q, want %q", got, want)
		}
	case <-time.After(5 * time.Second):
		t.Fatalf("entry %q never came", want)
	}
}

// has waits for exactly these routes.
func (s *tables) has(t *testing.T, when string, want ...TunnelRoute) {
	t.Helper()
	slices.SortFunc(want, func(a, b TunnelRoute) int { return a.Dst.Compare(b.Dst) })
	var diff string
	for deadline := time.Now().Add(3 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		got, _ := s.HostRoutes(t.Context())
		if diff = cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty()); diff == "" {
			return
		}
	}
	t.Fatalf("%s: routes (-want +got):\n%s", when, diff)
}

func TestTunnelRoutesBecome(t *testing.T) {
	a, b, c := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("2001:db8::3")
	on := func(dev string, dst netip.Addr) TunnelRoute { return TunnelRoute{Dst: dst, Dev: dev} }
	via := func(dst netip.Addr, gateway string) TunnelRoute {
		return TunnelRoute{Dst: dst, Dev: "br0", Gateway: netip.MustParseAddr(gateway)}
	}
	tests := []struct {
		name            string
		written, want   []TunnelRoute
		after           []TunnelRoute
		sets            int
		bridge, refused string
	}{
		{name: "nothing changes", written: []TunnelRoute{on("br0", a)}, want: []TunnelRoute{on("br0", a)}, after: []TunnelRoute{on("br0", a)}},
		{name: "one more, one less", written: []TunnelRoute{on("br0", a)}, want: []TunnelRoute{on("br0", c)}, after: []TunnelRoute{on("br0", c)}, sets: 1},
		{name: "another next hop", written: []TunnelRoute{via(a, "10.0.0.1")}, want: []TunnelRoute{via(a, "10.0.0.2")}, after: []TunnelRoute{via(a, "10.0.0.2")}, sets: 1},
		{name: "all are written again on another bridge", bridge: "br1", written: []TunnelRoute{on("br0", a), on("br0", b)},
			want: []TunnelRoute{on("br1", b)}, after: []TunnelRoute{on("br1", b)}, sets: 1},
		{name: "none is better than a wrong one", written: []TunnelRoute{on("br0", a), on("br0", b)}, want: []TunnelRoute{via(a, "10.0.0.3"), on("br0", b)},
			after: []TunnelRoute{on("br0", b)}, refused: "10.0.0.3"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newTables()
			routes := tunnelRoutes{basis: basis{bridge: "br0"}, written: map[netip.Addr]TunnelRoute{}}
			for _, r := range tt.written {
				if err := s.SetRoute(t.Context(), r); err != nil {
					t.Fatal(err)
				}
				routes.written[r.Dst] = r
			}
			before := s.count()
			if tt.bridge != "" {
				found, _ := s.HostRoutes(t.Context())
				routes.rest(basis{bridge: tt.bridge}, found)
			}
			if tt.refused != "" {
				s.refused = netip.MustParseAddr(tt.refused)
			}
			want := map[netip.Addr]TunnelRoute{}
			for _, r := range tt.want {
				want[r.Dst] = r
			}
			if err := routes.become(t.Context(), s, want); (err != nil) != (tt.refused != "") {
				t.Errorf("become: %v", err)
			}
			s.has(t, "afterwards", tt.after...)
			if n := s.count() - before; n != tt.sets {
				t.Errorf("%d routes were written, want %d", n, tt.sets)
			}
		})
	}
}
