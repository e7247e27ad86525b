// SPDX-License-Identifier: Apache-2.0

package streams

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"coelan.io/coelan/internal/backend/ovs/conntrack"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/packet"
)

// table is a fake conntrack that remembers marks: 1 is denied, 2 from the host.
type table struct {
	connections map[uint16][]conntrack.Connection
	failures    int // of the next calls of Mark
	many        bool
	forgotten   map[uint16][]netip.Addr
}

func (c *table) Each(_ context.Context, zone uint16, fn func(conntrack.Connection)) error {
	if c.many {
		return ErrTooMany
	}
	for _, k := range slices.Clone(c.connections[zone]) {
		fn(k)
	}
	return nil
}

func (c *table) Forget(_ context.Context, zone uint16, addresses []netip.Addr) error {
	c.forgotten[zone] = append(c.forgotten[zone], addresses...)
	return nil
}

func (c *table) Mark(_ context.Context, denied bool, which []conntrack.Connection) error {
	if c.failures > 0 {
		c.failures--
		return errors.New("the switch is away")
	}
	for _, w := range which {
		list := c.connections[w.Zone]
		i := slices.Index(list, w)
		list[i].Mark &^= 1
		if denied {
			list[i].Mark |= 1
		}
	}
	return nil
}

func (*table) Denied(mark uint32) bool       { return mark&1 != 0 }
func (*table) FromHost(mark uint32) bool     { return mark&2 != 0 }
func (*table) Settled(context.Context) error { return nil }

var discard = slog.New(slog.DiscardHandler)

const redID = 7

// cluster has Ports on the pod network, on the private Network red, and on the
// physical network wire.
func cluster(serviceMode intent.ServiceMode) intent.Objects {
	ip, prefix := netip.MustParseAddr, netip.MustParsePrefix
	port := func(name, network, node string, addresses ...string) intent.Port {
		p := intent.Port{ID: name, Namespace: "lab", Pod: name, Interface: "eth0", UID: name, Network: network, Node: node}
		for _, a := range addresses {
			p.Addresses = append(p.Addresses, ip(a))
		}
		return p
	}
	red := port("red", "red", "n1", "10.50.0.2")
	red.NodeAddresses = []netip.Addr{ip("10.244.1.9")}
	return intent.Objects{
		Local: intent.Local{Node: "n1", PolicyMode: intent.EnforcedPolicies, ServiceMode: serviceMode},
		Routers: []intent.Router{
			{Name: intent.DefaultRouterName, ID: intent.DefaultRouter, Shared: true}, {Name: "red", ID: redID, Routes: []intent.Route{{Destination: prefix("198.51.100.0/24"), NextHop: ip("10.50.0.9")}}},
		},
		Networks: []intent.Network{
			{Name: intent.DefaultNetworkName, ID: 1, Router: intent.DefaultRouterName},
			{Name: "red", ID: 2, Router: "red", Subnets: []intent.NetworkSubnet{{Prefix: prefix("10.50.0.0/24"), Gateway: ip("10.50.0.1")}}},
			{Name: "wire", ID: 3, Physical: "office", Subnets: []intent.NetworkSubnet{{Prefix: prefix("172.16.0.0/24")}}},
		},
		Ports:         []intent.Port{port("web", intent.DefaultNetworkName, "n1", "10.244.1.2"), port("db", intent.DefaultNetworkName, "n1", "10.244.1.3"), red, port("vm", "wire", "n1", "172.16.0.2")},
		ServiceRanges: []intent.ServiceRange{{Prefix: prefix("10.96.0.0/16")}},
		Subjects:      []intent.Subject{{Key: "pod/web"}, {Key: "pod/db"}, {Key: "pod/red"}, {Key: "pod/vm"}},
	}
}

// stream is a UDP connection that has been translated if the endpoint is another
// one than the destination.
func stream(zone uint16, src, dst, endpoint string, mark uint32) conntrack.Connection {
	from, to, real := netip.MustParseAddrPort(src), netip.MustParseAddrPort(dst), netip.MustParseAddrPort(endpoint)
	return conntrack.Connection{
		Protocol: udp, Zone: zone, Mark: mark,
		Orig:  conntrack.Tuple{Src: from.Addr(), Dst: to.Addr(), SrcPort: from.Port(), DstPort: to.Port()},
		Reply: conntrack.Tuple{Src: real.Addr(), Dst: from.Addr(), SrcPort: real.Port(), DstPort: from.Port()},
	}
}

func TestStreamsAreJudgedAnew(t *testing.T) {
	const client, web, vip = "10.244.2.2:1000", "10.244.1.2:53", "10.96.0.1:53"
	isolated := func(keys ...string) func(*intent.Objects) {
		return func(o *intent.Objects) {
			for i, s := range o.Subjects {
				if slices.Contains(keys, s.Key) {
					o.Subjects[i].IngressIsolation = []intent.PolicyRef{{Kind: intent.NetworkPolicy, Namespace: "lab", Name: "deny"}}
				}
			}
		}
	}
	isolatedOut := func(key string) func(*intent.Objects) {
		return func(o *intent.Objects) {
			for i, s := range o.Subjects {
				if s.Key == key {
					o.Subjects[i].EgressIsolation = []intent.PolicyRef{{Kind: intent.NetworkPolicy, Namespace: "lab", Name: "deny"}}
				}
			}
		}
	}
	for name, tc := range map[string]struct {
		mode   intent.ServiceMode
		change func(*intent.Objects)
		look   []string // Subjects with changed policies
		in     conntrack.Connection
		marked bool
	}{
		"allowed":                        {look: []string{"pod/web"}, in: stream(1, client, web, web, 0)},
		"denied":                         {change: isolated("pod/web"), look: []string{"pod/web"}, in: stream(1, client, web, web, 0), marked: true},
		"denied of old":                  {change: isolated("pod/web"), look: []string{"pod/web"}, in: stream(1, client, web, web, 1), marked: true},
		"allowed again":                  {look: []string{"pod/web"}, in: stream(1, client, web, web, 1)},
		"another Port's":                 {change: isolated("pod/web"), look: []string{"pod/db"}, in: stream(1, client, web, web, 0)},
		"through a Service":              {change: isolated("pod/web"), look: []string{"pod/web"}, in: stream(1, client, vip, web, 0), marked: true},
		"from the own node":              {change: isolated("pod/web"), look: []string{"pod/web"}, in: stream(1, "10.244.1.1:1000", web, web, 2), marked: false},
		"the sender's":                   {change: isolatedOut("pod/web"), look: []string{"pod/web"}, in: stream(1, "10.244.1.2:1000", "10.244.2.2:53", "10.244.2.2:53", 0), marked: true},
		"the other Port's":               {change: isolated("pod/db"), look: []string{"pod/web"}, in: stream(1, "10.244.1.2:1000", "10.244.1.3:53", "10.244.1.3:53", 1), marked: true},
		"to a Service that the kernel":   {mode: intent.KubeProxy, change: isolatedOut("pod/web"), look: []string{"pod/web"}, in: stream(1, "10.244.1.2:1000", vip, vip, 0)},
		"of a private Router":            {change: isolated("pod/red"), look: []string{"pod/red"}, in: stream(redID, "10.50.0.3:1000", "10.50.0.2:53", "10.50.0.2:53", 0), marked: true},
		"from elsewhere, in the cluster": {change: isolated("pod/red"), look: []string{"pod/red"}, in: stream(1, client, "10.244.1.9:53", "10.244.1.9:53", 0), marked: true},
		"from behind a static route":     {change: isolated("pod/red"), look: []string{"pod/red"}, in: stream(redID, "198.51.100.7:1000", "10.50.0.2:53", "10.50.0.2:53", 0), marked: true},
		"on a physical network":          {change: isolated("pod/vm"), look: []string{"pod/vm"}, in: stream(0xfffe, "192.0.2.1:1000", "172.16.0.2:53", "172.16.0.2:53", 0), marked: true},
		"from elsewhere, in its Router":  {change: isolated("pod/red"), look: []string{"pod/red"}, in: stream(redID, client, "10.50.0.2:53", "10.50.0.2:53", 0)},
	} {
		t.Run(name, func(t *testing.T) {
			mode := tc.mode
			if mode == "" {
				mode = intent.NativeServices
			}
			o := cluster(mode)
			if tc.change != nil {
				tc.change(&o)
			}
			store := intent.NewStore()
			if _, err := store.Update(func(tx *intent.Tx) error { tx.Replace(o); return nil }); err != nil {
				t.Fatal(err)
			}
			ct := &table{connections: map[uint16][]conntrack.Connection{tc.in.Zone: {tc.in}}}
			p := &Follower{Options: Options{Log: discard, Intent: store, Connections: ct}, stopped: map[string]bool{"pod/db": true}}
			look := map[string]bool{}
			for _, key := range tc.look {
				look[key] = true
			}
			if err := p.judge(t.Context(), look, true); err != nil {
				t.Fatal(err)
			}
			if got := ct.Denied(ct.connections[tc.in.Zone][0].Mark); got != tc.marked {
				t.Errorf("marked as denied: %v, want %v", got, tc.marked)
			}
			if stopped := p.stopped[tc.look[0]]; stopped != tc.marked || tc.look[0] != "pod/db" && !p.stopped["pod/db"] {
				t.Errorf("Subjects with streams that are denied: %v", p.stopped)
			}
		})
	}
}

func TestAffected(t *testing.T) {
	rule := func(id string, a intent.Action, groups ...string) intent.Rule {
		return intent.Rule{ID: id, Action: a, Groups: groups}
	}
	peer := func(groups ...string) intent.Peer {
		return intent.Peer{Space: "default", Address: netip.MustParseAddr("10.0.0.1"), Groups: groups}
	}
	base := func() intent.Objects {
		return intent.Objects{
			Rules:    []intent.Rule{rule("allow", intent.Allow, "a"), rule("deny", intent.Deny, "d")},
			Subjects: []intent.Subject{{Key: "pod/x", Rules: []string{"allow"}}, {Key: "pod/y", Rules: []string{"deny"}}, {Key: "pod/z"}},
			Peers:    []intent.Peer{peer("a")},
		}
	}
	another := func(o *intent.Objects) {
		o.Peers = append(o.Peers, intent.Peer{Space: "red", Address: netip.MustParseAddr("10.0.0.1"), Groups: []string{"a"}})
	}
	for name, tc := range map[string]struct {
		change  func(*intent.Objects)
		want    []string
		stopped string // the key of a Subject
	}{
		"nothing":              {change: func(*intent.Objects) {}},
		"a subject":            {change: func(o *intent.Objects) { o.Subjects[2].Rules = []string{"deny"} }, want: []string{"pod/z"}},
		"a rule":               {change: func(o *intent.Objects) { o.Rules[0].AnyPeer = true }, want: []string{"pod/x"}},
		"a peer goes":          {change: func(o *intent.Objects) { o.Peers = nil }, want: []string{"pod/x"}},
		"a peer to be denied":  {change: func(o *intent.Objects) { o.Peers[0] = peer("a", "d") }, want: []string{"pod/y"}},
		"a peer to be allowed": {change: another},
		"a peer to be allowed by who has stopped it":             {change: another, want: []string{"pod/x"}, stopped: "pod/x"},
		"a peer to be allowed by others than who has stopped it": {change: another, stopped: "pod/y"},
		"a subject that goes":                                    {change: func(o *intent.Objects) { o.Subjects = o.Subjects[:2] }, want: []string{"pod/z"}},
	} {
		t.Run(name, func(t *testing.T) {
			store := intent.NewStore()
			replace := func(o intent.Objects) *intent.State {
				s, err := store.Update(func(tx *intent.Tx) error { tx.Replace(o); return nil })
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			before := replace(base())
			o := base()
			tc.change(&o)
			if diff := cmp.Diff(tc.want, affected(before, replace(o), map[string]bool{tc.stopped: true}), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("affected (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDatagram(t *testing.T) {
	for _, c := range []conntrack.Connection{
		stream(1, "10.0.0.1:1000", "10.0.0.2:53", "10.0.0.2:53", 0), stream(1, "[fd00::1]:1000", "[fd00::2]:53", "[fd00::2]:53", 0),
	} {
		b := Datagram(c)[14:]
		header := 20
		pseudo := append(append([]byte{}, c.Orig.Src.AsSlice()...), c.Orig.Dst.AsSlice()...)
		if c.Orig.Src.Is6() {
			header = 40
		} else if sum := packet.Checksum(0, b[:header]); sum != 0 {
			t.Errorf("%v: checksum of the header is wrong by %#x", c.Orig.Src, sum)
		}
		if len(b) != header+8 {
			t.Fatalf("%v: %d bytes", c.Orig.Src, len(b))
		}
		if sum := packet.Checksum(0, append(append(pseudo, 0, udp, 0, 8), b[header:]...)); sum != 0 {
			t.Errorf("%v: checksum is wrong by %#x", c.Orig.Src, sum)
		}
	}
}

// What could not be marked is tried again, though no policy changes.
func TestStreamsAreJudgedUntilItWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		objects := cluster(intent.NativeServices)
		objects.Subjects[0].IngressIsolation = []intent.PolicyRef{{Kind: intent.NetworkPolicy, Namespace: "lab", Name: "deny"}}
		denied := stream(1, "10.244.2.2:1000", "10.244.1.2:53", "10.244.1.2:53", 0)
		tracked := &table{connections: map[uint16][]conntrack.Connection{1: {denied}}, failures: 3}
		store := intent.NewStore()
		if _, err := store.Update(func(tx *intent.Tx) error { tx.Replace(objects); return nil }); err != nil {
			t.Fatal(err)
		}
		p := New(Options{
			Log: discard, Intent: store, Connections: tracked,
			Applied: func(context.Context, uint64) error { return nil },
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- p.Run(ctx) }()
		time.Sleep(time.Hour)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if tracked.failures != 0 || !tracked.Denied(tracked.connections[1][0].Mark) {
			t.Errorf("after an hour, and with %d failures to come, the stream is not marked", tracked.failures)
		}
	})
}

// Connections that are too many to list are deleted, only of the Ports with changed policies.
func TestTooManyStreams(t *testing.T) {
	objects := cluster(intent.NativeServices)
	tracked := &table{many: true, forgotten: map[uint16][]netip.Addr{}}
	store := intent.NewStore()
	state, err := store.Update(func(tx *intent.Tx) error { tx.Replace(objects); return nil })
	if err != nil {
		t.Fatal(err)
	}
	p := &Follower{Options: Options{Log: discard, Intent: store, Connections: tracked}, stopped: map[string]bool{}}
	var changed intent.Port
	for port := range state.PortsWith(netip.MustParseAddr("10.244.1.2")) {
		changed = port
	}
	look := map[string]bool{changed.SubjectKey(): true}
	if err := p.judge(t.Context(), look, false); err != nil {
		t.Fatal(err)
	}
	if len(tracked.forgotten) > 0 {
		t.Errorf("forgotten while packets may follow older flows, which would track them again: %v", tracked.forgotten)
	}
	if err := p.judge(t.Context(), look, true); err != nil {
		t.Fatal(err)
	}
	want := map[uint16][]netip.Addr{1: slices.SortedFunc(slices.Values(changed.Addresses), netip.Addr.Compare)}
	if diff := cmp.Diff(want, tracked.forgotten, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("forgotten, by zone (-want +got):\n%s", diff)
	}
}

// A change of policies that is on the switch has the connections looked at, before it is not.
func TestPoliciesAreFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		objects := cluster(intent.NativeServices)
		runs := stream(1, "10.244.2.2:1000", "10.244.1.2:53", "10.244.1.2:53", 0)
		tracked := &table{connections: map[uint16][]conntrack.Connection{1: {runs}}}
		store, applied := intent.NewStore(), make(chan bool)
		replace := func() {
			if _, err := store.Update(func(tx *intent.Tx) error { tx.Replace(objects); return nil }); err != nil {
				t.Fatal(err)
			}
		}
		replace()
		f := New(Options{Log: discard, Intent: store, Connections: tracked, Applied: func(ctx context.Context, _ uint64) error {
			select {
			case <-applied:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- f.Run(ctx) }()
		denied := func() bool {
			time.Sleep(time.Hour)
			synctest.Wait()
			return tracked.Denied(tracked.connections[1][0].Mark)
		}
		applied <- true
		if denied() {
			t.Error("a stream is denied that no policy denies")
		}
		objects.Subjects = slices.Clone(objects.Subjects)
		objects.Subjects[0].IngressIsolation = []intent.PolicyRef{{Kind: intent.NetworkPolicy, Namespace: "lab", Name: "deny"}}
		replace()
		if denied() {
			t.Error("a stream is marked before the flows are on the switch that deny its answers")
		}
		applied <- true
		if !denied() {
			t.Error("a stream that a policy denies now goes on")
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
