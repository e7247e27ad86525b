// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/intenttest"
)

var update = flag.Bool("update", false, "write the golden files")

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }
func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }

// defaults are what each cluster has.
func defaults() intent.Objects {
	return intent.Objects{
		Routers:       []intent.Router{{Name: "default", ID: 1}},
		Networks:      []intent.Network{{Name: "default", Router: "default"}},
		Nodes:         []intent.Node{intenttest.Node("n1", 1), intenttest.Node("n2", 2)},
		ServiceRanges: []intent.ServiceRange{{Prefix: prefix("10.96.0.0/16")}, {Prefix: prefix("fd00:96::/112")}},
	}
}

func compiled(s *intent.State) *Compiler {
	c := New(Options{})
	c.Update(s)
	return c
}

var worlds = map[string]func(*intent.Objects){
	"pods": func(o *intent.Objects) {
		o.Ports = []intent.Port{
			intenttest.Port("shop", "web", "default", "n1", "10.244.1.2", "fd00:10:244:1::2"),
			intenttest.Port("shop", "db", "default", "n2", "10.244.2.2"),
			intenttest.Port("shop", "lost", "default", "n3", "10.244.3.2"),
		}
	},
	"tenants": func(o *intent.Objects) {
		o.Routers = append(o.Routers, intent.Router{Name: "red", ID: 2}, intent.Router{Name: "blue", ID: 3},
			intent.Router{Name: "audit", ID: 4, Imports: []string{"red"}, Routes: []intent.Route{
				{Destination: prefix("0.0.0.0/0"), NextHop: addr("10.20.0.5")}}})
		o.Networks = append(o.Networks,
			intent.Network{Name: "red", Router: "red", Subnets: intenttest.Subnets("10.10.0.0/16", "fd00:10::/64")},
			intent.Network{Name: "blue", Router: "blue", Subnets: intenttest.Subnets("10.10.0.0/16")},
			intent.Network{Name: "audit", Router: "audit", Subnets: intenttest.Subnets("10.20.0.0/16")},
			intent.Network{Name: "ns-x-n1", Router: "red"})
		o.Ports = []intent.Port{
			intenttest.Port("a", "web", "red", "n1", "10.10.0.2", "fd00:10::2"), intenttest.Port("b", "web", "blue", "n1", "10.10.0.2"),
			intenttest.Port("c", "fw", "audit", "n2", "10.20.0.5"), intenttest.Port("x", "pod", "ns-x-n1", "n1", "10.244.1.9"),
		}
		o.Ports[0].NodeAddresses = []netip.Addr{addr("10.244.1.20")}
	},
	"shared": func(o *intent.Objects) {
		o.Routers = append(o.Routers, intent.Router{Name: "lab", ID: 2, Shared: true, Routes: []intent.Route{
			{Destination: prefix("192.168.50.0/24"), NextHop: addr("10.30.0.5")},
			{Destination: prefix("0.0.0.0/0"), NextHop: addr("10.30.0.5")},
		}})
		o.Networks = append(o.Networks,
			intent.Network{Name: "lab", Router: "lab", Subnets: intenttest.Subnets("10.30.0.0/16", "fd00:30::/64")},
			intent.Network{Name: "ns-shop-n1", Router: "lab"})
		o.Ports = []intent.Port{
			intenttest.Port("lab", "gw", "lab", "n1", "10.30.0.5"), intenttest.Port("shop", "web", "ns-shop-n1", "n1", "10.244.1.7"),
		}
	},
	"machines": func(o *intent.Objects) {
		o.Routers = append(o.Routers, intent.Router{Name: "red", ID: 2})
		o.Networks = append(o.Networks, intent.Network{
			Name: "red", Router: "red", Subnets: intenttest.Subnets("10.10.0.0/16", "fd00:10::/64"), MTU: 1380,
			DNS: intent.DNS{Servers: []netip.Addr{addr("192.0.2.53"), addr("2001:db8::53")}, Searches: []string{"red.example", "example"}},
			DHCP: intent.DHCP{
				Enabled: true, Lease: time.Hour, NTP: []netip.Addr{addr("192.0.2.123"), addr("2001:db8::123")},
				Routes:     []intent.Route{{Destination: prefix("192.168.50.0/24"), NextHop: addr("10.10.0.5")}},
				NextServer: addr("192.0.2.69"), BootFile: "pxelinux.0",
			},
		}, intent.Network{
			Name: "plain", Router: "red", Subnets: intenttest.Subnets("10.11.0.0/16"), DHCP: intent.DHCP{Enabled: true, Lease: time.Minute},
		})
		o.Ports = []intent.Port{
			intenttest.Port("shop", "db.example", "red", "n1", "10.10.0.50", "fd00:10::50"), intenttest.Port("shop", "unbound", "plain", "", "10.11.0.2"),
		}
	},
	"gateways": func(o *intent.Objects) {
		o.Routers = append(o.Routers, intent.Router{Name: "red", ID: 2}, intent.Router{Name: "blue", ID: 3}, intent.Router{Name: "green", ID: 4},
			intent.Router{Name: "fw", ID: 5, Routes: []intent.Route{{Destination: prefix("0.0.0.0/0"), NextHop: addr("10.13.0.9")}}})
		o.Networks = append(o.Networks,
			intent.Network{Name: "green", Router: "green", Subnets: intenttest.Subnets("10.12.0.0/16")},
			intent.Network{Name: "fw", Router: "fw", Subnets: intenttest.Subnets("10.13.0.0/16")},
			intent.Network{Name: "lab", Physical: "dc", VLAN: 71, External: true, Subnets: intenttest.Subnets("203.0.113.0/24")},
			intent.Network{Name: "office", Physical: "dc", VLAN: 70, External: true, Subnets: intenttest.Subnets("198.51.100.0/24", "2001:db8:70::/64")},
			intent.Network{Name: "red", Router: "red", Subnets: intenttest.Subnets("10.10.0.0/16", "fd00:10::/64")},
			intent.Network{Name: "blue", Router: "blue", Subnets: intenttest.Subnets("10.10.0.0/16")})
		for router, addresses := range map[string][]string{
			"red": {"198.51.100.50", "2001:db8:70::50", "198.51.100.51"}, "default": {"198.51.100.60"},
		} {
			for _, a := range addresses {
				o.EgressAddresses = append(o.EgressAddresses, intent.EgressAddress{
					Network: "office", Address: addr(a), Router: router, Nodes: []string{"n1", "n2"}, Leaving: []string{"n1"},
				})
			}
		}
		o.EgressAddresses = append(o.EgressAddresses,
			intent.EgressAddress{Network: "office", Address: addr("198.51.100.70"), Router: "default", Egress: "bank"})
		o.EgressPaths = []intent.EgressPath{{Name: "bank", Network: "office"}}
		o.GatewayAddresses = []intent.GatewayAddress{{Router: "blue", Node: "n1", Network: "office", Address: addr("198.51.100.80")}}
		o.FloatingIPs = []intent.FloatingIP{
			{Name: "red/web", Network: "office", Address: addr("198.51.100.32"), Port: "red/web"},
			{Name: "red/web-6", Network: "office", Address: addr("2001:db8:70::32"), Port: "red/web"},
			{Name: "blue/web", Network: "office", Address: addr("198.51.100.33"), Port: "blue/web"},
			{Name: "red/shop", Network: "office", Address: addr("198.51.100.34"), Service: "red/shop"},
			{Name: "red/none", Network: "office", Address: addr("198.51.100.35"), Port: "red/none"},
			{Name: "shop/web", Network: "office", Address: addr("198.51.100.36"), Port: "shop/web"},
			{Name: "green/web", Network: "office", Address: addr("198.51.100.37"), Port: "green/web"},
			{Name: "green/web-lab", Network: "lab", Address: addr("203.0.113.37"), Port: "green/web"},
			{Name: "fw/web", Network: "office", Address: addr("198.51.100.38"), Port: "fw/web"},
		}
		o.Ports = []intent.Port{
			intenttest.Port("red", "web", "red", "n1", "10.10.0.2", "fd00:10::2"), intenttest.Port("blue", "web", "blue", "n1", "10.10.0.2"),
			intenttest.Port("shop", "web", "default", "n1", "10.244.1.2"), intenttest.Port("green", "web", "green", "n2", "10.12.0.2"),
			intenttest.Port("fw", "web", "fw", "n2", "10.13.0.2"),
		}
		for i, a := range map[int]string{0: "10.244.1.20", 3: "10.244.2.20", 4: "10.244.2.21"} {
			o.Ports[i].NodeAddresses = []netip.Addr{addr(a)}
		}
	},
	"fronts": func(o *intent.Objects) {
		o.Networks = append(o.Networks, intent.Network{
			Name: "office", Physical: "dc", VLAN: 70, External: true, Subnets: intenttest.Subnets("198.51.100.0/24", "2001:db8:70::/64"),
		}, intent.Network{Name: "lab", Physical: "dc2", External: true, Subnets: intenttest.Subnets("203.0.113.0/24")})
		for i := range o.Nodes {
			o.Nodes[i].PhysicalNetworks, o.Nodes[i].MTU = []string{"dc"}, 1400
		}
		leaving := intenttest.Node("n3", 3)
		leaving.PhysicalNetworks, leaving.Withdrawn = []string{"dc"}, true
		o.Nodes = append(o.Nodes, leaving)
		service := func(name, node string, local bool) {
			v := intent.Service{Namespace: "shop", Name: name, Router: "default", ExternalLocal: local}
			for i, clusterIP := range []string{"10.96.0.10", "fd00:96::10"} {
				v.Ports = append(v.Ports, intent.ServicePort{
					Protocol: intent.TCP, Port: 80, IPv6: i == 1, ClusterIP: addr(clusterIP),
					Endpoints: []intent.ServiceEndpoint{{
						Address: addr([]string{"10.244.2.2", "fd00:10:244:2::2"}[i]), Port: 8080, Topology: intent.NewTopology(node, nil, nil),
					}},
				})
			}
			o.Services = append(o.Services, v)
		}
		service("web", "n2", false)
		service("local", "n2", true)
		service("leaving", "n3", true)
		for name, at := range map[string][2]string{
			"web": {"198.51.100.40", "web"}, "web-6": {"2001:db8:70::40", "web"}, "local": {"198.51.100.41", "local"},
			"leaving": {"198.51.100.42", "leaving"}, "none": {"198.51.100.43", "none"}, "lab": {"203.0.113.40", "web"},
		} {
			f := intent.FloatingIP{Name: "shop/" + name, Network: "office", Address: addr(at[0]), Service: "shop/" + at[1]}
			if name == "lab" { // that no node is connected to
				f.Network = "lab"
			}
			o.FloatingIPs = append(o.FloatingIPs, f)
		}
	},
	"wires": func(o *intent.Objects) {
		o.Networks = append(o.Networks,
			intent.Network{Name: "office", Physical: "dc", VLAN: 70, Subnets: intenttest.Subnets("192.168.70.0/24")},
			intent.Network{Name: "flat", Physical: "dc2", Subnets: intenttest.Subnets("192.168.71.0/24")})
		o.Ports = []intent.Port{intenttest.Port("shop", "web.net1", "office", "n1", "192.168.70.21")}
	},
}

func TestGolden(t *testing.T) {
	for name, change := range worlds {
		t.Run(name, func(t *testing.T) {
			o := defaults()
			change(&o)
			rows := compiled(intenttest.State(o)).Rows()
			for _, problem := range dangling(rows) {
				t.Error(problem)
			}
			got, file := dump(rows), filepath.Join("testdata", name+".txt")
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
		})
	}
}

// What a Compiler has after any changes is what a new one has.
func TestUpdateIsCompilingAnew(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		store := intent.NewStore()
		c := New(Options{Cluster: names.Cluster("blue")})
		router := rapid.SampledFrom([]string{"default", "red", "lab"})
		network := rapid.SampledFrom([]string{"default", "red", "lab", "ns", "office"})
		nodes := rapid.SampledFrom([]string{"n1", "n2"})
		change := func(do func(*intent.Tx)) {
			_, _ = store.Update(func(tx *intent.Tx) error { do(tx); return nil })
		}
		t.Repeat(map[string]func(*rapid.T){
			"router": func(t *rapid.T) {
				name := router.Draw(t, "router")
				r := intent.Router{Name: name, ID: intent.RouterID(len(name)), Shared: name != "default" && rapid.Bool().Draw(t, "shared")}
				if rapid.Bool().Draw(t, "imports") {
					r.Imports = []string{rapid.SampledFrom([]string{"red", "lab"}).Draw(t, "import")}
				}
				if rapid.Bool().Draw(t, "routes") {
					r.Routes = []intent.Route{{
						Destination: rapid.SampledFrom([]netip.Prefix{prefix("0.0.0.0/0"), prefix("192.168.0.0/16")}).Draw(t, "to"),
						NextHop:     addr("10.10.0.2"),
					}}
				}
				r.Imports = slices.DeleteFunc(r.Imports, func(s string) bool { return s == name })
				change(func(tx *intent.Tx) { tx.SetRouter(r) })
			},
			"no router": func(t *rapid.T) { change(func(tx *intent.Tx) { tx.DeleteRouter(router.Draw(t, "router")) }) },
			"network": func(t *rapid.T) {
				n := intent.Network{Name: network.Draw(t, "network"), Router: router.Draw(t, "router")}
				switch n.Name {
				case "office", "lab":
					n.Physical, n.Router, n.Subnets = "dc", "", intenttest.Subnets("10.10.0.0/16")
					n.External = rapid.Bool().Draw(t, "external")
				case "default", "ns":
				default:
					n.Subnets = intenttest.Subnets("10.10.0.0/16", "fd00:10::/64")
					n.DHCP.Enabled = rapid.Bool().Draw(t, "dhcp")
					n.MTU = rapid.SampledFrom([]int{0, 1400}).Draw(t, "mtu")
				}
				change(func(tx *intent.Tx) { tx.SetNetwork(n) })
			},
			"no network": func(t *rapid.T) { change(func(tx *intent.Tx) { tx.DeleteNetwork(network.Draw(t, "network")) }) },
			"node": func(t *rapid.T) {
				n := intenttest.Node(nodes.Draw(t, "node"), rapid.IntRange(1, 2).Draw(t, "number"))
				n.MTU = rapid.SampledFrom([]int{0, 1300, 1400}).Draw(t, "mtu")
				if rapid.Bool().Draw(t, "connected") {
					n.PhysicalNetworks = []string{"dc"}
				}
				if rapid.Bool().Draw(t, "no subnets") {
					n.Subnets = nil
				}
				change(func(tx *intent.Tx) { tx.SetNode(n) })
			},
			"no node": func(t *rapid.T) { change(func(tx *intent.Tx) { tx.DeleteNode(nodes.Draw(t, "node")) }) },
			"port": func(t *rapid.T) {
				p := intenttest.Port("a", rapid.SampledFrom([]string{"x", "y"}).Draw(t, "name"), network.Draw(t, "network"), nodes.Draw(t, "node"),
					rapid.SampledFrom([]string{"10.10.0.2", "10.10.0.3"}).Draw(t, "address"))
				p.ID = rapid.SampledFrom([]string{"1", "2"}).Draw(t, "id")
				if rapid.Bool().Draw(t, "node address") {
					p.NodeAddresses = []netip.Addr{addr("10.244.1.2" + p.ID)}
				}
				change(func(tx *intent.Tx) { tx.SetPort(p) })
			},
			"no port": func(t *rapid.T) {
				change(func(tx *intent.Tx) { tx.DeletePort(rapid.SampledFrom([]string{"1", "2"}).Draw(t, "id")) })
			},
			"gateway": func(t *rapid.T) {
				e := intent.EgressAddress{
					Network: "office", Router: router.Draw(t, "router"),
					Address: rapid.SampledFrom([]netip.Addr{addr("10.10.0.77"), addr("fd00:10::77")}).Draw(t, "address"),
					Nodes:   []string{nodes.Draw(t, "node")},
				}
				if rapid.Bool().Draw(t, "egress") {
					e.Egress = "bank"
				}
				change(func(tx *intent.Tx) { tx.SetEgressAddress(e) })
			},
			"no gateway": func(t *rapid.T) {
				change(func(tx *intent.Tx) { tx.DeleteEgressAddress("office", addr("10.10.0.77")) })
			},
			"distributed": func(t *rapid.T) {
				g := intent.GatewayAddress{Router: router.Draw(t, "router"), Node: "n1", Network: "office", Address: addr("10.10.0.78")}
				change(func(tx *intent.Tx) { tx.SetGatewayAddress(g) })
			},
			"floating": func(t *rapid.T) {
				f := intent.FloatingIP{
					Name: rapid.SampledFrom([]string{"a/f", "a/g"}).Draw(t, "floating"), Address: addr("10.10.0.79"),
					Network: rapid.SampledFrom([]string{"office", "lab"}).Draw(t, "external"),
					Port:    rapid.SampledFrom([]string{"a/x", "a/y", ""}).Draw(t, "port"),
				}
				if f.Port == "" {
					f.Service = rapid.SampledFrom([]string{"a/s", "a/t"}).Draw(t, "of")
				}
				change(func(tx *intent.Tx) { tx.SetFloatingIP(f) })
			},
			"no floating": func(*rapid.T) { change(func(tx *intent.Tx) { tx.DeleteFloatingIP("a/f") }) },
			"service": func(t *rapid.T) {
				p := intent.ServicePort{Protocol: intent.TCP, Port: 80, NodePort: 30080, ClusterIP: addr("10.96.0.9")}
				for _, a := range []string{"10.10.0.9", "10.244.1.21", "10.244.1.22"} {
					if rapid.Bool().Draw(t, a) {
						p.Endpoints = append(p.Endpoints, intent.ServiceEndpoint{
							Address: addr(a), Port: 8080, Topology: intent.NewTopology(nodes.Draw(t, "node"), nil, nil),
						})
					}
				}
				v := intent.Service{
					Namespace: "a", Name: rapid.SampledFrom([]string{"s", "t"}).Draw(t, "service"), Router: router.Draw(t, "router"),
					ExternalLocal: rapid.Bool().Draw(t, "local"), Ports: []intent.ServicePort{p},
				}
				change(func(tx *intent.Tx) { tx.SetService(v) })
			},
			"no service": func(*rapid.T) { change(func(tx *intent.Tx) { tx.DeleteService("a/s") }) },
			"range": func(t *rapid.T) {
				change(func(tx *intent.Tx) { tx.ReplaceServiceRanges([]intent.ServiceRange{{Prefix: prefix("10.96.0.0/16")}}) })
			},
			"": func(t *rapid.T) {
				s := store.State()
				if rapid.Bool().Draw(t, "several at once") {
					return
				}
				before := rowsOf(c.Rows())
				c.Update(s)
				anew := New(Options{Cluster: names.Cluster("blue")})
				anew.Update(s)
				if diff := cmp.Diff(dump(anew.Rows()), dump(c.Rows())); diff != "" {
					t.Fatalf("rows (-anew +updated):\n%s", diff)
				}
				if changes := c.Rows().Changes(); len(changes) == 0 && before != rowsOf(c.Rows()) {
					t.Fatal("rows differ, and Changes has none")
				}
			},
		})
	})
}
