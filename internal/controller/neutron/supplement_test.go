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

// Rows are beside those that ML2/OVN makes of what Neutron has, under its names; a Network that
// comes back waits for its new switch.
func TestNamesOfNeutron(t *testing.T) {
	store := intent.NewStore()
	red := intent.Network{Name: "red", Router: "default", Subnets: intenttest.Subnets("10.10.0.0/24")}
	change := func(do func(*intent.Tx)) {
		t.Helper()
		if _, err := store.Update(func(tx *intent.Tx) error { do(tx); return nil }); err != nil {
			t.Fatal(err)
		}
	}
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
	for ref, id := range map[resource.Ref]string{
		compile.NetworkRef("red"): "u1", compile.RouterRef("default"): "u2", compile.NodePortRef("n1"): "u3",
		compile.PortRef("shop/red"): "u4", compile.SubnetRef("red", netip.MustParsePrefix("10.10.0.0/24")): "u5",
	} {
		s.found(resource.Resource{Ref: ref}, resource.Actual{ID: id})
	}
	const resident = `ip4 && is_chassis_resident("u3")`
	check("all is known", "neutron-u1", "neutron-u2", resident)
	change(func(tx *intent.Tx) { tx.DeleteNetwork("red") })
	check("the Network is gone", "", "neutron-u2", resident)
	change(func(tx *intent.Tx) { tx.SetNetwork(red) })
	check("the Network is back", "", "neutron-u2", resident)
	s.found(resource.Resource{Ref: compile.NetworkRef("red")}, resource.Actual{ID: "u6"})
	check("Neutron has made it", "neutron-u6", "neutron-u2", resident)
}

// The node addresses of a Port are translated by its port in Neutron, and no longer when nothing
// has it any more.
func TestNodeAddressesByNeutronsPort(t *testing.T) {
	store := intent.NewStore()
	pod := intenttest.Port("a", "web", "red", "n1", "10.10.0.2")
	pod.NodeAddresses = []netip.Addr{netip.MustParseAddr("10.244.1.20")}
	change := func(do func(*intent.Tx)) {
		t.Helper()
		if _, err := store.Update(func(tx *intent.Tx) error { do(tx); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	change(func(tx *intent.Tx) {
		tx.SetRouter(intent.Router{Name: "default", ID: 1})
		tx.SetRouter(intent.Router{Name: "red", ID: 2})
		tx.SetNetwork(intent.Network{Name: "default", Router: "default"})
		tx.SetNetwork(intent.Network{Name: "red", Router: "red", Subnets: intenttest.Subnets("10.10.0.0/24")})
		tx.SetNode(intenttest.Node("n1", 1))
		tx.SetPort(pod)
	})
	s, err := newSupplement(Options{
		Log: slog.New(slog.DiscardHandler), Northbound: []string{"unix:/none"}, Intent: known{store},
	}, func(outcome) {})
	if err != nil {
		t.Fatal(err)
	}
	check := func(what, want string) {
		t.Helper()
		by := ""
		for ref := range s.want().Refs() {
			row, _ := s.want().Get(ref)
			if nat, is := row.(*nb.NAT); is {
				by += nat.ExternalIP + " " + nat.LogicalIP + " by " + *nat.LogicalPort
			}
		}
		if by != want {
			t.Errorf("%s: %q, want %q", what, by, want)
		}
	}
	for ref, id := range map[resource.Ref]string{
		compile.NetworkRef("default"): "u1", compile.RouterRef("default"): "u2", compile.NodePortRef("n1"): "u3",
		compile.NetworkRef("red"): "u4", compile.RouterRef("red"): "u5",
	} {
		s.found(resource.Resource{Ref: ref}, resource.Actual{ID: id})
	}
	check("the port is not known", "")
	found := func(id string) {
		of := resource.Resource{Ref: resource.Ref{Kind: resource.Port, Key: "Node/n1 in red 10.10.0.2"}, Object: "Port a/web"}
		s.found(of, resource.Actual{ID: id})
	}
	found("p1")
	check("it is", "10.244.1.20 10.10.0.2 by p1")
	found("p2")
	check("it is another one", "10.244.1.20 10.10.0.2 by p2")
	change(func(tx *intent.Tx) { tx.DeletePort(pod.ID) })
	check("the Port is gone", "")
	change(func(tx *intent.Tx) { tx.SetPort(pod) })
	check("it is back", "")
}
