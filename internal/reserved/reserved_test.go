// SPDX-License-Identifier: Apache-2.0

package reserved

import (
	"net/netip"
	"testing"

	"coelan.io/coelan/internal/intent"
)

func TestPodMAC(t *testing.T) {
	for address, want := range map[string]string{
		"10.244.1.2": "0a:ce:0a:f4:01:02", "::ffff:10.244.1.2": "0a:ce:0a:f4:01:02",
		"fd00:10:244:1::2": "0a:ce:83:ad:9a:2b",
	} {
		if got := PodMAC(netip.MustParseAddr(address)).String(); got != want {
			t.Errorf("PodMAC(%s) = %s, want %s", address, got, want)
		}
	}
}

func TestRangesOfMACs(t *testing.T) {
	for _, tc := range []struct {
		mac         intent.MAC
		pod, router bool
	}{
		{PodMAC(netip.MustParseAddr("10.244.1.2")), true, false}, {PodMAC(netip.MustParseAddr("fd00::1")), true, false},
		{RouterMAC(1), false, true}, {RouterMAC(255), false, true},
		{intent.MAC{0x0a, 0xc0, 0xe2}, false, false}, {intent.MAC{0x02, 0xce}, false, false}, {intent.MAC{}, false, false},
	} {
		if IsPodMAC(tc.mac) != tc.pod || IsRouterMAC(tc.mac) != tc.router {
			t.Errorf("%s: a pod's: %v, a router's: %v", tc.mac, IsPodMAC(tc.mac), IsRouterMAC(tc.mac))
		}
		if tc.mac[0]&1 != 0 {
			t.Errorf("%s is a group's", tc.mac)
		}
	}
}

func TestIsNodeLocal(t *testing.T) {
	for text, want := range map[string]bool{
		"169.254.64.1": true, "169.254.64.2": true, "169.254.64.3": false,
		"fd69:c0e1::1": true, "fd69:c0e1::2": true, "fd69:c0e1::3": false, "10.0.0.1": false,
	} {
		if got := IsNodeLocal(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}
