// SPDX-License-Identifier: Apache-2.0

package portbinding

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agent/apicache"
	"coelan.io/coelan/internal/backend"
)

func TestPlugged(t *testing.T) {
	const (
		uid, podUID             = "3a1dbbb8-b757-4021-a4d8-eba8477e61d7", "86c59fef-2c00-42a5-8d4e-673013e074bf"
		former, port, dynamicID = "11111111-0000-4000-8000-000000000000", "11111111-0000-4000-8000-000000000001", "11111111-0000-4000-8000-000000000002"
	)
	in := func(id string) v1alpha1.PortStatus {
		return v1alpha1.PortStatus{Neutron: &v1alpha1.NeutronPort{ID: id}}
	}
	var known apicache.Objects[v1alpha1.Port]
	for key, o := range map[string]*v1alpha1.Port{
		"shop/db":       {ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db", UID: uid}, Status: in(former)},
		"shop/web.eth0": {ObjectMeta: metav1.ObjectMeta{UID: podUID}, Spec: v1alpha1.PortSpec{Pod: &v1alpha1.PortPod{Name: "web"}}},
		"shop/guest":    {ObjectMeta: metav1.ObjectMeta{UID: "dynamic"}, Spec: v1alpha1.PortSpec{Dynamic: true}, Status: in(dynamicID)},
	} {
		known = known.Put(key, o)
	}
	ports := newIndex()
	ports.follow(known, func(*v1alpha1.Port) bool { return false })
	now := known.Get("shop/db").DeepCopy()
	now.Status = in(port)
	ports.follow(known.Put("shop/db", now), func(*v1alpha1.Port) bool { return false })
	for _, tc := range []struct {
		name, ifaceID string
		actual        int
		want          string // key; empty: none
	}{
		{"by name", "shop/db", 16, "shop/db"},
		{"by name, not known yet", "shop/new", 16, "shop/new"},
		{"by UID", uid, 16, "shop/db"},
		{"by its port in Neutron", port, 16, "shop/db"},
		{"by the port that it had", former, 16, ""},
		{"by that of a Port that an agent has made", dynamicID, 16, ""},
		{"UID of no Port", "00000000-0000-0000-0000-000000000001", 16, ""},
		{"UID of a pod's Port", podUID, 16, ""},
		{"the interface cannot be opened", uid, -1, ""},
		{"name without a namespace", "/db", 16, ""},
		{"namespace without a name", "shop/", 16, ""},
		{"empty", "", 16, ""},
		{"none named", "shop/?", 16, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			i := backend.Guest{Name: "tap0", ID: tc.ifaceID, Number: tc.actual}
			want := map[string][]backend.Guest{}
			if tc.want != "" {
				want[tc.want] = []backend.Guest{i}
			}
			got, unnamed := ports.plugged([]backend.Guest{i})
			if (len(unnamed) == 1) != (tc.ifaceID == "shop/?") {
				t.Errorf("of those that name none: %v", unnamed)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
