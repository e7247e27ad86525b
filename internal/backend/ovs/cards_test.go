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
	"testing/synctest"
	"time"

	"coelan.io/coelan/internal/backend/ovs/hostnet"
	"coelan.io/coelan/internal/backend/ovs/ovsdb"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
)

// fakeCards are a node's network cards: eth1 to eth9, of which some cannot be used.
type fakeCards struct {
	mu          sync.Mutex
	unlike      map[string]hostnet.Card
	gone        map[string]bool
	coming      map[string]bool   // those that come when they have been looked for once
	replaced    map[string]int    // how often there was another interface of the name
	ports       map[string]string // cards, by port
	prepared    int
	adopted     map[string]string // bridges, by card
	refuse      error             // of Adopt
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
	c.Index = 7 + k.replaced[card]
	c.Name, c.MAC = card, net.HardwareAddr{0x52, 0x54, 0, 0, 0, card[len(card)-1]}
	return c, nil
}

func (k *fakeCards) Index(card string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.gone[card] || k.coming[card] {
		delete(k.coming, card)
		return 0
	}
	return 7 + k.replaced[card]
}

func (k *fakeCards) HasPort(p hostnet.Placement) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return p.Port == p.Card || k.ports[p.Port] == p.Card
}

func (k *fakeCards) Prepare(p hostnet.Placement) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.gone[p.Card] {
		return errors.New("interface " + p.Card + ": Link not found")
	}
	k.prepared++
	k.ports[p.Port] = p.Card
	return nil
}

func (k *fakeCards) Adopt(p hostnet.Placement) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.gone[p.Card] {
		return errors.New("interface " + p.Card + ": Link not found")
	}
	if k.refuse != nil {
		return k.refuse
	}
	k.adopted[p.Card] = p.Bridge
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
	maps.DeleteFunc(k.ports, func(_, of string) bool { return of == card })
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

// A card that goes and comes back is another interface: its port is made anew, once.
func TestCardThatComesBack(t *testing.T) {
	m := newMachine(t)
	m.connect(intent.Uplink{Physical: "office", Bridge: "br-office", Card: "eth2"})
	n := m.start(m.testConfig())
	n.reconciled()
	for range 2 {
		m.cards.mu.Lock()
		m.cards.replaced["eth2"]++
		prepared, writes := m.cards.prepared, m.ovs.Writes()
		m.cards.mu.Unlock()
		n.reconciled()
		if m.cards.prepared == prepared || m.ovs.Writes() == writes {
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
			m.cards.unlike["eth2"] = hostnet.Card{Addresses: []netip.Addr{addr("192.0.2.1")}}
		}, "interface eth2 has the node's address 192.0.2.1"},
		"by DHCP": {func(m *machine, _ *testNode) {
			m.cards.unlike["eth2"] = hostnet.Card{Leased: []netip.Addr{addr("192.0.2.1")}}
		}, "interface eth2 has the node's address 192.0.2.1 for a limited time only"},
		"no such card":     {func(m *machine, _ *testNode) { m.cards.gone["eth2"] = true }, "interface eth2 does not exist"},
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

// A shared card is in its bridge by a port of its own, which does not outlive the kernel: after a
// reboot it is put there anew.
func TestSharedCards(t *testing.T) {
	m := newMachine(t)
	node := hostnet.Card{Addresses: []netip.Addr{addr("192.0.2.1")}, Default: true}
	m.cards.unlike["eth1"] = node
	shared := intent.Uplink{Physical: "office", Bridge: "br-office", Card: "eth1", Shared: true}
	m.connect(shared)
	c := m.testConfig()
	n := m.start(c)
	n.reconciled()
	b := n.bridgeOf("br-office")
	if b == nil || !slices.Contains(b.Ports, "coelan-card3") || slices.Contains(b.Ports, "eth1") {
		t.Fatalf("bridge %+v, want one with a port for eth1 and not eth1 itself", b)
	}
	if m.cards.in("eth1") != "br-office" || m.cards.prepared != 1 {
		t.Errorf("addresses are on %v, prepared %d times", m.cards.adopted, m.cards.prepared)
	}
	if got := m.kernel.holds().SwitchOnly; !slices.Equal(got, []string{"coelan-card3"}) {
		t.Errorf("the kernel takes in nothing from %v", got)
	}
	n.must(n.Connected("office"))
	writes := m.ovs.Writes()
	n.reconciled()
	if again := m.ovs.Writes(); again != writes || m.cards.prepared != 1 {
		t.Errorf("%d writes and %d preparations without a change", again-writes, m.cards.prepared-1)
	}

	delete(m.cards.ports, "coelan-card3")
	delete(m.cards.adopted, "eth1")
	n.reconciled()
	if m.cards.in("eth1") != "br-office" || m.cards.prepared != 2 {
		t.Errorf("after a reboot addresses are on %v, prepared %d times", m.cards.adopted, m.cards.prepared)
	}
	n.Close()

	// The setting changes both ways.
	m.cards.unlike["eth1"] = hostnet.Card{}
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
	m.must(returnCards(m.bound(), c, m.cards))
	if len(m.cards.adopted) != 0 || len(m.cards.ports) != 0 {
		t.Errorf("after an uninstall addresses are on %v, ports %v", m.cards.adopted, m.cards.ports)
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
	if m.cards.prepared != 0 || len(m.cards.adopted) != 0 {
		t.Errorf("the card was moved: %+v", m.cards)
	}
}

// A move of a shared card that fails is undone at once, and not tried again for a while.
func TestFailedMoveOfASharedCard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kernel := &fakeCards{ports: map[string]string{}, adopted: map[string]string{}, refuse: errors.New("no such table")}
		db := &bridgeNames{}
		c := cards{
			uplinks: []intent.Uplink{{Physical: "office", Bridge: "br-office", Card: "eth1", Shared: true}},
			numbers: map[string]uint32{"office": 3}, db: db, kernel: kernel, failed: map[string]failedMove{},
			read: map[string]int{}, store: savedObjects{},
		}
		move := func() string {
			t.Helper()
			failed, err := c.ensure(t.Context(), db.states(), intent.DatapathSystem, nil)
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
			if got := move(); got != want || len(db.names) != 0 || len(kernel.ports) != 0 {
				t.Errorf("error %q, bridges %v, ports %v", got, db.names, kernel.ports)
			}
		}
		if kernel.prepared != 1 {
			t.Errorf("tried %d times at once", kernel.prepared)
		}
		time.Sleep(moveAgain)
		kernel.refuse = nil
		if got := move(); got != "" || kernel.in("eth1") != "br-office" {
			t.Errorf("later: error %q, addresses are on %v", got, kernel.adopted)
		}
	})
}

// A card that comes while the agent looks for it is not taken for the one that ovs-vswitchd reads.
func TestCardThatComesDuringALook(t *testing.T) {
	kernel := &fakeCards{ports: map[string]string{}, adopted: map[string]string{}, replaced: map[string]int{}}
	db := &bridgeNames{names: map[string]ovsdb.Bridge{"br-office": {}}}
	up := intent.Uplink{Physical: "office", Bridge: "br-office", Card: "eth1"}
	store := savedObjects{}
	c := &cards{uplinks: []intent.Uplink{up}, db: db, kernel: kernel, read: map[string]int{}, store: store}
	have := []ovsdb.BridgeState{{
		Name: up.Bridge, Own: true, Datapath: "netdev", ExternalIDs: map[string]string{idCard: "eth1"}, Ports: []string{"eth1"},
	}}
	look := func() {
		t.Helper()
		if failed, err := c.ensure(t.Context(), have, intent.DatapathNetdev, nil); err != nil || len(failed) > 0 {
			t.Fatal(failed, err)
		}
	}
	look()
	if db.closed != 0 {
		t.Errorf("a port that is as it should be was closed")
	}
	kernel.replaced["eth1"], kernel.coming = 1, map[string]bool{"eth1": true}
	look()
	look()
	if db.closed != 1 {
		t.Errorf("the port was closed %d times, want once: there is another card", db.closed)
	}
	// Agents that start: with the card as it was, and with another one.
	for _, replaced := range []int{1, 2, 3} {
		kernel.replaced["eth1"] = replaced
		c = newCards(intent.NewStore().State().Uplinks(), nil, store)
		c.uplinks, c.db, c.kernel = []intent.Uplink{up}, db, kernel
		look()
		look()
		if db.closed != replaced {
			t.Errorf("the port was closed %d times, want %d", db.closed, replaced)
		}
	}
	kernel.replaced["eth1"]++
	kernel.unlike = map[string]hostnet.Card{"eth1": {Master: "ovs-system"}}
	have[0].Datapath = "system"
	if failed, err := c.ensure(t.Context(), have, intent.DatapathSystem, nil); err != nil || len(failed) > 0 || db.closed != 3 {
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

// Tunnels of the userspace datapath start at a bridge: a shared card makes one, or is named as what
// is in the way.
func TestSharedCardUnderTunnels(t *testing.T) {
	m := newMachine(t)
	m.connect(intent.Uplink{Physical: "office", Bridge: "br-office", Card: "eth0", Shared: true})
	c := m.testConfig()
	c.Encapsulation = config.VXLAN
	m.cards.unlike["eth0"] = hostnet.Card{Leased: []netip.Addr{addr("192.0.2.1")}}
	n := m.start(c)
	err := n.reconciler.reconcile(n.bound())
	n.says(err, "node address 192.0.2.1 is on interface eth0, which is no Open vSwitch bridge")
	n.says(err, "physical network office: interface eth0 has the node's address 192.0.2.1 for a limited time only")
	delete(m.cards.unlike, "eth0")
	m.uplink.Name = "br-office"
	n.reconciled()
	if got := n.kernel.holds(); got.Uplink != "br-office" || !slices.Contains(n.portNames("br-int"), tunnelPort) {
		t.Errorf("host %+v, ports %v", got, n.portNames("br-int"))
	}
}
