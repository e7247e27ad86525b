// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"fmt"
	"strings"
	"testing"

	"coelan.io/coelan/internal/backend/neutron/neutronfake"
	"coelan.io/coelan/internal/backend/neutron/resource"
)

// make makes a resource, or something of it, as another program does, and returns its id.
func (w *world) make(path, kind, body string) string {
	w.Helper()
	method := "POST"
	if kind == "" {
		method, body = "PUT", "{"+body+"}"
	} else {
		body = fmt.Sprintf(`{%q: {"project_id": "p", %s}}`, kind, body)
	}
	status, answer, err := neutronfake.Call(w.Context(), method, w.neutron.URL+"/v2.0/"+path, body)
	if err != nil || status >= 300 {
		w.Fatalf("%s: %d, %v, %v", path, status, answer, err)
	}
	made, _ := answer[kind].(map[string]any)
	return fmt.Sprint(made["id"])
}

// balanced makes what Kuryr has of a Service with the ClusterIP 10.2.0.5 and the floating IP
// 192.0.2.7: an external network, and a port with the former that the latter leads to.
func (w *world) balanced(description string) (office, vip, floating string) {
	w.Helper()
	office = w.make("networks", "network", `"name": "office", "router:external": true`)
	w.make("subnets", "subnet", fmt.Sprintf(`"network_id": %q, "cidr": "192.0.2.0/24", "ip_version": 4`, office))
	services := w.make("networks", "network", `"name": "services"`)
	subnet := w.make("subnets", "subnet", fmt.Sprintf(`"network_id": %q, "cidr": "10.2.0.0/24", "ip_version": 4, "gateway_ip": "10.2.0.1"`, services))
	router := w.make("routers", "router", fmt.Sprintf(`"name": "kuryr", "external_gateway_info": {"network_id": %q}`, office))
	w.make("routers/"+router+"/add_router_interface", "", fmt.Sprintf(`"subnet_id": %q`, subnet))
	vip = w.make("ports", "port", fmt.Sprintf(`"network_id": %q, "fixed_ips": [{"subnet_id": %q, "ip_address": "10.2.0.5"}]`, services, subnet))
	floating = w.make("floatingips", "floatingip", fmt.Sprintf(`"floating_network_id": %q, "floating_ip_address": "192.0.2.7", "port_id": %q,
		"description": %q`, office, vip, description))
	return office, vip, floating
}

// floatingOf is a floating IP of Neutron: its description, its port and its address; empty: it is
// gone.
func (w *world) floatingOf(id string) string {
	for _, f := range w.neutron.All("floatingips") {
		if f["id"] == id {
			return fmt.Sprint(f["description"], " ", f["port_id"], " ", f["floating_ip_address"])
		}
	}
	return ""
}

// The floating IP of another system's load balancer becomes the cluster's by one call, and keeps
// its id and its address: also if calls fail or are not answered, after a restart, and when the
// load balancer is gone. When it is wanted no longer, it goes, or leads nowhere if it is a user's.
func TestAdoptsFloatingIP(t *testing.T) {
	for _, tc := range []struct {
		users  bool
		fault  neutronfake.Fault
		unused bool // the load balancer is gone
	}{
		{false, neutronfake.None, false}, {false, neutronfake.Busy, false}, {false, neutronfake.Lost, false}, {false, neutronfake.None, true},
		{true, neutronfake.None, false}, {true, neutronfake.Lost, false},
	} {
		t.Run(fmt.Sprint(tc), func(t *testing.T) {
			w := newWorld(t)
			w.stop()
			description := "kuryr_lb"
			if tc.users {
				description = "of the shop"
			}
			office, vip, id := w.balanced(description)
			if tc.unused {
				if status, _, err := neutronfake.Call(t.Context(), "DELETE", w.neutron.URL+"/v2.0/ports/"+vip, ""); err != nil || status != 204 {
					t.Fatalf("%d, %v", status, err)
				}
			}
			want, claim := ofShop(office, id, "10.2.0.5")
			claim.Kept = tc.users
			w.claims = []resource.Claim{claim}
			changes := 0
			w.neutron.Fail(func(_ int, method, path string) neutronfake.Fault {
				if method == "GET" {
					return neutronfake.None
				}
				if changes++; changes == 1 {
					return tc.fault
				}
				return neutronfake.None
			})
			w.start()
			w.set(want)
			w.done()
			owned := "east/FloatingIP/shop/web"
			if tc.users {
				owned = "east/KeptFIP/shop/web"
			}
			if got := w.floatingOf(id); got != owned+" <nil> 192.0.2.7" {
				t.Errorf("it is %q", got)
			}
			if again := tc.fault != neutronfake.None; changes > 1 && !again || changes > 2 {
				t.Errorf("%d calls", changes)
			}
			w.stop()
			w.claims = nil // as they are when it is there
			w.make("floatingips/"+id, "", `"floatingip": {"port_id": null}`)
			changes = 0
			w.start()
			w.done()
			if changes != 0 {
				t.Errorf("%d calls after a restart", changes)
			}
			w.set(resource.NewSet())
			w.done()
			goes := ""
			if tc.users {
				goes = " <nil> 192.0.2.7"
			}
			if got := w.floatingOf(id); got != goes {
				t.Errorf("when nothing is wanted it is %q", got)
			}
		})
	}
}

// ofShop is the floating IP that the Service shop/web is to have in a network, and the claim that
// it is the one of that id, which leads to a ClusterIP.
func ofShop(network, id, clusterIP string) (*resource.Set, resource.Claim) {
	want := resource.NewSet()
	ref := want.Add(resource.Resource{
		Ref: resource.Ref{Kind: resource.FloatingIP, Key: "FloatingIP/shop/web"}, Object: "FloatingIP shop/web",
		Fixed:   resource.Attributes{"floating_network_id": network, "floating_ip_address": "192.0.2.7"},
		Mutable: resource.Attributes{"port_id": nil},
	})
	return want, resource.Claim{
		Kind: resource.FloatingIP, ID: id, By: "KuryrLoadBalancer shop/web", Ref: ref,
		Has: map[string][]any{"fixed_ip_address": {clusterIP}},
		Or:  map[string][]any{"fixed_ip_address": {nil}, "description": {"kuryr_lb"}},
	}
}

// A floating IP that leads elsewhere stays as it is, and so does one that the cluster cannot have.
func TestDoesNotAdoptFloatingIP(t *testing.T) {
	w := newWorld(t)
	w.stop()
	office, vip, id := w.balanced("kuryr_lb")
	want, claim := ofShop(office, id, "10.2.0.6")
	w.claims = []resource.Claim{claim}
	w.start()
	w.set(want)
	o := w.await("why it is not adopted", func(o outcome) bool { return len(o.problems) > 0 })
	last := o.problems[len(o.problems)-1] // which conditions have
	if last.Reason != "NotAdopted" || last.Object != "FloatingIP shop/web" ||
		!strings.Contains(last.Message, "fixed_ip_address is 10.2.0.5, and not 10.2.0.6") {
		t.Errorf("%+v", o.problems)
	}
	if got := w.floatingOf(id); got != "kuryr_lb "+vip+" 192.0.2.7" {
		t.Errorf("it is %q", got)
	}
}
