// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"net/netip"
	"testing"

	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/intent"
)

// Neutron gives machines what nodes do not hand out, and never the gateway's address: it refuses a
// subnet with that in a pool.
func TestAllocationPools(t *testing.T) {
	some := []intent.AddressRange{{First: addr("10.0.0.10"), Last: addr("10.0.0.20")}}
	for _, tc := range []struct {
		prefix, gateway string
		pool            intent.Pool
		want            string
	}{
		{"10.0.0.0/24", "10.0.0.1", intent.Pool{Only: some}, "[10.0.0.2-10.0.0.9 10.0.0.21-10.0.0.254]"},
		{"10.0.0.0/24", "10.0.0.5", intent.Pool{Only: some}, "[10.0.0.1-10.0.0.4 10.0.0.6-10.0.0.9 10.0.0.21-10.0.0.254]"},
		{"10.0.0.0/24", "10.0.0.1", intent.Pool{Except: some}, "[10.0.0.10-10.0.0.20]"},
		{"10.0.0.0/24", "10.0.0.1", intent.Pool{}, "[10.0.0.254-10.0.0.254]"},
		{"10.0.0.0/24", "10.0.0.254", intent.Pool{}, "[10.0.0.253-10.0.0.253]"},
		{"fd00::/64", "fd00::1", intent.Pool{}, "[fd00::ffff:ffff:ffff:ffff-fd00::ffff:ffff:ffff:ffff]"},
		{"fd00::/64", "fd00::ffff:ffff:ffff:ffff", intent.Pool{}, "[fd00::ffff:ffff:ffff:fffe-fd00::ffff:ffff:ffff:fffe]"},
	} {
		var got []string
		for _, p := range allocationPools(intent.NetworkSubnet{Prefix: netip.MustParsePrefix(tc.prefix), Gateway: addr(tc.gateway)}, tc.pool) {
			r, _ := p.(resource.Attributes)
			got = append(got, fmt.Sprint(r["start"], "-", r["end"]))
		}
		if fmt.Sprint(got) != tc.want {
			t.Errorf("%+v: %v, want %s", tc, got, tc.want)
		}
	}
}
