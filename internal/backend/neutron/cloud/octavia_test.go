// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"coelan.io/coelan/internal/backend/neutron/neutronfake"
	"coelan.io/coelan/internal/backend/neutron/octavia"
	"coelan.io/coelan/internal/backend/neutron/octaviafake"
	"coelan.io/coelan/internal/backend/ovn/names"
)

// balancing is a client of an Octavia in memory, with a network for addresses behind a router.
type balancing struct {
	*testing.T
	*Octavia
	neutron         *neutronfake.Neutron
	octavia         *octaviafake.Octavia
	subnet, outside string
}

func newBalancing(t *testing.T) *balancing {
	b := &balancing{T: t, neutron: neutronfake.Start(t)}
	b.octavia = octaviafake.Start(t, b.neutron)
	b.Octavia = b.client("east")
	network := b.make("network", `"name": "vips"`)
	b.subnet = b.make("subnet", fmt.Sprintf(`"network_id": %q, "cidr": "10.99.0.0/24", "ip_version": 4`, network))
	b.outside = b.make("network", `"name": "outside", "router:external": true`)
	b.make("subnet", fmt.Sprintf(`"network_id": %q, "cidr": "192.0.2.0/24", "ip_version": 4`, b.outside))
	router := b.make("router", fmt.Sprintf(`"external_gateway_info": {"network_id": %q}`, b.outside))
	b.call("PUT", "routers/"+router+"/add_router_interface", fmt.Sprintf(`{"subnet_id": %q}`, b.subnet))
	return b
}

func (b *balancing) client(cluster names.Cluster) *Octavia {
	b.Helper()
	client, err := Access{Endpoint: b.neutron.URL, Project: "p"}.ConnectOctavia(b.Context(), b.octavia.URL, cluster)
	if err != nil {
		b.Fatal(err)
	}
	return client
}

func (b *balancing) call(method, path, body string) map[string]any {
	b.Helper()
	status, answer, err := neutronfake.Call(b.Context(), method, b.neutron.URL+"/v2.0/"+path, body)
	if err != nil || status >= http.StatusBadRequest {
		b.Fatalf("%s %s: %d, %v, %v", method, path, status, answer, err)
	}
	return answer
}

// make makes a resource of Neutron and returns its id.
func (b *balancing) make(kind, attributes string) string {
	b.Helper()
	made, _ := b.call("POST", kind+"s", fmt.Sprintf(`{%q: {"project_id": "p", %s}}`, kind, attributes))[kind].(map[string]any)
	return fmt.Sprint(made["id"])
}

func (b *balancing) want(ports int) *octavia.Balancer {
	w := &octavia.Balancer{Key: "shop/web", Provider: octavia.ProviderOVN, Subnet: b.subnet}
	for i := range ports {
		w.Listeners = append(w.Listeners, octavia.Listener{Protocol: "TCP", Port: uint16(80 + i), Algorithm: "SOURCE_IP_PORT"})
	}
	return w
}

// bring makes all calls for a Service, and returns its load balancer.
func (b *balancing) bring(client *Octavia, cluster names.Cluster, want *octavia.Balancer) *octavia.Actual {
	b.Helper()
	for range 100 {
		have, _, err := client.Read(b.Context(), "shop/web")
		if err != nil {
			b.Fatal(err)
		}
		call, more := octavia.Next(want, have, octavia.Tag(cluster, "shop/web"), client.Project())
		if !more {
			return have
		}
		if err := client.Make(b.Context(), call); err != nil {
			b.Fatal(err)
		}
	}
	b.Fatal("there is always more to do")
	return nil
}

// A load balancer is found with all of its parts, however short the pages of the server are, and
// that of another cluster with the same Service is another one.
func TestOctaviaReads(t *testing.T) {
	for _, page := range []int{1, 2, 3, 1000} {
		t.Run(fmt.Sprint(page), func(t *testing.T) {
			b := newBalancing(t)
			b.octavia.Page(page)
			b.neutron.Page(page)
			theirs := b.bring(b.client("west"), "west", b.want(1))
			have := b.bring(b.Octavia, "east", b.want(5))
			if len(have.ListenerOf) != 5 || len(have.PoolOf) != 5 || have.ID == theirs.ID {
				t.Errorf("%d listeners, %d pools of %s", len(have.ListenerOf), len(have.PoolOf), have.ID)
			}
			if keys, err := b.Services(t.Context()); err != nil || !slices.Equal(keys, []string{"shop/web"}) {
				t.Errorf("Services %v, %v", keys, err)
			}
			if b.bring(b.Octavia, "east", nil) != nil {
				t.Error("it is not deleted")
			}
			if have, _, err := b.client("west").Read(t.Context(), "shop/web"); err != nil || have == nil || len(have.PoolOf) != 1 {
				t.Errorf("that of the other cluster: %+v, %v", have, err)
			}
		})
	}
}

// A floating IP that another program has made, and that was given the description, becomes that of
// the Service's load balancer with its id and its address, and goes with it.
func TestOctaviaTakesFloatingIP(t *testing.T) {
	b := newBalancing(t)
	before, after := b.make("port", b.at("10.99.0.5")), b.make("port", b.at("10.99.0.6"))
	id := b.make("floatingip", fmt.Sprintf(`"floating_network_id": %q, "floating_ip_address": "192.0.2.7", "port_id": %q, "description": "kuryr_lb"`,
		b.outside, before))
	give := func(port string) error {
		address, claimed := netip.MustParseAddr("192.0.2.7"), func(netip.Addr) bool { return true }
		_, err := b.EnsureFloatingIP(t.Context(), "shop/web", b.outside, port, address, claimed)
		return err
	}
	if reason, _, refused := Refused(give(after)); !refused {
		t.Errorf("the address is not taken: %s", reason)
	}
	b.call("PUT", "floatingips/"+id, `{"floatingip": {"description": "load balancer of coelan.io/owner=east/Service/shop/web"}}`)
	if err := give(after); err != nil {
		t.Error(err)
	}
	if all := b.neutron.All("floatingips"); len(all) != 1 || all[0]["id"] != id || all[0]["port_id"] != after {
		t.Errorf("floating IPs %v", all)
	}
	if err := b.DeleteFloatingIPs(t.Context(), "shop/web"); err != nil || len(b.neutron.All("floatingips")) != 0 {
		t.Errorf("%v, and there are %v", err, b.neutron.All("floatingips"))
	}
}

// at are the attributes of a port with an address of the subnet of load balancers.
func (b *balancing) at(address string) string {
	return fmt.Sprintf(`"network_id": %q, "fixed_ips": [{"subnet_id": %q, "ip_address": %q}]`, b.neutron.All("networks")[0]["id"], b.subnet, address)
}

// What a call is refused for is what a Service's Event has as its reason.
func TestOctaviaRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		before func(*balancing)
		call   func(*octavia.Actual) octavia.Call
		busy   bool
		reason string
		after  time.Duration
		away   bool
	}{
		"a part while it is pending": {
			before: func(b *balancing) { b.octavia.Hold(); b.touch() },
			call:   func(a *octavia.Actual) octavia.Call { return remove("pools/" + a.PoolOf[0].ID) }, busy: true,
		},
		"the load balancer while it is pending": {
			before: func(b *balancing) { b.octavia.Hold(); b.touch() },
			call:   func(a *octavia.Actual) octavia.Call { return remove("loadbalancers/" + a.ID + "?cascade=true") }, busy: true,
		},
		"a listener that is there": {
			call: func(a *octavia.Actual) octavia.Call {
				return octavia.Call{Method: http.MethodPost, Path: "listeners", Body: map[string]any{"listener": map[string]any{
					"loadbalancer_id": a.ID, "protocol": "TCP", "protocol_port": 80,
				}}}
			}, reason: "RefusedByOctavia",
		},
		"a quota": {
			before: func(b *balancing) { b.octavia.Quota("pools", 1) },
			call: func(a *octavia.Actual) octavia.Call {
				return octavia.Call{Method: http.MethodPost, Path: "pools", Body: map[string]any{"pool": map[string]any{
					"loadbalancer_id": a.ID, "protocol": "TCP", "lb_algorithm": "SOURCE_IP_PORT",
				}}}
			}, reason: "QuotaExceeded",
		},
		"what is gone": {
			call: func(*octavia.Actual) octavia.Call { return remove("pools/none") },
		},
		"unavailable for a time": {
			before: func(b *balancing) { b.fail(http.StatusServiceUnavailable, "7") },
			call:   func(a *octavia.Actual) octavia.Call { return remove("pools/" + a.PoolOf[0].ID) }, after: 7 * time.Second, away: true,
		},
		"unavailable": {
			before: func(b *balancing) { b.fail(http.StatusServiceUnavailable, "") },
			call:   func(a *octavia.Actual) octavia.Call { return remove("pools/" + a.PoolOf[0].ID) }, away: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBalancing(t)
			have := b.bring(b.Octavia, "east", b.want(1))
			if c.before != nil {
				c.before(b)
			}
			err := b.Make(t.Context(), c.call(have))
			reason, text, _ := Refused(err)
			if Busy(err) != c.busy || reason != c.reason || RetryAfter(err) != c.after || Away(err) != c.away {
				t.Errorf("%v: busy %v, reason %q, after %v, away %v", err, Busy(err), reason, RetryAfter(err), Away(err))
			}
			if strings.Contains(text, "faultstring") {
				t.Errorf("what a user reads is %q", text)
			}
		})
	}
}

func remove(path string) octavia.Call { return octavia.Call{Method: http.MethodDelete, Path: path} }

// touch begins a change of the only load balancer.
func (b *balancing) touch() {
	b.Helper()
	id := b.octavia.All("loadbalancers")[0]["id"]
	status, answer, err := octaviafake.Call(b.Context(), http.MethodPut, fmt.Sprintf("%s/v2.0/lbaas/loadbalancers/%v", b.octavia.URL, id),
		`{"loadbalancer": {"description": "x"}}`)
	if err != nil || status != http.StatusOK {
		b.Fatal(status, answer, err)
	}
}

func (b *balancing) fail(status int, after string) {
	b.octavia.Fail(func(string, string) octaviafake.Fault { return octaviafake.Fault{Status: status, RetryAfter: after} })
}

// A call that is not answered has its effect once.
func TestOctaviaLosesAnswers(t *testing.T) {
	b := newBalancing(t)
	lost := 0
	b.octavia.Fail(func(method, _ string) octaviafake.Fault {
		if method != http.MethodPost || lost == 3 {
			return octaviafake.Fault{}
		}
		lost++
		return octaviafake.Fault{Status: http.StatusServiceUnavailable, Done: true}
	})
	for range 3 {
		have, _, err := b.Read(t.Context(), "shop/web")
		if err != nil {
			t.Fatal(err)
		}
		call, _ := octavia.Next(b.want(1), have, octavia.Tag("east", "shop/web"), "p")
		if err := b.Make(t.Context(), call); !Away(err) && call.Method == http.MethodPost {
			t.Errorf("%v: %v", call, err)
		}
	}
	b.bring(b.Octavia, "east", b.want(1))
	for _, collection := range []string{"loadbalancers", "listeners", "pools"} {
		if all := b.octavia.All(collection); len(all) != 1 {
			t.Errorf("%s: %v", collection, all)
		}
	}
}
