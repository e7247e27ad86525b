// SPDX-License-Identifier: Apache-2.0

package appctl

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const shownRoutes = `Route Table:
Cached: 192.168.33.11/32 dev br-phy SRC 192.168.33.11 local
User: 192.168.33.12/32 dev br-phy SRC 192.168.33.11
User: fd00:33::12/128 dev br-phy SRC fd00:33::11
User: 10.9.9.9/32 dev br-phy GW 192.168.33.1 SRC 192.168.33.11
User: 10.9.9.10/32 MARK 5 dev br-phy SRC 192.168.33.11
User: 10.8.0.0/16 dev br-phy GW 192.168.33.1 SRC 192.168.33.11
Cached: 192.168.33.0/24 dev br-phy SRC 192.168.33.11
User: fd00:34::12/128 dev br0 GW fe80::1 SRC fd00:33::11
`

func TestParseHostRoutes(t *testing.T) {
	want := []Route{
		{Dst: netip.MustParseAddr("192.168.33.12"), Dev: "br-phy"},
		{Dst: netip.MustParseAddr("fd00:33::12"), Dev: "br-phy"},
		{Dst: netip.MustParseAddr("10.9.9.9"), Dev: "br-phy", Gateway: netip.MustParseAddr("192.168.33.1")},
		{Dst: netip.MustParseAddr("fd00:34::12"), Dev: "br0", Gateway: netip.MustParseAddr("fe80::1")},
	}
	if diff := cmp.Diff(want, parseHostRoutes(shownRoutes), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("routes (-want +got):\n%s", diff)
	}
}

func FuzzParseHostRoutes(f *testing.F) {
	f.Add(shownRoutes)
	f.Fuzz(func(t *testing.T, text string) {
		for _, r := range parseHostRoutes(text) {
			if !r.Dst.IsValid() || r.Dev == "" {
				t.Errorf("%q: route %+v", text, r)
			}
		}
	})
}
