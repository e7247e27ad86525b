// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/backend/ovs/failover"
	"coelan.io/coelan/internal/backend/ovs/ovsdb"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/packet"
	"coelan.io/coelan/internal/reserved"
)

var egressKey = failover.Key{Network: "office", Address: netip.MustParseAddr("192.0.2.30")}

// egressState is a State of a node in a cluster of four; n4 has no address of the tunnels' family.
func egressState(t *testing.T, s *intent.Store, node string, encapsulation intent.Encapsulation, candidates ...string) *intent.State {
	t.Helper()
	state, err := s.Update(func(tx *intent.Tx) error {
		tx.SetLocal(intent.Local{
			Node: node, Datapath: intent.DatapathNetdev, Encapsulation: encapsulation, TunnelIP: netip.MustParseAddr("192.0.2.1"),
		})
		tx.ReplaceNodes([]intent.Node{
			{Name: "n1", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}},
			{Name: "n2", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.2")}},
			{Name: "n3", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.3")}},
			{Name: "n4", Addresses: []netip.Addr{netip.MustParseAddr("2001:db8::4")}},
		})
		tx.DeleteEgressAddress(egressKey.Network, egressKey.Address)
		if len(candidates) > 0 {
			tx.SetEgressAddress(intent.EgressAddress{
				Network: egressKey.Network, Address: egressKey.Address, Router: "red", Nodes: candidates,
			})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// A node that may be active has a session with each other node, and each of these one with it.
func TestSessions(t *testing.T) {
	for _, tc := range []struct {
		node          string
		encapsulation intent.Encapsulation
		candidates    []string
		want          []string
	}{
		{"n1", intent.VXLAN, nil, nil},
		{"n1", intent.VXLAN, []string{"n1"}, []string{"n2", "n3"}},
		{"n1", intent.VXLAN, []string{"n1", "n2"}, []string{"n2", "n3"}},
		{"n3", intent.Geneve, []string{"n1", "n2"}, []string{"n1", "n2"}},
		{"n3", intent.VXLAN, []string{"n4"}, nil},
		{"n1", intent.NoEncap, []string{"n1", "n2"}, nil},
		{"", intent.VXLAN, []string{"n1", "n2"}, nil},
	} {
		state := egressState(t, intent.NewStore(), tc.node, tc.encapsulation, tc.candidates...)
		got := sessions(state)
		if diff := cmp.Diff(tc.want, slices.Sorted(maps.Keys(got))); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", tc, diff)
		}
		for node, p := range got {
			if len(p.Name) > 15 || p.ExternalIDs[idNode] != node || p.Options["key"] != "0" || p.Type != string(tc.encapsulation) {
				t.Errorf("%s: %+v", node, p)
			}
		}
	}
}

// Other sessions are asked for whenever those of the database are not the wanted ones, also when
// there are as many.
func TestSessionsDiffer(t *testing.T) {
	store := intent.NewStore()
	for _, tc := range []struct {
		have, want []string
		differ     bool
	}{
		{nil, nil, false},
		{nil, []string{"n1"}, true},
		{[]string{"n1"}, []string{"n1"}, false},
		{[]string{"n1"}, []string{"n2"}, true},
		{[]string{"n1"}, []string{"n1", "n2"}, true},
		{[]string{"n1", "n2"}, []string{"n1"}, true},
		{[]string{"n1"}, nil, true},
	} {
		ports := []ovsdb.PortState{{Port: ovsdb.Port{Name: "of a pod"}, Bridge: "coelan"}}
		for _, p := range sessions(egressState(t, store, "n3", intent.VXLAN, tc.have...)) {
			ports = append(ports, ovsdb.PortState{Port: p, Bridge: sessionBridge})
		}
		wanted := sessions(egressState(t, store, "n3", intent.VXLAN, tc.want...))
		if got := differ(wanted, ports); got != tc.differ {
			t.Errorf("with sessions with %v, with %v wanted: %v, want %v", tc.have, tc.want, got, tc.differ)
		}
	}
}

// The bridge of the sessions is there while there are any.
func TestSessionsOnTheSwitch(t *testing.T) {
	m := newMachine(t)
	n := m.start(m.testConfig())
	store := intent.NewStore()
	for _, step := range []struct {
		candidates []string
		ports      int
	}{{[]string{"n1"}, 2}, {[]string{"n1"}, 2}, {nil, 0}, {nil, 0}} {
		state := egressState(t, store, "n1", intent.VXLAN, step.candidates...)
		if err := ensureSessions(t.Context(), n.clients.db, state); err != nil {
			t.Fatal(err)
		}
		ports, err := n.clients.db.Ports(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ports = slices.DeleteFunc(ports, func(p ovsdb.PortState) bool { return p.Bridge != sessionBridge })
		bridges, err := n.clients.db.Bridges(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		there := slices.ContainsFunc(bridges, func(b ovsdb.BridgeState) bool { return b.Name == sessionBridge })
		if len(ports) != step.ports || there != (step.ports > 0) {
			t.Errorf("candidates %v: %d ports, bridge %v; want %d", step.candidates, len(ports), there, step.ports)
		}
	}
}

// newTestEgress is one of n1 on a new machine.
func newTestEgress(t *testing.T, boot string, saved map[string][]byte) *egress {
	t.Helper()
	b := testBackend(t, nil)
	if err := b.Attachments.SaveObjects(kindEgress, saved); err != nil {
		t.Fatal(err)
	}
	b.Hooks.EgressClaims = func([]backend.ExternalAddress) {}
	return newEgress(b.Options, b.numbers, boot)
}

// A node is in reach while its session is up. A session that is new has some time to come up; one
// that was up is down at once.
func TestReach(t *testing.T) {
	e := newTestEgress(t, "b1", nil)
	state := egressState(t, e.intent, "n1", intent.VXLAN, "n1", "n2", "n3")
	wanted := sessions(state)
	now := time.Unix(1e9, 0)
	for _, step := range []struct {
		after  time.Duration
		n2, n3 string
		want   string
	}{
		{0, "", "down", "map[n2:true n3:true]"},
		{grace - 1, "init", "down", "map[n2:true n3:true]"},
		{1, "up", "down", "map[n2:true n3:false]"},
		{time.Hour, "up", "up", "map[n2:true n3:true]"},
		{1, "down", "up", "map[n2:false n3:true]"},
		{1, "up", "init", "map[n2:true n3:false]"},
	} {
		now = now.Add(step.after)
		var ports []ovsdb.PortState
		for node, text := range map[string]string{"n2": step.n2, "n3": step.n3} {
			if text != "" {
				ports = append(ports, ovsdb.PortState{Port: wanted[node], Bridge: sessionBridge, BFDState: text})
			}
		}
		alive, _ := e.look(wanted, ports, now)
		if got := fmt.Sprint(alive); got != step.want {
			t.Errorf("after %v, %q and %q: %s, want %s", step.after, step.n2, step.n3, got, step.want)
		}
	}
}

// What was active before a restart of the agent is so in the first flows, but not after a boot.
func TestEgressRemembered(t *testing.T) {
	saved := map[string][]byte{"office/192.0.2.30": []byte("b1 n1"), "office/nonsense": []byte("b1 n1"), "office/192.0.2.31": []byte("n2")}
	for boot, want := range map[string]string{"b1": "n1", "b2": ""} {
		e := newTestEgress(t, boot, saved)
		d := e.machine.Decide(time.Unix(1e9, 0))
		if got := d.States[egressKey].Active; got != want || len(d.States) != 1 {
			t.Errorf("boot %s: %+v, want active %q", boot, d.States, want)
		}
		if err := e.save(map[failover.Key]failover.State{egressKey: {Active: "n2"}, {Network: "lab", Address: egressKey.Address}: {}}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string][]byte{"office/192.0.2.30": []byte(boot + " n2")}, e.store.Objects(kindEgress)); diff != "" {
			t.Errorf("saved (-want +got):\n%s", diff)
		}
	}
}

// The node asks by a MAC of its own, and remembers what it has decided.
func TestEgressDecides(t *testing.T) {
	e := newTestEgress(t, "b1", nil)
	e.db = emptySessions{}
	own := reserved.ProbeMAC("n1")
	var sent [][]byte
	e.send = func(_ context.Context, network string, frame []byte) error {
		sent = append(sent, frame)
		return nil
	}
	changes := 0
	e.changed, e.sessions = func() { changes++ }, func() {}
	e.ask(t.Context(), []failover.Key{egressKey})
	if target, ok := packet.ParseQuestion(sent[0]); !ok || target != egressKey.Address || string(sent[0][6:12]) != string(own[:]) {
		t.Errorf("asked by %x", sent[0])
	}
	var claimed []backend.ExternalAddress
	e.hooks.EgressClaims = func(list []backend.ExternalAddress) { claimed = list }
	state := egressState(t, e.intent, "n1", intent.NoEncap, "n1")
	for _, last := range []*intent.State{nil, state} {
		if _, err := e.step(t.Context(), last, state); err != nil {
			t.Fatal(err)
		}
	}
	want := []backend.ExternalAddress{backend.ExternalAddress(egressKey)}
	if e.states[egressKey].Active != "n1" || changes != 1 || !slices.Equal(claimed, want) {
		t.Errorf("states %+v, %d changes, claims %v; want the node active, and said once", e.states, changes, claimed)
	}
	if got := string(e.store.Objects(kindEgress)["office/192.0.2.30"]); got != "b1 n1" {
		t.Errorf("remembered is %q", got)
	}
}

// An answer to the node's own question has it not become active; its own frames mean nothing.
func TestEgressHears(t *testing.T) {
	e := newTestEgress(t, "b1", nil)
	own, other := reserved.ProbeMAC("n1"), reserved.PodMAC(egressKey.Address)
	answer := packet.Ethernet(own[:], other[:], packet.TypeARP,
		packet.ARP(packet.ARPReply, other[:], egressKey.Address, own[:], netip.IPv4Unspecified()))
	question := packet.NeighbourRequest(egressKey.Address, nil, netip.IPv4Unspecified(), own[:])
	now := time.Now()
	for name, tc := range map[string]struct {
		frame  []byte
		active bool
	}{
		"an answer": {answer, false}, "its own question": {question, true}, "cut": {answer[:20], true}, "nothing": {nil, true},
	} {
		e.machine = failover.New("n1", nil, true)
		e.machine.SetAddresses([]failover.Address{{Key: egressKey, Nodes: []string{"n1", "n2"}}})
		var d failover.Decision
		for at := now.Add(-150 * time.Millisecond); at.Before(now.Add(150 * time.Millisecond)); at = at.Add(10 * time.Millisecond) {
			if d = e.machine.Decide(at); at.After(now.Add(-20*time.Millisecond)) && at.Before(now) {
				e.heard("office", tc.frame)
			}
		}
		if got := d.States[egressKey].Active == "n1"; got != tc.active {
			t.Errorf("%s: active %v, want %v", name, got, tc.active)
		}
	}
}

// What cannot be read or remembered at first is done when it can be, without another event.
func TestEgressRetries(t *testing.T) {
	e := newTestEgress(t, "b1", nil)
	egressState(t, e.intent, "n1", intent.VXLAN, "n1")
	store := &failingStore{objectStore: e.store, failures: 1, saved: make(chan struct{}, 1)}
	e.db, e.store = &failingSessions{failures: 1}, store
	e.watch = func() (<-chan struct{}, func()) { return nil, func() {} }
	e.changed, e.sessions = func() {}, func() {}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- e.run(ctx) }()
	<-store.saved
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := string(e.store.Objects(kindEgress)["office/192.0.2.30"]); got != "b1 n1" {
		t.Errorf("remembered is %q, want n1 of b1", got)
	}
}

// emptySessions is a database without ports.
type emptySessions struct{ sessionDatabase }

func (emptySessions) Ports(context.Context) ([]ovsdb.PortState, error) { return nil, nil }

// failingSessions cannot be read at first.
type failingSessions struct {
	emptySessions
	failures int
}

func (f *failingSessions) Ports(ctx context.Context) ([]ovsdb.PortState, error) {
	if f.failures--; f.failures >= 0 {
		return nil, errors.New("not connected")
	}
	return f.emptySessions.Ports(ctx)
}

// failingStore cannot be written at first; saved follows when it has been.
type failingStore struct {
	objectStore
	failures int
	saved    chan struct{}
}

func (f *failingStore) SaveObjects(kind string, objects map[string][]byte) error {
	if f.failures--; f.failures >= 0 {
		return errors.New("no space left on device")
	}
	err := f.objectStore.SaveObjects(kind, objects)
	f.saved <- struct{}{}
	return err
}
