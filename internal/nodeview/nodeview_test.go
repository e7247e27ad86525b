// SPDX-License-Identifier: Apache-2.0

package nodeview

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"coelan.io/coelan/internal/intent"
)

// at is an endpoint 10.0.0.i:80 on a node.
func at(i int, node string, change ...func(*intent.ServiceEndpoint)) intent.ServiceEndpoint {
	e := intent.ServiceEndpoint{Address: netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), Port: 80, Topology: intent.NewTopology(node, nil, nil)}
	for _, c := range change {
		c(&e)
	}
	return e
}

func terminating(e *intent.ServiceEndpoint) { e.Terminating = true }

func zones(names ...string) func(*intent.ServiceEndpoint) {
	return func(e *intent.ServiceEndpoint) { e.Topology = intent.NewTopology(e.Topology.Node(), names, nil) }
}

func nodes(names ...string) func(*intent.ServiceEndpoint) {
	return func(e *intent.ServiceEndpoint) {
		e.Topology = intent.NewTopology(e.Topology.Node(), []string{"a"}, names)
	}
}

// service has one port with these endpoints, at a ClusterIP and a node port.
func service(endpoints ...intent.ServiceEndpoint) intent.Service {
	return intent.Service{Namespace: "shop", Name: "web", Router: "default", Ports: []intent.ServicePort{{
		Protocol: intent.TCP, Port: 80, ClusterIP: netip.MustParseAddr("10.96.0.1"), NodePort: 30080, Endpoints: endpoints,
	}}}
}

// show is what a port serves: the last numbers of the endpoints' addresses.
func show(v intent.NodeService) string {
	var ports []string
	for _, p := range v.Ports {
		list := func(name string, of []intent.Endpoint) string {
			if len(of) == 0 {
				return ""
			}
			s := name
			for _, e := range of {
				s += fmt.Sprintf(" %d", e.Address.As4()[3])
			}
			return s + " "
		}
		s := list("all", p.Endpoints) + list("local", p.LocalEndpoints) + list("draining", p.Draining)
		if p.NodePort != 0 {
			s += fmt.Sprintf("at %d ", p.NodePort)
		}
		if p.Unserved {
			s += "unserved"
		}
		ports = append(ports, strings.TrimSpace(s))
	}
	return fmt.Sprintf("%s has %d", strings.Join(ports, "; "), v.LocalEndpoints)
}

// What node n1 in zone a serves.
func TestService(t *testing.T) {
	internal := func(v *intent.Service) { v.InternalLocal = true }
	external := func(v *intent.Service) { v.ExternalLocal = true }
	noNodePort := func(v *intent.Service) { v.Ports[0].NodePort = 0 }
	noClusterIP := func(v *intent.Service) { v.Ports[0].ClusterIP = netip.Addr{} }
	listens := func(v *intent.Service) { v.Ports[0].NodePort = 30022 }
	for _, tc := range []struct {
		name   string
		of     intent.Service
		change []func(*intent.Service)
		want   string
	}{
		{"no endpoints", service(), nil, "at 30080 unserved has 0"},
		{"endpoints on both nodes", service(at(1, "n1"), at(2, "n2")), nil, "all 1 2 at 30080 has 1"},
		{"an endpoint whose node is not known", service(at(1, "")), nil, "all 1 at 30080 has 0"},
		{"external traffic stays", service(at(1, "n1"), at(2, "n2")), []func(*intent.Service){external}, "all 1 2 local 1 at 30080 has 1"},
		{"external traffic stays, and there is none", service(at(2, "n2")), []func(*intent.Service){external, noNodePort}, "all 2 has 0"},
		{"internal traffic stays", service(at(1, "n1"), at(2, "n2")), []func(*intent.Service){internal, noNodePort}, "local 1 has 1"},
		{"internal traffic stays, external does not", service(at(1, "n1"), at(2, "n2")), []func(*intent.Service){internal}, "all 1 2 local 1 at 30080 has 1"},
		{"traffic stays, endpoints are elsewhere", service(at(2, "n2")), []func(*intent.Service){internal, noNodePort}, " has 0"},
		{"one drains", service(at(1, "n1"), at(2, "n1", terminating)), nil, "all 1 draining 2 at 30080 has 1"},
		{"all drain", service(at(1, "n1", terminating), at(2, "n2", terminating)), nil, "all 1 2 at 30080 has 0"},
		{
			"those on the node drain", service(at(1, "n1", terminating), at(2, "n2")), []func(*intent.Service){external},
			"all 2 local 1 at 30080 has 0",
		},
		{"hints for zones", service(at(1, "n1", zones("b")), at(2, "n2", zones("b", "a"))), nil, "all 2 at 30080 has 1"},
		{"hints for other zones only", service(at(1, "n1", zones("b")), at(2, "n2", zones("c"))), nil, "all 1 2 at 30080 has 1"},
		{"one has no hint", service(at(1, "n1", zones("a")), at(2, "n2")), nil, "all 1 2 at 30080 has 1"},
		{"one that drains has no hint", service(at(1, "n2", zones("a")), at(2, "n2", zones("b")), at(3, "n2", terminating)), nil, "all 1 draining 3 at 30080 has 0"},
		{"hints for nodes before those for zones", service(at(1, "n2", nodes("n1")), at(2, "n2", nodes("n2"))), nil, "all 1 at 30080 has 0"},
		{"hints do not matter to traffic that stays", service(at(1, "n1", zones("b")), at(2, "n2", zones("a"))), []func(*intent.Service){external}, "all 2 local 1 at 30080 has 1"},
		{
			"the same endpoint twice: the one on the node counts, then the one that is ready",
			service(at(1, "n2"), at(1, "n1"), at(2, "n1", terminating), at(2, "n1"), at(3, "n1", terminating), at(3, "n2")), []func(*intent.Service){external},
			"all 1 2 local 1 2 draining 3 at 30080 has 2",
		},
		{"a process has the node port", service(at(1, "n2")), []func(*intent.Service){listens}, "all 1 has 0"},
		{"a process has the only address", service(at(1, "n1")), []func(*intent.Service){listens, noClusterIP}, " has 1"},
		{"the node port is the only address", service(at(1, "n1")), []func(*intent.Service){noClusterIP}, "all 1 at 30080 has 1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, c := range tc.change {
				c(&tc.of)
			}
			node := Node{Name: "n1", Zone: "a", Listens: func(p intent.Protocol, port uint16) bool { return p == intent.TCP && port == 30022 }}
			if diff := cmp.Diff(tc.want, show(Service(tc.of, node))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The family with more endpoints says how many the node has: usually, they are the same pods.
func TestLocalEndpointsOfFamilies(t *testing.T) {
	v := service(at(1, "n1"), at(2, "n1"), at(3, "n2"))
	same, six := v.Ports[0], v.Ports[0]
	same.Port = 443
	six.IPv6, six.Endpoints = true, []intent.ServiceEndpoint{{Address: netip.MustParseAddr("fd00::1"), Topology: intent.NewTopology("n1", nil, nil)}}
	v.Ports = append(v.Ports, same, six)
	for node, want := range map[string]int{"n1": 2, "n2": 1, "n3": 0, "": 0} {
		if got := Service(v, Node{Name: node}).LocalEndpoints; got != want {
			t.Errorf("node %q has %d endpoints, want %d", node, got, want)
		}
	}
}

// A State that follows changes one by one has the NodeServices of one that is made at once, and
// each of them is the projection of its Service.
func TestServicesFollow(t *testing.T) {
	names := rapid.SampledFrom([]string{"a", "b", "c"})
	rapid.Check(t, func(t *rapid.T) {
		store := intent.NewStore(Services("n1"))
		ports := []uint16{0, 30001, 30002}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				now := store.State()
				node, _ := now.Nodes().Get("n1")
				listeners := map[intent.Listener]bool{}
				for l := range now.Listeners().All() {
					listeners[l] = true
				}
				at := Node{Name: "n1", Zone: node.Zone, Listens: func(p intent.Protocol, port uint16) bool { return listeners[intent.Listener{Protocol: p, Port: port}] }}
				want, err := intent.NewStore().Update(func(tx *intent.Tx) error {
					for v := range now.Services().All() {
						tx.SetService(v)
						tx.SetNodeService(Service(v, at))
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				if d := intent.Diff(want, now).NodeServices; len(d) > 0 {
					t.Fatalf("%v are not as they should be", d)
				}
			},
			"change": func(t *rapid.T) {
				_, err := store.Update(func(tx *intent.Tx) error {
					for range rapid.IntRange(1, 3).Draw(t, "changes") {
						change(t, tx, names.Draw(t, "name"), rapid.SampledFrom(ports))
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
			},
		})
	})
}

// change makes one change of what NodeServices follow from.
func change(t *rapid.T, tx *intent.Tx, name string, ports *rapid.Generator[uint16]) {
	switch rapid.SampledFrom([]string{"set", "set", "delete", "zone", "listeners", "nodes"}).Draw(t, "what") {
	case "set":
		v := service(at(1, "n1", zones("a")), at(2, "n2", zones("b")))
		v.Name, v.Ports[0].NodePort, v.InternalLocal = name, ports.Draw(t, "node port"), rapid.Bool().Draw(t, "internal")
		tx.SetService(v)
	case "delete":
		tx.DeleteService("shop/" + name)
	case "zone":
		tx.ReplaceNodes([]intent.Node{{Name: "n1", Zone: rapid.SampledFrom([]string{"a", "b", ""}).Draw(t, "zone")}})
	case "listeners":
		tx.ReplaceListeners([]intent.Listener{{Protocol: intent.TCP, Port: ports.Draw(t, "port")}})
	case "nodes":
		tx.ReplaceNodes(nil)
	}
}

// What was remembered in the form of another release is served until there is a Service of that
// name.
func TestServedWithoutService(t *testing.T) {
	store := intent.NewStore(Services("n1"))
	update := func(change func(*intent.Tx)) (names []string) {
		s, err := store.Update(func(tx *intent.Tx) error { change(tx); return nil })
		if err != nil {
			t.Fatal(err)
		}
		for v := range s.NodeServices().All() {
			names = append(names, fmt.Sprint(v.Name, " ", len(v.Ports)))
		}
		return names
	}
	for _, tc := range []struct {
		name   string
		change func(*intent.Tx)
		want   []string
	}{
		{"remembered", func(tx *intent.Tx) {
			tx.SetNodeService(intent.NodeService{Namespace: "shop", Name: "old"})
			tx.SetNodeService(intent.NodeService{Namespace: "shop", Name: "web"})
		}, []string{"old 0", "web 0"}},
		{"another zone", func(tx *intent.Tx) { tx.ReplaceNodes([]intent.Node{{Name: "n1", Zone: "a"}}) }, []string{"old 0", "web 0"}},
		{"a Service", func(tx *intent.Tx) { tx.SetService(service()) }, []string{"old 0", "web 1"}},
		{"it goes", func(tx *intent.Tx) { tx.DeleteService("shop/web") }, []string{"old 0"}},
	} {
		if diff := cmp.Diff(tc.want, update(tc.change)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}

// One endpoint of 10,000 Services comes and goes.
func BenchmarkChange(b *testing.B) {
	store := intent.NewStore(Services("n1"))
	var all []intent.Service
	for i := range 10_000 {
		var endpoints []intent.ServiceEndpoint
		for j := range 10 {
			endpoints = append(endpoints, at(j, fmt.Sprint("n", (i+j)%50)))
		}
		v := service(endpoints...)
		v.Name, v.Ports[0].NodePort = fmt.Sprint("web-", i), uint16(20000+i)
		all = append(all, v)
	}
	set := func(change func(*intent.Tx)) {
		if _, err := store.Update(func(tx *intent.Tx) error { change(tx); return nil }); err != nil {
			b.Fatal(err)
		}
	}
	set(func(tx *intent.Tx) { tx.ReplaceServices(all) })
	b.ReportAllocs()
	v := all[7]
	list := v.Ports[0].Endpoints
	for i := 0; b.Loop(); i++ {
		v.Ports[0].Endpoints = list[:9+i%2]
		set(func(tx *intent.Tx) { tx.SetService(v) })
	}
}

// TestFloatingIPsOfServices makes floating IPs external addresses of the ports of their family.
func TestFloatingIPsOfServices(t *testing.T) {
	ip := netip.MustParseAddr
	v := intent.Service{Namespace: "shop", Name: "web", Router: "default", Ports: []intent.ServicePort{
		{Protocol: intent.TCP, Port: 80, ClusterIP: ip("10.96.0.1"), ExternalIPs: []netip.Addr{ip("192.0.2.9")}, Endpoints: []intent.ServiceEndpoint{at(1, "n1")}},
		{Protocol: intent.TCP, IPv6: true, Port: 80, ClusterIP: ip("fd00::1")},
	}}
	store := intent.NewStore(Services("n1"))
	for _, tc := range []struct {
		name   string
		change func(*intent.Tx)
		want   string
	}{
		{"a Service", func(tx *intent.Tx) { tx.SetService(v) }, "[192.0.2.9] []"},
		{"one of another Service", func(tx *intent.Tx) {
			tx.SetFloatingIP(intent.FloatingIP{Name: "shop/a", Address: ip("192.0.2.1"), Service: "shop/db"})
		}, "[192.0.2.9] []"},
		{"one of its own", func(tx *intent.Tx) {
			tx.SetFloatingIP(intent.FloatingIP{Name: "shop/a", Address: ip("192.0.2.1"), Service: "shop/web"})
		}, "[192.0.2.1 192.0.2.9] []"},
		{"of IPv6, and one that is an external IP", func(tx *intent.Tx) {
			tx.SetFloatingIP(intent.FloatingIP{Name: "shop/b", Address: ip("2001:db8::1"), Service: "shop/web"})
			tx.SetFloatingIP(intent.FloatingIP{Name: "shop/a", Address: ip("192.0.2.9"), Service: "shop/web"})
		}, "[192.0.2.9] [2001:db8::1]"},
		{"one that is an address of its load balancer", func(tx *intent.Tx) {
			balanced := v
			balanced.Ports = slices.Clone(v.Ports)
			balanced.Ports[1].LoadBalancerIPs = []netip.Addr{ip("2001:db8::1")}
			tx.SetService(balanced)
		}, "[192.0.2.9] []"},
		{"none any more", func(tx *intent.Tx) {
			tx.DeleteFloatingIP("shop/a")
			tx.DeleteFloatingIP("shop/b")
		}, "[192.0.2.9] []"},
	} {
		s, err := store.Update(func(tx *intent.Tx) error { tc.change(tx); return nil })
		if err != nil {
			t.Fatal(err)
		}
		served, _ := s.NodeServices().Get("shop/web")
		if got := fmt.Sprint(served.Ports[0].ExternalIPs, " ", served.Ports[1].ExternalIPs); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}
