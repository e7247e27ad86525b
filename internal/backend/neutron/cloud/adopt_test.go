// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"coelan.io/coelan/internal/backend/neutron/neutronfake"
	"coelan.io/coelan/internal/backend/neutron/resource"
)

// kuryr makes what another system has of tenant(1) in a project: a network, its subnet and two
// ports, one of which nothing is wanted for. It returns their ids.
func (w *world) kuryr(project string) map[string]string {
	w.Helper()
	ids := map[string]string{}
	for _, r := range []struct{ name, path, kind, body string }{
		{"net", "networks", "network", `"name": "uid/shop"`},
		{"sub", "subnets", "subnet", `"network_id": "$net", "cidr": "10.90.0.0/16", "ip_version": 4, "gateway_ip": "10.90.0.1", "enable_dhcp": false`},
		{"web", "ports", "port", `"network_id": "$net", "mac_address": "0a:58:0a:5a:01:00", "device_owner": "compute:kuryr", "device_id": "",
			"fixed_ips": [{"subnet_id": "$sub", "ip_address": "10.90.1.1"}]`},
		{"other", "ports", "port", `"network_id": "$net", "mac_address": "fa:16:3e:00:00:01", "device_owner": "compute:kuryr", "device_id": "uid-2",
			"fixed_ips": [{"subnet_id": "$sub", "ip_address": "10.90.7.7"}]`},
	} {
		body := strings.NewReplacer("$net", ids["net"], "$sub", ids["sub"]).Replace(r.body)
		status, answer, err := neutronfake.Call(w.Context(), "POST", w.neutron.URL+"/v2.0/"+r.path,
			fmt.Sprintf(`{%q: {"project_id": %q, %s}}`, r.kind, project, body))
		if err != nil || status != 201 {
			w.Fatalf("%s: %d, %v, %v", r.name, status, answer, err)
		}
		made, _ := answer[r.kind].(map[string]any)
		ids[r.name] = fmt.Sprint(made["id"])
	}
	return ids
}

// What another system has made becomes the cluster's, with its ids, and nothing is made a second
// time: also if calls are not answered, after a restart, and in the project of a namespace. What is
// not wanted stays.
func TestAdopts(t *testing.T) {
	for _, tc := range []struct {
		project string
		fault   neutronfake.Fault
	}{{"p", neutronfake.None}, {"p", neutronfake.Busy}, {"p", neutronfake.Lost}, {"q", neutronfake.None}, {"q", neutronfake.Lost}} {
		t.Run(fmt.Sprint(tc), func(t *testing.T) {
			w := newWorld(t)
			w.stop()
			ids := w.kuryr(tc.project)
			w.claims = []resource.Claim{
				{Kind: resource.Network, ID: ids["net"], Ref: resource.Ref{Kind: resource.Network, Key: "Network/red"}},
				{Kind: resource.Subnet, ID: ids["sub"], Ref: resource.Ref{Kind: resource.Subnet, Key: "Network/red 10.90.0.0/16"}},
				{Kind: resource.Port, ID: ids["web"], MAC: "0a:58:0a:5a:01:00", Device: "uid-1", Addresses: []string{"10.90.1.1"}},
				{Kind: resource.Port, ID: ids["other"], MAC: "fa:16:3e:00:00:01", Device: "uid-2"},
			}
			want := tenant(1)
			for _, p := range want.All(resource.Port) {
				p.Mutable["device_id"] = "uid-1"
			}
			if tc.project != "p" {
				want = inProject(want, tc.project)
			}
			w.neutron.Fail(func(number int, _, _ string) neutronfake.Fault {
				if number%5 == 4 {
					return tc.fault
				}
				return neutronfake.None
			})
			w.start()
			w.set(want)
			for range 2 {
				w.done()
				if got := w.portOf("Port shop/web-0000"); got != ids["web"] {
					t.Errorf("the port is %s, not %s", got, ids["web"])
				}
				const interfaces = 2 // of the router: one for each family
				for collection, count := range map[string]int{"networks": 1, "subnets": 3, "ports": 2 + interfaces} {
					if all := w.neutron.All(collection); len(all) != count {
						t.Errorf("%d %s, not %d: %v", len(all), collection, count, all)
					}
				}
				for _, p := range w.neutron.All("ports") {
					if p["id"] == ids["other"] && (p["description"] != nil || p["device_id"] != "uid-2") {
						t.Errorf("the other port is changed: %v", p)
					}
				}
				w.stop()
				w.start()
			}
		})
	}
}

// What is in another project than what is wanted is not adopted.
func TestDoesNotAdoptElsewhere(t *testing.T) {
	for _, in := range []struct{ made, wanted string }{{"q", "p"}, {"p", "q"}, {"r", "q"}} {
		t.Run(fmt.Sprint(in), func(t *testing.T) {
			w := newWorld(t)
			w.stop()
			w.projects = []string{"q", "r"}
			ids := w.kuryr(in.made)
			w.claims = []resource.Claim{{
				Kind: resource.Network, ID: ids["net"], By: "KuryrNetwork shop", Ref: resource.Ref{Kind: resource.Network, Key: "Network/red"},
			}}
			want := resource.NewSet()
			want.Add(resource.Resource{
				Ref: resource.Ref{Kind: resource.Network, Key: "Network/red"}, Object: "Network red", Optional: true,
				Mutable: resource.Attributes{"name": "net-red"},
			})
			if in.wanted != "p" {
				want = inProject(want, in.wanted)
			}
			w.start()
			w.set(want)
			says := fmt.Sprintf("it is in the project %s, and not in %s", in.made, in.wanted)
			w.await("why it is not adopted", func(o outcome) bool {
				return len(o.problems) > 0 && strings.Contains(o.problems[0].Message, says)
			})
			for _, n := range w.neutron.All("networks") {
				if n["id"] == ids["net"] && (n["description"] != nil || n["name"] != "uid/shop") {
					t.Errorf("it is changed: %v", n)
				}
			}
		})
	}
}

// What cannot be adopted is said of the object, and its place is not taken.
func TestDoesNotAdopt(t *testing.T) {
	w := newWorld(t)
	w.stop()
	ids := w.kuryr("p")
	w.claims = []resource.Claim{{
		Kind: resource.Network, ID: ids["net"], By: "KuryrNetwork shop", Ref: resource.Ref{Kind: resource.Network, Key: "Network/red"},
		Has: map[string][]any{"name": {"uid/other"}},
	}}
	want := resource.NewSet()
	want.Add(resource.Resource{
		Ref: resource.Ref{Kind: resource.Network, Key: "Network/red"}, Object: "Network red", Optional: true,
		Mutable: resource.Attributes{"name": "net-red"},
	})
	w.start()
	w.set(want)
	o := w.await("why it is not adopted", func(o outcome) bool { return len(o.problems) > 0 })
	if p := o.problems[0]; p.Object != "Network red" || !strings.Contains(p.Message, "name is uid/shop, and not uid/other") {
		t.Errorf("%+v", p)
	}
	if all := w.neutron.All("networks"); len(all) != 1 || all[0]["name"] != "uid/shop" {
		t.Errorf("networks %v", all)
	}
}

// claimed are the claims of a world.
func (w *world) claimed(context.Context) []resource.Claim { return w.claims }
