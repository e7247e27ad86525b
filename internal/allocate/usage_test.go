// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/api/v1alpha1"
)

func portWith(addresses ...string) *v1alpha1.Port {
	return &v1alpha1.Port{Status: v1alpha1.PortStatus{Addresses: addresses}}
}

func podWith(uid string, host bool, ips ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}, Spec: corev1.PodSpec{NodeName: "n", HostNetwork: host}}
	for _, ip := range ips {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
	}
	return p
}

func TestUsage(t *testing.T) {
	network := &v1alpha1.Network{Spec: v1alpha1.NetworkSpec{Subnets: []v1alpha1.Subnet{
		{CIDR: "10.0.0.0/24", Exclusions: []string{"10.0.0.128/25"}}, {CIDR: "10.0.1.0/30"},
	}}}
	blocks := []*v1alpha1.AddressBlock{
		{Spec: v1alpha1.AddressBlockSpec{Node: "a"}}, {Spec: v1alpha1.AddressBlockSpec{Node: "b"}},
		{Spec: v1alpha1.AddressBlockSpec{}}, {Spec: v1alpha1.AddressBlockSpec{Node: "a", Port: "x/y"}},
		{Spec: v1alpha1.AddressBlockSpec{CIDR: "10.0.0.9/32", FloatingIP: "x/f"}},
		{Spec: v1alpha1.AddressBlockSpec{CIDR: "10.0.0.10/32", Gateway: "r/n"}},
		{Spec: v1alpha1.AddressBlockSpec{CIDR: "10.0.0.11/32", Egress: "e"}},
	}
	// 126 of the first half, without the network's address and the gateway; one
	// in the second subnet.
	got := BlockUsage(network, []*v1alpha1.Port{portWith("10.0.0.5", "10.0.0.200"), portWith("10.0.1.2"), portWith("10.0.0.5")}, blocks)
	if want := (Usage{Blocks: 2, Used: 6, Free: 126 + 1 - 5}); got != want {
		t.Errorf("BlockUsage = %+v, want %+v", got, want)
	}
	large := &v1alpha1.Network{Spec: v1alpha1.NetworkSpec{Subnets: []v1alpha1.Subnet{{CIDR: "fd00::/48"}, {CIDR: "fd01::/48"}}}}
	if got := BlockUsage(large, []*v1alpha1.Port{portWith("fd00::5")}, nil); got != (Usage{Used: 1, Free: 1<<53 - 1}) {
		t.Errorf("BlockUsage of much = %+v", got)
	}

	nodes := []*corev1.Node{
		{ObjectMeta: metav1.ObjectMeta{Name: "n2"}, Spec: corev1.NodeSpec{PodCIDRs: []string{"10.244.2.0/24"}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: corev1.NodeSpec{PodCIDRs: []string{"10.244.1.0/24"}}},
	}
	pods := []*corev1.Pod{
		podWith("a", false, "10.244.1.2"), podWith("b", false, "10.244.2.2"), podWith("elsewhere", false, "10.244.2.3"),
		podWith("tenant", false, "10.99.0.1"), podWith("host", true, "192.168.33.11"),
	}
	got = DefaultUsage(nodes, pods, map[string]bool{"elsewhere": true})
	if want := (Usage{Used: 2, Free: 2*253 - 3}); got != want {
		t.Errorf("DefaultUsage = %+v, want %+v", got, want)
	}
	got = PodCIDRUsage(nodes[:1], pods, []*v1alpha1.Port{portWith("10.244.2.3")})
	if want := (Usage{Used: 1, Free: 253 - 2}); got != want {
		t.Errorf("PodCIDRUsage = %+v, want %+v", got, want)
	}
}
