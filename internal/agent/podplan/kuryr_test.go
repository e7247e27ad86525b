// SPDX-License-Identifier: Apache-2.0

package podplan

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
)

type fields = map[string]any

// kuryrPort is the KuryrPort of a pod.
func kuryrPort(namespace, name, uid, kind, mac, address string) *unstructured.Unstructured {
	list := func(data fields) fields {
		return fields{"versioned_object.data": fields{"objects": []any{fields{"versioned_object.data": data}}}}
	}
	return &unstructured.Unstructured{Object: fields{
		"apiVersion": "openstack.org/v1", "kind": "KuryrPort", "metadata": fields{"namespace": namespace, "name": name},
		"spec": fields{"podUid": uid, "podNodeName": "n1"},
		"status": fields{"vifs": fields{"eth0": fields{"default": true, "vif": fields{
			"versioned_object.name": kind, "versioned_object.data": fields{
				"id": "port", "address": mac, "network": fields{"versioned_object.data": fields{
					"id": "net", "subnets": list(fields{"ips": list(fields{"address": address})}),
				}},
			},
		}}}},
	}}
}

// A pod that gets a new sandbox keeps the address and the MAC that Kuryr has given it; a new pod
// of its name does not get them.
func TestFromKuryr(t *testing.T) {
	const mac, address = "fa:16:3e:01:02:03", "10.2.0.77"
	keeps := func(i *attachment.Plan) {
		m, _ := intent.ParseMAC(mac)
		i.MAC, i.Addresses = &m, []netip.Addr{netip.MustParseAddr(address)}
	}
	for name, tc := range map[string]struct {
		port   *unstructured.Unstructured
		change func(*world, *attachment.Requested)
		keeps  bool
		err    string
	}{
		"the same pod":               {port: kuryrPort("red", "p", "uid-p", "VIFOpenVSwitch", mac, address), keeps: true},
		"a pod without a KuryrPort":  {port: kuryrPort("red", "q", "uid-p", "VIFOpenVSwitch", mac, address)},
		"an earlier pod of the name": {port: kuryrPort("red", "p", "uid-before", "VIFOpenVSwitch", mac, address)},
		"part of the node's port":    {port: kuryrPort("red", "p", "uid-p", "VIFVlanNested", mac, address)},
		"another network":            {port: kuryrPort("red", "p", "uid-p", "VIFOpenVSwitch", mac, "10.77.0.1")},
		"damaged": {
			port: kuryrPort("red", "p", "uid-p", "VIFOpenVSwitch", "fa", address), err: "delete the KuryrPort",
		},
		"another backend": {
			port:   kuryrPort("red", "p", "uid-p", "VIFOpenVSwitch", mac, address),
			change: func(w *world, _ *attachment.Requested) { w.Neutron = false },
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, config.MapFlat)
			w.Neutron = true
			red := network("red", 3, "red", v1alpha1.NetworkSpec{
				Role: v1alpha1.Primary, NamespaceSelector: selects("tenant", "red"), Subnets: subnets("10.2.0.0/24"), MTU: 1300,
			})
			red.ObjectMeta = metav1.ObjectMeta{Name: "red", Annotations: map[string]string{v1alpha1.AnnotationKuryrNetwork: "red"}}
			w.api.Add(red, tc.port)
			ask := w.pod("red", "p", nil)
			want := with(planned("eth0", "red", 3), func(i *attachment.Plan) {
				i.Primary, i.DefaultRoute, i.MTU, i.NodeAddresses, i.Subnets = true, true, 1300, true, subnet("10.2.0.0/24")
			})
			if tc.change != nil {
				tc.change(w, &ask.Requested)
			}
			if tc.keeps {
				keeps(&want)
			}
			got, err := w.Plan(t.Context(), ask)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("%v, want %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]attachment.Plan{want}, got, values); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// While the API server does not answer, a pod gets no other address than it may have.
func TestFromKuryrUnknown(t *testing.T) {
	w := newWorld(t, config.MapFlat)
	w.Neutron = true
	red := network("red", 3, "red", v1alpha1.NetworkSpec{
		Role: v1alpha1.Primary, NamespaceSelector: selects("tenant", "red"), Subnets: subnets("10.2.0.0/24"), MTU: 1300,
	})
	red.Annotations = map[string]string{v1alpha1.AnnotationKuryrNetwork: "red"}
	w.api.Add(red)
	ask := w.pod("red", "p", nil)
	w.api.SetAway(true)
	if _, err := w.Plan(t.Context(), ask); err == nil || !strings.Contains(err.Error(), "whether Kuryr has made a port") {
		t.Errorf("%v", err)
	}
}
