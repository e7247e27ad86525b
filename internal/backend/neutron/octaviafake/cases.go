// SPDX-License-Identifier: Apache-2.0

package octaviafake

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"coelan.io/coelan/internal/backend/neutron/neutronfake"
)

// Server is an Octavia, and the Neutron that it asks. Their URLs end with a slash.
type Server struct {
	Endpoint, Neutron string
	// Hold has what is begun stay PENDING until Release. Nil: it cannot, and what is between is
	// left out.
	Hold, Release func()
}

// Case is a call, and what an Octavia answers.
type Case struct {
	Name         string
	Method, Path string // below v2.0/lbaas/
	// Body is JSON. $NAME in it, in Path and in Text stands for the id of what the case NAME has
	// made; $vips and $pods are subnets.
	Body   string
	Status int
	// Text is part of why it is refused, or JSON that the answer has.
	Text string
}

// In place of a method they call those of a Server.
const (
	hold    = "HOLD"
	release = "RELEASE"
)

const nothing = "00000000-0000-0000-0000-000000000000"

// Cases build on each other. They hold for the fake and for the real one with the provider ovn.
var Cases = []Case{
	{"unknown attribute", "POST", "loadbalancers", `{"loadbalancer": {"project_id": "p", "vip_subnet_id": "$vips",
		"bogus": 1}}`, 400,
		"bogus"},
	{"no subnet", "POST", "loadbalancers", `{"loadbalancer": {"project_id": "p"}}`, 400, "vip_subnet_id"},
	{"unknown subnet", "POST", "loadbalancers", `{"loadbalancer": {"project_id": "p",
		"vip_subnet_id": "` + nothing + `"}}`, 400,
		"Subnet " + nothing + " not found"},
	{"unknown provider", "POST", "loadbalancers", `{"loadbalancer": {"project_id": "p", "vip_subnet_id": "$vips",
		"provider": "x"}}`, 400,
		"'x' is not enabled"},
	{"lb", "POST", "loadbalancers", `{"loadbalancer": {"project_id": "p", "name": "n", "vip_subnet_id": "$vips",
		"provider": "ovn",
		"vip_address": "10.99.0.77", "tags": ["a=b/c", "d"]}}`, 201, ""},
	{"lb is active", "GET", "loadbalancers/$lb", "", 200, `{"loadbalancer": {"provisioning_status": "ACTIVE",
		"provider": "ovn",
		"vip_subnet_id": "$vips", "vip_address": "10.99.0.77", "admin_state_up": true, "tags": ["a=b/c", "d"],
		"listeners": [], "pools": []}}`},
	{"address in use", "POST", "loadbalancers", `{"loadbalancer": {"project_id": "p", "vip_subnet_id": "$vips",
		"provider": "ovn",
		"vip_address": "10.99.0.77"}}`, 500, ""},
	{"other", "POST", "loadbalancers", `{"loadbalancer": {"project_id": "p", "name": "n", "vip_subnet_id": "$vips",
		"provider": "ovn"}}`,
		201, ""},
	{"found by its tag", "GET", "loadbalancers?project_id=p&tags=a%3Db%2Fc", "", 200,
		`{"loadbalancers": [{"id": "$lb"}]}`},
	{"no such tag", "GET", "loadbalancers?tags=a", "", 200, `{"loadbalancers": []}`},
	{"another project", "GET", "loadbalancers?project_id=q", "", 200, `{"loadbalancers": []}`},
	{"a full page has a next one", "GET", "loadbalancers?project_id=p&limit=2", "", 200,
		`{"loadbalancers": [{}, {}], "loadbalancers_links": [{"rel": "next"}]}`},
	{"a page that is not full", "GET", "loadbalancers?project_id=p&limit=3", "", 200,
		`{"loadbalancers": [{}, {}], "loadbalancers_links": []}`},
	{"the next page", "GET", "loadbalancers?project_id=p&limit=2&marker=$other", "", 200, `{"loadbalancers": []}`},
	{"unknown marker", "GET", "loadbalancers?marker=" + nothing, "", 400, "marker"},
	{"unknown filter", "GET", "loadbalancers?bogus=1", "", 400, "invalid"},
	{"other provider", "PUT", "loadbalancers/$lb", `{"loadbalancer": {"provider": "amphora"}}`, 400, "provider"},

	{"pool of round robin", "POST", "pools", `{"pool": {"loadbalancer_id": "$lb", "protocol": "TCP",
		"lb_algorithm": "ROUND_ROBIN"}}`, 501,
		"does not support ROUND_ROBIN"},
	{"pool of an unknown protocol", "POST", "pools", `{"pool": {"loadbalancer_id": "$lb", "protocol": "X",
		"lb_algorithm": "SOURCE_IP_PORT"}}`, 400, "protocol"},
	{"pool without an algorithm", "POST", "pools", `{"pool": {"loadbalancer_id": "$lb", "protocol": "TCP"}}`, 400,
		"lb_algorithm"},
	{"pool of nothing", "POST", "pools", `{"pool": {"protocol": "TCP", "lb_algorithm": "SOURCE_IP_PORT"}}`, 400,
		"loadbalancer_id"},
	{"pool of an unknown load balancer", "POST", "pools", `{"pool": {"loadbalancer_id": "` + nothing + `",
		"protocol": "TCP",
		"lb_algorithm": "SOURCE_IP_PORT"}}`, 404, "not found"},
	{"pool", "POST", "pools", `{"pool": {"loadbalancer_id": "$lb", "name": "n", "protocol": "TCP",
		"lb_algorithm": "SOURCE_IP_PORT",
		"project_id": "p", "tags": ["t"]}}`, 201, ""},
	{"pool has persistence", "PUT", "pools/$pool", `{"pool": {"session_persistence": {"type": "SOURCE_IP"},
		"admin_state_up": true,
		"lb_algorithm": "SOURCE_IP_PORT"}}`, 200, ""},
	{"persistence", "GET", "pools?loadbalancer_id=$lb", "", 200, `{"pools": [{"id": "$pool", "tags": ["t"],
		"protocol": "TCP",
		"session_persistence": {"type": "SOURCE_IP"}, "provisioning_status": "ACTIVE"}]}`},
	{"pool has no persistence", "PUT", "pools/$pool", `{"pool": {"session_persistence": null}}`, 200, ""},
	{"no persistence", "GET", "pools/$pool", "", 200, `{"pool": {"session_persistence": null, "members": []}}`},
	{"other protocol", "PUT", "pools/$pool", `{"pool": {"protocol": "UDP"}}`, 400, "protocol"},

	{"member of an unknown subnet", "PUT", "pools/$pool/members", `{"members": [{"address": "10.244.0.5",
		"protocol_port": 80,
		"subnet_id": "` + nothing + `"}]}`, 400, "not found"},
	{"member without a port", "PUT", "pools/$pool/members", `{"members": [{"address": "10.244.0.5",
		"subnet_id": "$pods"}]}`, 400,
		"protocol_port"},
	{"member with an unknown attribute", "PUT", "pools/$pool/members", `{"members": [{"address": "10.244.0.5",
		"protocol_port": 80,
		"bogus": 1}]}`, 400, "bogus"},
	{"members", "PUT", "pools/$pool/members", `{"members": [{"address": "10.244.0.5", "protocol_port": 80,
		"subnet_id": "$pods"},
		{"address": "10.244.0.6", "protocol_port": 80, "subnet_id": "$pods"}]}`, 202, ""},
	{"members are there", "GET", "pools/$pool/members", "", 200, `{"members": [{"address": "10.244.0.5", "weight": 1,
		"subnet_id": "$pods"},
		{"address": "10.244.0.6", "protocol_port": 80, "admin_state_up": true}]}`},
	{"member again", "POST", "pools/$pool/members", `{"member": {"address": "10.244.0.5", "protocol_port": 80,
		"subnet_id": "$pods"}}`, 409,
		"already using ip 10.244.0.5"},
	{"other members", "PUT", "pools/$pool/members", `{"members": [{"address": "10.244.0.6", "protocol_port": 80,
		"subnet_id": "$pods",
		"weight": 3}, {"address": "10.244.0.6", "protocol_port": 81, "subnet_id": "$pods"}]}`, 202, ""},
	{"other members are there", "GET", "pools/$pool/members", "", 200, `{"members": [{"protocol_port": 80, "weight": 3},
		{"protocol_port": 81, "weight": 1}]}`},

	{"listener of an unknown pool", "POST", "listeners", `{"listener": {"loadbalancer_id": "$lb", "protocol": "TCP",
		"protocol_port": 80,
		"default_pool_id": "` + nothing + `"}}`, 404, "not found"},
	{"listener of a pool of another protocol", "POST", "listeners", `{"listener": {"loadbalancer_id": "$lb",
		"protocol": "UDP",
		"protocol_port": 80, "default_pool_id": "$pool"}}`, 400, "pool protocol"},
	{"listener for some", "POST", "listeners", `{"listener": {"loadbalancer_id": "$lb", "protocol": "TCP",
		"protocol_port": 80,
		"allowed_cidrs": ["192.0.2.0/24"]}}`, 501, "does not support allowed_cidrs"},
	{"listener for the other family", "POST", "listeners", `{"listener": {"loadbalancer_id": "$lb", "protocol": "TCP",
		"protocol_port": 80,
		"allowed_cidrs": ["2001:db8::/64"]}}`, 400, "IP version"},
	{"listener of port 0", "POST", "listeners", `{"listener": {"loadbalancer_id": "$lb", "protocol": "TCP",
		"protocol_port": 0}}`, 400,
		"protocol_port"},
	{"listener", "POST", "listeners", `{"listener": {"loadbalancer_id": "$lb", "name": "n", "protocol": "TCP",
		"protocol_port": 80,
		"default_pool_id": "$pool", "project_id": "p", "tags": ["t"]}}`, 201, ""},
	{"listener is there", "GET", "listeners?loadbalancer_id=$lb", "", 200, `{"listeners": [{"id": "$listener",
		"default_pool_id": "$pool",
		"allowed_cidrs": null, "tags": ["t"], "provisioning_status": "ACTIVE", "loadbalancers": [{"id": "$lb"}]}]}`},
	{"listener again", "POST", "listeners", `{"listener": {"loadbalancer_id": "$lb", "protocol": "TCP",
		"protocol_port": 80}}`, 409,
		"already using protocol TCP"},
	{"udp", "POST", "listeners", `{"listener": {"loadbalancer_id": "$lb", "protocol": "UDP", "protocol_port": 80}}`,
		201, ""},
	{"other port", "PUT", "listeners/$listener", `{"listener": {"protocol_port": 81}}`, 400, "protocol_port"},

	{"what is begun stays", hold, "", "", 0, ""},
	{"begun", "PUT", "loadbalancers/$lb", `{"loadbalancer": {"name": "m"}}`, 200, ""},
	{"pending", "GET", "loadbalancers/$lb", "", 200, `{"loadbalancer": {"provisioning_status": "PENDING_UPDATE"}}`},
	{"listener while pending", "PUT", "listeners/$listener", `{"listener": {"name": "m"}}`, 409, "immutable"},
	{"pool while pending", "DELETE", "pools/$pool", "", 409, "immutable"},
	{"members while pending", "PUT", "pools/$pool/members", `{"members": []}`, 409, "immutable"},
	{"load balancer while pending", "DELETE", "loadbalancers/$lb?cascade=true", "", 409,
		"Invalid state PENDING_UPDATE"},
	{"what is begun ends", release, "", "", 0, ""},
	{"done", "GET", "loadbalancers/$lb", "", 200, `{"loadbalancer": {"provisioning_status": "ACTIVE"}}`},

	{"load balancer with parts", "DELETE", "loadbalancers/$lb", "", 400, "has children"},
	{"monitor of a type for UDP", "POST", "healthmonitors", `{"healthmonitor": {"pool_id": "$pool",
		"type": "UDP-CONNECT", "delay": 5,
		"timeout": 3, "max_retries": 3}}`, 400, "only supported for pools of type"},
	{"monitor without a delay", "POST", "healthmonitors", `{"healthmonitor": {"pool_id": "$pool", "type": "TCP",
		"timeout": 3,
		"max_retries": 3}}`, 400, "delay"},
	{"monitor of HTTP", "POST", "healthmonitors", `{"healthmonitor": {"pool_id": "$pool", "type": "HTTP", "delay": 5,
		"timeout": 3,
		"max_retries": 3}}`, 501, "does not support HTTP"},
	{"monitor", "POST", "healthmonitors", `{"healthmonitor": {"pool_id": "$pool", "type": "TCP", "delay": 5,
		"timeout": 3,
		"max_retries": 3}}`, 201, ""},
	{"monitor of the pool", "GET", "pools/$pool", "", 200, `{"pool": {"healthmonitor_id": "$monitor"}}`},
	{"monitor goes", "DELETE", "healthmonitors/$monitor", "", 204, ""},
	{"pool goes", "DELETE", "pools/$pool", "", 204, ""},
	{"listener without a pool", "GET", "listeners/$listener", "", 200, `{"listener": {"default_pool_id": null}}`},
	{"listener goes", "DELETE", "listeners/$listener", "", 204, ""},
	{"listener is gone", "GET", "listeners/$listener", "", 404, "not found"},
	{"load balancer goes", "DELETE", "loadbalancers/$lb?cascade=true", "", 204, ""},
	{"load balancer is gone", "DELETE", "loadbalancers/$lb?cascade=true", "", 404, "not found"},
	{"its listener is gone, too", "GET", "listeners/$udp", "", 404, "not found"},
	{"other goes", "DELETE", "loadbalancers/$other", "", 204, ""},
}

// Check runs all Cases with an Octavia.
func Check(t *testing.T, s Server) {
	ids := map[string]string{
		"vips": subnet(t, s.Neutron, "10.99.0.0/24"), "pods": subnet(t, s.Neutron, "10.244.0.0/24"),
	}
	held := false
	for _, c := range Cases {
		t.Run(c.Name, func(t *testing.T) {
			switch {
			case c.Method == hold && s.Hold != nil:
				s.Hold()
			case c.Method == release && s.Hold != nil:
				s.Release()
				await(t, s)
			}
			if c.Method == hold || c.Method == release {
				held = c.Method == hold
				return
			}
			if held && s.Hold == nil {
				t.Skip("this Octavia ends what is begun at any time")
			}
			var names []string
			for name, id := range ids {
				names = append(names, "$"+name, id)
			}
			known := longestFirst(names)
			url := s.Endpoint + "v2.0/lbaas/" + known.Replace(c.Path)
			status, answer, err := Call(t.Context(), c.Method, url, known.Replace(c.Body))
			if err != nil {
				t.Fatal(err)
			}
			if status != c.Status {
				t.Fatalf("status %d, %v; want %d", status, answer, c.Status)
			}
			why, _ := answer["faultstring"].(string)
			switch {
			case status >= http.StatusBadRequest && !strings.Contains(why, known.Replace(c.Text)):
				t.Errorf("it is refused since %q, want %q", why, c.Text)
			case status < http.StatusBadRequest && c.Text != "":
				var want any
				if err := json.Unmarshal([]byte(known.Replace(c.Text)), &want); err != nil {
					t.Fatal(err)
				}
				if !has(answer, want) {
					t.Errorf("the answer is %v, want %v", answer, want)
				}
			}
			for _, made := range answer {
				if o, ok := made.(map[string]any); ok && c.Method == http.MethodPost && status == http.StatusCreated {
					ids[c.Name] = fmt.Sprint(o["id"])
				}
			}
			if c.Method != http.MethodGet && status < http.StatusBadRequest && !held {
				await(t, s)
			}
		})
	}
}

// longestFirst replaces names, of which one can begin with another one.
func longestFirst(names []string) *strings.Replacer {
	pairs := slices.Collect(slices.Chunk(names, 2))
	slices.SortFunc(pairs, func(a, b []string) int { return len(b[0]) - len(a[0]) })
	return strings.NewReplacer(slices.Concat(pairs...)...)
}

// has reports whether an answer has all that is wanted of it.
func has(answer, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		a, _ := answer.(map[string]any)
		for name, value := range want {
			if !has(a[name], value) {
				return false
			}
		}
		return true
	case []any:
		a, _ := answer.([]any)
		return len(a) == len(want) && !slices.ContainsFunc(want, func(w any) bool {
			return !slices.ContainsFunc(a, func(v any) bool { return has(v, w) })
		})
	}
	return answer == want
}

// subnet makes a subnet with a network of its own.
func subnet(t *testing.T, neutron, cidr string) string {
	t.Helper()
	id := ""
	for _, c := range [][2]string{
		{"network", `{"network": {"project_id": "p"}}`},
		{"subnet", `{"subnet": {"project_id": "p", "network_id": "$id", "cidr": "` + cidr + `", "ip_version": 4}}`},
	} {
		url, body := neutron+"v2.0/"+c[0]+"s", strings.ReplaceAll(c[1], "$id", id)
		status, answer, err := neutronfake.Call(t.Context(), http.MethodPost, url, body)
		if err != nil || status != http.StatusCreated {
			t.Fatalf("%s: %d, %v, %v", c[0], status, answer, err)
		}
		id = answer[c[0]].(map[string]any)["id"].(string)
	}
	return id
}

// settled bounds how long an Octavia works on a load balancer.
const settled = 30 * time.Second

// await returns when no load balancer is PENDING. An Octavia has no other way to say so.
func await(t *testing.T, s Server) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(settled); ; {
		_, answer, err := Call(t.Context(), http.MethodGet, s.Endpoint+"v2.0/lbaas/loadbalancers", "")
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(list(answer["loadbalancers"]), func(b any) bool {
			return strings.HasPrefix(fmt.Sprint(b.(map[string]any)[status]), "PENDING")
		}) {
			return
		}
		select {
		case <-end:
			t.Fatalf("it is pending for long: %v", answer)
		case <-tick.C:
		}
	}
}

// Call makes one call, with the token that an Octavia without keystone wants to ask Neutron with.
func Call(ctx context.Context, method, url, body string) (status int, answer map[string]any, err error) {
	return neutronfake.CallAs(ctx, method, url, body, func(r *http.Request) {
		r.Header.Set("X-Auth-Token", "none")
		r.Close = true // the real one takes one connection at a time
	})
}
