// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/backend/ovn/nb"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/intenttest"
	"coelan.io/coelan/internal/nodeview"
)

// A client of UDP that keeps its port must not stay with an endpoint that is gone; a connection of
// TCP may end by itself.
func TestConnectionsToFormerEndpoints(t *testing.T) {
	o := defaults()
	service := intent.Service{Namespace: "shop", Name: "dns", Router: "default"}
	for _, protocol := range []intent.Protocol{intent.TCP, intent.UDP} {
		service.Ports = append(service.Ports, intent.ServicePort{
			Protocol: protocol, Port: 53, ClusterIP: addr("10.96.0.10"),
			Endpoints: []intent.ServiceEndpoint{{Address: addr("10.244.1.2"), Port: 53}},
		})
	}
	o.Services = []intent.Service{service}
	rows := compiled(intenttest.State(o)).Rows()
	for protocol, want := range map[string]string{"tcp": "", "udp": "true"} {
		row, ok := rows.Get(nb.Ref{Table: "Load_Balancer", Key: "Service/shop/dns " + protocol})
		if !ok {
			t.Fatalf("there is no row for %s", protocol)
		}
		if got := row.(*nb.LoadBalancer).Options["ct_flush"]; got != want {
			t.Errorf("%s: ct_flush=%q, want %q", protocol, got, want)
		}
	}
}

// Kubernetes knows pods of private Routers by addresses of their nodes, and their Services lead to
// their own addresses, whichever comes first. Nodes know these pods as Kubernetes does, and their
// Load_Balancer leads to no pod of another Router.
func TestEndpointsOfTenants(t *testing.T) {
	o := defaults()
	o.Routers = append(o.Routers, intent.Router{Name: "red", ID: 2}, intent.Router{Name: "blue", ID: 3})
	for _, name := range []string{"red", "blue"} {
		o.Networks = append(o.Networks, intent.Network{Name: name, ID: 5, Router: name, Subnets: intenttest.Subnets("10.50.0.0/24")})
	}
	service := intent.Service{Namespace: "red", Name: "web", Router: "red", Ports: []intent.ServicePort{{
		Protocol: intent.TCP, Port: 80, ClusterIP: addr("10.96.0.10"), Endpoints: []intent.ServiceEndpoint{
			{Address: addr("10.244.1.2"), Port: 8080}, {Address: addr("10.244.1.3"), Port: 8080}, {Address: addr("10.50.0.9"), Port: 8080},
		},
	}}}
	ofRed, ofBlue := intenttest.Port("red", "web", "red", "n1", "10.50.0.4"), intenttest.Port("blue", "web", "blue", "n1", "10.50.0.4")
	ofRed.NodeAddresses, ofBlue.NodeAddresses = []netip.Addr{addr("10.244.1.2")}, []netip.Addr{addr("10.244.1.3")}
	vip := func(c *Compiler, key string) string {
		row, ok := c.Rows().Get(nb.Ref{Table: "Load_Balancer", Key: key})
		if !ok {
			return "no row"
		}
		return row.(*nb.LoadBalancer).VIPs["10.96.0.10:80"]
	}
	store, c := intent.NewStore(), New(Options{})
	for _, step := range []struct {
		name   string
		change func(*intent.Tx)
		want   string // for pods of the Router
		nodes  string
	}{
		{"the Service before its Ports", func(tx *intent.Tx) { tx.Replace(o); tx.SetService(service) }, "10.244.1.2:8080,10.244.1.3:8080,10.50.0.9:8080", ""},
		{"the Ports", func(tx *intent.Tx) { tx.SetPort(ofRed); tx.SetPort(ofBlue) }, "10.50.0.4:8080,10.244.1.3:8080,10.50.0.9:8080", "10.244.1.2:8080"},
		{"the Port has another address", func(tx *intent.Tx) {
			moved := ofRed
			moved.Addresses = []netip.Addr{addr("10.50.0.7")}
			tx.SetPort(moved)
		}, "10.50.0.7:8080,10.244.1.3:8080,10.50.0.9:8080", "10.244.1.2:8080"},
		{"the Port is gone", func(tx *intent.Tx) { tx.DeletePort(ofRed.ID) }, "10.244.1.2:8080,10.244.1.3:8080,10.50.0.9:8080", ""},
		{"the other one has its address", func(tx *intent.Tx) {
			again := ofRed
			again.ID, again.Addresses = "again", []netip.Addr{addr("10.50.0.8")}
			tx.SetPort(again)
		}, "10.50.0.8:8080,10.244.1.3:8080,10.50.0.9:8080", "10.244.1.2:8080"},
	} {
		state, err := store.Update(func(tx *intent.Tx) error { step.change(tx); return nil })
		if err != nil {
			t.Fatal(err)
		}
		c.Update(state)
		if got := vip(c, "Service/red/web tcp"); got != step.want {
			t.Errorf("%s: %s, want %s", step.name, got, step.want)
		}
		if got := vip(c, "Service/red/web tcp for nodes"); got != step.nodes {
			t.Errorf("%s: nodes have %s, want %s", step.name, got, step.nodes)
		}
	}
}

// Clients outside come by the node port where a policy keeps them on their node, so that the other
// addresses are for clients inside, of all endpoints; nodes' kernels judge by source ranges.
func TestEndpointsOutsideAndInside(t *testing.T) {
	const both = "10.244.1.2:8080,10.244.2.2:8080"
	topology := func(node string) intent.Topology { return intent.NewTopology(node, nil, nil) }
	for name, tc := range map[string]struct {
		change func(*intent.Service)
		want   map[string]string
	}{
		"policy Cluster": {func(*intent.Service) {}, map[string]string{
			"10.96.0.10:80": both, "169.254.64.2:30080": both, "198.51.100.1:80": both, "203.0.113.1:80": both,
		}},
		"policy Local": {func(v *intent.Service) { v.ExternalLocal = true }, map[string]string{
			"10.96.0.10:80": both, "169.254.64.2:30080": "10.244.1.2:8080", "198.51.100.1:80": both, "203.0.113.1:80": both,
		}},
		"policy Local without node ports": {func(v *intent.Service) { v.ExternalLocal, v.Ports[0].NodePort = true, 0 },
			map[string]string{
				"10.96.0.10:80": both, "198.51.100.1:80": "10.244.1.2:8080", "203.0.113.1:80": "10.244.1.2:8080",
			}},
		"source ranges": {func(v *intent.Service) {
			v.ExternalLocal, v.SourceRanges = true, []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
		}, map[string]string{"10.96.0.10:80": both, "169.254.64.2:30080": "10.244.1.2:8080", "198.51.100.1:80": both}},
	} {
		v := intent.Service{Namespace: "shop", Name: "web", Router: "default", Ports: []intent.ServicePort{{
			Protocol: intent.TCP, Port: 80, NodePort: 30080, ClusterIP: addr("10.96.0.10"),
			ExternalIPs: []netip.Addr{addr("198.51.100.1")}, LoadBalancerIPs: []netip.Addr{addr("203.0.113.1")},
			Endpoints: []intent.ServiceEndpoint{
				{Address: addr("10.244.1.2"), Port: 8080, Topology: topology("n1")},
				{Address: addr("10.244.2.2"), Port: 8080, Topology: topology("n2")},
			},
		}}}
		tc.change(&v)
		b := balancer{service: v}
		got, kept := b.vips(nodeview.Service(v, nodeview.Node{Name: "n1"}), intent.TCP)
		if diff := cmp.Diff(tc.want, got); diff != "" || len(kept) > 0 {
			t.Errorf("%s: %d are kept from endpoints; (-want +got):\n%s", name, len(kept), diff)
		}
	}
}
