// SPDX-License-Identifier: Apache-2.0

package kernelview

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"coelan.io/coelan/internal/backend/ovs/hostnet"
	"coelan.io/coelan/internal/intent"
)

// The kernel has the addresses of load balancers that a pool has, and follows when pools change;
// which endpoints a Service has is not its business.
func TestHostServicesFollowPools(t *testing.T) {
	store := intent.NewStore()
	update := func(change func(*intent.Tx)) *intent.State {
		s, err := store.Update(func(tx *intent.Tx) error { change(tx); return nil })
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	web := intent.NodeService{Namespace: "shop", Name: "web", Ports: []intent.NodeServicePort{
		{Protocol: intent.TCP, Port: 80, LoadBalancerIPs: []netip.Addr{addr("192.0.2.1"), addr("198.51.100.1")}},
		{Protocol: intent.TCP, Port: 443, LoadBalancerIPs: []netip.Addr{addr("192.0.2.1")}},
	}}
	pool := func(first, last string) func(*intent.Tx) {
		return func(tx *intent.Tx) {
			tx.ReplaceLoadBalancerPools([]intent.LoadBalancerPool{
				{Name: "p", Ranges: []intent.AddressRange{{First: addr(first), Last: addr(last)}}},
			})
		}
	}
	update(func(tx *intent.Tx) { tx.SetLocal(intent.Local{Node: "n1", ServiceMode: intent.NativeServices}) })
	h := NewServices()
	for _, tc := range []struct {
		name    string
		change  func(*intent.Tx)
		follows bool
		want    []netip.Addr
	}{
		{"a Service, and no pool", func(tx *intent.Tx) { tx.SetNodeService(web) }, true, nil},
		{"a pool", pool("192.0.2.0", "192.0.2.255"), true, []netip.Addr{addr("192.0.2.1")}},
		{"an endpoint", func(tx *intent.Tx) {
			v := web
			v.Ports = slices.Clone(v.Ports)
			v.Ports[0].Endpoints = []intent.Endpoint{{Address: addr("10.244.1.2"), Port: 80}}
			tx.SetNodeService(v)
		}, false, []netip.Addr{addr("192.0.2.1")}},
		{"another range", pool("198.51.100.1", "198.51.100.1"), true, []netip.Addr{addr("198.51.100.1")}},
		{"no pool any more", func(tx *intent.Tx) { tx.ReplaceLoadBalancerPools(nil) }, true, nil},
	} {
		s := update(tc.change)
		if got := h.Follow(s); got != tc.follows {
			t.Errorf("%s: the kernel follows: %v", tc.name, got)
		}
		if got := h.Of(s).Announced; !slices.Equal(got, tc.want) {
			t.Errorf("%s: addresses %v, want %v", tc.name, got, tc.want)
		}
	}
}

// The kernel has node ports at the addresses that intent names, and leaves Services to kube-proxy
// where that balances them.
func TestHostServicesFollowSettings(t *testing.T) {
	at := prefixes("192.168.33.0/24", "fd33::/64")
	h := NewServices()
	store := intent.NewStore()
	for _, tc := range []struct {
		name    string
		change  func(*intent.Tx)
		follows bool
		want    hostnet.Services
	}{
		{"nothing", func(*intent.Tx) {}, true, hostnet.Services{}},
		{"kube-proxy", func(tx *intent.Tx) {
			tx.SetLocal(intent.Local{Node: "n1", ServiceMode: intent.KubeProxy})
		}, true, hostnet.Services{}},
		{"native", func(tx *intent.Tx) {
			tx.SetLocal(intent.Local{Node: "n1", ServiceMode: intent.NativeServices})
		}, true, hostnet.Services{Native: true}},
		{"addresses", func(tx *intent.Tx) {
			tx.ReplaceNodePortAddresses([]intent.NodePortAddress{{Prefix: at[1]}, {Prefix: at[0]}})
		}, true, hostnet.Services{Native: true, NodePortAddresses: at}},
		{"something else", func(tx *intent.Tx) { tx.ReplaceNodes([]intent.Node{{Name: "n2"}}) }, false,
			hostnet.Services{Native: true, NodePortAddresses: at}},
	} {
		s, err := store.Update(func(tx *intent.Tx) error { tc.change(tx); return nil })
		if err != nil {
			t.Fatal(err)
		}
		if got := h.Follow(s); got != tc.follows {
			t.Errorf("%s: the kernel follows: %v", tc.name, got)
		}
		options := []cmp.Option{cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.EquateEmpty()}
		if diff := cmp.Diff(tc.want, h.Of(s), options...); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}

// The kernel leads floating IPs of Services to the bridge, and what these answer; it knows which
// clients are in the cluster.
func TestHostServicesFollowFloatingIPs(t *testing.T) {
	store, h := intent.NewStore(), NewServices()
	web := intent.NodeService{Namespace: "shop", Name: "web", Ports: []intent.NodeServicePort{
		{Protocol: intent.TCP, Port: 80, ExternalIPs: []netip.Addr{addr("192.0.2.1"), addr("198.51.100.1")}},
	}}
	floating := func(change func(*intent.FloatingIP)) func(*intent.Tx) {
		f := intent.FloatingIP{Name: "shop/f", Network: "office", Address: addr("192.0.2.1"), Service: "shop/web"}
		change(&f)
		return func(tx *intent.Tx) { tx.SetFloatingIP(f) }
	}
	node := func(name, subnet string) func(*intent.Tx) {
		p := netip.MustParsePrefix(subnet)
		return func(tx *intent.Tx) {
			tx.SetNode(intent.Node{Name: name, Subnets: []intent.Subnet{{Network: "default", Prefix: p, Gateway: p.Addr().Next()}}})
		}
	}
	for _, tc := range []struct {
		name     string
		change   func(*intent.Tx)
		follows  bool
		floating []netip.Addr
		cluster  []netip.Prefix
	}{
		{"native Services", func(tx *intent.Tx) { tx.SetLocal(intent.Local{Node: "n1", ServiceMode: intent.NativeServices}) }, true, nil, nil},
		{"a node", node("n1", "10.244.1.0/24"), false, nil, nil},
		{"a Service", func(tx *intent.Tx) { tx.SetNodeService(web) }, true, nil, nil},
		{"the floating IP of a Port", floating(func(f *intent.FloatingIP) { f.Service, f.Port = "", "shop/web" }), false, nil, nil},
		{"that of a Service", floating(func(*intent.FloatingIP) {}), true, []netip.Addr{addr("192.0.2.1")}, prefixes("10.244.1.0/24")},
		{"another node", node("n2", "10.244.2.0/24"), true, []netip.Addr{addr("192.0.2.1")}, prefixes("10.244.1.0/24", "10.244.2.0/24")},
		{"that is an address of its load balancer", func(tx *intent.Tx) {
			balanced := web
			balanced.Ports = []intent.NodeServicePort{{Protocol: intent.TCP, Port: 80, LoadBalancerIPs: web.Ports[0].ExternalIPs}}
			tx.SetNodeService(balanced)
		}, true, []netip.Addr{addr("192.0.2.1")}, prefixes("10.244.1.0/24", "10.244.2.0/24")},
		{"of a Port again", floating(func(f *intent.FloatingIP) { f.Service, f.Port = "", "shop/web" }), true, nil, nil},
	} {
		s, err := store.Update(func(tx *intent.Tx) error { tc.change(tx); return nil })
		if err != nil {
			t.Fatal(err)
		}
		if got := h.Follow(s); got != tc.follows {
			t.Errorf("%s: the kernel follows: %v", tc.name, got)
		}
		got := h.Of(s)
		if !slices.Equal(got.Floating, tc.floating) || !slices.Equal(got.Announced, tc.floating) || !slices.Equal(got.Cluster, tc.cluster) {
			t.Errorf("%s: floating IPs %v, addresses %v, clients in %v", tc.name, got.Floating, got.Announced, got.Cluster)
		}
	}
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func prefixes(s ...string) (ps []netip.Prefix) {
	for _, p := range s {
		ps = append(ps, netip.MustParsePrefix(p))
	}
	return ps
}

// Where the bridge does not know which way a connection came, endpoints of a private Router with a
// way out of its own do not see clients of node ports, whatever the policy: their answers would go
// by that way. It follows when the gateway comes and goes.
func TestClientsOfTenantsWithGateways(t *testing.T) {
	store, byAddress, plain := intent.NewStore(), NewServicesByAddress(false), NewServices()
	red := intent.Router{Name: "red", ID: 2}
	gateway := intent.EgressAddress{Network: "office", Address: addr("198.51.100.5"), Router: "red", Nodes: []string{"n1"}}
	for _, step := range []struct {
		name   string
		change func(*intent.Tx)
		want   bool
	}{
		{"no gateway", func(tx *intent.Tx) {
			tx.SetLocal(intent.Local{Node: "n1", ServiceMode: intent.NativeServices})
			tx.SetRouter(red)
			tx.SetNodeService(intent.NodeService{
				Namespace: "red", Name: "web", Router: "red", ExternalLocal: true,
				Ports: []intent.NodeServicePort{{Protocol: intent.TCP, Port: 80, NodePort: 30080, ClusterIP: addr("10.96.0.1")}},
			})
		}, false},
		{"a gateway", func(tx *intent.Tx) { tx.SetEgressAddress(gateway) }, true},
		{"another Router's", func(tx *intent.Tx) {
			other := gateway
			other.Router = "blue"
			tx.SetEgressAddress(other)
		}, false},
		{"a default route", func(tx *intent.Tx) {
			r := red
			r.Routes = []intent.Route{{Destination: netip.MustParsePrefix("0.0.0.0/0"), NextHop: addr("10.50.0.9")}}
			tx.SetRouter(r)
		}, true},
		{"a shared Router", func(tx *intent.Tx) {
			tx.SetRouter(intent.Router{Name: "red", ID: 2, Shared: true})
			tx.SetEgressAddress(gateway)
		}, false},
	} {
		s, err := store.Update(func(tx *intent.Tx) error { step.change(tx); return nil })
		if err != nil {
			t.Fatal(err)
		}
		if got := byAddress.Of(s).Ports[0].Masked; got != step.want {
			t.Errorf("%s: masked is %t", step.name, got)
		}
		if plain.Of(s).Ports[0].Masked {
			t.Errorf("%s: masked where the bridge knows connections", step.name)
		}
	}
}
