// SPDX-License-Identifier: Apache-2.0

package cards

import (
	"context"
	"errors"
	"maps"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"coelan.io/coelan/internal/backend/ovs/cards/cardsfake"
	"coelan.io/coelan/internal/backend/ovs/hostnet"
	"coelan.io/coelan/internal/backend/ovs/ovsdb"
	"coelan.io/coelan/internal/intent"
)

// On the userspace datapath the bridge must not have the card's MAC, and each card's has another.
func TestMACOfACardsBridge(t *testing.T) {
	mac := func(s string) net.HardwareAddr {
		a, err := net.ParseMAC(s)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	for _, tc := range []struct {
		card     string
		datapath intent.Datapath
		shared   bool
		want     string
	}{
		{"52:54:00:01:02:03", intent.DatapathSystem, false, "52:54:00:01:02:03"},
		{"52:54:00:01:02:03", intent.DatapathNetdev, false, "0a:54:00:01:02:03"},
		{"0a:54:00:01:02:03", intent.DatapathNetdev, false, "0e:54:00:01:02:03"},
		{"52:54:00:01:02:03", intent.DatapathNetdev, true, "52:54:00:01:02:03"},
	} {
		if got := bridgeMAC(mac(tc.card), tc.datapath, tc.shared); got.String() != tc.want {
			t.Errorf("card %s, datapath %s: %s, want %s", tc.card, tc.datapath, got, tc.want)
		}
	}
}

// A move of a shared card that fails is undone at once, and not tried again for a while.
func TestFailedMoveOfASharedCard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kernel := cardsfake.New()
		kernel.Refuse = errors.New("no such table")
		db := &bridgeNames{}
		c := Bridges{
			uplinks: []intent.Uplink{{Physical: "office", Bridge: "br-office", Card: "eth1", Shared: true}},
			numbers: map[string]uint32{"office": 3}, db: db, kernel: kernel, failed: map[string]failedMove{},
			opened: map[string]int{}, store: savedObjects{},
		}
		move := func() string {
			t.Helper()
			failed, err := c.Ensure(t.Context(), db.states(), intent.DatapathSystem, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := failed["office"]; err != nil {
				return err.Error()
			}
			return ""
		}
		const want = "the node's network is left as it was: no such table"
		for range 3 {
			if got := move(); got != want || len(db.names) != 0 || len(kernel.Ports) != 0 {
				t.Errorf("error %q, bridges %v, ports %v", got, db.names, kernel.Ports)
			}
		}
		if kernel.Prepared != 1 {
			t.Errorf("tried %d times at once", kernel.Prepared)
		}
		time.Sleep(moveAgain)
		kernel.Refuse = nil
		if got := move(); got != "" || kernel.In("eth1") != "br-office" {
			t.Errorf("later: error %q, addresses are on %v", got, kernel.Adopted)
		}
	})
}

// A card that comes while the agent looks for it is not taken for the one that ovs-vswitchd reads.
func TestCardThatComesDuringALook(t *testing.T) {
	kernel := cardsfake.New()
	db := &bridgeNames{names: map[string]ovsdb.Bridge{"br-office": {}}}
	up := intent.Uplink{Physical: "office", Bridge: "br-office", Card: "eth1"}
	store := savedObjects{}
	c := &Bridges{uplinks: []intent.Uplink{up}, db: db, kernel: kernel, opened: map[string]int{}, store: store}
	have := []ovsdb.BridgeState{{
		Name: up.Bridge, Own: true, Datapath: "netdev", ExternalIDs: map[string]string{ID: "eth1"}, Ports: []string{"eth1"},
	}}
	look := func() {
		t.Helper()
		if failed, err := c.Ensure(t.Context(), have, intent.DatapathNetdev, nil); err != nil || len(failed) > 0 {
			t.Fatal(failed, err)
		}
	}
	look()
	if db.closed != 0 {
		t.Errorf("a port that is as it should be was closed")
	}
	kernel.Replaced["eth1"], kernel.Coming = 1, map[string]bool{"eth1": true}
	look()
	look()
	if db.closed != 1 {
		t.Errorf("the port was closed %d times, want once: there is another card", db.closed)
	}
	// Agents that start: with the card as it was, and with another one.
	for _, replaced := range []int{1, 2, 3} {
		kernel.Replaced["eth1"] = replaced
		c = New(store)
		c.uplinks, c.db, c.kernel = []intent.Uplink{up}, db, kernel
		look()
		look()
		if db.closed != replaced {
			t.Errorf("the port was closed %d times, want %d", db.closed, replaced)
		}
	}
	kernel.Replaced["eth1"]++
	kernel.Unlike = map[string]hostnet.Card{"eth1": {Master: "ovs-system"}}
	have[0].Datapath = "system"
	if failed, err := c.Ensure(t.Context(), have, intent.DatapathSystem, nil); err != nil || len(failed) > 0 || db.closed != 3 {
		t.Errorf("on the kernel's datapath, %d ports closed, %v, %v", db.closed, failed, err)
	}
}

// savedObjects is a store in memory.
type savedObjects map[string]map[string][]byte

func (s savedObjects) Objects(kind string) map[string][]byte { return maps.Clone(s[kind]) }

func (s savedObjects) SaveObjects(kind string, objects map[string][]byte) error {
	s[kind] = maps.Clone(objects)
	return nil
}

// bridgeNames is a database of bridges without anything in them.
type bridgeNames struct {
	names  map[string]ovsdb.Bridge
	closed int // ports
}

func (d *bridgeNames) states() []ovsdb.BridgeState {
	var all []ovsdb.BridgeState
	for name, b := range d.names {
		all = append(all, ovsdb.BridgeState{Name: name, Own: true, Datapath: b.Datapath, ExternalIDs: b.ExternalIDs})
	}
	return all
}

func (d *bridgeNames) EnsureBridge(_ context.Context, b ovsdb.Bridge) error {
	d.names = map[string]ovsdb.Bridge{b.Name: b}
	return nil
}

func (d *bridgeNames) EnsurePorts(_ context.Context, bridge string, _ ...ovsdb.Port) error {
	if _, ok := d.names[bridge]; !ok {
		return errors.New("there is no bridge " + bridge)
	}
	return nil
}

func (d *bridgeNames) ClosePort(context.Context, string, string) error {
	d.closed++
	return nil
}

func (d *bridgeNames) DelBridge(_ context.Context, name string) error {
	delete(d.names, name)
	return nil
}
