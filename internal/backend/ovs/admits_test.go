// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"fmt"
	"maps"
	"testing"

	"coelan.io/coelan/internal/backend/ovs/hostnet"
	"coelan.io/coelan/internal/config"
)

// What a node cannot have shows before anything is changed; what it has already is not looked at.
func TestAdmits(t *testing.T) {
	m := newMachine(t)
	c := m.testConfig()
	m.connectedTo("office") // its bridge does not exist
	m.cards.Gone = map[string]bool{"eth8": true}
	m.cards.Unlike = map[string]hostnet.Card{"eth9": {Master: "bond0"}}
	n := m.start(c)
	n.says(n.reconciler.reconcile(n.bound()), "bridge br-office does not exist")
	for name, tc := range map[string]struct {
		change func(c *config.Config)
		err    string
	}{
		"nothing":                {func(*config.Config) {}, ""},
		"smaller MTU":            {func(c *config.Config) { c.MTU = 1300 }, ""},
		"MTU that does not fit":  {func(c *config.Config) { c.MTU = 9000 }, "mtu: 9000 is too large, interface eth0 with MTU 1500"},
		"no card":                {func(c *config.Config) { c.Uplinks = map[string]config.Uplink{"lab": {Interface: "eth8"}} }, "physical network lab: interface eth8 does not exist on this node"},
		"a card of a bond":       {func(c *config.Config) { c.Uplinks = map[string]config.Uplink{"lab": {Interface: "eth9"}} }, "physical network lab: interface eth9 is a part of bond0"},
		"a good card":            {func(c *config.Config) { c.Uplinks = map[string]config.Uplink{"lab": {Interface: "eth2"}} }, ""},
		"no bridge":              {func(c *config.Config) { c.BridgeMappings = map[string]string{"lab": "br-lab"} }, "physical network lab: bridge br-lab does not exist"},
		"a bridge that is there": {func(c *config.Config) { c.BridgeMappings = map[string]string{"lab": "br-int"} }, ""},
		"too many": {func(c *config.Config) {
			c.BridgeMappings = map[string]string{}
			for i := range 14 {
				c.BridgeMappings[fmt.Sprint("lab", i)] = "br-int"
			}
		}, "14 physical networks, at most 13 are possible"},
	} {
		t.Run(name, func(t *testing.T) {
			other := c
			other.BridgeMappings, other.Uplinks = maps.Clone(c.BridgeMappings), maps.Clone(c.Uplinks)
			tc.change(&other)
			err := n.Admits(n.bound(), other)
			if tc.err == "" && err != nil {
				t.Error(err)
			} else if tc.err != "" {
				n.says(err, tc.err)
			}
		})
	}
}
