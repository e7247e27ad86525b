// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestOverridesRefused(t *testing.T) {
	base := Default()
	base.Uplinks = map[string]Uplink{"office": {Interface: "eth2"}}
	for _, tc := range []struct{ name, text, want string }{
		{"no JSON", `mtu`, "invalid character"},
		{"a setting that no node may have", `{"stateDir":"/tmp"}`, `unknown field "stateDir"`},
		{"another case", `{"MTU":1400}`, `unknown field "MTU"`},
		{"unknown part", `{"uplinks":{"lab":{"interface":"eth3","speed":1}}}`, `unknown field "uplinks.lab.speed"`},
		{"small MTU", `{"mtu":1279}`, "mtu: 1279 is neither 0 (automatic) nor between 1280 and 65535"},
		{"unknown encapsulation", `{"encapsulation":"gre"}`, "not gre"},
		{"another encapsulation", `{"encapsulation":"geneve"}`,
			"encapsulation: the ConfigMap has vxlan, and all nodes need the same, not geneve: change it in the ConfigMap"},
		{"mapped twice", `{"bridgeMappings":{"office":"br-ex"}}`, "uplinks[office]: bridgeMappings has a bridge for it"},
		{"no card", `{"uplinks":{"lab":{"interface":""}}}`, "uplinks[lab].interface: must not be empty"},
		{"Coelan's own bridge", `{"uplinks":{"lab":{"interface":"br-int"}}}`, `"br-int" is Coelan's own`},
		{"no prefix", `{"subnets":{"lan":["10.1.0.0"]}}`, "netip.ParsePrefix"},
		{"bits beyond the length", `{"subnets":{"lan":["10.1.0.1/24"]}}`, "subnets[lan][0]: 10.1.0.1/24 has bits set beyond its length"},
		{"empty", `{"subnets":{"lan":[]}}`, "subnets[lan]: must not be empty"},
		{"pod network", `{"subnets":{"default":["10.244.0.0/16"]}}`, "subnets[default]: this Network has the podCIDRs of the nodes"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o, err := ParseOverrides([]byte(tc.text))
			if err == nil {
				_, err = base.With(o)
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

// What is not set is the file's, and an empty map is none.
func TestOverrides(t *testing.T) {
	base := Default()
	base.MTU = 1300
	base.BridgeMappings = map[string]string{"office": "br-ex"}
	base.Uplinks = map[string]Uplink{"lab": {Interface: "eth2"}}
	for _, tc := range []struct {
		text string
		want func(*Config)
	}{
		{`{}`, func(*Config) {}},
		{`{"mtu":1400,"encapsulation":"vxlan"}`, func(c *Config) { c.MTU = 1400 }},
		{`{"bridgeMappings":{}}`, func(c *Config) { c.BridgeMappings = map[string]string{} }},
		{`{"bridgeMappings":{"lab":"br-lab"},"uplinks":{}}`, func(c *Config) {
			c.BridgeMappings, c.Uplinks = map[string]string{"lab": "br-lab"}, map[string]Uplink{}
		}},
		{`{"uplinks":{"dc":{"interface":"eth4","bridge":"br-4","shared":true}}}`, func(c *Config) {
			c.Uplinks = map[string]Uplink{"dc": {Interface: "eth4", Bridge: "br-4", Shared: true}}
		}},
		{`{"subnets":{"lan":["10.1.0.0/20","fd00:1::/64"]}}`, func(c *Config) {
			c.Subnets = map[string][]netip.Prefix{"lan": {netip.MustParsePrefix("10.1.0.0/20"), netip.MustParsePrefix("fd00:1::/64")}}
		}},
	} {
		want := base
		tc.want(&want)
		o, err := ParseOverrides([]byte(tc.text))
		if err != nil {
			t.Fatal(err)
		}
		got, err := base.With(o)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.text, diff)
		}
		text, err := o.Encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseOverrides(text)
		if diff := cmp.Diff(o, again, cmpopts.EquateComparable(netip.Prefix{})); err != nil || diff != "" {
			t.Errorf("%s as %s: %v\n%s", tc.text, text, err, diff)
		}
	}
}
