// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
)

func TestClaimedFor(t *testing.T) {
	for _, c := range []struct {
		spec v1alpha1.AddressBlockSpec
		want string
	}{
		{v1alpha1.AddressBlockSpec{Gateway: "red"}, "addressblock b"},
		{v1alpha1.AddressBlockSpec{Gateway: "red/worker1.example.org"}, "gateway of router red on node worker1.example.org"},
		{v1alpha1.AddressBlockSpec{Gateway: "red/*"}, "gateway of router red"},
		{v1alpha1.AddressBlockSpec{Egress: "bank"}, "egress bank"},
		{v1alpha1.AddressBlockSpec{FloatingIP: "a/web"}, "floatingip a/web"},
		{v1alpha1.AddressBlockSpec{Port: "a/vm"}, "port a/vm"},
		{v1alpha1.AddressBlockSpec{Port: "a/p.eth0", Node: "worker1"}, "port a/p.eth0 on node worker1"},
		{v1alpha1.AddressBlockSpec{Node: "worker1"}, "addressblock b"},
	} {
		got := ClaimedFor(&v1alpha1.AddressBlock{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: c.spec})
		if got != c.want {
			t.Errorf("%+v: %q, want %q", c.spec, got, c.want)
		}
	}
}
