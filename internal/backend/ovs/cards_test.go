// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"coelan.io/coelan/internal/backend/ovs/cards"
	"coelan.io/coelan/internal/backend/ovs/hostnet"
	"coelan.io/coelan/internal/backend/ovs/ovsdb"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
)

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
		if got := m.cards.In(card); got != bridge {
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
	if m.cards.In("eth2") != "" || m.cards.In("eth3") != "br-shop" || m.cards.In("eth4") != "br-office" {
		t.Errorf("addresses are on %v", m.cards.Adopted)
	}
	m.cards.Returning["br-y"] = "eth7"
	n.reconciled()
	if len(m.cards.Interrupted()) != 0 {
		t.Error("a card whose return was interrupted is not returned")
	}
	n.Close()

	for range 2 {
		m.must(cards.ReturnAll(m.bound(), c, m.cards))
	}
	if len(m.cards.Adopted) != 0 {
		t.Errorf("after an uninstall addresses are on %v", m.cards.Adopted)
	}
}

// A card that goes and comes back is another interface: its port is made anew, once.
func TestCardThatComesBack(t *testing.T) {
	m := newMachine(t)
	m.connect(intent.Uplink{Physical: "office", Bridge: "br-office", Card: "eth2"})
	n := m.start(m.testConfig())
	n.reconciled()
	for range 2 {
		m.cards.Mutex.Lock()
		m.cards.Replaced["eth2"]++
		prepared, writes := m.cards.Prepared, m.ovs.Writes()
		m.cards.Mutex.Unlock()
		n.reconciled()
		if m.cards.Prepared == prepared || m.ovs.Writes() == writes {
			t.Error("the port of another interface is not made anew")
		}
		writes = m.ovs.Writes()
		n.reconciled()
		if again := m.ovs.Writes(); again != writes {
			t.Errorf("%d writes without a change", again-writes)
		}
	}
	n.Close()
}

// What others use is not taken, and the node's object says why.
func TestCardsThatAreInUse(t *testing.T) {
	for name, tc := range map[string]struct {
		before func(m *machine, n *testNode)
		err    string
	}{
		"the node's address": {func(m *machine, _ *testNode) {
			m.cards.Unlike["eth2"] = hostnet.Card{Addresses: []netip.Addr{addr("192.0.2.1")}}
		}, "interface eth2 has the node's address 192.0.2.1"},
		"by DHCP": {func(m *machine, _ *testNode) {
			m.cards.Unlike["eth2"] = hostnet.Card{Leased: []netip.Addr{addr("192.0.2.1")}}
		}, "interface eth2 has the node's address 192.0.2.1 for a limited time only"},
		"no such card":     {func(m *machine, _ *testNode) { m.cards.Gone["eth2"] = true }, "interface eth2 does not exist"},
		"another bridge":   {func(_ *machine, n *testNode) { n.addBridge("br-else", "netdev", "eth2") }, "interface eth2 is a port of bridge br-else"},
		"another's bridge": {func(_ *machine, n *testNode) { n.addBridge("br-office", "netdev") }, "bridge br-office is not Coelan's"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.connect(intent.Uplink{Physical: "office", Bridge: "br-office", Card: "eth2", Shared: name == "by DHCP"},
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
			if m.cards.In("eth2") != "" {
				t.Error("the card has lost its addresses")
			}
			n.must(n.Connected("lab"))
		})
	}
}

// A shared card is in its bridge by a port of its own, which does not outlive the kernel: after a
// reboot it is put there anew.
func TestSharedCards(t *testing.T) {
	m := newMachine(t)
	node := hostnet.Card{Addresses: []netip.Addr{addr("192.0.2.1")}, Default: true}
	m.cards.Unlike["eth1"] = node
	shared := intent.Uplink{Physical: "office", Bridge: "br-office", Card: "eth1", Shared: true}
	m.connect(shared)
	c := m.testConfig()
	n := m.start(c)
	n.reconciled()
	b := n.bridgeOf("br-office")
	if b == nil || !slices.Contains(b.Ports, "coelan-card3") || slices.Contains(b.Ports, "eth1") {
		t.Fatalf("bridge %+v, want one with a port for eth1 and not eth1 itself", b)
	}
	if m.cards.In("eth1") != "br-office" || m.cards.Prepared != 1 {
		t.Errorf("addresses are on %v, prepared %d times", m.cards.Adopted, m.cards.Prepared)
	}
	if got := m.kernel.holds().SwitchOnly; !slices.Equal(got, []string{"coelan-card3"}) {
		t.Errorf("the kernel takes in nothing from %v", got)
	}
	n.must(n.Connected("office"))
	writes := m.ovs.Writes()
	n.reconciled()
	if again := m.ovs.Writes(); again != writes || m.cards.Prepared != 1 {
		t.Errorf("%d writes and %d preparations without a change", again-writes, m.cards.Prepared-1)
	}

	delete(m.cards.Ports, "coelan-card3")
	delete(m.cards.Adopted, "eth1")
	n.reconciled()
	if m.cards.In("eth1") != "br-office" || m.cards.Prepared != 2 {
		t.Errorf("after a reboot addresses are on %v, prepared %d times", m.cards.Adopted, m.cards.Prepared)
	}
	n.Close()

	// The setting changes both ways.
	m.cards.Unlike["eth1"] = hostnet.Card{}
	m.connect(intent.Uplink{Physical: "office", Bridge: "br-office", Card: "eth1"})
	n = m.start(c)
	n.reconciled()
	if b := n.bridgeOf("br-office"); b == nil || !slices.Contains(b.Ports, "eth1") || slices.Contains(b.Ports, "coelan-card3") {
		t.Errorf("bridge %+v, want one with eth1", b)
	}
	n.Close()
	m.connect(shared)
	n = m.start(c)
	n.reconciled()
	if b := n.bridgeOf("br-office"); b == nil || slices.Contains(b.Ports, "eth1") || !slices.Contains(b.Ports, "coelan-card3") {
		t.Errorf("bridge %+v, want one with a port for eth1", b)
	}
	n.Close()
	m.must(cards.ReturnAll(m.bound(), c, m.cards))
	if len(m.cards.Adopted) != 0 || len(m.cards.Ports) != 0 {
		t.Errorf("after an uninstall addresses are on %v, ports %v", m.cards.Adopted, m.cards.Ports)
	}
}

// A bridge that the administrator has made with the shared card in it is used as it is.
func TestSharedCardInAnAdministratorsBridge(t *testing.T) {
	m := newMachine(t)
	m.connect(intent.Uplink{Physical: "office", Bridge: "br-ext", Card: "eth1", Shared: true})
	n := m.start(m.testConfig())
	n.addBridge("br-ext", "netdev", "eth1")
	n.reconciled()
	n.must(n.Connected("office"))
	if b := n.bridgeOf("br-ext"); b.Own || !slices.Contains(b.Ports, "coelan-int3") {
		t.Errorf("bridge %+v, want the administrator's with the wire", b)
	}
	if m.cards.Prepared != 0 || len(m.cards.Adopted) != 0 {
		t.Errorf("the card was moved: %+v", m.cards)
	}
}

// Tunnels of the userspace datapath start at a bridge: a shared card makes one, or is named as what
// is in the way.
func TestSharedCardUnderTunnels(t *testing.T) {
	m := newMachine(t)
	m.connect(intent.Uplink{Physical: "office", Bridge: "br-office", Card: "eth0", Shared: true})
	c := m.testConfig()
	c.Encapsulation = config.VXLAN
	m.cards.Unlike["eth0"] = hostnet.Card{Leased: []netip.Addr{addr("192.0.2.1")}}
	n := m.start(c)
	err := n.reconciler.reconcile(n.bound())
	n.says(err, "node address 192.0.2.1 is on interface eth0, which is no Open vSwitch bridge")
	n.says(err, "physical network office: interface eth0 has the node's address 192.0.2.1 for a limited time only")
	delete(m.cards.Unlike, "eth0")
	m.uplink.Name = "br-office"
	n.reconciled()
	if got := n.kernel.holds(); got.Uplink != "br-office" || !slices.Contains(n.portNames("br-int"), tunnelPort) {
		t.Errorf("host %+v, ports %v", got, n.portNames("br-int"))
	}
}
