// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controller_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/apitest"
	"coelan.io/coelan/internal/backend/neutron/cloud"
	"coelan.io/coelan/internal/backend/neutron/neutronfake"
	"coelan.io/coelan/internal/controller"
	"coelan.io/coelan/internal/intent"
)

// testLentNetworks has the Port of a Network be on the network that this names. Without it the
// Network says so, and gets no other one.
func testLentNetworks(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	neutron := neutronfake.Start(t)
	ids := map[string]string{}
	for _, made := range []struct{ plural, singular, attributes string }{
		{"networks", "network", `"name": "theirs"`},
		{"subnets", "subnet", `"network_id": %q, "cidr": "10.96.0.0/24", "ip_version": 4`},
	} {
		attributes := strings.ReplaceAll(made.attributes, "%q", strconv.Quote(ids["network"]))
		status, answer, err := neutronfake.Call(t.Context(), "POST", neutron.URL+"/v2.0/"+made.plural,
			fmt.Sprintf(`{%q: {"project_id": "p", %s}}`, made.singular, attributes))
		o, _ := answer[made.singular].(map[string]any)
		if err != nil || status != http.StatusCreated {
			t.Fatalf("%d, %v, %v", status, answer, err)
		}
		ids[made.singular] = fmt.Sprint(o["id"])
	}
	w.start(func(o *controller.Options) {
		o.Neutron = &controller.Neutron{
			Cloud: cloud.Access{Endpoint: neutron.URL + "/", Project: "p"}, PolicyMode: intent.EnforcedPolicies,
		}
	})
	w.node(1)
	for name, on := range map[string]string{"theirs": ids["network"], "nobodys": "blue"} {
		n := overlay(name, "", map[string]string{"theirs": "10.96.0.0/24", "nobodys": "10.97.0.0/24"}[name])
		n.Annotations = map[string]string{v1alpha1.AnnotationNeutronNetwork: on}
		w.create(n)
		w.ready(name)
	}
	w.create(userPort("default", "on-theirs", "theirs", "10.96.0.5"))
	w.port("default", "on-theirs", func(p *v1alpha1.Port) bool { return p.Status.Phase == v1alpha1.PortReady })
	w.bind(&v1alpha1.Port{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "on-theirs"}}, "worker1")
	port := w.port("default", "on-theirs", func(p *v1alpha1.Port) bool { return p.Status.Neutron != nil })
	for _, p := range neutron.All("ports") {
		if p["id"] == port.Status.Neutron.ID && p["network_id"] != ids["network"] {
			t.Errorf("the port is on the network %v", p["network_id"])
		}
	}
	theirs := w.ready("theirs")
	w.until(func() string {
		want := &v1alpha1.NeutronNetwork{ID: ids["network"], Subnets: []v1alpha1.NeutronSubnet{{CIDR: "10.96.0.0/24", ID: ids["subnet"]}}}
		if w.get(theirs) && equality.Semantic.DeepEqual(theirs.Status.Neutron, want) {
			return ""
		}
		return fmt.Sprintf("the Network says that it is %+v, not %+v", theirs.Status.Neutron, want)
	})
	nobodys := w.ready("nobodys")
	w.condition(nobodys, func() []metav1.Condition { return nobodys.Status.Conditions }, v1alpha1.ConditionProgrammed,
		metav1.ConditionFalse, v1alpha1.ReasonNotSupported, "0 networks of the project p have the tag blue")
	if n := len(neutron.All("networks")); n != 2 {
		t.Errorf("%d networks, not the other program's and that of the Network default", n)
	}
}
