// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	vpn   = Ref{Kind: BGPVPN, Key: "r"}
	place = AssociationOf(vpn, router)
)

// targeted has the router be in a BGPVPN.
func targeted(all map[Ref]Resource) {
	all[vpn] = Resource{Fixed: Attributes{"type": "l3"}, Mutable: Attributes{"route_targets": []any{"1:1", "1:2"}}}
	all[place] = Resource{Fixed: Attributes{"bgpvpn_id": vpn, "router_id": router}}
}

// isTargeted is what targeted has made.
func isTargeted(i *Inventory) {
	i.Put(vpn, Actual{ID: "id-vpn", Attributes: Attributes{"type": "l3", "route_targets": []any{"1:2", "1:1"}}})
	i.Put(place, Associated("id-vpn", "id-r"))
}

// A BGPVPN is made when its router is, changes in place, and goes before that, after the router's
// place in it.
func TestPlanOfBGPVPNs(t *testing.T) {
	other := Ref{Kind: Router, Key: "other"}
	const make, remove = "create BGPVPN r", "delete router association of BGPVPN r"
	for _, tc := range []struct {
		name string
		want *Set
		have *Inventory
		plan []string
	}{
		{"all is there", wanted(targeted), there(isTargeted), nil},
		{"one comes", wanted(targeted), there(), []string{make, "create router association of BGPVPN r"}},
		{"one goes", wanted(), there(isTargeted), []string{remove, "delete BGPVPN r"}},
		{"one goes with its router", wanted(without(network, subnet, router, link, routes, port)), there(isTargeted), []string{
			remove, "delete BGPVPN r", "update routes of router r", "delete port p", "delete router interface sub", "delete router r",
			"delete subnet sub", "delete network net",
		}},
		{"other targets", wanted(targeted), there(isTargeted, with(vpn, "route_targets", []any{"1:1"})), []string{"update BGPVPN r"}},
		{"another type", wanted(targeted), there(isTargeted, with(vpn, "type", "l2")), []string{
			remove, "delete BGPVPN r", make, "create router association of BGPVPN r",
		}},
		{"another router in it, by hand", wanted(targeted), there(isTargeted, func(i *Inventory) {
			i.Put(AssociationOf(vpn, other), Associated("id-vpn", "id-other"))
		}), []string{"delete router association of BGPVPN r other"}},
		{"the router was made anew", wanted(targeted), there(isTargeted, with(place, "router_id", "id-before")),
			[]string{remove, "create router association of BGPVPN r"}},
		{"a second one", wanted(targeted), there(isTargeted, func(i *Inventory) {
			i.Put(vpn, Actual{ID: "id-zzz", Attributes: Attributes{}})
			i.Put(place, Associated("id-zzz", "id-r"))
		}), []string{remove, "delete BGPVPN r"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, c := range Plan(tc.want, tc.have) {
				got = append(got, fmt.Sprint([]string{"create", "update", "delete"}[c.Operation], " ", c.Ref))
			}
			if diff := cmp.Diff(tc.plan, got); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}
