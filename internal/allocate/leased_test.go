// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
)

// Networks of DHCP servers are physical ones without subnets. Ports on them get a MAC, but no
// address.
func TestNetworksOfDHCPServers(t *testing.T) {
	n := &v1alpha1.Network{
		ObjectMeta: metav1.ObjectMeta{Name: "office"},
		Spec:       v1alpha1.NetworkSpec{Type: v1alpha1.Flat, PhysicalNetwork: "dc", IPAM: v1alpha1.DHCPServers},
		Status:     v1alpha1.NetworkStatus{ID: 7},
	}
	if _, err := checkNetwork(n); err != nil {
		t.Error(err)
	}
	v := CheckPort(&v1alpha1.Port{Spec: v1alpha1.PortSpec{Network: "office"}}, n, nil, nil)
	if v.Reason != "" || len(v.Fixed)+len(v.Pools) > 0 {
		t.Errorf("a user's Port: %+v", v)
	}
	v = CheckPort(&v1alpha1.Port{Spec: v1alpha1.PortSpec{Network: "office", Addresses: []v1alpha1.Address{"192.0.2.9"}}}, n, nil, nil)
	if v.Reason != v1alpha1.ReasonInvalid || !strings.Contains(v.Message, "spec.addresses: the DHCP servers of network office give addresses") {
		t.Errorf("a user's Port with an address: %+v", v)
	}
	n.Spec.Subnets = []v1alpha1.Subnet{{CIDR: "192.0.2.0/24"}}
	if _, err := checkNetwork(n); err == nil || !strings.Contains(err.Error(), "spec.subnets") {
		t.Errorf("with a subnet: %v", err)
	}
	n.Spec = v1alpha1.NetworkSpec{Type: v1alpha1.Flat, PhysicalNetwork: "dc", IPAM: v1alpha1.Blocks, DHCPRelay: &v1alpha1.DHCPRelay{}}
	if _, err := checkNetwork(n); err == nil || !strings.Contains(err.Error(), "spec.dhcpRelay") {
		t.Errorf("a relay with blocks: %v", err)
	}
	n.Spec = v1alpha1.NetworkSpec{Type: v1alpha1.Overlay, IPAM: v1alpha1.DHCPServers}
	if _, err := checkNetwork(n); err == nil || !strings.Contains(err.Error(), "spec.ipam") {
		t.Errorf("an overlay: %v", err)
	}
}
