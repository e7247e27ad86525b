// SPDX-License-Identifier: Apache-2.0

package nodeconfig

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
)

func TestCheckRefuses(t *testing.T) {
	for _, tc := range []struct {
		name string
		spec v1alpha1.NodeNetworkConfigSpec
		want string
	}{
		{"a selector without a meaning", v1alpha1.NodeNetworkConfigSpec{NodeSelector: &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "rack", Operator: "In"}}}}, "nodeSelector: "},
		{"small MTU", v1alpha1.NodeNetworkConfigSpec{NodeName: "a", MTU: 100}, "mtu: 100 is neither 0"},
		{"unknown encapsulation", v1alpha1.NodeNetworkConfigSpec{NodeName: "a", Encapsulation: "GRE"}, `encapsulation: "GRE" is not known`},
		{"integration bridge", v1alpha1.NodeNetworkConfigSpec{NodeName: "a", BridgeMappings: map[string]string{"office": "br-int"}},
			`bridgeMappings[office]: "br-int" is the integration bridge`},
		{"one card twice", v1alpha1.NodeNetworkConfigSpec{NodeName: "a", Uplinks: map[string]v1alpha1.NodeUplink{
			"lab": {Interface: "eth2"}, "office": {Interface: "eth2"}}}, `uplinks[office]: "eth2" is also the interface of uplinks[lab]`},
		{"mapped and uplink", v1alpha1.NodeNetworkConfigSpec{NodeName: "a", BridgeMappings: map[string]string{"lab": "br-ex"},
			Uplinks: map[string]v1alpha1.NodeUplink{"lab": {Interface: "eth2"}}}, "uplinks[lab]: bridgeMappings has a bridge for it"},
		{"no prefix", v1alpha1.NodeNetworkConfigSpec{NodeName: "a", Subnets: []v1alpha1.NodeSubnets{{Network: "lan", CIDRs: []string{"10.1.0.0"}}}},
			"subnets[0].cidrs[0]: "},
		{"overlapping prefixes", v1alpha1.NodeNetworkConfigSpec{NodeName: "a", Subnets: []v1alpha1.NodeSubnets{{Network: "lan",
			CIDRs: []string{"10.1.0.0/16", "10.1.2.0/24"}}}}, "subnets[lan][1]: 10.1.2.0/24 overlaps [0] 10.1.0.0/16"},
		{"pod network", v1alpha1.NodeNetworkConfigSpec{NodeName: "a", Subnets: []v1alpha1.NodeSubnets{{Network: "default", CIDRs: []string{"10.1.0.0/16"}}}},
			"which the controller manager gives"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := Check(tc.spec); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

func TestSettings(t *testing.T) {
	for _, tc := range []struct {
		spec v1alpha1.NodeNetworkConfigSpec
		want string
	}{
		{v1alpha1.NodeNetworkConfigSpec{NodeName: "a"}, `{}`},
		{v1alpha1.NodeNetworkConfigSpec{NodeName: "a", MTU: 1400, Encapsulation: "Geneve"}, `{"mtu":1400,"encapsulation":"geneve"}`},
		{v1alpha1.NodeNetworkConfigSpec{NodeName: "a", Encapsulation: "NoEncap", BridgeMappings: map[string]string{}},
			`{"encapsulation":"noEncap","bridgeMappings":{}}`},
		{v1alpha1.NodeNetworkConfigSpec{NodeName: "a", Uplinks: map[string]v1alpha1.NodeUplink{"lab": {Interface: "eth2", Shared: true}}},
			`{"uplinks":{"lab":{"interface":"eth2","bridge":"","shared":true}}}`},
		{v1alpha1.NodeNetworkConfigSpec{NodeName: "a", Subnets: []v1alpha1.NodeSubnets{{Network: "lan", CIDRs: []string{"10.1.0.0/20", "fd00::/64"}}}},
			`{"subnets":{"lan":["10.1.0.0/20","fd00::/64"]}}`},
	} {
		if err := Check(tc.spec); err != nil {
			t.Errorf("%s: %v", tc.want, err)
		}
		o, err := Settings(tc.spec)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := o.Encode(); err != nil || string(text) != tc.want {
			t.Errorf("%s, %v, want %s", text, err, tc.want)
		}
	}
}
