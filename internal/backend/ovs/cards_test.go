// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"coelan.io/coelan/internal/backend/ovs/hostnet"
	"coelan.io/coelan/internal/backend/ovs/ovsdb"
	"coelan.io/coelan/internal/intent"
)

// fakeCards are a node's network cards: eth1 to eth9, of which some cannot be used.
type fakeCards struct {
	mu          sync.Mutex
	unlike      map[string]hostnet.Card
	gone        map[string]bool
	adopted     map[string]string // bridges, by card
	interrupted map[string]string
}

func (*fakeCards) Run(ctx context.Context) error { <-ctx.Done(); return nil }

func (k *fakeCards) Interrupted() map[string]string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.interrupted)
}

func (k *fakeCards) Find(card string) (hostnet.Card, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.gone[card] {
		return hostnet.Card{}, errors.New("interface " + card + " does not exist on this node")
	}
	c := k.unlike[card]
	c.Name, c.MAC = card, net.HardwareAddr{0x52, 0x54, 0, 0, 0, card[len(card)-1]}
	return c, nil
}

func (k *fakeCards) Adopt(card, bridge string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.gone[card] {
		return errors.New("interface " + card + ": Link not found")
	}
	k.adopted[card] = bridge
	return nil
}

func (k *fakeCards) Return(card, bridge string, remove func() error) error {
	if err := remove(); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.adopted, card)
	delete(k.interrupted, bridge)
	return nil
}

func (k *fakeCards) in(card string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.adopted[card]
}

// connect makes these the uplinks of the node.
func (m *machine) connect(uplinks ...intent.Uplink) {
	m.Helper()
	m.update(func(tx *intent.Tx) { tx.ReplaceUplinks(uplinks) })
}

// bridgeOf is a bridge in the database; nil: it is not there.
func (n *testNode) bridgeOf(name string) *ovsdb.BridgeState {
	n.Helper()
	all, err := n.clients.db.Bridges(n.bound())
	n.must(err)
	i := slices.IndexFunc(all, func(b ovsdb.BridgeState) bool { return b.Name == name })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// A card leads to its physical network by a bridge of its own, as long as the setting says so.
func TestCardsGetBridges(t *testing.T) {
	m := newMachine(t)
	c := m.testConfig()
	m.connect(intent.Uplink{Physical: "office", Bridge: "br-office", Card: "eth2"},
		intent.Uplink{Physical: "lab", Bridge: "br-x", Card: "eth3"})
	n := m.start(c)
	n.reconciled()
	for bridge, card := range map[string]string{"br-office": "eth2", "br-x": "eth3"} {
		b := n.bridgeOf(bridge)
		if b == nil || !b.Own || b.Datapath != "netdev" || !slices.Contains(b.Ports, card) || len(b.Ports) != 3 {
			t.Errorf("bridge %s is %+v, want one with %s and the wire", bridge, b, card)
		}
		if got := m.cards.in(card); got != bridge {
			t.Errorf("the addresses of %s are on %q", card, got)
		}
	}
	n.must(n.Connected("office"))
	if got := m.kernel.holds().Cards; !slices.Equal(got, []string{"eth2", "eth3"}) {
		t.Errorf("cards that leave answers to their bridges: %v", got)
	}
	writes := m.ovs.Writes()
	n.reconciled()
	if again := m.ovs.Writes(); again != writes {
		t.Errorf("%d writes without a change", again-writes)
	}
	n.Close()

	m.connect(intent.Uplink{Physical: "office", Bridge: "br-office", Card: "eth4"},
		intent.Uplink{Physical: "shop", Bridge: "br-shop", Card: "eth3"})
	n = m.start(c)
	n.reconciled()
	if b := n.bridgeOf("br-office"); b == nil || slices.Contains(b.Ports, "eth2") || !slices.Contains(b.Ports, "eth4") {
		t.Errorf("bridge br-office is %+v, want another card", b)
	}
	if b := n.bridgeOf("br-x"); b != nil {
		t.Errorf("%+v is still there", b)
	}
	if m.cards.in("eth2") != "" || m.cards.in("eth3") != "br-shop" || m.cards.in("eth4") != "br-office" {
		t.Errorf("addresses are on %v", m.cards.adopted)
	}
	m.cards.interrupted["br-y"] = "eth7"
	n.reconciled()
	if len(m.cards.Interrupted()) != 0 {
		t.Error("a card whose return was interrupted is not returned")
	}
	n.Close()

	for range 2 {
		m.must(returnCards(m.bound(), c, m.cards))
	}
	if len(m.cards.adopted) != 0 {
		t.Errorf("after an uninstall addresses are on %v", m.cards.adopted)
	}
}

// What others use is not taken, and the node's object says why.
func TestCardsThatAreInUse(t *testing.T) {
	for name, tc := range map[string]struct {
		before func(m *machine, n *testNode)
		err    string
	}{
		"the node's address": {func(m *machine, _ *testNode) {
			m.cards.unlike["eth2"] = hostnet.Card{Addresses: []netip.Addr{addr("192.0.2.1")}}
		}, "interface eth2 has the node's address 192.0.2.1"},
		"no such card":     {func(m *machine, _ *testNode) { m.cards.gone["eth2"] = true }, "interface eth2 does not exist"},
		"another bridge":   {func(_ *machine, n *testNode) { n.addBridge("br-else", "netdev", "eth2") }, "interface eth2 is a port of bridge br-else"},
		"another's bridge": {func(_ *machine, n *testNode) { n.addBridge("br-office", "netdev") }, "bridge br-office is not Coelan's"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.connect(intent.Uplink{Physical: "office", Bridge: "br-office", Card: "eth2"},
				intent.Uplink{Physical: "lab", Bridge: "br-lab", Card: "eth3"})
			n := m.start(m.testConfig())
			tc.before(m, n)
			err := n.reconciler.reconcile(n.bound())
			if err == nil || !strings.Contains(err.Error(), "physical network office: "+tc.err) {
				t.Errorf("error %v, want %q", err, tc.err)
			}
			if !m.said.has("PhysicalNetworkNotConnected: physical network office: " + tc.err) {
				t.Error("the node's object does not say so")
			}
			n.says(n.Connected("office"), tc.err)
			if m.cards.in("eth2") != "" {
				t.Error("the card has lost its addresses")
			}
			n.must(n.Connected("lab"))
		})
	}
}

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
		want     string
	}{
		{"52:54:00:01:02:03", intent.DatapathSystem, "52:54:00:01:02:03"},
		{"52:54:00:01:02:03", intent.DatapathNetdev, "0a:54:00:01:02:03"},
		{"0a:54:00:01:02:03", intent.DatapathNetdev, "0e:54:00:01:02:03"},
	} {
		if got := bridgeMAC(mac(tc.card), tc.datapath); got.String() != tc.want {
			t.Errorf("card %s, datapath %s: %s, want %s", tc.card, tc.datapath, got, tc.want)
		}
	}
}
