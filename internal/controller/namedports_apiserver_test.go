// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controller_test

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/apitest"
	"coelan.io/coelan/internal/backend/neutron/cloud"
	"coelan.io/coelan/internal/backend/neutron/neutronfake"
	"coelan.io/coelan/internal/controller"
	"coelan.io/coelan/internal/intent"
)

// A Port that names a port of Neutron is told what that has, if it is for the pod on its node; what
// follows it takes the port, and leaves it when it goes. What is not for the pod stays as it is.
func testNamedPorts(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	w.node(1)
	w.node(2)
	w.namespace("named", nil)
	neutron := neutronfake.Start(t)
	w.start(func(o *controller.Options) {
		o.Neutron = &controller.Neutron{
			Cloud: cloud.Access{Endpoint: neutron.URL + "/", Project: "p"}, PolicyMode: intent.EnforcedPolicies,
		}
	})
	n := overlay("named", "", "10.13.0.0/24")
	n.Spec.Subnets[0].Gateway = "10.13.0.1"
	w.create(n)
	w.ready("named")
	w.blockFor("named", "10.13.0.0/28", "worker1", "")
	ids := map[string]string{}
	w.until(func() string {
		for collection, name := range map[string]string{"networks": "net-named", "subnets": "net-named 10.13.0.0/24"} {
			for _, o := range neutron.All(collection) {
				if o["name"] == name {
					ids[collection] = fmt.Sprint(o["id"])
				}
			}
		}
		if len(ids) < 2 {
			return fmt.Sprintf("Neutron has %v of the Network", ids)
		}
		return ""
	})
	pod := w.pod("named", "web", "worker1")
	const mac = "fa:16:3e:0a:00:07"
	const other = "a28c7404-7495-4557-b7fc-3e293508dbc6"
	id := inNeutron(t, neutron, "ports", "port", fmt.Sprintf(`"network_id": %q, "mac_address": %q, "device_id": %q,
		"binding:host_id": "worker1", "fixed_ips": [{"subnet_id": %q, "ip_address": "10.13.0.13"}]`, ids["networks"], mac, pod.UID, ids["subnets"]))
	named := func(name, node, id string) *v1alpha1.Port {
		return &v1alpha1.Port{
			ObjectMeta: metav1.ObjectMeta{Namespace: "named", Name: name},
			Spec: v1alpha1.PortSpec{
				Network: "named", Node: node, NeutronPort: id,
				Pod: &v1alpha1.PortPod{Name: "web", UID: string(pod.UID), Interface: strings.TrimPrefix(name, "web.")},
			},
		}
	}
	for _, tc := range []struct {
		port *v1alpha1.Port
		want string
	}{
		{named("web.elsewhere", "worker2", id), `pod named/web is on node "worker1", and node "worker2" asks`},
		{named("web.nowhere", "worker1", other), "the project has none of this id"},
	} {
		w.create(tc.port)
		w.port("named", tc.port.Name, func(p *v1alpha1.Port) bool {
			return p.Status.Offered != nil && strings.Contains(p.Status.Offered.Refused, tc.want) && p.Status.Offered.MAC == ""
		})
	}
	asks := named("web.eth0", "worker1", id)
	w.create(asks)
	w.port("named", "web.eth0", func(p *v1alpha1.Port) bool {
		o := p.Status.Offered
		return o != nil && o.Refused == "" && o.MAC == mac && fmt.Sprint(o.Addresses) == "[10.13.0.13]" && p.Status.Neutron == nil
	})
	port := func() map[string]any {
		for _, p := range neutron.All("ports") {
			if p["id"] == id {
				return p
			}
		}
		t.Fatal("the port is gone")
		return nil
	}
	if p := port(); p["description"] != nil || p["name"] == "named/web.eth0" {
		t.Errorf("a port that was asked about is changed: %v", p)
	}

	w.delete(asks)
	takes := named("web.eth0", "worker1", id)
	takes.Spec.MAC, takes.Spec.Addresses = mac, []string{"10.13.0.13"}
	w.create(takes)
	w.status(takes, func() {
		takes.Status = v1alpha1.PortStatus{Phase: v1alpha1.PortBound, Node: "worker1", Addresses: []string{"10.13.0.13"}, MAC: mac}
	})
	w.port("named", "web.eth0", func(p *v1alpha1.Port) bool { return p.Status.Neutron != nil && p.Status.Neutron.ID == id })
	if p := port(); p["description"] != "coelan/Borrowed/Port/named/web.eth0 "+id || p["binding:host_id"] != "worker1" {
		t.Errorf("the port is not taken: %v", p)
	}
	w.delete(takes)
	w.until(func() string {
		if p := port(); p["description"] != "" || p["binding:host_id"] != "" || p["device_id"] != string(pod.UID) {
			return fmt.Sprintf("the port is not given back: %v", p)
		}
		return ""
	})

	// What is asked for is fixed, and of pods alone.
	for what, bad := range map[string]*v1alpha1.Port{
		"a port of no pod": {ObjectMeta: metav1.ObjectMeta{Namespace: "named", Name: "vm"}, Spec: v1alpha1.PortSpec{Network: "named", NeutronPort: id}},
		"no UUID":          named("web.bad", "worker1", "port"),
	} {
		if err := w.client.Create(t.Context(), bad); err == nil || !strings.Contains(err.Error(), "neutronPort") {
			t.Errorf("%s: %v", what, err)
		}
	}
	changed := w.port("named", "web.nowhere", func(*v1alpha1.Port) bool { return true })
	changed.Spec.NeutronPort = id
	if err := w.client.Update(t.Context(), changed); err == nil || !strings.Contains(err.Error(), "neutronPort cannot be changed") {
		t.Errorf("another port: %v", err)
	}
}
