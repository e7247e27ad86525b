// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controller_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/apitest"
	"coelan.io/coelan/internal/backend/neutron/cloud"
	"coelan.io/coelan/internal/backend/neutron/neutronfake"
	"coelan.io/coelan/internal/controller"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/kuryr"
)

// kuryrDefinition makes a kind of Kuryr's objects known.
func (w *world) kuryrDefinition(kind, plural string) {
	w.Helper()
	if err := apiextensionsv1.AddToScheme(w.client.Scheme()); err != nil {
		w.Fatal(err)
	}
	all := true
	d := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + kuryr.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: kuryr.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Plural: plural, Singular: strings.ToLower(kind), Kind: kind, ListKind: kind + "List",
			},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: kuryr.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: &all,
				}},
			}},
		},
	}
	w.create(d)
	w.Cleanup(func() { w.ignoreGone(w.client.Delete(context.Background(), d)) })
	w.until(func() string {
		w.get(d)
		for _, c := range d.Status.Conditions {
			if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
				return ""
			}
		}
		return "the definition is not established"
	})
}

// kuryrObject makes one of Kuryr's objects.
func (w *world) kuryrObject(kind, namespace, name string, fields map[string]any) {
	w.Helper()
	o := &unstructured.Unstructured{Object: fields}
	o.SetAPIVersion(kuryr.Group + "/" + kuryr.Version)
	o.SetKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	if err := w.client.Create(w.Context(), o); err != nil {
		w.Fatal(err)
	}
}

// inNeutron makes a resource as Kuryr does, and returns its id.
func inNeutron(t *testing.T, n *neutronfake.Neutron, path, kind, body string) string {
	t.Helper()
	status, answer, err := neutronfake.Call(t.Context(), "POST", n.URL+"/v2.0/"+path, fmt.Sprintf(`{%q: {"project_id": "p", %s}}`, kind, body))
	made, _ := answer[kind].(map[string]any)
	if err != nil || status != 201 {
		t.Fatalf("%s: %d, %v, %v", kind, status, answer, err)
	}
	return fmt.Sprint(made["id"])
}

// testFromKuryr has the networks and ports that Kuryr's objects name become those of Networks and
// pods, with their ids; what cannot be is said, and nothing of Kuryr's goes.
func testFromKuryr(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	w.kuryrDefinition("KuryrNetwork", kuryr.Networks)
	w.kuryrDefinition("KuryrPort", kuryr.Ports)
	w.node(1)
	w.namespace("from-kuryr", nil)
	neutron := neutronfake.Start(t)
	net := inNeutron(t, neutron, "networks", "network", `"name": "uid/from-kuryr"`)
	sub := inNeutron(t, neutron, "subnets", "subnet", fmt.Sprintf(`"network_id": %q, "cidr": "10.11.0.0/24", "ip_version": 4,
		"gateway_ip": "10.11.0.1", "enable_dhcp": false`, net))
	w.kuryrObject("KuryrNetwork", "from-kuryr", "from-kuryr", map[string]any{
		"spec":   map[string]any{"nsName": "from-kuryr", "projectId": "p"},
		"status": map[string]any{"netId": net, "subnetId": sub, "subnetCIDR": "10.11.0.0/24", "routerId": "r"},
	})
	ids := map[string]string{}
	addPod := func(name string, mac v1alpha1.MAC, address, device string) (attach func()) {
		t.Helper()
		pod := w.pod("from-kuryr", name, "worker1")
		if device == "" {
			device = string(pod.UID)
		}
		ids[name] = inNeutron(t, neutron, "ports", "port", fmt.Sprintf(`"network_id": %q, "mac_address": %q, "device_owner": "compute:kuryr",
			"device_id": %q, "binding:host_id": "worker1", "fixed_ips": [{"subnet_id": %q, "ip_address": %q}]`, net, mac, device, sub, address))
		list := func(data map[string]any) map[string]any {
			return map[string]any{"versioned_object.data": map[string]any{"objects": []any{map[string]any{"versioned_object.data": data}}}}
		}
		w.kuryrObject("KuryrPort", "from-kuryr", name, map[string]any{
			"spec": map[string]any{"podUid": string(pod.UID), "podNodeName": "worker1"},
			"status": map[string]any{"vifs": map[string]any{"eth0": map[string]any{"default": true, "vif": map[string]any{
				"versioned_object.name": "VIFOpenVSwitch", "versioned_object.data": map[string]any{
					"id": ids[name], "address": mac, "network": map[string]any{"versioned_object.data": map[string]any{
						"id": net, "subnets": list(map[string]any{"ips": list(map[string]any{"address": address})}),
					}},
				},
			}}}},
		})
		return func() {
			p := &v1alpha1.Port{
				ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name + ".eth0"},
				Spec: v1alpha1.PortSpec{
					Network: "from-kuryr", MAC: mac, Addresses: []string{address},
					Pod: &v1alpha1.PortPod{Name: pod.Name, UID: string(pod.UID), Interface: "eth0"},
				},
			}
			w.create(p)
			w.status(p, func() {
				p.Status = v1alpha1.PortStatus{
					Phase: v1alpha1.PortBound, Node: "worker1", Addresses: []string{address}, MAC: mac,
				}
			})
		}
	}
	pods := []func(){
		addPod("web", "fa:16:3e:00:00:01", "10.11.0.13", ""),
		addPod("stolen", "fa:16:3e:00:00:02", "10.11.0.14", "another-pod"),
	}
	w.start(func(o *controller.Options) {
		o.Neutron = &controller.Neutron{
			Cloud: cloud.Access{Endpoint: neutron.URL + "/", Project: "p"}, PolicyMode: intent.EnforcedPolicies,
		}
	})
	w.ready("default") // so all has been read before the Networks come

	n := overlay("from-kuryr", "", "10.11.0.0/24")
	n.Annotations = map[string]string{v1alpha1.AnnotationKuryrNetwork: "from-kuryr"}
	n.Spec.Subnets[0].Gateway = "10.11.0.1"
	absent := overlay("absent", "", "10.12.0.0/24")
	absent.Annotations = map[string]string{v1alpha1.AnnotationKuryrNetwork: "not-there"}
	w.create(n, absent)
	w.ready("from-kuryr")
	w.blockFor("from-kuryr", "10.11.0.0/28", "worker1", "")
	for _, attach := range pods {
		attach()
	}
	w.port("from-kuryr", "web.eth0", func(p *v1alpha1.Port) bool {
		return p.Status.Neutron != nil && p.Status.Neutron.ID == ids["web"]
	})
	stolen := &v1alpha1.Port{ObjectMeta: metav1.ObjectMeta{Namespace: "from-kuryr", Name: "stolen.eth0"}}
	w.condition(stolen, func() []metav1.Condition { return stolen.Status.Conditions }, v1alpha1.ConditionProgrammed,
		metav1.ConditionFalse, v1alpha1.ReasonNotSupported, "device_id is another-pod")
	w.condition(absent, func() []metav1.Condition { return absent.Status.Conditions }, v1alpha1.ConditionProgrammed,
		metav1.ConditionFalse, v1alpha1.ReasonNotSupported, "KuryrNetwork not-there")
	w.until(func() string {
		want := &v1alpha1.NeutronNetwork{ID: net, Subnets: []v1alpha1.NeutronSubnet{{CIDR: "10.11.0.0/24", ID: sub}}}
		if w.get(n) && w.get(absent) && cmp.Equal(n.Status.Neutron, want) && absent.Status.Neutron == nil {
			return ""
		}
		return fmt.Sprintf("Networks say that they are %+v, not %+v, and %+v", n.Status.Neutron, want, absent.Status.Neutron)
	})
	networks := map[any]any{}
	for _, o := range neutron.All("networks") {
		networks[o["id"]] = o["description"]
	}
	const others = 1 // that of the Network default
	if len(networks) != 1+others || networks[net] != "coelan/Network/from-kuryr" {
		t.Errorf("networks %v", networks)
	}
	for _, p := range neutron.All("ports") {
		if p["id"] == ids["stolen"] && (p["device_id"] != "another-pod" || p["description"] != nil) {
			t.Errorf("a port that is not the pod's is changed: %v", p)
		}
		if p["id"] == ids["web"] && p["description"] != "coelan/Port/from-kuryr/web.eth0" {
			t.Errorf("the pod's port is not adopted: %v", p)
		}
	}
}
