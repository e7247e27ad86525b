// SPDX-License-Identifier: Apache-2.0

package podplan

import (
	"testing"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/config"
)

// A VNI is the Network's that the controller has given it to, and not another's that asks for it;
// one that waits for the controller has it if there is no other.
func TestVNIOfSeveralNetworks(t *testing.T) {
	w := newWorld(t, config.MapFlat)
	ask := func(name string, vni int32) *v1alpha1.Network {
		n := network(name, 0, "", v1alpha1.NetworkSpec{VNI: &vni, Subnets: subnets("10.8.0.0/24")})
		n.Status = v1alpha1.NetworkStatus{}
		return n
	}
	w.api.Add(ask("another", 80004), ask("late", 42))
	for vni, want := range map[uint32]string{80004: "lan", 42: "late", 1: "default"} {
		if got, err := w.withVNI(vni); err != nil || got != want {
			t.Errorf("VNI %d: %q, %v, want %q", vni, got, err, want)
		}
	}
	if got, err := w.withVNI(43); err == nil {
		t.Errorf("VNI 43: %q", got)
	}
}
