// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/api/v1alpha1"
)

// What was stored before the values began with capitals means the same.
func TestFormerSpelling(t *testing.T) {
	const (
		former = `{"type": "vlan", "role": "primary", "ipam": "podCIDR", "fixed": {"addresses": "ranges", "macs": "local"}}`
		rule   = `{"direction": "egress"}`
	)
	want := v1alpha1.NetworkSpec{
		Type: v1alpha1.VLAN, Role: v1alpha1.Primary, IPAM: v1alpha1.PodCIDR,
		Fixed: &v1alpha1.Fixed{Addresses: v1alpha1.RangeAddresses, MACs: v1alpha1.LocalMACs},
	}
	var got v1alpha1.NetworkSpec
	if err := json.Unmarshal([]byte(former), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	var r v1alpha1.SecurityGroupRule
	if err := json.Unmarshal([]byte(rule), &r); err != nil || r.Direction != v1alpha1.RuleEgress {
		t.Errorf("direction %q, %v", r.Direction, err)
	}
	var f v1alpha1.FloatingIPSpec
	if err := json.Unmarshal([]byte(`{"ipFamily": "ipv6"}`), &f); err != nil || f.IPFamily != v1alpha1.IPv6 {
		t.Errorf("ipFamily %q, %v", f.IPFamily, err)
	}
	var g v1alpha1.RouterGateway
	if err := json.Unmarshal([]byte(`{"snat": "centralized"}`), &g); err != nil || !g.IsCentralized() {
		t.Errorf("snat %q, %v", g.SNAT, err)
	}
	var routed v1alpha1.RouterGateway
	if err := json.Unmarshal([]byte(`{"snat": "distributed", "snatFamilies": ["ipv4"]}`), &routed); err != nil || routed.IsRouted(v1alpha1.IPv4) || !routed.IsRouted(v1alpha1.IPv6) {
		t.Errorf("snat %q of %v, %v", routed.SNAT, routed.SNATFamilies, err)
	}
	if err := json.Unmarshal([]byte(`{"snat": "none"}`), &routed); err != nil || !routed.IsRouted(v1alpha1.IPv4) {
		t.Errorf("snat %q, %v", routed.SNAT, err)
	}
	if err := json.Unmarshal([]byte(`{"type": "gre"}`), &got); err != nil || got.Type != "gre" {
		t.Errorf("an unknown type is read as %q, %v", got.Type, err)
	}
	if err := json.Unmarshal([]byte(`{"type": 7}`), &got); err == nil {
		t.Error("a number is read as a type")
	}
}

// Objects in the former spelling can be made and changed, also to the new one.
func TestFormerSpellingOfStoredObjects(t *testing.T) {
	networks, groups := load(t, "networks"), load(t, "securitygroups")
	const (
		network = `type: overlay, role: primary, ipam: blocks, vni: 70, namespaceSelector: {}, subnets: [{cidr: 10.1.0.0/16}]`
		changed = `type: overlay, role: primary, ipam: blocks, vni: 70, namespaceSelector: {}, subnets: [{cidr: 10.1.0.0/16}], mtu: 1400`
		capital = `type: Overlay, role: Primary, ipam: Blocks, vni: 70, namespaceSelector: {}, subnets: [{cidr: 10.1.0.0/16}]`
		other   = `type: VLAN, role: Primary, ipam: Blocks, vni: 70, namespaceSelector: {}, subnets: [{cidr: 10.1.0.0/16}]`
		preset  = `type: overlay, role: primary, ipam: podCIDR, router: default, vni: 1`
		rule    = `rules: [{direction: ingress, etherType: IPv4}]`
	)
	for _, tc := range []struct {
		test, name    string
		of            server
		before, after string
	}{
		{"nothing", "n", networks, network, network},
		{"the MTU", "n", networks, network, changed},
		{"the spelling", "n", networks, network, capital},
		{"nothing of the default one", "default", networks, preset, preset},
		{"the MTU of the default one", "default", networks, preset, preset + ", mtu: 1400"},
		{"nothing of a group", "g", groups, rule, rule},
	} {
		t.Run(tc.test, func(t *testing.T) {
			if got := tc.of.update(t, tc.name, tc.before, tc.after); got != "" {
				t.Error(got)
			}
		})
	}
	refused(t, networks.update(t, "n", network, other), "type cannot be changed")
	if got := networks.create(t, "n", network) + groups.create(t, "g", rule); got != "" {
		t.Error(got)
	}
}
