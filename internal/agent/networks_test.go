// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/netip"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/hostnet"
	"coelan.io/coelan/internal/intent"
)

// networked is a State with a shared, a private and a physical Network.
func networked(t *testing.T) *intent.State {
	t.Helper()
	before := cluster(t, intent.Local{Node: "n1", Encapsulation: intent.VXLAN, TunnelIP: addr("192.168.33.11"), MTU: 1450})
	subnet := func(p, gateway string) []intent.NetworkSubnet {
		return []intent.NetworkSubnet{{Prefix: netip.MustParsePrefix(p), Gateway: addr(gateway)}}
	}
	s, err := intent.NewStore().Update(func(tx *intent.Tx) error {
		tx.Replace(intent.Objects{
			Local: before.Local(), Nodes: slices.Collect(before.Nodes().All()),
			Routers: []intent.Router{{Name: "default", ID: 1, VNI: 1, Shared: true}, {Name: "open", ID: 2, Shared: true}, {Name: "red", ID: 3}},
			Networks: []intent.Network{
				{Name: "default", ID: 1, VNI: 1, Router: "default"},
				{Name: "open", ID: 2, VNI: 70002, Router: "open", Subnets: subnet("10.60.0.0/16", "10.60.0.1")},
				{Name: "red", ID: 3, VNI: 70003, Router: "red", Subnets: subnet("10.50.0.0/16", "10.50.0.1")},
				{Name: "lan", ID: 4, Physical: 3, Subnets: subnet("192.168.42.0/24", "192.168.42.254")},
			},
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The host's kernel knows the addresses of shared Networks, and of no others.
func TestHostStateOfNetworks(t *testing.T) {
	d := hostState(config.Default(), networked(t), "eth0", nil)
	var got []hostnet.Route
	for _, r := range d.Routes {
		if !slices.ContainsFunc(prefixes("10.244.0.0/16", "fd44::/16"), func(p netip.Prefix) bool { return p.Overlaps(r.Destination) }) {
			got = append(got, r)
		}
	}
	want := []hostnet.Route{{Destination: prefixes("10.60.0.0/16")[0], Via: addr("10.60.0.1"), Gateway: true, Source: addr("10.244.1.1")}}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
		t.Errorf("routes (-want +got):\n%s", diff)
	}
	shared, private := prefixes("10.60.0.0/16")[0], prefixes("10.50.0.0/16")[0]
	if !slices.Contains(d.SNAT.Pods, shared) || !slices.Contains(d.SNAT.Direct, shared) || slices.Contains(d.SNAT.Pods, private) {
		t.Errorf("masquerading: %+v", d.SNAT)
	}
}

// Ports of other nodes come and go with the API; those of this node do not.
func TestApplyLeavesOwnPorts(t *testing.T) {
	store := intent.NewStore()
	port := func(id, node string) intent.Port { return intent.Port{ID: id, Node: node, Network: "red"} }
	update := func(change func(tx *intent.Tx)) {
		t.Helper()
		if _, err := store.Update(func(tx *intent.Tx) error { change(tx); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	update(func(tx *intent.Tx) {
		tx.SetPort(port("container/eth0", "n1"))
		tx.SetPort(port("port:shop/mine", "n1"))
		tx.SetPort(port("port:shop/old", "n2"))
	})
	update(func(tx *intent.Tx) {
		networkIntent{ports: []intent.Port{port("port:shop/mine", "n2"), port("port:shop/new", "n2")}}.apply(tx, store.State(), "n1")
	})
	got := map[string]string{}
	for p := range store.State().Ports().All() {
		got[p.ID] = p.Node
	}
	want := map[string]string{"container/eth0": "n1", "port:shop/mine": "n1", "port:shop/new": "n2"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ports by node (-want +got):\n%s", diff)
	}
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
		mappings := map[string]string{}
		for _, n := range networks {
			mappings[n] = "br-" + n
		}
		numbers, err := numberUplinks(store, mappings)
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
	many := map[string]string{}
	for _, c := range "abcdefghijklmn" {
		many[string(c)] = string(c)
	}
	if _, err := numberUplinks(store, many); err == nil {
		t.Error("14 physical networks have numbers")
	}
}
