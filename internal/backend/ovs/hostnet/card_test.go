// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"net/netip"
	"strings"
	"testing"
)

func TestUsableCards(t *testing.T) {
	node := []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}
	other := netip.MustParseAddr("192.168.70.9")
	for name, tc := range map[string]struct {
		card Card
		err  string
	}{
		"free":              {Card{}, ""},
		"with an address":   {Card{Addresses: []netip.Addr{other}}, ""},
		"the node's":        {Card{Addresses: []netip.Addr{other, node[0]}}, "interface eth2 has the node's address 192.0.2.1"},
		"the node's second": {Card{Addresses: node[1:]}, "interface eth2 has the node's address 2001:db8::1"},
		"the way out":       {Card{Default: true}, "a default route of the node leads through interface eth2"},
		"in a bond":         {Card{Master: "bond0"}, "interface eth2 is a part of bond0"},
		"with VLANs":        {Card{Uppers: []string{"eth2.7", "eth2.9"}}, "interface eth2 carries eth2.7, eth2.9"},
		"loopback":          {Card{Loopback: true}, "interface eth2 is the loopback"},
	} {
		tc.card.Name = "eth2"
		err := tc.card.Usable(node)
		if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
			t.Errorf("%s: %v, want %q", name, err, tc.err)
		}
	}
}
