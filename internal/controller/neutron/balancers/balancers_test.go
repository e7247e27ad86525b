// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/backend/neutron/neutronfake"
	"coelan.io/coelan/internal/backend/neutron/octaviafake"
	"coelan.io/coelan/internal/intent"
)

// A Service gets a load balancer, which follows it and goes with it. Nothing of it stays.
func TestServes(t *testing.T) {
	w := newWorld(t).floating().start()
	w.publish(service("web", 2, "10.244.1.2", "10.244.1.3"), nil)
	w.await("it is there", w.served("web", "1 2 2 4"))
	w.publish(service("web", 1, "10.244.1.2", "10.244.1.3", "10.244.2.2"), nil)
	w.await("it has one port", w.served("web", "1 1 1 3"))
	w.publish(service("web", 1), nil)
	w.await("it has no endpoints", w.served("web", "1 1 1 0"))
	w.publish(service("web", 1, "10.244.1.2"), func(s *corev1.Service) {
		s.Spec.Type, s.Spec.LoadBalancerClass = corev1.ServiceTypeClusterIP, nil
	})
	w.await("it is of another type", w.has("0 0 0 0"))
	if got := w.ingress("web"); len(got) > 0 {
		t.Errorf("the Service keeps the addresses %v", got)
	}
	w.publish(service("web", 1, "10.244.1.2"), nil)
	w.await("it is there again", w.served("web", "1 1 1 1"))
	w.withdraw("web")
	w.await("it is gone", w.has("0 0 0 0"))
	w.await("nothing is left in Neutron", func() string {
		for _, p := range w.neutron.All("ports") {
			if strings.HasPrefix(fmt.Sprint(p["name"]), "ovn-lb-vip") {
				return fmt.Sprint(p)
			}
		}
		if left := w.neutron.All("floatingips"); len(left) > 0 {
			return fmt.Sprint(left)
		}
		return ""
	})
}

// A load balancer has the address that its Service asks for, or any, of the subnet or of the
// external network. One that cannot be had leaves what there is.
func TestAddresses(t *testing.T) {
	asks := func(address string) func(*corev1.Service) {
		return func(s *corev1.Service) { s.Spec.LoadBalancerIP = address }
	}
	annotated := func(address string) func(*corev1.Service) {
		return func(s *corev1.Service) {
			s.Annotations = map[string]string{v1alpha1.AnnotationLoadBalancerIPs: address}
		}
	}
	const bothRefused = "RefusedByNeutron RefusedByNeutron" // the Service and the FloatingIP say so
	for name, c := range map[string]struct {
		floating bool
		first    func(*corev1.Service)
		second   func(*corev1.Service) // nil: there is no change
		fip      string                // the address of a FloatingIP that stands for the Service
		then     string                // the one that it has later, or none
		begins   string                // the address of the status
		reason   string
	}{
		"any":                                  {begins: "10.99.0."},
		"any floating IP":                      {floating: true, begins: "192.0.2."},
		"an address":                           {first: asks("10.99.0.77"), begins: "10.99.0.77"},
		"an annotation counts more":            {first: func(s *corev1.Service) { asks("10.99.0.77")(s); annotated("10.99.0.78")(s) }, begins: "10.99.0.78"},
		"an address elsewhere":                 {first: asks("10.98.0.77"), begins: "10.99.0.", reason: reasonAddress},
		"no address":                           {first: annotated("web"), begins: "10.99.0.", reason: reasonAddress},
		"two addresses":                        {first: annotated("10.99.0.77,2001:db8::1"), begins: "10.99.0.", reason: reasonAddress},
		"an address of the other family":       {first: asks("2001:db8::1"), floating: true, begins: "192.0.2.", reason: reasonAddress},
		"another address later":                {first: asks("10.99.0.77"), second: asks("10.99.0.78"), begins: "10.99.0.77", reason: reasonAddress},
		"an address that is had":               {second: asks("10.99.0.3"), begins: "10.99.0.3"},
		"an address that Neutron keeps":        {first: asks("10.99.0.200"), begins: "10.99.0.", reason: reasonAddress},
		"a floating IP":                        {first: annotated("192.0.2.77"), floating: true, begins: "192.0.2.", reason: reasonAddress},
		"a floating IP later":                  {second: asks("192.0.2.77"), floating: true, begins: "192.0.2.", reason: reasonAddress},
		"a FloatingIP":                         {fip: "192.0.2.77", floating: true, begins: "192.0.2.77"},
		"a FloatingIP, which is asked for":     {first: annotated("192.0.2.77"), fip: "192.0.2.77", floating: true, begins: "192.0.2.77"},
		"another address than the FloatingIP":  {first: asks("192.0.2.78"), fip: "192.0.2.77", floating: true, begins: "192.0.2.77", reason: reasonAddress},
		"another FloatingIP later":             {fip: "192.0.2.77", then: "192.0.2.78", floating: true, begins: "192.0.2.78"},
		"a FloatingIP that is taken":           {fip: "192.0.2.99", floating: true, reason: bothRefused},
		"a FloatingIP that is taken, later":    {then: "192.0.2.99", floating: true, begins: "192.0.2.", reason: bothRefused},
		"a FloatingIP that is elsewhere":       {fip: "198.51.100.7", floating: true, reason: bothRefused},
		"any floating IP after a certain one":  {fip: "192.0.2.77", then: "none", floating: true, begins: "192.0.2.77"},
		"an address that another Service has":  {first: asks("10.99.0.50"), reason: "RefusedByOctavia"},
		"an address that another one has, too": {first: annotated("10.99.0.50"), reason: "RefusedByOctavia"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.make("floatingip", fmt.Sprintf(`"floating_network_id": %q, "floating_ip_address": "192.0.2.99"`, w.outside))
			w.make("port", fmt.Sprintf(`"network_id": %q, "fixed_ips": [{"subnet_id": %q, "ip_address": "10.99.0.50"}]`, w.vips,
				w.settings.Subnet))
			if c.floating {
				w.floating()
			}
			w.start()
			stands := func(address string) {
				w.update(func(tx *intent.Tx) {
					tx.DeleteFloatingIP("shop/a")
					if a, err := netip.ParseAddr(address); err == nil {
						tx.SetFloatingIP(intent.FloatingIP{Name: "shop/a", Network: "outside", Address: a, Service: "shop/web"})
					}
				})
			}
			stands(c.fip)
			w.publish(service("web", 1, "10.244.1.2"), c.first)
			if c.second != nil || c.then != "" {
				w.await("it is there", w.served("web", "1 1 1 1"))
				stands(c.then)
				w.publish(service("web", 1, "10.244.1.2"), c.second)
			}
			w.await("it has its address", func() string {
				address := strings.Join(w.ingress("web"), " ")
				if !strings.HasPrefix(address, c.begins) || c.begins == "" && address != "" || c.begins != "" && address == "" {
					return fmt.Sprintf("its address is %q", address)
				}
				return w.says(c.reason)()
			})
			ours := 0
			for _, f := range w.neutron.All("floatingips") {
				if f["floating_ip_address"] != "192.0.2.99" {
					ours++
				}
			}
			if want := map[bool]int{true: 1}[c.floating && c.begins != ""]; ours != want {
				t.Errorf("%d floating IPs, not %d: %v", ours, want, w.neutron.All("floatingips"))
			}
		})
	}
}

// A FloatingIP that stands for a Service is its load balancer's, before one of the network that all
// have one of. It goes to another Service, and away.
func TestFloatingIPsOfServices(t *testing.T) {
	fip := func(name, network, address, service string) intent.FloatingIP {
		return intent.FloatingIP{Name: "shop/" + name, Network: network, Address: netip.MustParseAddr(address), Service: "shop/" + service}
	}
	for _, all := range []bool{false, true} {
		t.Run(fmt.Sprintf("all have one: %v", all), func(t *testing.T) {
			w := newWorld(t)
			if all {
				w.floating()
			}
			w.start()
			set := func(f intent.FloatingIP) { w.update(func(tx *intent.Tx) { tx.SetFloatingIP(f) }) }
			at := func(service, prefix string) func() string {
				return func() string {
					if got := strings.Join(w.ingress(service), " "); !strings.HasPrefix(got, prefix) || got == "" {
						return fmt.Sprintf("%s has the address %q, not %s", service, got, prefix)
					}
					return ""
				}
			}
			without := map[bool]string{false: "10.99.0.", true: "192.0.2."}[all]
			set(fip("a", "outside", "192.0.2.70", "web"))
			w.await("its Service has no load balancer", w.says(reasonNoBalancer))
			w.publish(service("web", 1, "10.244.1.2"), nil)
			w.publish(service("api", 1, "10.244.1.3"), nil)
			w.await("it has the address", at("web", "192.0.2.70"))
			w.await("the other one does not", at("api", without))
			set(fip("a", "outside", "192.0.2.71", "web"))
			w.await("it has another one", at("web", "192.0.2.71"))
			set(fip("b", "outside", "192.0.2.72", "web"))
			w.await("a second one is refused", w.says(reasonSecond))
			w.update(func(tx *intent.Tx) { tx.DeleteFloatingIP("shop/a") })
			w.await("the second one comes after it", at("web", "192.0.2.72"))
			set(fip("b", "outside", "192.0.2.72", "api"))
			w.await("it goes to the other Service", at("api", "192.0.2.72"))
			set(fip("six", "outside", "2001:db8::7", "web"))
			w.await("it is of the other family", w.says(reasonFamily))
			set(fip("six", "nowhere", "192.0.2.73", "web"))
			w.await("its Network is not in Neutron", w.says(""))
			set(fip("six", "other", "203.0.113.7", "web"))
			w.await("no router leads there, both say", w.says("RefusedByNeutron RefusedByNeutron"))
			w.update(func(tx *intent.Tx) { tx.DeleteFloatingIP("shop/six"); tx.DeleteFloatingIP("shop/b") })
			w.await("it is as before", at("api", without))
			w.await("so is the other one", at("web", without))
			w.await("nothing is left to say", w.says(""))
			if n, want := len(w.neutron.All("floatingips")), map[bool]int{true: 2}[all]; n != want {
				t.Errorf("%d floating IPs, not %d: %v", n, want, w.neutron.All("floatingips"))
			}
		})
	}
}

// Nodes balance what is for FloatingIPs of Services without a load balancer.
func TestFloatingIPsOfNodes(t *testing.T) {
	w := newWorld(t)
	w.native = true
	w.start()
	w.publish(service("api", 1, "10.244.1.3"), nil)
	for name, of := range map[string]string{"a": "web", "b": "api"} {
		address := map[string]string{"a": "192.0.2.70", "b": "2001:db8::7"}[name]
		w.update(func(tx *intent.Tx) {
			tx.SetFloatingIP(intent.FloatingIP{
				Name: "shop/" + name, Network: "outside", Address: netip.MustParseAddr(address), Service: "shop/" + of,
			})
		})
	}
	w.await("the load balancer's says what it is not", w.says(reasonFamily))
}

// A FloatingIP of a Service says that there are no load balancers.
func TestFloatingIPWithoutOctavia(t *testing.T) {
	w := newWorld(t)
	w.settings.Subnet = ""
	w.start()
	w.update(func(tx *intent.Tx) {
		tx.SetFloatingIP(intent.FloatingIP{Name: "shop/a", Network: "outside", Address: netip.MustParseAddr("192.0.2.70"), Service: "shop/web"})
	})
	w.publish(service("web", 1, "10.244.1.2"), nil)
	w.await("both say so", w.says(reasonNotConfigured+" "+reasonNotConfigured))
}

// Neutron says why a load balancer gets no floating IP, and it gets one as soon as it can.
func TestFloatingIPWithoutAWay(t *testing.T) {
	w := newWorld(t).floating()
	w.call("PUT", "routers/"+w.gateway, `{"router": {"external_gateway_info": null}}`)
	w.start()
	w.publish(service("web", 1, "10.244.1.2"), nil)
	w.await("it says so", func() string {
		if list := w.problems(); len(list) != 1 || list[0].Reason != "RefusedByNeutron" || !strings.Contains(list[0].Message, "not reachable") {
			return fmt.Sprint(list)
		}
		return ""
	})
	w.call("PUT", "routers/"+w.gateway, fmt.Sprintf(`{"router": {"external_gateway_info": {"network_id": %q}}}`, w.outside))
	w.await("it has a floating IP", w.served("web", "1 1 1 1"))
}

// A Service with many ports is served soon, as each change that Octavia makes is progress.
func TestManyPorts(t *testing.T) {
	w := newWorld(t).start()
	w.octavia.Takes(20 * time.Millisecond)
	w.publish(service("web", 10, "10.244.1.2"), nil)
	// 31 changes of 20 ms, each of which is looked for after 100 ms; with pauses that grow it would
	// take many minutes.
	w.await("it is there", w.served("web", "1 10 10 10"))
}

// As long as Octavia works on a load balancer it is asked ever more seldom, and nothing is written.
func TestPending(t *testing.T) {
	w := newWorld(t).start()
	w.publish(service("web", 1, "10.244.1.2"), nil)
	w.await("it is there", w.served("web", "1 1 1 1"))
	w.octavia.Hold()
	id := w.octavia.All("loadbalancers")[0]["id"].(string)
	w.byHand(http.MethodPut, "loadbalancers/"+id, `{"loadbalancer": {"description": "x"}}`)
	before, writes := len(w.octavia.Calls()), len(w.writes())
	w.publish(service("web", 2, "10.244.1.2"), nil)
	time.Sleep(2 * time.Second)
	// Four reads of an attempt: after 100, 200, 400, 800 and 1600 ms.
	if calls := len(w.octavia.Calls()) - before; calls > 4*8 {
		t.Errorf("%d calls in 2 seconds", calls)
	}
	if more := w.writes()[writes:]; len(more) > 0 {
		t.Errorf("written while it is PENDING: %v", more)
	}
	if r := w.reason(); r != "" {
		t.Errorf("after 2 seconds: %s", r)
	}
	w.octavia.Release()
	w.await("the second port is there", w.served("web", "1 2 2 2"))
}

// A Service that is deleted while Octavia works on its load balancer leaves nothing.
func TestDeletedWhilePending(t *testing.T) {
	for name, parts := range map[string]string{"PENDING_CREATE": "1 0 0 0", "PENDING_UPDATE": "1 1 1 1"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t).floating().start()
			if name == "PENDING_CREATE" {
				w.octavia.Hold()
			}
			w.publish(service("web", 1, "10.244.1.2"), nil)
			if name == "PENDING_UPDATE" {
				w.await("it is there", w.served("web", parts))
				w.octavia.Hold()
				w.publish(service("web", 1, "10.244.1.3"), nil)
			}
			w.await("it is begun", func() string {
				for _, b := range w.octavia.All("loadbalancers") {
					if b["provisioning_status"] == name {
						return ""
					}
				}
				return "there is none"
			})
			w.withdraw("web")
			w.octavia.Release()
			w.await("it is gone", w.has("0 0 0 0"))
			if left := w.neutron.All("floatingips"); len(left) > 0 {
				t.Errorf("floating IPs %v", left)
			}
		})
	}
}

// What is deleted or changed by hand is made again at the next comparison. What others have added
// to the load balancer stays, but for members.
func TestByHand(t *testing.T) {
	only := func(w *world, collection string) string { return w.octavia.All(collection)[0]["id"].(string) }
	for name, c := range map[string]struct {
		hand  func(*world)
		parts string // afterwards
	}{
		"a listener is deleted": {hand: func(w *world) { w.byHand("DELETE", "listeners/"+only(w, "listeners"), "") }},
		"a pool is deleted":     {hand: func(w *world) { w.byHand("DELETE", "pools/"+only(w, "pools"), "") }},
		"a member is deleted": {hand: func(w *world) {
			w.byHand("DELETE", "pools/"+only(w, "pools")+"/members/"+only(w, "members"), "")
		}},
		"all is deleted": {hand: func(w *world) { w.byHand("DELETE", "loadbalancers/"+only(w, "loadbalancers")+"?cascade=true", "") }},
		"it is switched off": {hand: func(w *world) {
			w.byHand("PUT", "loadbalancers/"+only(w, "loadbalancers"), `{"loadbalancer": {"admin_state_up": false}}`)
		}},
		"a listener is switched off": {hand: func(w *world) {
			w.byHand("PUT", "listeners/"+only(w, "listeners"), `{"listener": {"admin_state_up": false}}`)
		}},
		"a pool is switched off": {hand: func(w *world) {
			w.byHand("PUT", "pools/"+only(w, "pools"), `{"pool": {"admin_state_up": false}}`)
		}},
		"a pool gets persistence": {hand: func(w *world) {
			w.byHand("PUT", "pools/"+only(w, "pools"), `{"pool": {"session_persistence": {"type": "SOURCE_IP"}}}`)
		}},
		"a member is added": {hand: func(w *world) {
			w.byHand("POST", "pools/"+only(w, "pools")+"/members", `{"member": {"address": "10.244.9.9", "protocol_port": 1}}`)
		}},
		"a member gets nothing": {hand: func(w *world) {
			w.byHand("PUT", "pools/"+only(w, "pools")+"/members/"+only(w, "members"), `{"member": {"weight": 0}}`)
		}},
		"a listener of others": {parts: "1 2 1 1", hand: func(w *world) {
			w.byHand("POST", "listeners", fmt.Sprintf(`{"listener": {"loadbalancer_id": %q, "protocol": "UDP", "protocol_port": 53}}`,
				only(w, "loadbalancers")))
		}},
		"a health monitor of others": {hand: func(w *world) {
			w.byHand("POST", "healthmonitors", fmt.Sprintf(`{"healthmonitor": {"pool_id": %q, "type": "TCP", "delay": 5, "timeout": 3,
				"max_retries": 3}}`, only(w, "pools")))
		}},
		"the floating IP is deleted": {hand: func(w *world) {
			w.call("DELETE", "floatingips/"+w.neutron.All("floatingips")[0]["id"].(string), "")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t).floating().start()
			w.publish(service("web", 1, "10.244.1.2"), nil)
			w.await("it is there", w.served("web", "1 1 1 1"))
			w.stop()
			c.hand(w)
			w.resync = often
			w.start()
			if c.parts == "" {
				c.parts = "1 1 1 1"
			}
			w.await("it is as it was", func() string {
				for _, collection := range []string{"loadbalancers", "listeners", "pools", "members"} {
					for _, part := range w.octavia.All(collection) {
						if part["admin_state_up"] != true || part["weight"] == 0.0 || part["address"] == "10.244.9.9" ||
							part["session_persistence"] != nil {
							return fmt.Sprint(collection, " ", part)
						}
					}
				}
				if said := w.served("web", c.parts)(); said != "" {
					return said
				}
				floating := w.neutron.All("floatingips")
				if len(floating) != 1 || floating[0]["floating_ip_address"] != w.ingress("web")[0] ||
					floating[0]["port_id"] != w.octavia.All("loadbalancers")[0]["vip_port_id"] {
					return fmt.Sprint("floating IPs ", floating, " of ", w.ingress("web"))
				}
				return ""
			})
		})
	}
}

// A load balancer that has the name of ours, or belongs to another cluster, is left alone.
func TestOthers(t *testing.T) {
	w := newWorld(t)
	for _, tag := range []string{"", "coelan.io/owner=west/Service/shop/web", "coelan.io/owner=coelan/Service/shop/web-2x"} {
		made := w.byHand("POST", "loadbalancers", fmt.Sprintf(`{"loadbalancer": {"project_id": %q, "name": "shop/web", "vip_subnet_id": %q,
			"tags": [%q]}}`, map[bool]string{true: "p", false: "q"}[tag != "coelan.io/owner=coelan/Service/shop/web-2x"], w.settings.Subnet, tag))
		w.byHand("POST", "listeners", fmt.Sprintf(`{"listener": {"loadbalancer_id": %q, "protocol": "TCP", "protocol_port": 443}}`,
			made["loadbalancer"].(map[string]any)["id"]))
	}
	before := fmt.Sprint(w.octavia.All("loadbalancers"), w.octavia.All("listeners"))
	w.start()
	w.publish(service("web", 1, "10.244.1.2"), nil)
	w.await("ours is there", w.served("web", "4 4 1 1"))
	w.withdraw("web")
	w.await("ours is gone", w.has("3 3 0 0"))
	if after := fmt.Sprint(w.octavia.All("loadbalancers"), w.octavia.All("listeners")); before != after {
		t.Errorf("theirs were %s, and are %s", before, after)
	}
}

// A restart writes nothing, neither to OpenStack nor to Kubernetes. One of the Services takes long
// to compile: the others must not be looked at before it is known what they want.
func TestRestart(t *testing.T) {
	const services, restarts, long = 3, 3, 200000
	w := newWorld(t).floating().start()
	for i := range services - 1 {
		w.publish(service(fmt.Sprint("web-", i), 1, "10.244.1.2"), nil)
	}
	w.publish(service(fmt.Sprint("web-", services-1), 1, slices.Repeat([]string{"10.244.1.2"}, long)...), nil)
	w.await("they are there", w.has(fmt.Sprintf("%[1]d %[1]d %[1]d %[1]d", services)))
	w.await("each has an address", func() string {
		for i := range services {
			if len(w.ingress(fmt.Sprint("web-", i))) != 1 {
				return "one has none"
			}
		}
		return ""
	})
	w.stop()
	versions := func() (list []string) {
		for i := range services {
			s := &corev1.Service{}
			if _, err := w.access.Find(t.Context(), "shop", fmt.Sprint("web-", i), s); err != nil {
				t.Fatal(err)
			}
			list = append(list, s.ResourceVersion)
		}
		return list
	}
	before, writes := fmt.Sprint(versions()), len(w.writes())
	var written atomic.Int64
	w.neutron.Fail(func(_ int, method, path string) neutronfake.Fault {
		if method != http.MethodGet {
			written.Add(1)
		}
		return neutronfake.None
	})
	for range restarts {
		calls := len(w.octavia.Calls())
		w.start()
		// The list of all, and of each one itself, its listeners, its pools and their members.
		const reading = 1 + services*4
		w.await("all has been looked at", func() string {
			if n := len(w.octavia.Calls()) - calls; n < reading {
				return fmt.Sprintf("%d calls", n)
			}
			return ""
		})
		w.stop()
	}
	if more := w.writes()[writes:]; len(more) > 0 || written.Load() > 0 {
		t.Errorf("written: %v, and %d of Neutron", more, written.Load())
	}
	if after := fmt.Sprint(versions()); after != before {
		t.Errorf("the Services are written: %s, before %s", after, before)
	}
}

// An Octavia that asks to be left alone is, however much changes meanwhile. Services say so.
func TestRetryAfter(t *testing.T) {
	for name, during := range map[string]string{"at the start": "GET", "later": ""} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			away := func() {
				w.octavia.Fail(func(string, string) octaviafake.Fault {
					return octaviafake.Fault{Status: http.StatusServiceUnavailable, RetryAfter: "2"}
				})
			}
			if during != "" {
				away()
			}
			w.start()
			if during == "" {
				w.publish(service("web", 1, "10.244.1.2"), nil)
				w.await("it is there", w.served("web", "1 1 1 1"))
				away()
			}
			before, began := len(w.octavia.Calls()), time.Now()
			for i := range 40 {
				w.publish(service("web", 1+i%2, "10.244.1.2"), nil)
				time.Sleep(20 * time.Millisecond)
			}
			w.await("it says so", w.says(reasonAway))
			// A change of a Service leads to a call of its own, and the start to another one; then
			// there is one each time that it may be asked again.
			took := time.Since(began)
			if calls := len(w.octavia.Calls()) - before; calls > 2+int(took/(2*time.Second)) {
				t.Errorf("%d calls in %v while it asks to be left alone", calls, took)
			}
			w.octavia.Fail(func(string, string) octaviafake.Fault { return octaviafake.Fault{} })
			w.await("it is there", w.served("web", "1 2 2 2"))
		})
	}
}

// Endpoints that Neutron has no subnet of are no reason to read all over and over again.
func TestOutsideIsNotBusy(t *testing.T) {
	w := newWorld(t).start()
	w.publish(service("web", 1, "10.244.1.2", "198.51.100.7"), nil)
	w.await("the other endpoint is served", func() string {
		if len(w.ingress("web")) == 0 || w.parts() != "1 1 1 1" {
			return w.parts()
		}
		return w.says("EndpointsOutside")()
	})
	before := len(w.octavia.Calls())
	time.Sleep(4 * time.Second)
	// Five calls each after 100, 200, 400, 800 and 1600 ms and up to a half more.
	if calls := len(w.octavia.Calls()) - before; calls > 40 {
		t.Errorf("%d calls in 4 seconds", calls)
	}
	w.make("subnet", fmt.Sprintf(`"network_id": %q, "cidr": "198.51.100.0/24", "ip_version": 4,
		"description": "coelan/Network/default 198.51.100.0/24"`, w.neutron.All("networks")[0]["id"]))
	w.await("the endpoint is served", w.served("web", "1 1 1 2"))
}

// What fails in Octavia is said of the Service, and mended where nothing is lost by that.
func TestErrors(t *testing.T) {
	for _, collection := range []string{"loadbalancers", "listeners", "pools"} {
		t.Run(collection, func(t *testing.T) {
			w := newWorld(t).floating().start()
			w.publish(service("web", 1, "10.244.1.2"), nil)
			w.await("it is there", w.served("web", "1 1 1 1"))
			address := w.ingress("web")
			w.octavia.Break(collection, true)
			w.publish(service("web", 2, "10.244.1.2", "10.244.1.3"), nil)
			w.await("it says so", w.says("OctaviaFailed"))
			if w.ingress("web")[0] != address[0] {
				t.Errorf("the address %v has become %v", address, w.ingress("web"))
			}
			w.octavia.Break(collection, false)
			if collection == "loadbalancers" {
				writes := len(w.writes())
				w.update(func(tx *intent.Tx) { tx.SetService(service("web", 2, "10.244.1.3")) })
				time.Sleep(time.Second)
				if more := w.writes()[writes:]; len(more) > 0 {
					t.Errorf("written to what has failed, and may serve: %v", more)
				}
				w.byHand("DELETE", "loadbalancers/"+w.octavia.All("loadbalancers")[0]["id"].(string)+"?cascade=true", "")
				w.await("it is made again", w.served("web", "1 2 2 2"))
			} else {
				w.await("it is mended", w.served("web", "1 2 2 4"))
			}
			if w.ingress("web")[0] != address[0] {
				t.Errorf("the floating IP %v has become %v", address, w.ingress("web"))
			}
		})
	}
}

// A Service can be deleted after its load balancer has failed.
func TestDeletedAfterAnError(t *testing.T) {
	w := newWorld(t).start()
	w.octavia.Break("loadbalancers", true)
	w.publish(service("web", 1, "10.244.1.2"), nil)
	w.await("it says so", w.says("OctaviaFailed"))
	w.octavia.Break("loadbalancers", false)
	w.withdraw("web")
	w.await("it is gone", w.has("0 0 0 0"))
}

// A quota is said, and what fits is made.
func TestQuota(t *testing.T) {
	for collection, parts := range map[string]string{"loadbalancers": "0 0 0 0", "pools": "1 1 1 1", "listeners": "1 1 2 2", "members": "1 1 2 1"} {
		t.Run(collection, func(t *testing.T) {
			w := newWorld(t).start()
			w.octavia.Quota(collection, map[bool]int{true: 0, false: 1}[collection == "loadbalancers"])
			w.publish(service("web", 2, "10.244.1.2"), nil)
			w.await("it says so", func() string {
				if got := w.parts() + " " + w.reason(); got != parts+" QuotaExceeded" {
					return got
				}
				return ""
			})
			w.octavia.Quota(collection, -1)
			w.await("it is there", w.served("web", "1 2 2 2"))
		})
	}
}
