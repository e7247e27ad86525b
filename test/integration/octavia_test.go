// SPDX-License-Identifier: Apache-2.0

//go:build neutron && integration

package integration

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/backend/neutron/octaviafake"
	"coelan.io/coelan/internal/controller/neutron/balancers"
	"coelan.io/coelan/internal/neutrontest"
	"coelan.io/coelan/internal/ovntest"
	"coelan.io/coelan/test/lab"
)

// TestOctaviaProvider has a real Octavia with the provider ovn balance a Service.
func TestOctaviaProvider(t *testing.T) {
	l := lab.New(t, lab.Options{Neutron: true})
	w := &world{Lab: l, n1: l.Nodes[0], n2: l.Nodes[1]}
	w.addPods(t)
	o, err := w.Neutron.StartOctavia(t.Context())
	if o != nil {
		t.Cleanup(o.Close)
	}
	must(t, err)
	router := neutronOne(t, w, "routers", "name=router-default")["id"].(string)
	network := neutronCall(t, w, "POST", "networks", `{"network": {"name": "balancers", "project_id": "`+neutrontest.Project+`"}}`)
	id := network["network"].(map[string]any)["id"].(string)
	subnets := map[lab.Family]string{
		lab.IPv4: balancerSubnet(t, w, router, id, 4, "10.99.0.0/24"),
		lab.IPv6: balancerSubnet(t, w, router, id, 6, "fd00:99::/64"),
	}
	w.Neutron.StopController()
	w.Neutron.Octavia = balancers.Settings{Endpoint: o.Endpoint, Provider: "ovn", Subnet: subnets[lab.IPv4]}
	must(t, w.Neutron.StartController())
	for _, p := range []*lab.Pod{w.b, w.c} {
		for f := range lab.Dual.Each {
			answers(t, p.Host, serverOf(p, f, answerPort))
		}
	}
	class := v1alpha1.OctaviaClass
	balanced := func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
		s.Spec.LoadBalancerClass = &class
		s.Spec.Ports = s.Spec.Ports[:2] // TCP and UDP
	}
	publish(w, "lab", "web", bothNodes, balanced, w.b)
	vip := netip.AddrPortFrom(octaviaAddress(t, w), servicePort)
	if n := len(octaviaPorts(t, w)); n != 1 {
		t.Errorf("%d ports for the address of one load balancer", n)
	}
	comesTo(t, "a pod of the other node by the load balancer", asked(w.d, vip, w.b.Name))
	comesTo(t, "a pod by the load balancer", asked(w.a, vip, w.b.Name))

	publish(w, "lab", "web", bothNodes, balanced, w.c)
	comesTo(t, "the endpoint is another", asked(w.a, vip, w.c.Name))

	for _, collection := range []string{"listeners", "pools"} {
		w.Neutron.StopController()
		for _, part := range octaviaList(t, o, collection) {
			octaviaDelete(t, o, collection+"/"+part["id"].(string))
		}
		must(t, w.Neutron.StartController())
		comesTo(t, collection+" that were deleted are there again", func(ctx context.Context) error {
			if n := len(octaviaList(t, o, collection)); n != 2 {
				return fmt.Errorf("there are %d", n)
			}
			return asked(w.a, vip, w.c.Name)(ctx)
		})
	}
	w.Neutron.StopController()
	octaviaDelete(t, o, "loadbalancers/"+octaviaList(t, o, "loadbalancers")[0]["id"].(string)+"?cascade=true")
	must(t, w.Neutron.StartController())
	comesTo(t, "the load balancer is there again", func(ctx context.Context) error {
		list := octaviaList(t, o, "loadbalancers")
		if len(list) != 1 {
			return fmt.Errorf("there are %d", len(list))
		}
		at := netip.AddrPortFrom(netip.MustParseAddr(list[0]["vip_address"].(string)), servicePort)
		return asked(w.a, at, w.c.Name)(ctx)
	})

	// The pods' network has several subnets of each family.
	w.Neutron.StopController()
	w.Neutron.Octavia.Subnet = subnets[lab.IPv6]
	must(t, w.Neutron.StartController())
	comesTo(t, "the load balancer has an IPv6 address", func(ctx context.Context) error {
		list := octaviaList(t, o, "loadbalancers")
		if len(list) != 1 || list[0]["vip_subnet_id"] != subnets[lab.IPv6] {
			return fmt.Errorf("there are %v", list)
		}
		at := netip.AddrPortFrom(netip.MustParseAddr(list[0]["vip_address"].(string)), servicePort)
		return asked(w.a, at, w.c.Name)(ctx)
	})

	w.API.RemoveService("lab", "web")
	comesTo(t, "nothing is left", func(context.Context) error {
		for _, collection := range []string{"loadbalancers", "listeners", "pools"} {
			if list := octaviaList(t, o, collection); len(list) > 0 {
				return fmt.Errorf("%s %v", collection, list)
			}
		}
		for _, p := range octaviaPorts(t, w) {
			return fmt.Errorf("port %v", p)
		}
		return nil
	})
}

// The fake Octavia of other tests answers as the real one does.
func TestOctaviaCases(t *testing.T) {
	ovn := ovntest.Start(t)
	ovn.Northd()
	neutron := neutrontest.Start(t, ovn)
	o, err := neutron.StartOctavia(t.Context())
	if o != nil {
		t.Cleanup(func() {
			o.Close()
			if t.Failed() {
				t.Logf("octavia-api's log ends:\n%s", o.Log())
			}
		})
	}
	must(t, err)
	octaviafake.Check(t, octaviafake.Server{Endpoint: o.Endpoint, Neutron: neutron.Endpoint})
}

// octaviaPorts are the ports of Neutron that load balancers have their addresses of.
func octaviaPorts(t *testing.T, w *world) (list []any) {
	t.Helper()
	all, _ := neutronCall(t, w, "GET", "ports", "")["ports"].([]any)
	for _, p := range all {
		if name, _ := p.(map[string]any)["name"].(string); strings.HasPrefix(name, "ovn-lb-vip-") {
			list = append(list, p)
		}
	}
	return list
}

// octaviaAddress is the address that the Service has, once it has one.
func octaviaAddress(t *testing.T, w *world) (address netip.Addr) {
	t.Helper()
	comesTo(t, "an address", func(context.Context) error {
		for _, s := range w.API.Services() {
			for _, i := range s.Status.LoadBalancer.Ingress {
				if s.Name == "web" {
					address = netip.MustParseAddr(i.IP)
					return nil
				}
			}
		}
		return fmt.Errorf("none, and not done: %v", w.Neutron.Unsupported())
	})
	return address
}

// balancerSubnet makes a subnet for addresses of load balancers, on a router.
func balancerSubnet(t *testing.T, w *world, router, network string, version int, cidr string) (id string) {
	t.Helper()
	made := neutronCall(t, w, "POST", "subnets", fmt.Sprintf(
		`{"subnet": {"network_id": %q, "cidr": %q, "ip_version": %d, "project_id": %q}}`,
		network, cidr, version, neutrontest.Project))
	id, _ = made["subnet"].(map[string]any)["id"].(string)
	neutronCall(t, w, "PUT", "routers/"+router+"/add_router_interface", fmt.Sprintf(`{"subnet_id": %q}`, id))
	return id
}

// octaviaCall asks the real Octavia.
func octaviaCall(t *testing.T, o *neutrontest.Octavia, method, path string) map[string]any {
	t.Helper()
	status, answer, err := octaviafake.Call(t.Context(), method, o.Endpoint+"v2.0/lbaas/"+path, "")
	must(t, err)
	if status >= http.StatusBadRequest {
		t.Fatalf("%s %s: %d, %v", method, path, status, answer)
	}
	return answer
}

// octaviaList is a list of the project.
func octaviaList(t *testing.T, o *neutrontest.Octavia, collection string) (list []map[string]any) {
	t.Helper()
	items, _ := octaviaCall(t, o, http.MethodGet, collection+"?project_id="+neutrontest.Project)[collection].([]any)
	for _, i := range items {
		list = append(list, i.(map[string]any))
	}
	return list
}

// octaviaDelete deletes something by hand and waits until Octavia has done so.
func octaviaDelete(t *testing.T, o *neutrontest.Octavia, path string) {
	t.Helper()
	octaviaCall(t, o, http.MethodDelete, path)
	comesTo(t, "nothing is pending", func(context.Context) error {
		for _, b := range octaviaList(t, o, "loadbalancers") {
			if b["provisioning_status"] != "ACTIVE" {
				return fmt.Errorf("%v", b)
			}
		}
		return nil
	})
}
