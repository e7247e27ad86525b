// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/backend/ovs/ovsdb"
	"coelan.io/coelan/internal/intent"
)

func wanted(t *testing.T, networks ...string) intent.Table[intent.Uplink] {
	t.Helper()
	s, err := intent.NewStore().Update(func(tx *intent.Tx) error { tx.ReplaceUplinks(uplinksTo(networks...)); return nil })
	if err != nil {
		t.Fatal(err)
	}
	return s.Uplinks()
}

// The port of a physical network stays when others come and go, also over restarts.
func TestUplinkNumbersStay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	number := func(networks ...string) map[string]uint32 {
		t.Helper()
		store, err := attachment.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = store.Close() }()
		numbers, err := numberUplinks(store, wanted(t, networks...))
		if err != nil {
			t.Fatal(err)
		}
		return numbers
	}
	for i, tc := range []struct {
		networks []string
		want     map[string]uint32
	}{
		{[]string{"b", "c"}, map[string]uint32{"b": 3, "c": 4}},
		{[]string{"a", "b", "c"}, map[string]uint32{"a": 5, "b": 3, "c": 4}},
		{[]string{"a", "c"}, map[string]uint32{"a": 5, "c": 4}},
		{[]string{"a", "c", "d"}, map[string]uint32{"a": 5, "c": 4, "d": 3}},
	} {
		if diff := cmp.Diff(tc.want, number(tc.networks...)); diff != "" {
			t.Errorf("step %d (-want +got):\n%s", i, diff)
		}
	}
	store, err := attachment.Open(filepath.Join(t.TempDir(), "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	if _, err := numberUplinks(store, wanted(t, strings.Split("abcdefghijklmn", "")...)); err == nil {
		t.Error("14 physical networks have numbers")
	}
}

// wireless is a database that makes no wires.
type wireless struct{ uplinkDatabase }

func (wireless) EnsurePlaced(context.Context, ...ovsdb.PlacedPort) error {
	return errors.New("the database does not answer")
}

// A node knows that it is not connected to a physical network when a bridge or a card is not there.
// A write that fails says nothing: the next one may succeed.
func TestKnownPhysicalNetworks(t *testing.T) {
	m := newMachine(t)
	m.connect(intent.Uplink{Physical: "office", Bridge: "br-office"}, intent.Uplink{Physical: "lab", Bridge: "br-lab"},
		intent.Uplink{Physical: "shop", Bridge: "br-shop", Card: "eth2"})
	n := m.start(m.testConfig())
	if got := n.PhysicalNetworks(); got != nil {
		t.Errorf("before the first look %v are known", got)
	}
	n.addBridge("br-office", "netdev")
	database := n.uplinks.db
	look := func(when string, db uplinkDatabase, want map[string]bool) {
		t.Helper()
		n.uplinks.db = db
		if err := n.reconciler.reconcile(n.bound()); err == nil {
			t.Errorf("%s: no error", when)
		}
		if diff := cmp.Diff(want, n.PhysicalNetworks()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	look("without wires", wireless{database}, map[string]bool{"lab": false})
	all := map[string]bool{"office": true, "shop": true, "lab": false}
	look("with wires", database, all)
	look("when writes fail again", wireless{database}, all)
	m.cards.Gone["eth2"] = true
	look("without the card", database, map[string]bool{"office": true, "shop": false, "lab": false})
}
