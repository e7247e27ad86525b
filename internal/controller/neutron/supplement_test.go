// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"log/slog"
	"net/netip"
	"testing"

	"coelan.io/coelan/internal/backend/neutron/compile"
	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/backend/ovn/nb"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/intenttest"
)

// known is an intent that is complete.
type known struct{ store *intent.Store }

func (k known) Intent() *intent.Store { return k.store }
func (known) Ready() <-chan struct{}  { return nil }

func changeIntent(t *testing.T, store *intent.Store, do func(*intent.Tx)) {
	t.Helper()
	if _, err := store.Update(func(tx *intent.Tx) error { do(tx); return nil }); err != nil {
		t.Fatal(err)
	}
}

// wanNetwork is an external Network of which floatingService has an address.
func wanNetwork() intent.Network {
	return intent.Network{Name: "wan", External: true, Physical: "dc", Subnets: intenttest.Subnets("198.51.100.0/24")}
}

// floatingService sets a Service with a FloatingIP, and a node that may answer for that.
func floatingService(tx *intent.Tx, address string) {
	tx.SetRouter(intent.Router{Name: "default", ID: 1})
	node := intenttest.Node("n1", 1)
	node.PhysicalNetworks = []string{"dc"}
	tx.SetNode(node)
	tx.SetService(intent.Service{Namespace: "shop", Name: "web", Router: "default", Ports: []intent.ServicePort{{
		Protocol: intent.TCP, Port: 80, ClusterIP: netip.MustParseAddr("10.96.0.10"),
	}}})
	tx.SetFloatingIP(intent.FloatingIP{
		Name: "shop/web", Network: "wan", Address: netip.MustParseAddr(address), Service: "shop/web",
	})
}

// Rows are beside those that ML2/OVN makes of what Neutron has, under its names; a Network that
// comes back waits for its new switch.
func TestNamesOfNeutron(t *testing.T) {
	store := intent.NewStore()
	red := intent.Network{Name: "red", Router: "default", Subnets: intenttest.Subnets("10.10.0.0/24")}
	change := func(do func(*intent.Tx)) { t.Helper(); changeIntent(t, store, do) }
	change(func(tx *intent.Tx) {
		tx.SetRouter(intent.Router{Name: "default", ID: 1})
		tx.SetNetwork(red)
		tx.SetNode(intenttest.Node("n1", 1))
	})
	s, err := newSupplement(Options{
		Log: slog.New(slog.DiscardHandler), Northbound: []string{"unix:/none"}, Intent: known{store},
	}, func(outcome) {})
	if err != nil {
		t.Fatal(err)
	}
	name := func(table, key string) string {
		row, ok := s.want().Get(nb.Ref{Table: table, Key: key})
		switch r := row.(type) {
		case *nb.LogicalSwitch:
			return r.Name
		case *nb.LogicalRouter:
			return r.Name
		case *nb.RouterPolicy:
			return r.Match
		}
		if ok {
			t.Errorf("%s %s is a %T", table, key, row)
		}
		return ""
	}
	check := func(what, sw, router, resident string) {
		t.Helper()
		for _, c := range [][3]string{
			{"Logical_Switch", "Network/red", sw}, {"Logical_Router", "Router/default", router},
			{"Logical_Router_Policy", "Node/n1 resident ip4", resident},
		} {
			if got := name(c[0], c[1]); got != c[2] {
				t.Errorf("%s: %s %s: %q, want %q", what, c[0], c[1], got, c[2])
			}
		}
	}
	check("nothing is known", "", "", "")
	found := func(ref resource.Ref, object, id string) {
		s.found(resource.Resource{Ref: ref, Object: object}, resource.Actual{ID: id})
	}
	object := compile.NetworkObject("red")
	found(compile.NetworkRef("red"), object, "u1")
	found(compile.RouterRef("default"), "Router default", "u2")
	found(compile.NodePortRef("n1"), compile.NodeObject("n1"), "u3")
	found(compile.PortRef("shop/red"), compile.PortObject("shop/red"), "u4")
	found(compile.SubnetRef("red", netip.MustParsePrefix("10.10.0.0/24")), object, "u5")
	const resident = `ip4 && is_chassis_resident("u3")`
	check("all is known", "neutron-u1", "neutron-u2", resident)
	change(func(tx *intent.Tx) { tx.DeleteNetwork("red") })
	check("the Network is gone", "", "neutron-u2", resident)
	have := resource.NewInventory()
	have.PutForeign(compile.RouterRef("default"), netip.MustParsePrefix("fd00:97::/64"))
	have.PutForeign(compile.RouterRef("red"), netip.MustParsePrefix("10.97.0.0/24"))
	s.only(have)
	const six, four = "Router/default foreign fd00:97::/64", "Router/default foreign 10.97.0.0/24"
	if match := name("Logical_Router_Policy", six); match != "ip6.dst == fd00:97::/64" {
		t.Errorf("a foreign subnet is reached by %q", match)
	}
	if match := name("Logical_Router_Policy", four); match != "" {
		t.Errorf("a foreign subnet of another router is reached by %q", match)
	}
	s.only(resource.NewInventory())
	if match := name("Logical_Router_Policy", six); match != "" {
		t.Errorf("a foreign subnet that is gone is reached by %q", match)
	}
	change(func(tx *intent.Tx) { tx.SetNetwork(red) })
	check("the Network is back", "", "neutron-u2", resident)
	found(compile.NetworkRef("red"), object, "u6")
	check("Neutron has made it", "neutron-u6", "neutron-u2", resident)
}

// A FloatingIP of a Service waits until Neutron keeps its address, also on an external network of
// another program. Of others of these the cluster wants no rows.
func TestFloatingIPsBesideNeutron(t *testing.T) {
	store := intent.NewStore()
	wan, lan := wanNetwork(), wanNetwork()
	lan.Name, lan.External = "lan", false
	wan.NeutronNetwork, lan.NeutronNetwork = "wan", "lan"
	changeIntent(t, store, func(tx *intent.Tx) {
		tx.SetNetwork(wan)
		tx.SetNetwork(lan)
		floatingService(tx, "198.51.100.40")
	})
	s, err := newSupplement(Options{
		Log: slog.New(slog.DiscardHandler), Northbound: []string{"unix:/none"}, Intent: known{store},
	}, func(outcome) {})
	if err != nil {
		t.Fatal(err)
	}
	has := func(table, key string) bool {
		_, ok := s.want().Get(nb.Ref{Table: table, Key: key})
		return ok
	}
	s.found(resource.Resource{Ref: compile.RouterRef("default"), Object: "Router default"}, resource.Actual{ID: "u1"})
	for _, name := range []string{"wan", "lan"} {
		object := compile.NetworkObject(name)
		s.found(resource.Resource{Ref: resource.LentNetwork(object), Object: object}, resource.Actual{ID: name})
	}
	if has("Logical_Router", "Front/shop/web") {
		t.Error("a node answers before Neutron keeps the address")
	}
	s.found(resource.Resource{
		Ref: compile.FloatingIPRef("shop/web"), Object: compile.FloatingIPObject("shop/web"),
	}, resource.Actual{ID: "u2", Attributes: resource.Attributes{
		"floating_ip_address": "198.51.100.40",
	}})
	if !has("Logical_Router", "Front/shop/web") || !has("Logical_Switch", "Network/wan") {
		t.Error("no node answers")
	}
	if has("Logical_Switch", "Network/lan") {
		t.Error("a switch of another program is wanted that the cluster has nothing on")
	}
}
