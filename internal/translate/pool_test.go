// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"net/netip"
	"testing"
)

func TestBlockBits(t *testing.T) {
	for subnet, want := range map[string]int{
		"10.0.0.0/8": 26, "10.0.0.0/16": 26, "10.0.0.0/22": 26, "10.0.0.0/24": 28, "10.0.0.0/26": 30, "10.0.0.0/28": 30, "10.0.0.0/30": 30,
		"fd00::/48": 122, "fd00::/64": 122, "fd00::/120": 124, "fd00::/126": 126,
	} {
		if got := blockBits(netip.MustParsePrefix(subnet)); got != want {
			t.Errorf("blocks of %s are /%d, want /%d", subnet, got, want)
		}
	}
}
