// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"testing"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/backend/ovs/cards"
	"coelan.io/coelan/internal/backend/ovs/hostnet"
	"coelan.io/coelan/internal/backend/ovs/ovsdb"
	"coelan.io/coelan/internal/backend/ovs/ovsfake"
)

// newBareMachine is newMachine without its bridge: the agent is to make it. The node's address is
// where its card's is.
func newBareMachine(t *testing.T, vlans map[string]int, bridges ...string) *node {
	t.Helper()
	o := ovsfake.New(t)
	for _, b := range bridges {
		must(t, o.AddBridge(b, "netdev"))
	}
	n := newMachineOn(t, o, "eth0", vlans)
	n.Config.Backend.MachineBridge = true
	n.host.find = func(a netip.Addr) (hostnet.Uplink, error) {
		u := hostnet.Uplink{Name: "eth0", MTU: 1400, Address: netip.PrefixFrom(a, 24)}
		if in := n.deck.In("eth0"); in != "" {
			u.Name = in
		}
		return u, nil
	}
	return n
}

// bridges are those of Open vSwitch, also after what others have changed.
func (n *node) bridges() []string {
	n.Helper()
	db := ovsdb.Open(ovsdb.Options{Socket: n.ovs.Socket(), Logger: slog.New(slog.DiscardHandler)})
	defer db.Close()
	all, err := db.Bridges(bound(n.T))
	must(n.T, err)
	var names []string
	for _, b := range all {
		names = append(names, b.Name)
	}
	return names
}

// The agent makes the bridge of a machine, with the card in it that has the node's address, and
// leaves it alone then. Where that is not wanted any more, the card gets its address back.
func TestMachineBridge(t *testing.T) {
	vlans := map[string]int{"mgmt-n1": 2, "shop/web.eth0": 3}
	n := newBareMachine(t, vlans)
	must(t, n.reconcile(bound(t)))
	if in := n.deck.In("eth0"); in != "br-int" {
		t.Fatalf("the card is in bridge %q", in)
	}
	at := n.pod("web")
	must(t, n.Attach(bound(t), at, 0))
	writes := n.ovs.Writes()
	for range 2 {
		must(t, n.reconcile(bound(t)))
	}
	if again := n.ovs.Writes(); again != writes || n.deck.Prepared != 1 {
		t.Errorf("%d writes and %d moves without a change", again-writes, n.deck.Prepared-1)
	}
	want := []string{at.HostInterface, "coelan-card1", "coelan-gw0"}
	slices.Sort(want)
	if got := n.portNames(); !slices.Equal(got, want) {
		t.Errorf("ports %v, want %v", got, want)
	}
	var c agentapi.Check
	must(t, n.Findings(bound(t), &c))
	if len(c.Findings) > 0 {
		t.Errorf("findings: %+v", c.Findings)
	}
	// The userspace datapath reads the card's port beside the kernel.
	if d := n.kernel.desired; !slices.Equal(d.SwitchOnly, []string{"coelan-card1"}) || !slices.Equal(d.Cards, []string{"eth0"}) ||
		d.Uplink != "br-int" {
		t.Errorf("the kernel has %+v", d)
	}

	n.Config.Backend.MachineBridge = false
	n.says(n.reconcile(bound(t)), "bridge br-int does not exist: on a machine of OpenStack")
	if in := n.deck.In("eth0"); in != "" || len(n.bridges()) > 0 {
		t.Errorf("the card is in bridge %q, and there are %v", in, n.bridges())
	}
}

// A bridge that is gone is made anew, with the card that is below its port.
func TestMachineBridgeThatIsGone(t *testing.T) {
	n := newBareMachine(t, map[string]int{"mgmt-n1": 2})
	must(t, n.reconcile(bound(t)))
	must(t, n.db.DelBridge(bound(t), "br-int"))
	n.host.find = func(netip.Addr) (hostnet.Uplink, error) {
		return hostnet.Uplink{}, errors.New("no interface of this host has the node's address")
	}
	n.says(n.reconcile(bound(t)), "no interface of this host")
	if !slices.Equal(n.bridges(), []string{"br-int"}) || n.deck.Prepared != 2 {
		t.Errorf("bridges %v, %d moves", n.bridges(), n.deck.Prepared)
	}
}

// What other nodes have, and what an administrator has made, stays as it is.
func TestMachineBridgeIsNotForAll(t *testing.T) {
	t.Run("no machine", func(t *testing.T) {
		n := newNode(t, nil)
		n.Config.Backend.MachineBridge = true
		must(t, n.reconcile(bound(t)))
		if n.deck.Prepared != 0 {
			t.Error("the card was moved")
		}
	})
	t.Run("an administrator's", func(t *testing.T) {
		n := newMachine(t, "br-int", map[string]int{"mgmt-n1": 2})
		n.Config.Backend.MachineBridge = true
		must(t, n.reconcile(bound(t)))
		if n.deck.Prepared != 0 {
			t.Error("the card was moved")
		}
	})
	t.Run("one that is in the way", func(t *testing.T) {
		n := newMachine(t, "eth0", nil)
		n.Config.Backend.MachineBridge = true
		n.says(n.reconcile(bound(t)), "bridge br-int is not Coelan's, and the node's address 192.0.2.1 is on interface eth0")
	})
	t.Run("another bridge with the address", func(t *testing.T) {
		n := newBareMachine(t, nil, "br-ex")
		n.host.find = func(netip.Addr) (hostnet.Uplink, error) { return hostnet.Uplink{Name: "br-ex", MTU: 1400}, nil }
		n.says(n.reconcile(bound(t)), "the node's address 192.0.2.1 is on bridge br-ex")
		if n.deck.Prepared != 0 {
			t.Error("the bridge was put into the bridge")
		}
	})
	t.Run("a leased address", func(t *testing.T) {
		n := newBareMachine(t, nil)
		n.deck.Unlike["eth0"] = hostnet.Card{Leased: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}
		n.says(n.reconcile(bound(t)), "interface eth0 has the node's address 192.0.2.1 for a limited time only")
		if len(n.bridges()) > 0 {
			t.Errorf("bridges %v", n.bridges())
		}
	})
}

// An uninstall gives the card back, and removes the bridge with all ports.
func TestUninstallOfAMachine(t *testing.T) {
	n := newBareMachine(t, map[string]int{"mgmt-n1": 2})
	must(t, n.reconcile(bound(t)))
	must(t, cards.ReturnAll(bound(t), n.Config, n.deck))
	if in := n.deck.In("eth0"); in != "" || len(n.bridges()) > 0 {
		t.Errorf("the card is in bridge %q, and there are %v", in, n.bridges())
	}
	if what := Removals(bound(t), n.Config)[0].What; what != "bridges of network cards" {
		t.Errorf("first removed are %s", what)
	}
}
