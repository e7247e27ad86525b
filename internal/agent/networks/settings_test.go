// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
)

func TestSettings(t *testing.T) {
	at := netip.MustParsePrefix("192.0.2.0/24")
	for _, tc := range []struct {
		name    string
		change  func(*config.Config)
		guarded []intent.GuardedPort
		at      []intent.NodePortAddress
		uplinks []intent.Uplink
	}{
		{"no controllers' port", func(c *config.Config) { c.Policy.ControllerPort = 0 },
			[]intent.GuardedPort{{Protocol: intent.TCP, Port: 10362}, {Protocol: intent.UDP, Port: 10362}}, nil, nil},
		{"all", func(c *config.Config) {
			c.Policy.ControllerPort, c.LoadBalancer.MemberlistPort = 10463, 7946
			c.Services.NodePortAddresses = []netip.Prefix{at}
			c.BridgeMappings = map[string]string{"office": "br-office", "lab": "br-lab"}
			c.Uplinks = map[string]config.Uplink{"wan": {Interface: "eth2"}, "dmz": {Interface: "eth3", Bridge: "br-x", Shared: true}}
		}, []intent.GuardedPort{
			{Protocol: intent.TCP, Port: 7946}, {Protocol: intent.UDP, Port: 7946}, {Protocol: intent.TCP, Port: 10463},
		}, []intent.NodePortAddress{{Prefix: at}}, []intent.Uplink{
			{Physical: "dmz", Bridge: "br-x", Card: "eth3", Shared: true}, {Physical: "lab", Bridge: "br-lab"},
			{Physical: "office", Bridge: "br-office"}, {Physical: "wan", Bridge: "br-wan", Card: "eth2"},
		}},
	} {
		c := config.Default()
		tc.change(&c)
		s, err := intent.NewStore().Update(func(tx *intent.Tx) error { Settings(c, tx); return nil })
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.guarded, slices.Collect(s.GuardedPorts().All())); diff != "" {
			t.Errorf("%s: guarded ports (-want +got):\n%s", tc.name, diff)
		}
		got := slices.Collect(s.NodePortAddresses().All())
		if diff := cmp.Diff(tc.at, got, cmpopts.EquateComparable(netip.Prefix{}), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: addresses with node ports (-want +got):\n%s", tc.name, diff)
		}
		if diff := cmp.Diff(tc.uplinks, slices.Collect(s.Uplinks().All())); diff != "" {
			t.Errorf("%s: uplinks (-want +got):\n%s", tc.name, diff)
		}
	}
}
