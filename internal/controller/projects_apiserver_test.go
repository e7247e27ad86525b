// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controller_test

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/apitest"
	"coelan.io/coelan/internal/backend/neutron/cloud"
	"coelan.io/coelan/internal/backend/neutron/neutronfake"
	"coelan.io/coelan/internal/controller"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/translate"
)

// testProjects has what is made for a namespace be in the project that its annotation names, if the
// settings let it; and stay there when the annotation changes, and the controller starts again.
func testProjects(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	neutron := neutronfake.Start(t)
	start := func() (stop func()) {
		return w.start(func(o *controller.Options) {
			o.Neutron = &controller.Neutron{
				Cloud: cloud.Access{Endpoint: neutron.URL + "/", Project: "p"}, PolicyMode: intent.EnforcedPolicies,
				Projects: translate.Projects{"q": {"project-shop"}, "r": {"project-shop", "project-bank"}},
			}
		})
	}
	stop := start()
	w.node(1)
	namespaces := map[string]*corev1.Namespace{}
	add := func(name, project string) {
		t.Helper()
		o := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{"tenant": name}, Annotations: map[string]string{v1alpha1.KuryrProjectAnnotation: project},
		}}
		w.create(o)
		namespaces[name] = o
	}
	network := func(tenant, cidr string) *v1alpha1.Network {
		n := overlay(tenant, "", cidr)
		n.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: labels.Set{"tenant": tenant}}
		return n
	}
	where := func(collection, name, project string) {
		t.Helper()
		w.until(func() string {
			for _, o := range neutron.All(collection) {
				if o["name"] == name && o["project_id"] == project {
					return ""
				}
			}
			return fmt.Sprintf("%s %s in the project %s: %v", collection, name, project, neutron.All(collection))
		})
	}

	w.create(network("project-shop", "10.94.0.0/24"))
	shop := w.ready("project-shop")
	w.condition(shop, func() []metav1.Condition { return shop.Status.Conditions }, v1alpha1.ConditionProgrammed,
		metav1.ConditionFalse, v1alpha1.ReasonNotSupported, "selects a Namespace")
	add("project-shop", "q")
	add("project-bank", "q")
	w.create(network("project-bank", "10.95.0.0/24"), userPort("project-shop", "web", "project-shop", "10.94.0.5"))
	where("networks", "net-project-shop", "q")
	where("networks", "net-project-bank", "p")
	w.event("Namespace", "project-bank", "ProjectNotAllowed")
	w.condition(shop, func() []metav1.Condition { return shop.Status.Conditions }, v1alpha1.ConditionProgrammed,
		metav1.ConditionTrue, v1alpha1.ReasonProgrammed, "")
	w.port("project-shop", "web", func(p *v1alpha1.Port) bool { return p.Status.Phase == v1alpha1.PortReady })
	w.bind(&v1alpha1.Port{ObjectMeta: metav1.ObjectMeta{Namespace: "project-shop", Name: "web"}}, "worker1")
	web := w.port("project-shop", "web", func(p *v1alpha1.Port) bool { return p.Status.Neutron != nil })
	where("ports", "project-shop/web", "q")
	w.until(func() string {
		if w.get(shop) && shop.Annotations[v1alpha1.KuryrProjectAnnotation] == "q" {
			return ""
		}
		return fmt.Sprintf("the Network's annotations: %v", shop.Annotations)
	})

	w.change(namespaces["project-shop"], func() { namespaces["project-shop"].Annotations[v1alpha1.KuryrProjectAnnotation] = "r" })
	stop()
	start()
	w.create(userPort("project-shop", "more", "project-shop", "10.94.0.6"))
	w.port("project-shop", "more", func(p *v1alpha1.Port) bool { return p.Status.Phase == v1alpha1.PortReady })
	w.bind(&v1alpha1.Port{ObjectMeta: metav1.ObjectMeta{Namespace: "project-shop", Name: "more"}}, "worker1")
	where("ports", "project-shop/more", "q")
	id := func(o map[string]any) bool { return o["id"] == web.Status.Neutron.ID && o["project_id"] == "q" }
	if !slices.ContainsFunc(neutron.All("ports"), id) {
		t.Errorf("the port %s has moved: %v", web.Status.Neutron.ID, neutron.All("ports"))
	}
	if n := len(neutron.All("networks")); n != 3 {
		t.Errorf("%d networks, not those of two namespaces and of the Network default", n)
	}
}
