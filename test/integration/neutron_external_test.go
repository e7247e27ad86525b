// SPDX-License-Identifier: Apache-2.0

//go:build integration && neutron

package integration

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/neutrontest"
	"coelan.io/coelan/test/lab"
)

// TestNeutronExternal has a tenant leave by its Router's gateway, and pods be reached at floating
// IPs: on an external network that Coelan has made, and on one that OpenStack has.
func TestNeutronExternal(t *testing.T) {
	l := lab.New(t, lab.Options{Neutron: true, Configure: func(c *config.Config) {
		c.BridgeMappings = map[string]string{"office": "br-ext"}
	}})
	w := &world{Lab: l, n1: l.Nodes[0], n2: l.Nodes[1]}
	for _, n := range w.Nodes {
		must(t, n.AddPhysicalBridge(t.Context(), "br-ext"))
		awaitConnected(t.Context(), t, w, n, "office")
	}
	network := neutronCall(t, w, "POST", "networks", fmt.Sprintf(`{"network": {"project_id": %q, "name": "public", "router:external": true,
		"provider:network_type": "vlan", "provider:physical_network": "office", "provider:segmentation_id": 144}}`,
		neutrontest.Project))["network"].(map[string]any)
	neutronCall(t, w, "POST", "subnets", fmt.Sprintf(`{"subnet": {"project_id": %q, "network_id": %q, "cidr": "192.168.144.0/24", "ip_version": 4,
		"gateway_ip": "192.168.144.254", "enable_dhcp": false, "allocation_pools": [{"start": "192.168.144.200", "end": "192.168.144.250"}]}}`,
		neutrontest.Project, network["id"]))
	before := fmt.Sprint(neutronOne(t, w, "networks", "name=public"), neutronOne(t, w, "subnets", "cidr=192.168.144.0%2F24"))
	for i, tc := range []struct {
		tenant, external string
		vlan             int32
		annotations      map[string]string
	}{
		{"ours", "office", 143, nil},
		{"theirs", "public", 144, map[string]string{v1alpha1.AnnotationNeutronNetwork: network["id"].(string)}},
	} {
		t.Run(tc.tenant, func(t *testing.T) {
			outside := func(number int) func(lab.Family) netip.Addr {
				return func(lab.Family) netip.Addr { return netip.AddrFrom4([4]byte{192, 168, byte(tc.vlan), byte(number)}) }
			}
			prefix := netip.PrefixFrom(outside(20)(lab.IPv4), 24)
			w.API.AddNetworkAs(tc.external, tc.annotations, v1alpha1.NetworkSpec{
				Type: v1alpha1.VLAN, VLAN: &tc.vlan, PhysicalNetwork: "office", External: true,
				Subnets: []v1alpha1.Subnet{{CIDR: prefix.Masked().String(), Gateway: outside(254)(lab.IPv4).String()}},
			})
			near, err := w.n2.AddVLANHost(t.Context(), "br-ext", "near"+tc.tenant, int(tc.vlan), prefix)
			must(t, err)
			w.API.AddNamespace(tc.tenant, map[string]string{"tenant": tc.tenant})
			w.API.AddRouter(tc.tenant, v1alpha1.RouterSpec{})
			w.API.AddNetwork(tc.tenant, v1alpha1.NetworkSpec{
				Role: v1alpha1.Primary, Router: tc.tenant, Subnets: subnets(fmt.Sprintf("10.9%d.0.0/24", 4+i)),
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tenant": tc.tenant}},
			})
			must(t, w.API.SetRouterGateway(tc.tenant, v1alpha1.RouterGateway{Network: tc.external, SNAT: v1alpha1.CentralizedSNAT},
				outside(150)(lab.IPv4).String()))
			pod := addPodAs(t, w.n1, lab.PodSpec{Namespace: tc.tenant, Name: "web"})
			own := func(f lab.Family) netip.Addr { return pod.Own("eth0", f) }
			neutronReaches(t, path{"out by the gateway", pod.Host, near, near.Address, outside(150)}, lab.IPv4)
			w.API.AddFloatingIP(tc.tenant, "web", tc.external, outside(130)(lab.IPv4).String(), "web.eth0")
			neutronPoll(t, func() bool {
				return probeTo(t.Context(), path{"", near, pod.Host, outside(130), near.Address}, lab.IPv4, own) == nil
			},
				func() {
					t.Error("the pod is not reached at its floating IP:",
						probeTo(t.Context(), path{"", near, pod.Host, outside(130), near.Address}, lab.IPv4, own))
				})
			neutronReaches(t, path{"out by its floating IP", pod.Host, near, near.Address, outside(130)}, lab.IPv4)
			must(t, pod.Delete(t.Context()))
		})
	}
	if after := fmt.Sprint(neutronOne(t, w, "networks", "name=public"), neutronOne(t, w, "subnets", "cidr=192.168.144.0%2F24")); after != before {
		t.Errorf("what another program has made is\n%s\nand was\n%s", after, before)
	}
}

// TestNeutronFloatingIPsOfServices has Services answer at addresses that Neutron keeps for them.
func TestNeutronFloatingIPsOfServices(t *testing.T) {
	ovnFloatingIPsOfServices(t, lab.Options{Neutron: true}, 2*time.Minute)
}
