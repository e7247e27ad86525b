// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func port(id string, addresses ...string) Port {
	p := Port{ID: id, Namespace: "default", Pod: "web", Interface: "eth0", Network: "default", Node: "worker1"}
	for _, a := range addresses {
		p.Addresses = append(p.Addresses, netip.MustParseAddr(a))
	}
	return p
}

func ids(seq func(func(Port) bool)) (ids []string) {
	for p := range seq {
		ids = append(ids, p.ID)
	}
	return ids
}

// mustUpdate fails the test if the change does.
func mustUpdate(t *testing.T, s *Store, change func(*Tx)) *State {
	t.Helper()
	state, err := s.Update(func(tx *Tx) error { change(tx); return nil })
	if err != nil {
		t.Fatal(err)
	}
	return state
}

func TestUpdatePublishesNewState(t *testing.T) {
	store := NewStore()
	empty := store.State()
	state := mustUpdate(t, store, func(tx *Tx) {
		tx.SetPort(port("a/eth0", "10.244.1.2", "fd00::2"))
		tx.SetPort(port("b/eth0", "10.244.1.3"))
		tx.ReplaceNodes([]Node{{Name: "worker1"}})
		tx.SetLocal(Local{Node: "worker1"})
	})
	select {
	case <-empty.Replaced():
	default:
		t.Error("the old State was not marked as replaced")
	}
	if empty.Ports().Len() != 0 || state.Ports().Len() != 2 || state.Revision() <= empty.Revision() {
		t.Errorf("old State has %d ports, new one %d at revision %d", empty.Ports().Len(), state.Ports().Len(), state.Revision())
	}
	if node, ok := state.LocalNode(); !ok || node.Name != "worker1" {
		t.Errorf("LocalNode() = %v, %v", node, ok)
	}
	for name, tc := range map[string]struct {
		got  func(func(Port) bool)
		want []string
	}{
		"all":             {state.Ports().All(), []string{"a/eth0", "b/eth0"}},
		"network":         {state.PortsOf("default"), []string{"a/eth0", "b/eth0"}},
		"network, prefix": {state.PortsOf("defaul"), nil},
		"address":         {state.PortsWith(netip.MustParseAddr("fd00::2")), []string{"a/eth0"}},
	} {
		if diff := cmp.Diff(tc.want, ids(tc.got)); diff != "" {
			t.Errorf("ports by %s (-want +got):\n%s", name, diff)
		}
	}
}

func TestUpdateWithoutEffect(t *testing.T) {
	store := NewStore()
	before := mustUpdate(t, store, func(tx *Tx) { tx.SetPort(port("a/eth0", "10.244.1.2")) })
	same := mustUpdate(t, store, func(tx *Tx) {
		tx.SetPort(port("a/eth0", "10.244.1.2"))
		tx.DeletePort("b/eth0")
	})
	if same != before {
		t.Error("setting an equal port made a new State")
	}
	failed, err := store.Update(func(tx *Tx) error {
		tx.DeletePort("a/eth0")
		return errors.New("refused")
	})
	if failed != before || err == nil {
		t.Errorf("a failed change gave another State, or no error: %v", err)
	}
}

func TestStoredObjectIsACopy(t *testing.T) {
	store := NewStore()
	p := port("a/eth0", "10.244.1.2")
	state := mustUpdate(t, store, func(tx *Tx) { tx.SetPort(p) })
	p.Addresses[0] = netip.MustParseAddr("10.244.1.9")
	if stored, _ := state.Ports().Get("a/eth0"); stored.Addresses[0] != netip.MustParseAddr("10.244.1.2") {
		t.Error("writing to the caller's slice changed the State")
	}
}

func TestReplaceKeepsEqualObjects(t *testing.T) {
	store := NewStore()
	from := mustUpdate(t, store, func(tx *Tx) {
		tx.ReplaceNodes([]Node{{Name: "a"}, {Name: "b"}, {Name: "c"}})
		tx.SetPort(port("a/eth0", "10.244.1.2"))
	})
	to := mustUpdate(t, store, func(tx *Tx) {
		tx.ReplaceNodes([]Node{{Name: "d"}, {Name: "c", Addresses: []netip.Addr{netip.IPv6Loopback()}}, {Name: "a"}})
	})
	if diff := cmp.Diff(Delta{Nodes: []string{"b", "c", "d"}}, Diff(from, to)); diff != "" {
		t.Errorf("Diff (-want +got):\n%s", diff)
	}
}

func TestReadersSeeWholeStates(t *testing.T) {
	store := NewStore()
	const rounds = 500
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for state := store.State(); state.Nodes().Len() < rounds; state = store.State() {
				if state.Nodes().Len() != state.Ports().Len() {
					t.Errorf("revision %d has %d nodes and %d ports", state.Revision(), state.Nodes().Len(), state.Ports().Len())
					return
				}
				<-state.Replaced()
			}
		})
	}
	var nodes []Node
	for i := range rounds {
		nodes = append(nodes, Node{Name: fmt.Sprint(i)})
		mustUpdate(t, store, func(tx *Tx) {
			tx.ReplaceNodes(nodes)
			tx.SetPort(port(fmt.Sprint(i)))
		})
	}
	readers.Wait()
}

// A Store behaves like a map that is copied at each change, and Diff between any
// two of its States names exactly the keys that differ.
func TestStoreAgainstMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		store := NewStore()
		model := map[string]Port{}
		type version struct {
			state *State
			model map[string]Port
		}
		versions := []version{{store.State(), map[string]Port{}}}
		id := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f", "g", "h"})
		address := rapid.SampledFrom([]string{"10.0.0.1", "10.0.0.2", "fd00::1"})
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				p := port(id.Draw(t, "id"), address.Draw(t, "address"))
				model[p.ID] = p
				_, _ = store.Update(func(tx *Tx) error { tx.SetPort(p); return nil })
			},
			"delete": func(t *rapid.T) {
				id := id.Draw(t, "id")
				delete(model, id)
				_, _ = store.Update(func(tx *Tx) error { tx.DeletePort(id); return nil })
			},
			"": func(t *rapid.T) {
				state := store.State()
				copied := map[string]Port{}
				for k, v := range model {
					copied[k] = v
				}
				versions = append(versions, version{state, copied})
				if diff := cmp.Diff(sorted(model), slices.Collect(state.Ports().All()), cmp.Comparer(Port.equal)); diff != "" {
					t.Fatalf("ports (-want +got):\n%s", diff)
				}
				for _, a := range []string{"10.0.0.1", "10.0.0.2", "fd00::1"} {
					var want []string
					for _, p := range sorted(model) {
						if p.Addresses[0].String() == a {
							want = append(want, p.ID)
						}
					}
					if diff := cmp.Diff(want, ids(state.PortsWith(netip.MustParseAddr(a)))); diff != "" {
						t.Fatalf("ports with %s (-want +got):\n%s", a, diff)
					}
				}
				old := versions[rapid.IntRange(0, len(versions)-1).Draw(t, "older version")]
				if diff := cmp.Diff(differing(old.model, model), Diff(old.state, state).Ports); diff != "" {
					t.Fatalf("Diff (-want +got):\n%s", diff)
				}
			},
		})
	})
}

func sorted(m map[string]Port) (ports []Port) {
	for _, p := range m {
		ports = append(ports, p)
	}
	slices.SortFunc(ports, func(a, b Port) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	return ports
}

func differing(a, b map[string]Port) (keys []string) {
	for k, v := range a {
		if w, ok := b[k]; !ok || !v.equal(w) {
			keys = append(keys, k)
		}
	}
	for k := range b {
		if _, ok := a[k]; !ok {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys
}

func TestLinkLocal(t *testing.T) {
	for text, want := range map[string]string{
		"0a:ce:0a:f4:01:02": "fe80::8ce:aff:fef4:102", "0a:ce:83:ad:9a:2b": "fe80::8ce:83ff:fead:9a2b",
	} {
		mac, err := ParseMAC(text)
		if got := mac.LinkLocal().String(); err != nil || got != want {
			t.Errorf("LinkLocal of %s = %s, %v; want %s", mac, got, err, want)
		}
	}
}

func TestParseMAC(t *testing.T) {
	for _, s := range []string{"", "0a:c0:e1:00:00", "0a:c0:e1:00:00:00:00:01", "zz:c0:e1:00:00:01"} {
		if mac, err := ParseMAC(s); err == nil {
			t.Errorf("ParseMAC(%q) = %s without error", s, mac)
		}
	}
	if mac, err := ParseMAC("0A:C0:E1:00:00:01"); err != nil || mac != (MAC{0x0a, 0xc0, 0xe1, 0, 0, 1}) {
		t.Errorf("ParseMAC = %s, %v", mac, err)
	}
}

// A Derivation sees what an Update makes, completes it, and does not hold up one that
// fails or changes nothing.
func TestDerivation(t *testing.T) {
	var deltas []Delta
	store := NewStore(func(before, now *State, tx *Tx) {
		deltas = append(deltas, Diff(before, now))
		for _, name := range Diff(before, now).Nodes {
			tx.SetPort(Port{ID: name})
		}
	}, func(_, now *State, tx *Tx) {
		if n := now.Ports().Len(); n > 0 {
			tx.SetLocal(Local{MTU: n})
		}
	})
	s := mustUpdate(t, store, func(tx *Tx) { tx.ReplaceNodes([]Node{{Name: "n1"}}) })
	if _, ok := s.Ports().Get("n1"); !ok || s.Revision() != 1 || s.Local().MTU != 1 {
		t.Errorf("revision %d has %d ports, MTU %d", s.Revision(), s.Ports().Len(), s.Local().MTU)
	}
	if same := mustUpdate(t, store, func(tx *Tx) { tx.ReplaceNodes([]Node{{Name: "n1"}}) }); same != s {
		t.Error("an Update that changes nothing made a new State")
	}
	if _, err := store.Update(func(tx *Tx) error { tx.ReplaceNodes(nil); return errors.New("no") }); err == nil || store.State() != s {
		t.Errorf("%v, revision %d", err, store.State().Revision())
	}
	want := []Delta{{Nodes: []string{"n1"}}, {}}
	if diff := cmp.Diff(want, deltas); diff != "" {
		t.Errorf("what the Derivation has seen (-want +got):\n%s", diff)
	}
}
