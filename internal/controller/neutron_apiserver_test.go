// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controller_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/apitest"
	"coelan.io/coelan/internal/backend/neutron/cloud"
	"coelan.io/coelan/internal/backend/neutron/neutronfake"
	"coelan.io/coelan/internal/controller"
	"coelan.io/coelan/internal/intent"
)

// testProgrammedByNeutron has the condition Programmed say what Neutron does of FloatingIPs and
// Egresses, also when it refuses one for a while, and when it has been away.
func testProgrammedByNeutron(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	neutron := neutronfake.Start(t)
	nearlyExceed(t, neutron)
	w.start(func(o *controller.Options) {
		o.Neutron = &controller.Neutron{
			Cloud: cloud.Access{Endpoint: neutron.URL + "/", Project: "p"}, PolicyMode: intent.EnforcedPolicies,
		}
	})
	all := &v1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Name: intent.DefaultNetworkName}}
	w.condition(all, func() []metav1.Condition { return all.Status.Conditions },
		v1alpha1.ConditionQuotaPressure, metav1.ConditionTrue, v1alpha1.ReasonQuotaNearlyExceeded, "of the 100 subnets that its quota")
	w.connected(1, "office")
	w.namespace("by-neutron", nil)
	red := router("red", nil, nil)
	red.Spec.Gateway = &v1alpha1.RouterGateway{Network: "office", SNAT: v1alpha1.CentralizedSNAT}
	w.create(external("office", "192.0.2.0/24"), red, overlay("red-lan", "red", "10.90.0.0/24"))
	w.ready("red-lan")
	says := func(o *v1alpha1.FloatingIP, status metav1.ConditionStatus, reason, text string) {
		t.Helper()
		w.condition(o, func() []metav1.Condition { return o.Status.Conditions }, v1alpha1.ConditionProgrammed, status, reason, text)
	}
	floats := func(name, inside, outside string) *v1alpha1.FloatingIP {
		t.Helper()
		p := userPort("by-neutron", name, "red-lan", inside)
		w.create(p)
		w.port("by-neutron", name, func(p *v1alpha1.Port) bool { return p.Status.Phase == v1alpha1.PortReady })
		w.bind(p, "worker1")
		f := floatingIP("by-neutron", name, v1alpha1.FloatingIPSpec{Network: "office", Address: outside, Port: name})
		w.create(f)
		return f
	}
	e := egress("out", "office", "by-neutron", "192.0.2.8")
	w.create(e)
	w.condition(e, func() []metav1.Condition { return e.Status.Conditions },
		v1alpha1.ConditionProgrammed, metav1.ConditionFalse, v1alpha1.ReasonNotSupported, "")
	web := floats("web", "10.90.0.5", "192.0.2.7")
	says(web, metav1.ConditionTrue, v1alpha1.ReasonProgrammed, "")
	if n := len(neutron.All("floatingips")); n != 1 {
		t.Errorf("the FloatingIP is said to be programmed, and Neutron has %d", n)
	}

	neutron.Quota("floatingips", 1)
	more := floats("more", "10.90.0.6", "192.0.2.9")
	says(more, metav1.ConditionFalse, v1alpha1.ReasonNotSupported, "Quota")
	says(web, metav1.ConditionTrue, v1alpha1.ReasonProgrammed, "")
	neutron.Quota("floatingips", 10)
	says(more, metav1.ConditionTrue, v1alpha1.ReasonProgrammed, "")

	neutron.Fail(func(int, string, string) neutronfake.Fault { return neutronfake.Busy })
	late := floats("late", "10.90.0.10", "192.0.2.10")
	says(late, metav1.ConditionFalse, v1alpha1.ReasonPending, "")
	says(web, metav1.ConditionTrue, v1alpha1.ReasonProgrammed, "")
	neutron.Fail(func(int, string, string) neutronfake.Fault { return neutronfake.None })
	says(late, metav1.ConditionTrue, v1alpha1.ReasonProgrammed, "")
}

// nearlyExceed has the project p have 90 of 100 subnets.
func nearlyExceed(t *testing.T, neutron *neutronfake.Neutron) {
	t.Helper()
	post := func(path, body string) map[string]any {
		t.Helper()
		status, answer, err := neutronfake.Call(t.Context(), http.MethodPost, neutron.URL+"/v2.0/"+path, body)
		if err != nil || status != http.StatusCreated {
			t.Fatalf("%s: %d, %v, %v", path, status, answer, err)
		}
		return answer
	}
	network, _ := post("networks", `{"network": {"project_id": "p"}}`)["network"].(map[string]any)
	for i := range 90 {
		post("subnets", fmt.Sprintf(`{"subnet": {"project_id": "p", "network_id": %q, "cidr": "10.200.%d.0/24", "ip_version": 4}}`,
			network["id"], i))
	}
	neutron.Quota("subnets", 100)
}

// testCheckOfNeutron asks a controller what Neutron does not do of objects: what it refuses, until
// it takes it, and that it is away, until it is back.
func testCheckOfNeutron(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	neutron := neutronfake.Start(t)
	socket := controllerSocket(t)
	stop := w.start(func(o *controller.Options) {
		o.Neutron = &controller.Neutron{
			Cloud: cloud.Access{Endpoint: neutron.URL + "/", Project: "p"}, PolicyMode: intent.EnforcedPolicies,
		}
		o.Socket = socket
	})
	defer stop()
	finds := func(what string, ok func(agentapi.NeutronCheck) bool) {
		t.Helper()
		awaitAnswer(w, socket, "/v1/neutron/check", what, ok)
	}
	finds("all is as wanted", func(c agentapi.NeutronCheck) bool { return c.OK && c.Resources > 0 && c.Northbound == nil })
	neutron.Quota("networks", len(neutron.All("networks")))
	w.create(router("compared", nil, nil), overlay("compared", "compared", "10.91.0.0/24"))
	finds("a Network without room", func(c agentapi.NeutronCheck) bool {
		return !c.OK && slices.ContainsFunc(c.Findings, func(f agentapi.Finding) bool {
			return f.Object == "Network compared" && strings.HasPrefix(f.Problem, "QuotaExceeded: network of Neutron: ")
		})
	})
	awaitAnswer(w, socket, "/v1/neutron", "a problem", func(s agentapi.NeutronStatus) bool {
		return s.Where == neutron.URL+"/" && s.Failure == "" && s.Problems > 0 && !s.Since.IsZero()
	})
	neutron.Quota("networks", 10)
	finds("there is room", func(c agentapi.NeutronCheck) bool { return c.OK })
	neutron.Fail(func(int, string, string) neutronfake.Fault { return neutronfake.Busy })
	w.create(overlay("late", "compared", "10.92.0.0/24"))
	finds("Neutron is away", func(c agentapi.NeutronCheck) bool {
		return len(c.Findings) > 0 && c.Findings[0].Kind == "neutron" &&
			strings.Contains(c.Findings[0].Problem, cloud.ErrUnreachable.Error())
	})
	awaitAnswer(w, socket, "/v1/neutron", "it is away", func(s agentapi.NeutronStatus) bool { return s.Failure != "" })
	neutron.Fail(func(int, string, string) neutronfake.Fault { return neutronfake.None })
	finds("Neutron is back", func(c agentapi.NeutronCheck) bool { return c.OK })
	awaitAnswer(w, socket, "/v1/neutron", "it is back", func(s agentapi.NeutronStatus) bool { return s.Failure == "" })
}
