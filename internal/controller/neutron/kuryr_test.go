// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/backend/neutron/compile"
	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/intenttest"
	"coelan.io/coelan/internal/kuryr"
)

func TestNetworkClaims(t *testing.T) {
	cidr := netip.MustParsePrefix("10.11.0.0/26")
	made := map[string]kuryr.Network{"shop": {Namespace: "shop", NetworkID: "n", SubnetID: "s", CIDR: cidr}}
	for name, tc := range map[string]struct {
		networks map[string]kuryr.Network
		problem  error
		subnets  []intent.NetworkSubnet
		claims   int
		refused  string
	}{
		"fits":             {networks: made, subnets: intenttest.Subnets("10.11.0.0/26"), claims: 2},
		"with another one": {networks: made, subnets: intenttest.Subnets("fd00:11::/64", "10.11.0.0/26"), claims: 2},
		"another subnet":   {networks: made, subnets: intenttest.Subnets("10.11.0.0/24"), claims: 1, refused: "10.11.0.0/26, which spec.subnets does not have"},
		"no KuryrNetwork":  {subnets: intenttest.Subnets("10.11.0.0/26"), claims: 1, refused: "no such KuryrNetwork"},
		"KuryrNetworks that cannot be read": {
			subnets: intenttest.Subnets("10.11.0.0/26"), problem: errors.New("forbidden"), claims: 1, refused: "forbidden",
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := intent.Network{Name: "red", Subnets: tc.subnets, Kuryr: "shop"}
			claims := networkClaims(n, tc.networks, tc.problem)
			if len(claims) != tc.claims || claims[0].Ref != compile.NetworkRef("red") || claims[0].By != "KuryrNetwork shop" {
				t.Fatalf("%+v", claims)
			}
			if got := claims[0].Refused; !strings.Contains(got, tc.refused) || tc.refused == "" && got != "" {
				t.Errorf("refused: %s", got)
			}
			if tc.claims == 2 && (claims[1].Ref != compile.SubnetRef("red", cidr) || claims[1].ID != "s") {
				t.Errorf("%+v", claims[1])
			}
		})
	}
}

// A port has to be as Kuryr has noted it; ports of its pools have no device.
func TestPortClaim(t *testing.T) {
	got := portClaim(kuryr.Port{
		Namespace: "shop", Name: "web", PodUID: "uid", Node: "n1", ID: "id", NetworkID: "n", MAC: intent.MAC{0xfa, 0x16, 0x3e, 0, 0, 1},
		Addresses: []netip.Addr{netip.MustParseAddr("10.11.0.5"), netip.MustParseAddr("fd00:11::5")}, Unusable: "nested",
	})
	const mac = "fa:16:3e:00:00:01"
	want := resource.Claim{
		Kind: resource.Port, ID: "id", By: "KuryrPort shop/web", MAC: mac, Device: "uid", Refused: "nested",
		Has: map[string][]any{
			"device_owner": {"compute:kuryr"}, "device_id": {"uid", ""}, "mac_address": {mac}, "network_id": {"n"},
			"binding:host_id": {"n1", ""},
		},
		Addresses: []string{"10.11.0.5", "fd00:11::5"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
