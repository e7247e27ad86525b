// SPDX-License-Identifier: Apache-2.0

package octaviafake

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"coelan.io/coelan/internal/backend/neutron/neutronfake"
)

func TestCases(t *testing.T) {
	n := neutronfake.Start(t)
	o := Start(t, n)
	Check(t, Server{Endpoint: o.URL + "/", Neutron: n.URL + "/", Hold: o.Hold, Release: o.Release})
	if left := n.All("ports"); len(left) > 0 {
		t.Errorf("ports are left: %v", left)
	}
}

// What the real one does only with keystone, or when a provider fails.
func TestQuotaAndErrors(t *testing.T) {
	n := neutronfake.Start(t)
	o := Start(t, n)
	id := subnet(t, n.URL+"/", "10.99.0.0/24")
	call := func(method, path, body string, want int, text string) string {
		t.Helper()
		status, answer, err := Call(t.Context(), method, o.URL+"/v2.0/lbaas/"+path, body)
		if err != nil || status != want || !strings.Contains(fmt.Sprint(answer["faultstring"]), text) && text != "" {
			t.Fatalf("%s %s: %d, %v, %v; want %d, %q", method, path, status, answer, err, want, text)
		}
		for _, made := range answer {
			if made, ok := made.(map[string]any); ok {
				return fmt.Sprint(made["id"])
			}
		}
		return ""
	}
	body := fmt.Sprintf(`{"loadbalancer": {"project_id": "p", "vip_subnet_id": %q}}`, id)
	o.Quota("loadbalancers", 1)
	lb := call("POST", "loadbalancers", body, http.StatusCreated, "")
	call("POST", "loadbalancers", body, http.StatusForbidden, "Quota has been met for resources: LoadBalancer")
	o.Break("pools", true)
	pool := call("POST", "pools", fmt.Sprintf(`{"pool": {"loadbalancer_id": %q, "protocol": "TCP", "lb_algorithm": "SOURCE_IP_PORT"}}`, lb),
		http.StatusCreated, "")
	call("PUT", "pools/"+pool+"/members", `{"members": []}`, http.StatusConflict, "Pool "+pool+" is immutable")
	o.Break("pools", false)
	call("DELETE", "pools/"+pool, "", http.StatusNoContent, "")
	o.Break("loadbalancers", true)
	call("PUT", "loadbalancers/"+lb, `{"loadbalancer": {"name": "x"}}`, http.StatusOK, "")
	call("PUT", "loadbalancers/"+lb, `{"loadbalancer": {"name": "x"}}`, http.StatusConflict, "Invalid state ERROR")
	o.Break("loadbalancers", false)
	call("DELETE", "loadbalancers/"+lb, "", http.StatusNoContent, "")
	if left := o.All("loadbalancers"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
