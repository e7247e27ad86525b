// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/backend/neutron/neutronfake"
	"coelan.io/coelan/internal/backend/neutron/resource"
)

// theirs makes a network of another program, and returns its UUID.
func (w *world) theirs(project string, tags ...string) string {
	w.Helper()
	ids := map[string]string{}
	for _, made := range []struct{ plural, singular, body string }{
		{"networks", "network", `"name": "theirs"`},
		{"subnets", "subnet", `"network_id": "$network", "cidr": "10.90.0.0/16", "ip_version": 4, "gateway_ip": "10.90.0.1"`},
	} {
		body := fmt.Sprintf(`{%q: {"project_id": %q, %s}}`, made.singular, project, strings.ReplaceAll(made.body, "$network", ids["network"]))
		status, answer, err := neutronfake.Call(w.Context(), "POST", w.neutron.URL+"/v2.0/"+made.plural, body)
		o, _ := answer[made.singular].(map[string]any)
		if err != nil || status != http.StatusCreated {
			w.Fatalf("%d, %v, %v", status, answer, err)
		}
		ids[made.singular] = fmt.Sprint(o["id"])
	}
	for _, tag := range tags {
		w.call("PUT", "networks/"+ids["network"]+"/tags/"+tag, "")
	}
	return ids["network"]
}

// onTheirs wants ports on the network of another program.
func onTheirs(ports int) *resource.Set {
	s := resource.NewSet()
	network := s.Add(resource.Resource{Ref: resource.LentNetwork("Network red"), Object: "Network red", Optional: true})
	subnet := s.Add(resource.Resource{
		Ref: resource.LentSubnet("Network red", netip.MustParsePrefix("10.90.0.0/16")), Object: "Network red", Optional: true,
	})
	for i, p := range tenant(ports).All(resource.Port) {
		p.Fixed["network_id"] = network
		p.Mutable["fixed_ips"] = []any{resource.Attributes{"subnet_id": subnet, "ip_address": fmt.Sprintf("10.90.1.%d", i+2)}}
		s.Add(p)
	}
	return s
}

// loan is why there is no network to be on; empty: there is one.
func (w *world) loan() (refused string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refused
}

// Ports are on the network of another program, known by its UUID or its tag, and go; what the other
// program has made stays as it is, also if calls are not answered.
func TestLentNetwork(t *testing.T) {
	for name, tc := range map[string]struct {
		project, tag string
		fault        neutronfake.Fault
	}{
		"by UUID":    {project: "p"},
		"of another": {project: "q"},
		"by tag":     {project: "p", tag: "blue"},
		"busy":       {project: "q", fault: neutronfake.Busy},
		"unanswered": {project: "q", fault: neutronfake.Lost},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.stop()
			id := w.theirs(tc.project, "red", "blue")
			before := [][]map[string]any{w.neutron.All("networks"), w.neutron.All("subnets")}
			w.lent = []Wanted{{Object: "Network red", Name: id}}
			if tc.tag != "" {
				w.lent[0].Name = tc.tag
			}
			w.failing(tc.fault)
			w.start()
			for range 2 {
				w.set(onTheirs(3))
				w.done()
				for _, p := range w.neutron.All("ports") {
					if p["network_id"] != id {
						t.Errorf("a port is on %v, not on %s", p["network_id"], id)
					}
				}
				w.stop()
				w.start()
				w.done()
				w.set(resource.NewSet())
				w.done()
			}
			if diff := cmp.Diff(before, [][]map[string]any{w.neutron.All("networks"), w.neutron.All("subnets")}); diff != "" {
				t.Errorf("what is another program's is changed: %s", diff)
			}
		})
	}
}

// Without the network that is named no port is made, and no network in place of it; when it comes,
// they are.
func TestNoLentNetwork(t *testing.T) {
	for name, tc := range map[string]struct {
		make  func(w *world)
		named string
		says  string
	}{
		"no such UUID":        {named: "00000000-0000-4000-8000-000000000000", says: "Neutron has no network 00000000"},
		"no such tag":         {named: "blue", says: "0 networks of the project p have the tag blue"},
		"tag of another":      {make: func(w *world) { w.theirs("q", "blue") }, named: "blue", says: "0 networks of the project p"},
		"tag of two networks": {make: func(w *world) { w.theirs("p", "blue"); w.theirs("p", "blue") }, named: "blue", says: "2 networks"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.stop()
			if tc.make != nil {
				tc.make(w)
			}
			before := len(w.neutron.All("networks"))
			w.lent = []Wanted{{Object: "Network red", Name: tc.named}}
			w.start()
			w.set(onTheirs(1))
			w.await("the port waits", func(o outcome) bool {
				return len(o.problems) == 1 && o.problems[0].Reason == "Waiting" && strings.Contains(o.problems[0].Message, "waits for")
			})
			if !strings.Contains(w.loan(), tc.says) {
				t.Errorf("the network is refused: %q, not %q", w.loan(), tc.says)
			}
			if after := len(w.neutron.All("networks")); after != before || len(w.neutron.All("ports")) > 0 {
				t.Errorf("%d networks instead of %d, ports %v", after, before, w.neutron.All("ports"))
			}
			w.mu.Lock()
			w.lent[0].Name = w.theirs("p")
			w.mu.Unlock()
			w.client.Reread()
			w.done()
		})
	}
}
