// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"net"
	"net/netip"
	"strings"
	"testing"
)

func TestUsableCards(t *testing.T) {
	node := []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}
	other := netip.MustParseAddr("192.168.70.9")
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	for name, tc := range map[string]struct {
		card Card
		// alone and shared are the errors without and with shared: true.
		alone, shared string
	}{
		"free":            {Card{}, "", ""},
		"with an address": {Card{Addresses: []netip.Addr{other}}, "", ""},
		"the node's": {Card{Addresses: []netip.Addr{other, node[0]}},
			"interface eth2 has the node's address 192.0.2.1, the node would be cut off: name a card that serves nothing else, or set shared: true", ""},
		"the node's second": {Card{Addresses: node[1:]}, "interface eth2 has the node's address 2001:db8::1", ""},
		"the way out":       {Card{Default: true}, "a default route of the node leads through interface eth2", ""},
		"by DHCP": {Card{Addresses: node[:1], Leased: node[:1]}, "interface eth2 has the node's address 192.0.2.1",
			"interface eth2 has the node's address 192.0.2.1 for a limited time only, which no program could prolong on a bridge: configure it without DHCP, or make the bridge yourself, with the card in it"},
		"another address by DHCP": {Card{Addresses: []netip.Addr{other}, Leased: []netip.Addr{other}}, "", ""},
		"advertised to a program": {Card{Default: true, LeasedRoute: true}, "a default route",
			"the default route through interface eth2 is there for a limited time only"},
		"in a bond": {Card{Master: "bond0"}, "interface eth2 is a part of bond0: take it out, or name a card",
			"interface eth2 is a part of bond0: take it out, or name bond0"},
		"with VLANs": {Card{Uppers: []string{"eth2.7", "eth2.9"}}, "interface eth2 carries eth2.7, eth2.9",
			"interface eth2 carries eth2.7, eth2.9: remove these, or make the bridge yourself"},
		"loopback":     {Card{Loopback: true}, "interface eth2 is the loopback", "interface eth2 is the loopback"},
		"not Ethernet": {Card{MAC: net.HardwareAddr{}}, "", "interface eth2 is not an Ethernet card"},
	} {
		tc.card.Name = "eth2"
		if tc.card.MAC == nil {
			tc.card.MAC = mac
		}
		for shared, want := range map[bool]string{false: tc.alone, true: tc.shared} {
			err := tc.card.Usable(node, shared)
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s, shared %t: %v, want %q", name, shared, err, want)
			}
		}
	}
}
