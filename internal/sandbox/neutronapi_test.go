// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What is there is not made anew, and what Neutron says of a failure is in the error.
func TestNeutronEnsure(t *testing.T) {
	var asked []string
	there := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked = append(asked, r.Method+" "+r.URL.String()+" "+string(body))
		switch {
		case r.Method == http.MethodPost:
			there = true
			fmt.Fprint(w, `{"security_group": {"id": "1"}}`)
		case there:
			fmt.Fprint(w, `{"security_groups": [{"id": "1"}]}`)
		default:
			fmt.Fprint(w, `{"security_groups": []}`)
		}
	}))
	defer server.Close()
	api := neutronAPI{url: server.URL + "/"}
	for range 2 {
		id, err := api.ensure(t.Context(), "security_group", object{"name": "a"}, object{"stateful": true})
		if err != nil || id != "1" {
			t.Errorf("id %q, error %v", id, err)
		}
	}
	const list = "GET /security-groups?name=a&project_id=coelan "
	want := []string{list, `POST /security-groups {"security_group":{"name":"a","project_id":"coelan","stateful":true}}`, list}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Error(diff)
	}
}

// A subnet that is on the router stays.
func TestNeutronRoute(t *testing.T) {
	for ports, want := range map[string][]string{
		`{"ports": []}`:            {"GET /ports?device_id=r&fixed_ips=subnet_id%3Ds&project_id=coelan ", `PUT /routers/r/add_router_interface {"subnet_id":"s"}`},
		`{"ports": [{"id": "1"}]}`: {"GET /ports?device_id=r&fixed_ips=subnet_id%3Ds&project_id=coelan "},
	} {
		var asked []string
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			asked = append(asked, r.Method+" "+r.URL.String()+" "+string(body))
			if r.Method == http.MethodGet {
				fmt.Fprint(w, ports)
				return
			}
			fmt.Fprint(w, `{"id": "r"}`)
		}))
		if err := (neutronAPI{url: server.URL + "/"}).route(t.Context(), "r", "s"); err != nil {
			t.Error(err)
		}
		server.Close()
		if diff := cmp.Diff(want, asked); diff != "" {
			t.Error(diff)
		}
	}
}

// A port that Neutron cannot have on a node would never have a packet.
func TestNeutronBind(t *testing.T) {
	for answer, good := range map[string]bool{
		`{"port": {"binding:vif_type": "ovs"}}`: true, `{"port": {"binding:vif_type": "binding_failed"}}`: false,
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, answer) }))
		err := neutronAPI{url: server.URL + "/"}.bind(t.Context(), "1", "worker1")
		server.Close()
		if (err == nil) != good {
			t.Errorf("%s: error %v", answer, err)
		}
	}
}
