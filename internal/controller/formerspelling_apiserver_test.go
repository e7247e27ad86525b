// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controller_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/apitest"
)

// testFormerSpelling makes Networks with values that begin with small letters, as they were at
// first. They work, stay as they are, and can be changed.
func testFormerSpelling(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	former := map[string]string{
		"type": "overlay", "role": "secondary", "ipam": "blocks",
	}
	preset := map[string]string{"type": "overlay", "role": "primary", "ipam": "podCIDR"}
	network := func(name string, spec map[string]string, more map[string]any) *unstructured.Unstructured {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Network"))
		o.SetName(name)
		for field, value := range spec {
			_ = unstructured.SetNestedField(o.Object, value, "spec", field)
		}
		for field, value := range more {
			_ = unstructured.SetNestedField(o.Object, value, "spec", field)
		}
		return o
	}
	subnets := map[string]any{"subnets": []any{map[string]any{"cidr": "10.66.0.0/16"}}}
	red, standard := network("former", former, subnets), network(v1alpha1.DefaultNetwork, preset, nil)

	for _, o := range []*unstructured.Unstructured{standard, red} {
		w.until(func() string {
			if err := w.client.Create(t.Context(), o); err != nil {
				return err.Error()
			}
			return ""
		})
	}

	w.start(nil)
	for _, stored := range []*unstructured.Unstructured{standard, red} {
		n := &v1alpha1.Network{}
		n.Name = stored.GetName()
		w.until(func() string {
			w.get(n)
			c := n.Status.Conditions
			return want(n.Status.ID != 0 && meta.IsStatusConditionTrue(c, v1alpha1.ConditionReady) &&
				meta.IsStatusConditionTrue(c, v1alpha1.ConditionProgrammed), n.Name+" does not work")
		})
		w.get(stored)
		if of, _, _ := unstructured.NestedString(stored.Object, "spec", "type"); of != "overlay" {
			t.Errorf("%s has become of type %s", n.Name, of)
		}
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec": {"mtu": 1400}}`))
		if err := w.client.Patch(t.Context(), stored, patch); err != nil {
			t.Error(err)
		}
	}
}
