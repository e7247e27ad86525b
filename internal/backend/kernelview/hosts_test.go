// SPDX-License-Identifier: Apache-2.0

package kernelview

import (
	"net/netip"
	"slices"
	"testing"

	"coelan.io/coelan/internal/intent"
)

// The kernel translates to endpoints that are no pods, in whichever order Services, nodes and
// Networks come, where the bridge balances by address alone.
func TestEndpointsThatAreNoPods(t *testing.T) {
	service := intent.NodeService{Namespace: "default", Name: "kubernetes", Router: "default", Ports: []intent.NodeServicePort{{
		Protocol: intent.TCP, Port: 443, ClusterIP: addr("10.96.0.1"), Endpoints: []intent.Endpoint{
			{Address: addr("10.60.0.5"), Port: 6443}, {Address: addr("10.244.1.9"), Port: 6443}, {Address: addr("192.0.2.1"), Port: 6443},
		},
	}}}
	store, h, plain := intent.NewStore(), NewServicesByAddress(false), NewServices()
	for _, step := range []struct {
		name   string
		change func(*intent.Tx)
		want   []string
	}{
		{"a Service of a Router that is not known", func(tx *intent.Tx) {
			tx.SetLocal(intent.Local{Node: "n1", ServiceMode: intent.NativeServices})
			tx.SetNodeService(service)
		}, nil},
		{"a Router", func(tx *intent.Tx) { tx.SetRouter(intent.Router{Name: "default", ID: 1, Shared: true}) },
			[]string{"10.60.0.5", "10.244.1.9", "192.0.2.1"}},
		{"a node with pods", func(tx *intent.Tx) {
			tx.SetNode(intent.Node{Name: "n1", Subnets: []intent.Subnet{
				{Network: "default", Prefix: netip.MustParsePrefix("10.244.1.0/24"), Gateway: addr("10.244.1.1")},
			}})
		}, []string{"10.60.0.5", "192.0.2.1"}},
		{"a Network", func(tx *intent.Tx) {
			tx.SetNetwork(intent.Network{Name: "shop", ID: 5, Router: "default", Subnets: []intent.NetworkSubnet{
				{Prefix: netip.MustParsePrefix("10.60.0.0/16"), Gateway: addr("10.60.0.1")},
			}})
		}, []string{"192.0.2.1"}},
		{"policy Local without an endpoint on the node", func(tx *intent.Tx) {
			local := service
			local.InternalLocal, local.ExternalLocal = true, true
			tx.SetNodeService(local)
		}, nil},
		{"a private Router", func(tx *intent.Tx) {
			other := service
			other.Router = "red"
			tx.SetNodeService(other)
		}, nil},
	} {
		s, err := store.Update(func(tx *intent.Tx) error { step.change(tx); return nil })
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		ports := h.Of(s).Ports
		for _, e := range ports[0].Hosts.Cluster {
			got = append(got, e.Address.String())
		}
		if !slices.Equal(got, step.want) {
			t.Errorf("%s: %v, want %v", step.name, got, step.want)
		}
		if n := len(plain.Of(s).Ports[0].Hosts.Cluster); n > 0 {
			t.Errorf("%s: %d endpoints where the bridge balances", step.name, n)
		}
	}
}

// Where the bridge leads clients to nodes itself, the kernel translates for those outside alone, if
// the node's own process is to see their addresses: it answers past the bridge.
func TestProcessesThatSeeClients(t *testing.T) {
	service := intent.NodeService{Namespace: "default", Name: "ingress", Router: "default", Ports: []intent.NodeServicePort{{
		Protocol: intent.TCP, Port: 443, NodePort: 30443, ClusterIP: addr("10.96.0.9"),
	}}}
	store, h := intent.NewStore(), NewServices()
	outside := func(name string, local bool, endpoints ...string) []intent.Endpoint {
		t.Helper()
		v := service
		v.ExternalLocal, v.Ports = local, slices.Clone(v.Ports)
		for _, text := range endpoints {
			v.Ports[0].LocalEndpoints = append(v.Ports[0].LocalEndpoints, intent.Endpoint{Address: addr(text), Port: 8443})
		}
		v.Ports[0].Endpoints = v.Ports[0].LocalEndpoints
		s, err := store.Update(func(tx *intent.Tx) error {
			tx.SetLocal(intent.Local{Node: "n1", ServiceMode: intent.NativeServices})
			tx.SetRouter(intent.Router{Name: "default", ID: 1, Shared: true})
			tx.SetNode(intent.Node{Name: "n1", Subnets: []intent.Subnet{
				{Network: "default", Prefix: netip.MustParsePrefix("10.244.1.0/24"), Gateway: addr("10.244.1.1")},
			}})
			tx.SetNodeService(v)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		hosts := h.Of(s).Ports[0].Hosts
		if len(hosts.Cluster)+len(hosts.Inside) > 0 {
			t.Errorf("%s: the kernel chooses for clients inside", name)
		}
		return hosts.Outside
	}
	if got := outside("a process of the node", true, "192.0.2.1"); len(got) != 1 || got[0].Address != addr("192.0.2.1") {
		t.Errorf("a process of the node: %v", got)
	}
	if got := outside("a pod", true, "10.244.1.9"); len(got) > 0 {
		t.Errorf("a pod: %v", got)
	}
	if got := outside("clients need not be seen", false, "192.0.2.1"); len(got) > 0 {
		t.Errorf("clients need not be seen: %v", got)
	}
}

// Where the bridge does not know nodes, the kernel chooses among the node's own pods for clients
// that a policy keeps there.
func TestEndpointsOfTheNode(t *testing.T) {
	local, other := intent.Endpoint{Address: addr("10.244.1.9"), Port: 80}, intent.Endpoint{Address: addr("10.244.2.9"), Port: 80}
	for _, internal := range []bool{false, true} {
		for _, external := range []bool{false, true} {
			service := intent.NodeService{
				Namespace: "shop", Name: "web", Router: "default", InternalLocal: internal, ExternalLocal: external,
				Ports: []intent.NodeServicePort{{
					Protocol: intent.TCP, Port: 80, NodePort: 30080, ClusterIP: addr("10.96.0.1"),
					Endpoints: []intent.Endpoint{local, other}, LocalEndpoints: []intent.Endpoint{local},
				}},
			}
			s, err := intent.NewStore().Update(func(tx *intent.Tx) error {
				tx.SetLocal(intent.Local{Node: "n1", ServiceMode: intent.NativeServices})
				tx.SetRouter(intent.Router{Name: "default", ID: 1, Shared: true})
				tx.SetNode(intent.Node{Name: "n1", Subnets: []intent.Subnet{
					{Network: "default", Prefix: netip.MustParsePrefix("10.244.0.0/16"), Gateway: addr("10.244.1.1")},
				}})
				tx.SetNodeService(service)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, spanning := range []bool{false, true} {
				hosts := NewServicesByAddress(spanning).Of(s).Ports[0].Hosts
				for what, of := range map[string]struct {
					list []intent.Endpoint
					want bool
				}{
					"of clients of the ClusterIP": {hosts.Cluster, spanning && internal}, "of clients outside": {hosts.Outside, spanning && external},
					"of others": {hosts.Inside, false},
				} {
					if len(of.list) > 1 || slices.Contains(of.list, local) != of.want {
						t.Errorf("spanning %t, local %t %t, %s: %v", spanning, internal, external, what, of.list)
					}
				}
			}
		}
	}
}

// Where no switch is one node's, the kernel keeps clients of a tenant's Service at the tenant's own
// pods on the node, whichever comes first, and at no others.
func TestTenantsEndpointsOnTheNode(t *testing.T) {
	own, other := intent.Endpoint{Address: addr("10.244.1.9"), Port: 8080}, intent.Endpoint{Address: addr("10.244.1.10"), Port: 8080}
	outside := intent.Endpoint{Address: addr("192.0.2.1"), Port: 8080}
	service := intent.NodeService{
		Namespace: "red", Name: "web", Router: "red", InternalLocal: true, ExternalLocal: true,
		Ports: []intent.NodeServicePort{{
			Protocol: intent.TCP, Port: 80, NodePort: 30080, ClusterIP: addr("10.96.0.1"),
			Endpoints: []intent.Endpoint{own, other, outside}, LocalEndpoints: []intent.Endpoint{own, other, outside},
		}},
	}
	port := func(id, network string, stands intent.Endpoint) intent.Port {
		return intent.Port{ID: id, Node: "n1", Network: network, NodeAddresses: []netip.Addr{stands.Address}}
	}
	store, h, apart := intent.NewStore(), NewServicesByAddress(true), NewServicesByAddress(false)
	for _, step := range []struct {
		name            string
		change          func(*intent.Tx)
		inside, outside []intent.Endpoint
	}{
		{"no pods", func(tx *intent.Tx) {
			tx.SetLocal(intent.Local{Node: "n1", ServiceMode: intent.NativeServices})
			for id, name := range []string{"red", "blue"} {
				tx.SetRouter(intent.Router{Name: name, ID: intent.RouterID(id) + 2})
			}
			tx.SetNodeService(service)
		}, nil, nil},
		{"pods of both tenants", func(tx *intent.Tx) {
			tx.SetPort(port("a", "red", own))
			tx.SetPort(port("b", "blue", other))
		}, nil, nil},
		{"their Networks", func(tx *intent.Tx) {
			for id, name := range []string{"red", "blue"} {
				tx.SetNetwork(intent.Network{Name: name, ID: intent.NetworkID(id) + 2, Router: name})
			}
		}, []intent.Endpoint{own}, []intent.Endpoint{own}},
		{"a gateway of the tenant's", func(tx *intent.Tx) {
			tx.SetRouter(intent.Router{Name: "red", ID: 2, Routes: []intent.Route{
				{Destination: netip.MustParsePrefix("0.0.0.0/0"), NextHop: addr("10.9.0.1")},
			}})
		}, []intent.Endpoint{own}, nil},
		{"the tenant's pod goes", func(tx *intent.Tx) { tx.DeletePort("a") }, nil, nil},
	} {
		s, err := store.Update(func(tx *intent.Tx) error { step.change(tx); return nil })
		if err != nil {
			t.Fatal(err)
		}
		hosts := h.Of(s).Ports[0].Hosts
		if !slices.Equal(hosts.Cluster, step.inside) || !slices.Equal(hosts.Outside, step.outside) || len(hosts.Inside) > 0 {
			t.Errorf("%s: %+v, want %v inside and %v outside", step.name, hosts, step.inside, step.outside)
		}
		if hosts := apart.Of(s).Ports[0].Hosts; len(hosts.Cluster)+len(hosts.Outside)+len(hosts.Inside) > 0 {
			t.Errorf("%s: with a switch for each node: %+v", step.name, hosts)
		}
	}
}
