// SPDX-License-Identifier: Apache-2.0

package ctlimit

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/backend/ovs/appctl"
	"coelan.io/coelan/internal/backend/ovs/pipeline"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
)

// fake is the conntrack of an ovs-vswitchd.
type fake struct {
	mu      sync.Mutex
	limits  map[uint16]appctl.ZoneLimit
	entries int
	err     error
	calls   int
}

const size = 3_000_000

func (f *fake) answer() error {
	f.calls++
	return f.err
}

func (f *fake) Table(context.Context, intent.Datapath) (int, int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.entries, size, f.answer()
}

func (f *fake) Limits(context.Context, intent.Datapath) (map[uint16]appctl.ZoneLimit, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.limits), f.answer()
}

func (f *fake) SetLimits(_ context.Context, _ intent.Datapath, limits map[uint16]int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.answer(); err != nil {
		return err
	}
	for z, n := range limits {
		f.limits[z] = appctl.ZoneLimit{Limit: n, Count: f.limits[z].Count}
	}
	return nil
}

func (f *fake) DeleteLimits(_ context.Context, _ intent.Datapath, zones []uint16) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.answer(); err != nil {
		return err
	}
	for _, z := range zones {
		delete(f.limits, z)
	}
	return nil
}

// set makes the daemon another one: it has these limits, and answers with an error if there is one.
func (f *fake) set(limits map[uint16]int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.limits, f.err, f.calls = map[uint16]appctl.ZoneLimit{}, err, 0
	for z, n := range limits {
		f.limits[z] = appctl.ZoneLimit{Limit: n}
	}
}

func (f *fake) has() map[uint16]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	has := map[uint16]int{}
	for z, l := range f.limits {
		has[z] = l.Limit
	}
	return has
}

func (f *fake) asked() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

func update(t *testing.T, s *intent.Store, change func(*intent.Tx)) {
	t.Helper()
	if _, err := s.Update(func(tx *intent.Tx) error { change(tx); return nil }); err != nil {
		t.Fatal(err)
	}
}

func routers(list ...intent.Router) func(*intent.Tx) {
	return func(tx *intent.Tx) {
		list := append([]intent.Router{{Name: intent.DefaultRouterName, ID: intent.DefaultRouter, VNI: 1, Shared: true}}, list...)
		tx.ReplaceNetworks(list, nil, nil)
	}
}

var (
	red    = intent.Router{Name: "red", ID: 7, VNI: 70007}
	blue   = intent.Router{Name: "blue", ID: 8, VNI: 70008}
	shared = intent.Router{Name: "shared", ID: 9, VNI: 70009, Shared: true}
)

func TestZones(t *testing.T) {
	s := intent.NewStore()
	update(t, s, routers(red, blue, shared))
	state := s.State()
	gateway := intent.NewStore()
	update(t, gateway, routers(red, blue, shared))
	update(t, gateway, func(tx *intent.Tx) {
		tx.SetLocal(intent.Local{Node: "n1"})
		for i, g := range []intent.GatewayAddress{{Router: "red", Node: "n1"}, {Router: "default", Node: "n1"}, {Router: "gone", Node: "n1"}, {Router: "default", Node: "n2"}} {
			g.Network, g.Address = "office", netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})
			tx.SetGatewayAddress(g)
		}
		for i, e := range []intent.EgressAddress{{Router: "blue", Nodes: []string{"n0", "n1"}}, {Router: "shared", Nodes: []string{"n2"}}} {
			e.Network, e.Address = "office", netip.AddrFrom4([4]byte{192, 0, 2, byte(100 + i)})
			tx.SetEgressAddress(e)
		}
	})
	want := map[uint16]zone{
		1: {"default", false, 500}, 7: {"red", false, 20}, 8: {"blue", false, 20}, 1<<15 + 1: {"default", true, 500},
		1<<15 + 7: {"red", true, 20}, 1<<15 + 8: {"blue", true, 20},
		65534: {Physical, false, 20}, 65535: {Hairpin, false, 20},
	}
	got := zonesOf(gateway.State(), config.Conntrack{MaxDefault: 500, MaxPerRouter: 20}, size)
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(zone{})); diff != "" {
		t.Errorf("gateways (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(pipeline.Zones(gateway.State()), slices.Sorted(maps.Keys(got))); diff != "" {
		t.Errorf("gateways: zones of connections (-pipeline +limits):\n%s", diff)
	}
	for name, tc := range map[string]struct {
		settings config.Conntrack
		table    int
		want     map[uint16]zone
	}{
		"shares": {config.Conntrack{}, size, map[uint16]zone{
			1: {"default", false, 1_500_000}, 7: {"red", false, 300_000}, 8: {"blue", false, 300_000}, 65534: {Physical, false, 300_000}, 65535: {Hairpin, false, 300_000},
		}},
		"settings": {config.Conntrack{MaxDefault: 500, MaxPerRouter: 20}, size, map[uint16]zone{
			1: {"default", false, 500}, 7: {"red", false, 20}, 8: {"blue", false, 20}, 65534: {Physical, false, 20}, 65535: {Hairpin, false, 20},
		}},
		"a tiny table": {config.Conntrack{}, 3, map[uint16]zone{
			1: {"default", false, 1}, 7: {"red", false, 1}, 8: {"blue", false, 1}, 65534: {Physical, false, 1}, 65535: {Hairpin, false, 1},
		}},
	} {
		got := zonesOf(state, tc.settings, tc.table)
		if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(zone{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(pipeline.Zones(state), slices.Sorted(maps.Keys(got))); diff != "" {
			t.Errorf("%s: zones that flows use (-) and that have limits (+):\n%s", name, diff)
		}
	}
}

func TestFollow(t *testing.T) {
	full := map[uint16]int{1: 1_500_000, 7: 300_000, 65534: 300_000, 65535: 300_000}
	with := func(zone uint16, n int) map[uint16]int {
		m := maps.Clone(full)
		m[zone] = n
		return m
	}
	for name, tc := range map[string]struct {
		limits     config.ConntrackLimits
		datapath   intent.Datapath
		have, want map[uint16]int
		calls      int
	}{
		"none yet":                            {config.AutoLimits, intent.DatapathNetdev, nil, full, 3},
		"those that are there stay":           {config.AutoLimits, intent.DatapathNetdev, full, full, 2},
		"a changed one is set again":          {config.AutoLimits, intent.DatapathNetdev, with(7, 5), full, 3},
		"another bridge's zone is left alone": {config.AutoLimits, intent.DatapathNetdev, map[uint16]int{99: 5}, with(99, 5), 3},
		"the kernel's datapath has none":      {config.AutoLimits, intent.DatapathSystem, nil, map[uint16]int{}, 0},
		"an administrator's on the kernel's":  {config.AutoLimits, intent.DatapathSystem, map[uint16]int{1: 5}, map[uint16]int{1: 5}, 0},
		"the kernel's if asked for":           {config.AlwaysLimits, intent.DatapathSystem, nil, full, 3},
		"turned off":                          {config.NeverLimits, intent.DatapathNetdev, with(99, 5), map[uint16]int{99: 5}, 2},
		"never were":                          {config.NeverLimits, intent.DatapathSystem, nil, map[uint16]int{}, 1},
		"datapath not known yet":              {config.AutoLimits, "", nil, map[uint16]int{}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f, s := &fake{}, intent.NewStore()
			f.set(tc.have, nil)
			update(t, s, routers(red))
			update(t, s, func(tx *intent.Tx) { tx.SetLocal(intent.Local{Node: "n1", Datapath: tc.datapath}) })
			l := New(slog.New(slog.DiscardHandler), config.Conntrack{Limits: tc.limits}, s, f)
			if err := l.follow(t.Context(), s.State(), true); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, f.has()); diff != "" {
				t.Errorf("limits (-want +got):\n%s", diff)
			}
			if n := f.asked(); n != tc.calls {
				t.Errorf("%d calls of ovs-vswitchd, want %d", n, tc.calls)
			}
		})
	}
}

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := &fake{}, intent.NewStore()
		f.set(nil, nil)
		l := New(slog.New(slog.DiscardHandler), config.Conntrack{Limits: config.AutoLimits, MaxDefault: 50, MaxPerRouter: 10}, s, f)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- l.Run(ctx) }()
		defer func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}()
		expect := func(when string, want map[uint16]int) {
			t.Helper()
			synctest.Wait()
			if diff := cmp.Diff(want, f.has()); diff != "" {
				t.Errorf("%s: limits (-want +got):\n%s", when, diff)
			}
		}
		expect("before the datapath is known", map[uint16]int{})
		update(t, s, func(tx *intent.Tx) { tx.SetLocal(intent.Local{Node: "n1", Datapath: intent.DatapathNetdev}) })
		expect("at first", map[uint16]int{1: 50, 65534: 10, 65535: 10})
		update(t, s, routers(red, blue))
		expect("Routers come", map[uint16]int{1: 50, 7: 10, 8: 10, 65534: 10, 65535: 10})
		update(t, s, routers(blue))
		expect("a Router goes", map[uint16]int{1: 50, 8: 10, 65534: 10, 65535: 10})
		office := netip.MustParseAddr("198.51.100.40")
		update(t, s, func(tx *intent.Tx) {
			tx.SetGatewayAddress(intent.GatewayAddress{Router: "blue", Node: "n1", Network: "office", Address: office})
		})
		expect("a gateway comes", map[uint16]int{1: 50, 8: 10, 1<<15 + 8: 10, 65534: 10, 65535: 10})
		update(t, s, func(tx *intent.Tx) {
			tx.DeleteGatewayAddress("office", office)
			tx.SetEgressAddress(intent.EgressAddress{Router: "red", Nodes: []string{"n1"}, Network: "office", Address: office})
		})
		expect("an address of a Router that is gone", map[uint16]int{1: 50, 8: 10, 65534: 10, 65535: 10})
		update(t, s, func(tx *intent.Tx) {
			tx.SetEgressAddress(intent.EgressAddress{Router: "blue", Nodes: []string{"n1"}, Network: "office", Address: office})
		})
		expect("the node may be active for a gateway", map[uint16]int{1: 50, 8: 10, 1<<15 + 8: 10, 65534: 10, 65535: 10})
		update(t, s, func(tx *intent.Tx) { tx.DeleteEgressAddress("office", office) })
		expect("a gateway goes", map[uint16]int{1: 50, 8: 10, 65534: 10, 65535: 10})

		before := f.asked()
		update(t, s, func(tx *intent.Tx) { tx.SetLocal(intent.Local{Node: "n1", Datapath: intent.DatapathNetdev, MTU: 1400}) })
		synctest.Wait()
		if n := f.asked(); n != before {
			t.Errorf("%d calls of ovs-vswitchd for a change that is not about Routers", n-before)
		}

		f.set(nil, nil) // it has restarted
		l.Renew()
		expect("ovs-vswitchd restarts", map[uint16]int{1: 50, 8: 10, 65534: 10, 65535: 10})

		refusal := errors.New(`"dpctl/ct-set-limits" is not a valid command`)
		f.set(nil, refusal)
		l.Renew()
		synctest.Wait()
		if err := l.Problem(); !errors.Is(err, refusal) {
			t.Errorf("problem %v, want one that says %v", err, refusal)
		}
		f.set(nil, nil)
		time.Sleep(maxPause)
		expect("it answers again", map[uint16]int{1: 50, 8: 10, 65534: 10, 65535: 10})
		if err := l.Problem(); err != nil {
			t.Errorf("problem %v is still there", err)
		}
	})
}

func TestUsage(t *testing.T) {
	f, s := &fake{entries: 2_400_001}, intent.NewStore()
	f.set(map[uint16]int{99: 1}, nil)
	update(t, s, routers(red, blue))
	update(t, s, func(tx *intent.Tx) {
		tx.SetLocal(intent.Local{Node: "n1", Datapath: intent.DatapathNetdev})
		tx.SetGatewayAddress(intent.GatewayAddress{Router: "red", Node: "n1", Network: "office", Address: netip.MustParseAddr("198.51.100.40")})
	})
	l := New(slog.New(slog.DiscardHandler), config.Conntrack{Limits: config.AutoLimits, MaxDefault: 50, MaxPerRouter: 10}, s, f)
	if err := l.follow(t.Context(), s.State(), true); err != nil {
		t.Fatal(err)
	}
	f.limits[7], f.limits[8] = appctl.ZoneLimit{Limit: 10, Count: 9}, appctl.ZoneLimit{Limit: 10, Count: 8}
	f.limits[1<<15+7] = appctl.ZoneLimit{Limit: 10, Count: 10}
	u, err := l.Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := Usage{Entries: 2_400_001, Size: size, Zones: []Zone{
		{"default", false, 0, 50}, {"red", false, 9, 10}, {"blue", false, 8, 10}, {"red", true, 10, 10}, {Physical, false, 0, 10},
		{Hairpin, false, 0, 10},
	}}
	if diff := cmp.Diff(want, u); diff != "" {
		t.Errorf("usage (-want +got):\n%s", diff)
	}
	found := slices.Sorted(maps.Keys(u.Findings()))
	if diff := cmp.Diff([]string{"Router red", "gateway of Router red", "table"}, found); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}
