// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controller_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/apitest"
	"coelan.io/coelan/internal/backend/neutron/cloud"
	"coelan.io/coelan/internal/backend/neutron/neutronfake"
	"coelan.io/coelan/internal/controller"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/kuryr"
)

// testBalancersFromKuryr has the floating IP of a Service's load balancer, that Kuryr has made,
// become that of a FloatingIP, with its id, and go with it. One of a user stays. What is not the
// Service's stays as it is, and is said.
func testBalancersFromKuryr(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	const namespace = "balanced-by-kuryr"
	w.kuryrDefinition("KuryrLoadBalancer", kuryr.LoadBalancers)
	w.connected(1, "office")
	w.namespace(namespace, nil)
	neutron := neutronfake.Start(t)
	office := inNeutron(t, neutron, "networks", "network", `"name": "public", "router:external": true`)
	inNeutron(t, neutron, "subnets", "subnet", fmt.Sprintf(`"network_id": %q, "cidr": "192.0.2.0/24", "ip_version": 4`, office))
	inside := inNeutron(t, neutron, "networks", "network", `"name": "services"`)
	subnet := inNeutron(t, neutron, "subnets", "subnet", fmt.Sprintf(`"network_id": %q, "cidr": "10.96.0.0/12", "ip_version": 4,
		"gateway_ip": "10.111.255.254"`, inside))
	router := inNeutron(t, neutron, "routers", "router", fmt.Sprintf(`"name": "kuryr", "external_gateway_info": {"network_id": %q}`, office))
	status, answer, err := neutronfake.Call(t.Context(), "PUT", neutron.URL+"/v2.0/routers/"+router+"/add_router_interface",
		fmt.Sprintf(`{"subnet_id": %q}`, subnet))
	if err != nil || status != 200 {
		t.Fatalf("%d, %v, %v", status, answer, err)
	}
	ids, vips := map[string]string{}, map[string]string{}
	balanced := func(name, address, description, method string, leads func(clusterIP string) string) {
		t.Helper()
		s := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}},
		}
		w.create(s)
		vips[name] = inNeutron(t, neutron, "ports", "port", fmt.Sprintf(`"network_id": %q, "fixed_ips": [{"subnet_id": %q, "ip_address": %q}]`,
			inside, subnet, leads(s.Spec.ClusterIP)))
		ids[name] = inNeutron(t, neutron, "floatingips", "floatingip", fmt.Sprintf(`"floating_network_id": %q, "floating_ip_address": %q,
			"port_id": %q, "description": %q`, office, address, vips[name], description))
		w.kuryrObject("KuryrLoadBalancer", namespace, name, map[string]any{
			"spec": map[string]any{"ip": s.Spec.ClusterIP, "type": "LoadBalancer"},
			"status": map[string]any{
				"loadbalancer":        map[string]any{"ip": s.Spec.ClusterIP, "port_id": vips[name]},
				"service_pub_ip_info": map[string]any{"ip_id": ids[name], "ip_addr": address, "alloc_method": method},
			},
		})
	}
	own := func(clusterIP string) string { return clusterIP }
	balanced("web", "192.0.2.7", kuryr.FloatingIPDescription, "pool", own)
	balanced("reserved", "192.0.2.8", "of the shop", "user", own)
	balanced("stolen", "192.0.2.9", kuryr.FloatingIPDescription, "pool", func(string) string { return "10.100.9.9" })
	w.start(func(o *controller.Options) {
		o.Neutron = &controller.Neutron{
			Cloud: cloud.Access{Endpoint: neutron.URL + "/", Project: "p"}, PolicyMode: intent.EnforcedPolicies,
			Northbound: []string{"unix:/none"}, // nodes answer
		}
	})
	n := external("office", "192.0.2.0/24")
	n.Annotations = map[string]string{v1alpha1.AnnotationNeutronNetwork: office}
	w.create(n)
	w.ready("office")
	all := map[string]*v1alpha1.FloatingIP{}
	for name, address := range map[string]string{"web": "192.0.2.7", "reserved": "192.0.2.8", "stolen": "192.0.2.9"} {
		all[name] = floatingIP(namespace, name, v1alpha1.FloatingIPSpec{Network: "office", Address: address, Service: name})
		w.create(all[name])
	}
	says := func(name string, status metav1.ConditionStatus, reason, text string) {
		t.Helper()
		o := all[name]
		w.condition(o, func() []metav1.Condition { return o.Status.Conditions }, v1alpha1.ConditionProgrammed, status, reason, text)
	}
	is := func(name string) string {
		for _, f := range neutron.All("floatingips") {
			if f["id"] == ids[name] {
				return fmt.Sprint(f["description"], " ", f["port_id"], " ", f["floating_ip_address"])
			}
		}
		return ""
	}
	says("web", metav1.ConditionTrue, v1alpha1.ReasonProgrammed, "")
	says("reserved", metav1.ConditionTrue, v1alpha1.ReasonProgrammed, "")
	says("stolen", metav1.ConditionFalse, v1alpha1.ReasonNotSupported, "fixed_ip_address is 10.100.9.9, and not ")
	for name, want := range map[string]string{
		"web":      "coelan/FloatingIP/" + namespace + "/web <nil> 192.0.2.7",
		"reserved": "coelan/KeptFIP/" + namespace + "/reserved <nil> 192.0.2.8",
		"stolen":   "kuryr_lb " + vips["stolen"] + " 192.0.2.9",
	} {
		if got := is(name); got != want {
			t.Errorf("the floating IP of %s is %q, not %q", name, got, want)
		}
	}
	for _, f := range all {
		w.ignoreGone(w.client.Delete(t.Context(), f))
	}
	w.until(func() string {
		if is("web") == "" && is("reserved") == " <nil> 192.0.2.8" && is("stolen") != "" {
			return ""
		}
		return fmt.Sprintf("without FloatingIPs there are %q, %q and %q", is("web"), is("reserved"), is("stolen"))
	})
}
