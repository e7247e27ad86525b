// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"coelan.io/coelan/internal/backend/ovn/nb"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/intenttest"
)

// supplemented has Services of a shared and of a private Router, with FloatingIPs, and policies.
func supplemented() intent.Objects {
	o := defaults()
	worlds["tenants"](&o)
	o.Networks = append(o.Networks, intent.Network{Name: "office", Router: "", Physical: "dc", Subnets: intenttest.Subnets("192.168.70.0/24")},
		intent.Network{Name: "lab", Router: "lab", Subnets: intenttest.Subnets("10.30.0.0/24")})
	o.Routers = append(o.Routers, intent.Router{Name: "lab", ID: 9, Shared: true, Routes: []intent.Route{
		{Destination: prefix("192.168.50.0/24"), NextHop: addr("10.30.0.5")},
	}})
	o.Local.PolicyMode = intent.EnforcedPolicies
	db := intenttest.Port("a", "db", "red", "n2", "10.10.0.3")
	db.NodeAddresses = []netip.Addr{addr("10.244.2.20")}
	o.Ports = append(o.Ports, db, intenttest.Port("shop", "lab", "lab", "n2", "10.30.0.7"))
	for i, at := range []struct{ namespace, router, endpoint string }{{"shop", "default", "10.244.1.2"}, {"a", "red", "10.244.1.20"}} {
		o.Services = append(o.Services, intent.Service{
			Namespace: at.namespace, Name: "web", Router: at.router, AffinitySeconds: i * 60, ExternalLocal: i == 0, InternalLocal: i == 1,
			Ports: []intent.ServicePort{{
				Protocol: intent.TCP, Port: 80, ClusterIP: addr("10.96.0.10"), NodePort: 30080,
				Endpoints: []intent.ServiceEndpoint{{Address: addr(at.endpoint), Port: 8080, Topology: intent.NewTopology("n1", nil, nil)}},
			}},
		})
	}
	o.Networks = append(o.Networks, intent.Network{
		Name: "wan", Physical: "dc", External: true, Subnets: intenttest.Subnets("198.51.100.0/24", "2001:db8:70::/64"),
	})
	for i := range o.Nodes {
		o.Nodes[i].PhysicalNetworks = []string{"dc"}
	}
	// lb is a load balancer's, and Neutron keeps another address for late.
	lb := o.Services[0]
	lb.Name, lb.Octavia = "lb", true
	o.Services[0].Ports = append(o.Services[0].Ports, intent.ServicePort{
		Protocol: intent.TCP, IPv6: true, Port: 80, ClusterIP: addr("fd00:96::10"),
		Endpoints: []intent.ServiceEndpoint{{Address: addr("fd00:10:244:2::2"), Port: 8080, Topology: intent.NewTopology("n2", nil, nil)}},
	})
	lb.Ports = slices.Clone(lb.Ports)
	lb.Ports[0].ClusterIP, lb.Ports[0].NodePort = addr("10.96.0.20"), 0
	o.Services = append(o.Services, lb)
	for name, at := range map[string][2]string{
		"web": {"198.51.100.40", "shop/web"}, "six": {"2001:db8:70::40", "shop/web"}, "red": {"198.51.100.41", "a/web"},
		"lb": {"198.51.100.42", "shop/lb"}, "late": {"198.51.100.43", "shop/web"},
	} {
		o.FloatingIPs = append(o.FloatingIPs,
			intent.FloatingIP{Name: "shop/" + name, Network: "wan", Address: addr(at[0]), Service: at[1]})
	}
	return o
}

// all are what Neutron has made of the Objects.
func all() Others {
	others := Others{Rows: map[intent.Ref]string{}, Foreign: map[string][]netip.Prefix{
		"default": {prefix("10.97.0.0/24"), prefix("192.168.33.12/30"), prefix("fd00:97::/64")}, "red": {prefix("10.97.1.0/24")},
	}}
	for kind, names := range map[intent.Kind]map[string]string{
		intent.KindNetwork: {
			"default": "neutron-d", "red": "neutron-r", "blue": "neutron-b", "lab": "neutron-l", "office": "neutron-o", "wan": "neutron-w",
		},
		intent.KindRouter: {"default": "neutron-rd", "red": "neutron-rr"},
		intent.KindNode:   {"n1": "p1", "n2": "p2"},
		intent.KindFloatingIP: {
			"shop/web": "198.51.100.40", "shop/red": "198.51.100.41", "shop/lb": "198.51.100.42", "shop/late": "198.51.100.40",
		},
	} {
		for key, name := range names {
			others.Rows[intent.Ref{Kind: kind, Key: key}] = name
		}
	}
	return others
}

func TestSupplementGolden(t *testing.T) {
	c := NewSupplement(Options{Cluster: "east"})
	c.Update(intenttest.State(supplemented()), all())
	rows := c.Rows()
	for _, problem := range dangling(rows) {
		// Other systems' networks of which nothing is known yet wait.
		if !strings.Contains(problem, "Network/audit") {
			t.Error(problem)
		}
	}
	for ref := range rows.Refs() {
		row, _ := rows.Get(ref)
		switch r := row.(type) {
		case *nb.LogicalSwitch:
			if !r.Adopted {
				t.Errorf("%s would be made", ref)
			}
		case *nb.LogicalRouter:
			if !r.Adopted && !strings.HasPrefix(ref.Key, "Front/") {
				t.Errorf("%s would be made", ref)
			}
		}
	}
	got, file := dump(rows), filepath.Join("testdata", "supplement.txt")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

// What a Supplement has after any changes, of intent and of what others have made, is what a new
// one has.
func TestSupplementIsCompilingAnew(t *testing.T) {
	whole := supplemented()
	rapid.Check(t, func(t *rapid.T) {
		store, c := intent.NewStore(), NewSupplement(Options{})
		for range rapid.IntRange(1, 6).Draw(t, "changes") {
			o, others := whole, all()
			if rapid.Bool().Draw(t, "unenforced") {
				o.Local.PolicyMode = intent.UnenforcedPolicies
			}
			o.Routers = some(t, "routers", o.Routers)
			o.Networks = some(t, "networks", o.Networks)
			o.Nodes = some(t, "nodes", o.Nodes)
			o.Services = some(t, "services", o.Services)
			o.Ports = some(t, "ports", o.Ports)
			o.ServiceRanges = some(t, "ranges", o.ServiceRanges)
			o.FloatingIPs = some(t, "floating", o.FloatingIPs)
			// When these change, all is compiled anew: that must not be all that is tried.
			if !rapid.Bool().Draw(t, "all others") {
				kept := some(t, "others", slices.SortedFunc(maps.Keys(others.Rows), intent.Ref.Compare))
				maps.DeleteFunc(others.Rows, func(object intent.Ref, _ string) bool { return !slices.Contains(kept, object) })
				foreign := some(t, "foreign", slices.Sorted(maps.Keys(others.Foreign)))
				maps.DeleteFunc(others.Foreign, func(router string, _ []netip.Prefix) bool { return !slices.Contains(foreign, router) })
			}
			s, err := store.Update(func(tx *intent.Tx) error { tx.Replace(o); return nil })
			if err != nil {
				t.Fatal(err)
			}
			c.Update(s, others)
			anew := NewSupplement(Options{})
			anew.Update(s, others)
			if diff := cmp.Diff(dump(anew.Rows()), dump(c.Rows())); diff != "" {
				t.Fatalf("rows (-anew +updated):\n%s", diff)
			}
		}
	})
}

// A node's own processes reach Ports that were there before the node was known.
func TestSupplementNodeAfterItsPorts(t *testing.T) {
	whole, early := supplemented(), supplemented()
	early.Nodes = early.Nodes[:1]
	store, c := intent.NewStore(), NewSupplement(Options{})
	for _, o := range []intent.Objects{early, whole} {
		s, err := store.Update(func(tx *intent.Tx) error { tx.Replace(o); return nil })
		if err != nil {
			t.Fatal(err)
		}
		c.Update(s, all())
	}
	anew := NewSupplement(Options{})
	anew.Update(store.State(), all())
	if diff := cmp.Diff(dump(anew.Rows()), dump(c.Rows())); diff != "" {
		t.Errorf("rows (-anew +updated):\n%s", diff)
	}
}

func some[T any](t *rapid.T, what string, list []T) (kept []T) {
	for i := range list {
		if rapid.Bool().Draw(t, what) {
			kept = append(kept, list[i])
		}
	}
	return kept
}

// What a router of Neutron sends to a foreign subnet does not leave by nodes.
func TestForeignStays(t *testing.T) {
	others := all()
	l := othersLayout{others: &others}
	s := intenttest.State(supplemented())
	r := func(name string) intent.Router { r, _ := s.Routers().Get(name); return r }
	if got := l.leaves(s, r("red"), "", addr("10.10.0.1")); got != "ip4 && !(ip4.dst == {10.10.0.0/16, 10.97.1.0/24})" {
		t.Errorf("from red leaves what fits %s", got)
	}
	if got := l.leaves(s, r("blue"), "", addr("fd00::1")); got != "ip6" {
		t.Errorf("from blue leaves what fits %s", got)
	}
}
