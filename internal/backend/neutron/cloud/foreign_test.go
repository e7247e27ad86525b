// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"fmt"
	"slices"
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

// It is known by which ports others' subnets are on the cluster's router, and these stay as they
// are.
func TestForeignInterfaces(t *testing.T) {
	w := newWorld(t)
	w.set(tenant(1))
	w.done()
	router := resource.Ref{Kind: resource.Router, Key: "Router/red"}
	if ports := w.read().Foreign(router); len(ports) > 0 {
		t.Fatalf("the ports %v are foreign, want none", ports)
	}
	own := w.neutron.All("routers")[0]["id"].(string)
	elsewhere := w.make("routers", "router", `"name": "theirs", "project_id": "q"`)
	var want []string
	for i, of := range []string{own, own, elsewhere} {
		network := w.make("networks", "network", `"name": "theirs", "project_id": "q"`)
		subnet := w.make("subnets", "subnet", fmt.Sprintf(`"network_id": %q, "cidr": "10.%d.0.0/24", "ip_version": 4, "gateway_ip": "10.%d.0.1"`, network, 80+i, 80+i))
		w.call("PUT", "routers/"+of+"/add_router_interface", fmt.Sprintf(`{"subnet_id": %q}`, subnet))
		for _, p := range w.neutron.All("ports") {
			if p["network_id"] == network && of == own {
				want = append(want, p["id"].(string))
			}
		}
	}
	slices.Sort(want)
	have := w.read()
	if ports := have.Foreign(router); len(ports) != 2 || !slices.Equal(ports, want) {
		t.Errorf("the ports %v are foreign, want %v", ports, want)
	}
	if calls := resource.Plan(tenant(1), have); len(calls) > 0 {
		t.Errorf("with what is foreign the plan is %+v", calls)
	}
}
