// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"fmt"
	"testing"

	"coelan.io/coelan/internal/backend/neutron/resource"
)

// read is what a client finds when it starts.
func (w *world) read() *resource.Inventory {
	w.Helper()
	api, project, err := Access{Endpoint: w.neutron.URL, Project: "p"}.connect(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	have, err := newSession(api, project, tenants{}, Options{
		Cluster: "east", Claims: noClaims, Lent: noneLent, Parents: noParents,
	}, func() {}).read(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	return have
}

// Subnets that others have put on the cluster's router are known if their hosts answer by it, and
// stay as they are.
func TestForeignSubnets(t *testing.T) {
	w := newWorld(t)
	w.set(tenant(1))
	w.done()
	red := resource.Ref{Kind: resource.Router, Key: "Router/red"}
	if foreign := w.read().Foreign(red); len(foreign) > 0 {
		t.Fatalf("%v are foreign, want none", foreign)
	}
	own := w.neutron.All("routers")[0]["id"].(string)
	network := w.neutron.All("networks")[0]["id"].(string)
	elsewhere := w.make("routers", "router", `"name": "theirs", "project_id": "q"`)
	subnet := func(on, cidr, more string) string {
		t.Helper()
		if on == "" {
			on = w.make("networks", "network", `"name": "theirs", "project_id": "q"`)
		}
		return w.make("subnets", "subnet", fmt.Sprintf(`"network_id": %q, "project_id": "q", "cidr": %q%s`, on, cidr, more))
	}
	join := func(router, subnet string) {
		w.call("PUT", "routers/"+router+"/add_router_interface", fmt.Sprintf(`{"subnet_id": %q}`, subnet))
	}
	join(own, subnet("", "10.80.0.0/24", `, "ip_version": 4, "gateway_ip": "10.80.0.1"`))
	join(elsewhere, subnet("", "10.81.0.0/24", `, "ip_version": 4, "gateway_ip": "10.81.0.1"`))
	join(own, subnet(network, "fd00:95::/64", `, "ip_version": 6, "gateway_ip": "fd00:95::1"`))
	byPort := func(more string, cidr, address string) {
		on := w.make("networks", "network", `"name": "theirs", "project_id": "q"`)
		id := subnet(on, cidr, more)
		port := w.make("ports", "port", fmt.Sprintf(`"network_id": %q, "project_id": "q", "fixed_ips": [{"subnet_id": %q, "ip_address": %q}]`, on, id, address))
		w.call("PUT", "routers/"+own+"/add_router_interface", fmt.Sprintf(`{"port_id": %q}`, port))
	}
	byPort(`, "ip_version": 4, "gateway_ip": "10.82.0.1"`, "10.82.0.0/24", "10.82.0.9")
	byPort(`, "ip_version": 4, "gateway_ip": "10.83.0.1", "host_routes": [{"destination": "10.0.0.0/8", "nexthop": "10.83.0.9"}]`, "10.83.0.0/24", "10.83.0.9")
	have := w.read()
	if foreign := fmt.Sprint(have.Foreign(red)); foreign != "[10.80.0.0/24 10.83.0.0/24 fd00:95::/64]" {
		t.Errorf("%v are foreign", foreign)
	}
	if calls := resource.Plan(tenant(1), have); len(calls) > 0 {
		t.Errorf("with what is foreign the plan is %+v", calls)
	}
}
