// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
)

// The Network that the controller makes for a namespace has its subnet of the pool; one that a user
// makes, or labels, has not.
func TestSubnetsOfPools(t *testing.T) {
	w := newWorld(t)
	w.pools = []intent.SubnetPool{{Prefix: netip.MustParsePrefix("10.128.0.0/14"), Bits: 24}}
	namespace := map[string]string{v1alpha1.LabelNamespace: "shop"}
	made := map[string]string{v1alpha1.LabelNamespace: "shop", v1alpha1.LabelManagedBy: v1alpha1.ManagedByController}
	for i, n := range []struct {
		name, cidr string
		labels     map[string]string
	}{
		{"ns-shop", "10.128.0.0/24", made}, {"ns-former", "10.64.0.0/24", made}, {"labeled", "10.128.1.0/24", namespace},
		{"mine", "10.128.2.0/24", nil},
	} {
		id := int32(7 + i) //nolint:gosec // few
		w.set(&v1alpha1.Router{
			ObjectMeta: metav1.ObjectMeta{Name: n.name, UID: "red"}, Status: v1alpha1.RouterStatus{ID: id, VNI: id},
		})
		w.set(&v1alpha1.Network{
			ObjectMeta: metav1.ObjectMeta{Name: n.name, Labels: n.labels},
			Spec:       v1alpha1.NetworkSpec{Subnets: []v1alpha1.Subnet{{CIDR: n.cidr}}, Router: n.name},
			Status:     v1alpha1.NetworkStatus{ID: id, VNI: id, Router: n.name},
		})
	}
	w.start()
	want := []string{"10.128.0.0/24 of coelan/SubnetPool/10.128.0.0/14", "10.128.1.0/24", "10.128.2.0/24", "10.64.0.0/24"}
	var got []string
	w.await("subnets", w.changes.Changed, func() bool {
		pools := map[any]any{}
		for _, p := range w.neutron.All("subnetpools") {
			pools[p["id"]] = p["description"]
		}
		got = nil
		for _, s := range w.neutron.All("subnets") {
			text := fmt.Sprint(s["cidr"])
			if pool := s["subnetpool_id"]; pool != nil {
				text += fmt.Sprint(" of ", pools[pool])
			}
			got = append(got, text)
		}
		return len(got) == len(want)
	})
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("subnets (-want +got):\n%s", diff)
	}
}
