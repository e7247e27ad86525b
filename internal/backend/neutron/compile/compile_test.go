// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/intenttest"
)

var update = flag.Bool("update", false, "write the golden files")

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }
func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }

func stateOf(change func(*intent.Objects)) *intent.State {
	o := intent.Objects{
		Routers:  []intent.Router{{Name: "default", ID: 1}},
		Networks: []intent.Network{{Name: "default", Router: "default"}},
		Nodes:    []intent.Node{intenttest.Node("n1", 1)},
	}
	change(&o)
	return intenttest.State(o)
}

var worlds = map[string]func(*intent.Objects){
	"policies": policies,
	"pods": func(o *intent.Objects) {
		o.Ports = []intent.Port{
			intenttest.Port("shop", "web", "default", "n1", "10.244.1.2", "fd00:10:244:1::2"), intenttest.Port("shop", "lost", "gone", "n1", "10.244.1.3"),
		}
	},
	"tenants": func(o *intent.Objects) {
		o.Routers = append(o.Routers, intent.Router{Name: "red", ID: 2, Routes: []intent.Route{
			{Destination: prefix("0.0.0.0/0"), NextHop: addr("10.10.0.2")}, {Destination: prefix("0.0.0.0/0"), NextHop: addr("10.10.0.3")},
		}})
		only, except := []intent.AddressRange{{First: addr("10.10.0.16"), Last: addr("10.10.0.31")}},
			[]intent.AddressRange{{First: addr("10.10.0.20"), Last: addr("10.10.0.20")}}
		o.Networks = append(o.Networks, intent.Network{
			Name: "red", Router: "red", Subnets: intenttest.Subnets("10.10.0.0/24", "fd00:10::/64"), MTU: 1380,
			Pools: []intent.Pool{{Subnet: prefix("10.10.0.0/24"), Only: only, Except: except}},
			DNS:   intent.DNS{Servers: []netip.Addr{addr("192.0.2.53"), addr("2001:db8::53"), addr("192.0.2.52")}},
			DHCP:  intent.DHCP{Enabled: true},
		}, intent.Network{Name: "ns-x-n1", Router: "red"})
		o.Ports = []intent.Port{
			intenttest.Port("a", "web", "red", "n1", "10.10.0.2", "fd00:10::2"), intenttest.Port("x", "pod", "ns-x-n1", "n1", "10.244.1.9"),
		}
		o.Ports[0].NodeAddresses = []netip.Addr{addr("10.244.1.20")}
	},
	"named": func(o *intent.Objects) {
		o.Networks = append(o.Networks, intent.Network{Name: "lab", Router: "default", Subnets: intenttest.Subnets("10.30.0.0/16")})
		o.Ports = []intent.Port{intenttest.Port("lab", "web", "lab", "n1", "10.30.0.5")}
		o.Ports[0].NeutronPort, o.Ports[0].MAC = "a28c7404-7495-4557-b7fc-3e293508dbc6", intent.MAC{0xfa, 0x16, 0x3e, 0, 0, 7}
		o.FloatingIPs = []intent.FloatingIP{{Name: "lab/web", Network: "lab", Address: addr("198.51.100.32"), Port: "lab/web"}}
	},
	"shared": func(o *intent.Objects) {
		o.Routers = append(o.Routers, intent.Router{Name: "lab", ID: 2, Shared: true, Routes: []intent.Route{
			{Destination: prefix("192.168.50.0/24"), NextHop: addr("10.30.0.5")}, {Destination: prefix("0.0.0.0/0"), NextHop: addr("10.30.0.5")},
		}})
		o.Networks = append(o.Networks, intent.Network{Name: "lab", Router: "lab", Subnets: intenttest.Subnets("10.30.0.0/16")},
			intent.Network{Name: "ns-shop-n1", Router: "default"})
		o.Ports = []intent.Port{intenttest.Port("lab", "gw", "lab", "n1", "10.30.0.5"), intenttest.Port("shop", "web", "ns-shop-n1", "n1", "10.244.1.7")}
	},
	"namespaces":      namespaces,
	"targets":         targets,
	"missing targets": targets,
	"gateways": func(o *intent.Objects) {
		o.Routers = append(o.Routers, intent.Router{Name: "red", ID: 2}, intent.Router{Name: "blue", ID: 3})
		o.Networks = append(o.Networks,
			intent.Network{Name: "office", Physical: "dc", VLAN: 70, External: true, Subnets: intenttest.Subnets("198.51.100.0/24", "2001:db8:70::/64")},
			intent.Network{Name: "wire", Physical: "dc2", Leased: true},
			intent.Network{Name: "red", Router: "red", Subnets: intenttest.Subnets("10.10.0.0/16")})
		for _, a := range []string{"198.51.100.50", "2001:db8:70::50"} {
			o.EgressAddresses = append(o.EgressAddresses,
				intent.EgressAddress{Network: "office", Address: addr(a), Router: "red", Nodes: []string{"n1"}})
		}
		o.GatewayAddresses = []intent.GatewayAddress{{Router: "blue", Node: "n1", Network: "office", Address: addr("198.51.100.80")}}
		o.EgressPaths = []intent.EgressPath{{Name: "bank", Network: "office"}}
		o.FloatingIPs = []intent.FloatingIP{
			{Name: "red/web", Network: "office", Address: addr("198.51.100.32"), Port: "red/web"},
			{Name: "red/none", Network: "office", Address: addr("198.51.100.35"), Port: "red/none"},
			{Name: "red/shop", Network: "office", Address: addr("198.51.100.34"), Service: "red/shop"},
		}
		o.Ports = []intent.Port{intenttest.Port("red", "web", "red", "n1", "10.10.0.2")}
	},
}

// targets has Routers that exchange routes with each other and with others outside: mesh and spoke
// with each other, shop, which is shared, with spoke, and all with what is outside.
func targets(o *intent.Objects) {
	o.Routers[0].Shared, o.Routers[0].ExportTargets = true, []string{"64512:100"}
	o.Routers = append(o.Routers,
		intent.Router{Name: "mesh", ID: 2, ImportTargets: []string{"64512:2", "64512:3"}, ExportTargets: []string{"64512:2", "64512:4"},
			Imports: []string{"shop", "spoke"}, Distinguisher: "64512:200"},
		intent.Router{Name: "spoke", ID: 3, ExportTargets: []string{"64512:3"}},
		intent.Router{Name: "own", ID: 4, ImportTargets: []string{"64512:4"}, ExportTargets: []string{"64512:4"}},
		intent.Router{Name: "site", ID: 5, ImportTargets: []string{"64512:100"}},
		intent.Router{Name: "shop", ID: 6, Shared: true, ExportTargets: []string{"64512:3"}},
		intent.Router{Name: "none", ID: 7},
		intent.Router{Name: "lent", ID: 8, ImportTargets: []string{"64512:8"}, ExportTargets: []string{"64512:8"}},
		intent.Router{Name: "many", ID: 9},
	)
	for i := range 29 {
		many := &o.Routers[len(o.Routers)-1]
		many.ExportTargets = append(many.ExportTargets, fmt.Sprint("64512:", 10+i))
	}
	o.Networks = append(o.Networks, intent.Network{Name: "lent", Router: "lent", NeutronNetwork: "6a1f", Subnets: intenttest.Subnets("10.30.0.0/16")})
}

// without are the Options of worlds that other than none have.
var without = map[string]Options{
	"missing targets": {BGPVPNs: resource.Extension{Missing: true}},
	"namespaces": {SubnetPools: []intent.SubnetPool{
		{Prefix: prefix("10.128.0.0/14"), Bits: 24}, {Prefix: prefix("fd00:128::/48"), Bits: 64},
	}},
}

// namespaces has Networks that the controller has made for namespaces: of its pools, in another
// project, and of a pool that it had before; and one of a user's with a subnet of the pool.
func namespaces(o *intent.Objects) {
	o.Routers = append(o.Routers, intent.Router{Name: "ns-shop", ID: 2, Shared: true}, intent.Router{Name: "ns-bank", ID: 3},
		intent.Router{Name: "ns-former", ID: 4, Shared: true})
	o.Networks = append(o.Networks,
		intent.Network{Name: "ns-shop", Namespace: "shop", Router: "ns-shop", Subnets: intenttest.Subnets("10.128.0.0/24", "fd00:128::/64")},
		intent.Network{Name: "ns-bank", Namespace: "bank", Router: "ns-bank", Subnets: intenttest.Subnets("10.128.1.0/24"), Project: "q"},
		intent.Network{Name: "ns-former", Namespace: "former", Router: "ns-former", Subnets: intenttest.Subnets("10.64.0.0/24")},
		intent.Network{Name: "ns-former-n1", Namespace: "former", Router: "ns-former"},
		intent.Network{Name: "lab", Router: "ns-bank", Subnets: intenttest.Subnets("10.128.2.0/24")})
	o.Ports = []intent.Port{intenttest.Port("shop", "web", "ns-shop", "n1", "10.128.0.2", "fd00:128::2")}
}

// policies isolates the pods web and db: web takes TCP from the pods app and from outside but for a
// prefix, and sends to its node alone; db takes what web sends to a named port. The pod ping has a
// SecurityGroup, denied a policy that Neutron cannot say, and of unknown no policies are known.
func policies(o *intent.Objects) {
	ref := func(name string) intent.PolicyRef {
		return intent.PolicyRef{Kind: intent.NetworkPolicy, Namespace: "shop", Name: name}
	}
	rule := func(policy string, d intent.Direction, suffix string) intent.Rule {
		return intent.Rule{
			ID: "NetworkPolicy/shop/" + policy + "/" + suffix, Policy: ref(policy), Number: 1, Direction: d,
			Tier: intent.NetworkPolicyTier, Action: intent.Allow,
		}
	}
	web, db := rule("web", intent.Ingress, "ingress/1"), rule("db", intent.Ingress, "ingress/1/6-5432")
	web.Groups, web.Ports = []string{"app"}, []intent.PortRange{{Protocol: 6, First: 80, Last: 80}, {Protocol: 6, First: 0, Last: 0xffff}}
	web.Blocks = []netip.Prefix{prefix("192.0.2.0/25"), prefix("192.0.2.192/26")}
	db.Groups, db.Ports = []string{"web"}, []intent.PortRange{{Protocol: 6, First: 5432, Last: 5432}}
	group := intent.Rule{
		ID: "SecurityGroup/shop/ping/egress/1", Policy: intent.PolicyRef{Kind: intent.SecurityGroup, Namespace: "shop", Name: "ping"}, Number: 1,
		Direction: intent.Egress, Tier: intent.SecurityGroupTier, Action: intent.Allow, AnyPeer: true,
		Ports: []intent.PortRange{{Protocol: 1, First: 8, Last: 0, ICMP: true}, {Protocol: 58, First: 128, Last: intent.AnyICMPCode, ICMP: true}, {Protocol: 47}},
	}
	lab := rule("lab", intent.Ingress, "ingress/1")
	lab.Groups = []string{"app"}
	deny := intent.Rule{
		ID: "ClusterNetworkPolicy//admin/egress/1", Policy: intent.PolicyRef{Kind: intent.ClusterNetworkPolicy, Name: "admin"}, Number: 1,
		Direction: intent.Egress, Tier: intent.AdminTier, Action: intent.Deny, Groups: []string{"app"},
	}
	o.Local.PolicyMode = intent.EnforcedPolicies
	o.Rules = []intent.Rule{web, db, group, lab, deny}
	o.Routers = append(o.Routers, intent.Router{Name: "red", ID: 2})
	o.Networks = append(o.Networks, intent.Network{Name: "red", Router: "red", Subnets: intenttest.Subnets("10.10.0.0/24")})
	add := func(name, network string, s intent.Subject, groups []string, addresses ...string) {
		p := intenttest.Port("shop", name, network, "n1", addresses...)
		p.Interface = "eth0"
		if s.Key == "" {
			s.Key = p.SubjectKey()
			o.Subjects = append(o.Subjects, s)
		}
		o.Ports = append(o.Ports, p)
		for _, a := range p.Addresses {
			if len(groups) > 0 { // Routers are named like their Networks
				o.Peers = append(o.Peers, intent.Peer{Space: network, Address: a, Groups: groups})
			}
		}
	}
	add("app", "default", intent.Subject{}, []string{"app", "unused"}, "10.244.1.2", "fd00:10:244:1::2")
	add("web", "default", intent.Subject{Rules: []string{web.ID}, IngressIsolation: []intent.PolicyRef{ref("web")},
		EgressIsolation: []intent.PolicyRef{ref("web")}}, []string{"web"}, "10.244.1.3", "fd00:10:244:1::3")
	add("db", "default", intent.Subject{Rules: []string{db.ID}, IngressIsolation: []intent.PolicyRef{ref("db")}}, nil, "10.244.1.4")
	add("ping", "default", intent.Subject{Rules: []string{group.ID}, SecurityGroups: []intent.PolicyRef{group.Policy}}, nil, "10.244.1.7")
	add("lab", "red", intent.Subject{Rules: []string{lab.ID}, IngressIsolation: []intent.PolicyRef{ref("lab")}}, []string{"app"}, "10.10.0.2")
	add("denied", "default", intent.Subject{Rules: []string{deny.ID}}, nil, "10.244.1.5")
	add("unknown", "default", intent.Subject{Key: "none"}, nil, "10.244.1.6")
	o.Peers = append(o.Peers, intent.Peer{Space: "default", Address: o.Nodes[0].Addresses[0], Groups: []string{"app"}})
}

// dump is all that is wanted as text.
func dump(s *resource.Set) string {
	var b strings.Builder
	for _, k := range resource.Kinds() {
		for _, r := range s.All(k) {
			optional := ""
			if r.Optional {
				optional = ", not made"
			}
			fmt.Fprintf(&b, "%s, of %s%s\n", r.Ref, r.Object, optional)
			for _, part := range []resource.Attributes{r.Fixed, r.Mutable, r.Kept, r.Initial} {
				for _, name := range slices.Sorted(maps.Keys(part)) {
					value := resource.Resolve(part[name], func(r resource.Ref) (string, bool) { return "→ " + r.Key, true })
					text, _ := json.Marshal(value)
					fmt.Fprintf(&b, "    %s: %s\n", name, text)
				}
			}
		}
	}
	for _, p := range s.Problems {
		fmt.Fprintf(&b, "problem of %s: %s: %s\n", p.Object, p.Reason, p.Message)
	}
	return b.String()
}

// dangling are Refs to what is not wanted, or is made later.
func dangling(s *resource.Set) (list []string) {
	for _, k := range resource.Kinds() {
		for _, r := range s.All(k) {
			for _, part := range []resource.Attributes{r.Fixed, r.Mutable, r.Kept, r.Initial} {
				resource.Resolve(part, func(to resource.Ref) (string, bool) {
					if _, ok := s.Get(to); !ok || to.Kind >= k {
						list = append(list, fmt.Sprintf("%s refers to %s", r.Ref, to))
					}
					return "", true
				})
			}
		}
	}
	return list
}

func TestGolden(t *testing.T) {
	for name, change := range worlds {
		t.Run(name, func(t *testing.T) {
			set := Compile(stateOf(change), without[name])
			for _, problem := range dangling(set) {
				t.Error(problem)
			}
			got, file := dump(set), filepath.Join("testdata", name+".txt")
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
				t.Errorf("resources (-want +got):\n%s", diff)
			}
		})
	}
}

// Whatever is changed in whatever order, no resource refers to one that is not wanted, and what is
// wanted is what the same intent wants that came at once.
func TestChangesAreCompilingAnew(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		store := intent.NewStore()
		all := stateOf(worlds["gateways"])
		steps := rapid.SliceOfN(rapid.IntRange(0, 5), 1, 20).Draw(t, "steps")
		for _, step := range steps {
			_, _ = store.Update(func(tx *intent.Tx) error {
				gone := rapid.Bool().Draw(t, "gone")
				some := func(names ...string) string { return rapid.SampledFrom(names).Draw(t, "name") }
				switch step {
				case 0:
					if name := some("default", "red", "blue"); gone {
						tx.DeleteRouter(name)
					} else {
						r, _ := all.Routers().Get(name)
						targets := rapid.SampledFrom([][]string{nil, {"64512:7"}, {"64512:7", "64512:8"}})
						r.ImportTargets, r.ExportTargets = targets.Draw(t, "imports"), targets.Draw(t, "exports")
						tx.SetRouter(r)
					}
				case 1:
					if name := some("default", "red", "office", "wire"); gone {
						tx.DeleteNetwork(name)
					} else {
						n, _ := all.Networks().Get(name)
						tx.SetNetwork(n)
					}
				case 2:
					if gone {
						tx.DeleteNode("n1")
					} else {
						tx.SetNode(intenttest.Node("n1", 1))
					}
				case 3:
					p := intenttest.Port("red", "web", some("red", "default", "office"), "n1", some("10.10.0.2", "10.244.1.2", "198.51.100.9"))
					if gone {
						tx.DeletePort(p.ID)
					} else {
						tx.SetPort(p)
					}
				case 4:
					if name := some("red/web", "red/none", "red/shop"); gone {
						tx.DeleteFloatingIP(name)
					} else {
						f, _ := all.FloatingIPs().Get(name)
						tx.SetFloatingIP(f)
					}
				case 5:
					for e := range all.EgressAddresses().All() {
						if gone {
							tx.DeleteEgressAddress(e.Network, e.Address)
						} else {
							tx.SetEgressAddress(e)
						}
					}
				}
				return nil
			})
		}
		s := store.State()
		options := Options{Cluster: "east", Spare: rapid.SampledFrom([]int{0, 3}).Draw(t, "spare")}
		options.BGPVPNs.Missing = rapid.Bool().Draw(t, "no BGPVPNs")
		set := Compile(s, options)
		for _, r := range dangling(set) {
			t.Error(r)
		}
		anew, _ := intent.NewStore().Update(func(tx *intent.Tx) error {
			tx.Replace(intent.Objects{
				Routers: slices.Collect(s.Routers().All()), Networks: slices.Collect(s.Networks().All()), Nodes: slices.Collect(s.Nodes().All()), Ports: slices.Collect(s.Ports().All()),
				FloatingIPs: slices.Collect(s.FloatingIPs().All()), EgressAddresses: slices.Collect(s.EgressAddresses().All()),
			})
			return nil
		})
		if diff := cmp.Diff(dump(Compile(anew, options)), dump(set)); diff != "" {
			t.Errorf("resources (-anew +changed):\n%s", diff)
		}
	})
}

// Neutron keeps the address of a FloatingIP of a Service that nodes balance, for no port.
func TestFloatingIPsOfServices(t *testing.T) {
	for name, tc := range map[string]struct {
		address     string
		unsupported bool
		octavia     bool
		want        int
	}{
		"of a Service":                    {address: "198.51.100.34", want: 1},
		"without the northbound database": {address: "198.51.100.34", unsupported: true},
		"of a load balancer":              {address: "198.51.100.34", octavia: true},
		"of IPv6":                         {address: "2001:db8:70::34"},
	} {
		t.Run(name, func(t *testing.T) {
			set := Compile(stateOf(func(o *intent.Objects) {
				worlds["gateways"](o)
				o.FloatingIPs = []intent.FloatingIP{{Name: "red/shop", Network: "office", Address: addr(tc.address), Service: "red/shop"}}
				o.Services = []intent.Service{{Namespace: "red", Name: "shop", Router: "red", Octavia: tc.octavia}}
			}), Options{Supplemented: !tc.unsupported})
			found := 0
			for _, r := range set.All(resource.FloatingIP) {
				found++
				if r.Fixed["floating_ip_address"] != tc.address || r.Mutable["port_id"] != nil {
					t.Errorf("the floating IP is %v %v", r.Fixed, r.Mutable)
				}
			}
			if found != tc.want {
				t.Errorf("%d floating IPs, want %d", found, tc.want)
			}
		})
	}
}
