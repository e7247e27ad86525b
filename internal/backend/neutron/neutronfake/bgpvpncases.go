// SPDX-License-Identifier: Apache-2.0

package neutronfake

import (
	"fmt"
	"strings"
)

// bgpvpnCases are of BGPVPNs, and leave nothing.
var bgpvpnCases = []Case{
	{"vpn of an unknown attribute", "POST", "bgpvpn/bgpvpns", `{"bgpvpn": {"project_id": "p", "bogus": 1}}`,
		400, "HTTPBadRequest", nil},
	{"vpn with tags", "POST", "bgpvpn/bgpvpns", `{"bgpvpn": {"project_id": "p", "tags": ["a"]}}`,
		400, "HTTPBadRequest", nil},
	{"vpn of no target", "POST", "bgpvpn/bgpvpns", `{"bgpvpn": {"project_id": "p", "import_targets": ["x"]}}`,
		400, "HTTPBadRequest", nil},
	{"vpn of no type", "POST", "bgpvpn/bgpvpns", `{"bgpvpn": {"project_id": "p", "type": "l4"}}`,
		400, "HTTPBadRequest", nil},
	{"vpn of one target twice", "POST", "bgpvpn/bgpvpns",
		`{"bgpvpn": {"project_id": "p", "route_targets": ["1:1", "1:1"]}}`,
		400, "HTTPBadRequest", nil},
	{"vpn of too many targets", "POST", "bgpvpn/bgpvpns",
		`{"bgpvpn": {"project_id": "p", "export_targets": [` + manyTargets(26) + `]}}`,
		500, "HTTPInternalServerError", nil},
	{"vpn of as many targets as fit", "POST", "bgpvpn/bgpvpns",
		`{"bgpvpn": {"project_id": "p", "export_targets": [` + manyTargets(25) + `]}}`,
		201, "", nil},
	{"vpn of as many targets as fit goes", "DELETE", "bgpvpn/bgpvpns/$vpn of as many targets as fit", "", 204, "", nil},
	{"vpn", "POST", "bgpvpn/bgpvpns",
		`{"bgpvpn": {"project_id": "p", "name": "v", "description": "d", "route_targets": ["64512:7"],
		"import_targets": ["192.0.2.1:65535"], "export_targets": ["4200000000:9"],
		"route_distinguishers": ["64512:8"]}}`,
		201, "", nil},
	{"other vpn", "POST", "bgpvpn/bgpvpns", `{"bgpvpn": {"project_id": "q", "name": "v"}}`, 201, "", nil},
	{"vpns of the project", "GET", "bgpvpn/bgpvpns?project_id=p", "", 200, "", []string{"vpn"}},
	{"vpns of a name", "GET", "bgpvpn/bgpvpns?project_id=p&name=v", "", 200, "", []string{"vpn"}},
	{"vpns of another name", "GET", "bgpvpn/bgpvpns?project_id=p&name=w", "", 200, "", nil},
	{"vpns of a description", "GET", "bgpvpn/bgpvpns?project_id=p&description=d", "", 200, "", nil},
	{"no vpn", "GET", "bgpvpn/bgpvpns/00000000-0000-0000-0000-000000000000", "", 404, "BGPVPNNotFound", nil},
	{"other targets", "PUT", "bgpvpn/bgpvpns/$vpn", `{"bgpvpn": {"route_targets": [], "import_targets": ["64512:9"]}}`,
		200, "", nil},
	{"other distinguisher", "PUT", "bgpvpn/bgpvpns/$vpn", `{"bgpvpn": {"route_distinguishers": ["64512:9"]}}`,
		200, "", nil},
	{"other type", "PUT", "bgpvpn/bgpvpns/$vpn", `{"bgpvpn": {"type": "l2"}}`, 400, "HTTPBadRequest", nil},
	{"routers by themselves", "PUT", "bgpvpn/bgpvpns/$vpn", `{"bgpvpn": {"routers": []}}`, 400, "HTTPBadRequest", nil},
	{"vpn to another project", "PUT", "bgpvpn/bgpvpns/$vpn", `{"bgpvpn": {"project_id": "q"}}`,
		400, "HTTPBadRequest", nil},
	{"member", "POST", "routers", `{"router": {"project_id": "p", "name": "member"}}`, 201, "", nil},
	{"place", "POST", "bgpvpn/bgpvpns/$vpn/router_associations",
		`{"router_association": {"project_id": "p", "router_id": "$member"}}`,
		201, "", nil},
	{"place again", "POST", "bgpvpn/bgpvpns/$vpn/router_associations",
		`{"router_association": {"project_id": "p", "router_id": "$member"}}`,
		400, "BGPVPNRouterAssocAlreadyExists", nil},
	{"place of an unknown attribute", "POST", "bgpvpn/bgpvpns/$vpn/router_associations",
		`{"router_association": {"project_id": "p",
		"router_id": "$member", "bogus": 1}}`, 400, "HTTPBadRequest", nil},
	{"place in another project's", "POST", "bgpvpn/bgpvpns/$other vpn/router_associations",
		`{"router_association": {"project_id": "q",
		"router_id": "$member"}}`, 403, "NotAuthorized", nil},
	{"place of another project", "POST", "bgpvpn/bgpvpns/$vpn/router_associations",
		`{"router_association": {"project_id": "q",
		"router_id": "$member"}}`, 403, "NotAuthorized", nil},
	{"place of no router", "POST", "bgpvpn/bgpvpns/$vpn/router_associations",
		`{"router_association": {"project_id": "p",
		"router_id": "00000000-0000-0000-0000-000000000000"}}`, 404, "RouterNotFound", nil},
	{"place in no vpn", "POST", "bgpvpn/bgpvpns/00000000-0000-0000-0000-000000000000/router_associations",
		`{"router_association": {
		"project_id": "p", "router_id": "$member"}}`, 404, "BGPVPNNotFound", nil},
	{"places", "GET", "bgpvpn/bgpvpns/$vpn/router_associations", "", 200, "", []string{"place"}},
	{"place goes", "DELETE", "bgpvpn/bgpvpns/$vpn/router_associations/$place", "", 204, "", nil},
	{"place is gone", "DELETE", "bgpvpn/bgpvpns/$vpn/router_associations/$place", "",
		404, "BGPVPNRouterAssocNotFound", nil},
	{"next place", "POST", "bgpvpn/bgpvpns/$vpn/router_associations",
		`{"router_association": {"project_id": "p", "router_id": "$member"}}`,
		201, "", nil},
	{"member goes with its place", "DELETE", "routers/$member", "", 204, "", nil},
	{"no places", "GET", "bgpvpn/bgpvpns/$vpn/router_associations", "", 200, "", nil},
	{"second member", "POST", "routers", `{"router": {"project_id": "p"}}`, 201, "", nil},
	{"level", "POST", "bgpvpn/bgpvpns", `{"bgpvpn": {"project_id": "p", "type": "l2"}}`, 201, "", nil},
	{"place in another type", "POST", "bgpvpn/bgpvpns/$level/router_associations",
		`{"router_association": {"project_id": "p",
		"router_id": "$second member"}}`, 400, "BadRequest", nil},
	{"level goes", "DELETE", "bgpvpn/bgpvpns/$level", "", 204, "", nil},
	{"last place", "POST", "bgpvpn/bgpvpns/$vpn/router_associations", `{"router_association": {"project_id": "p",
		"router_id": "$second member"}}`, 201, "", nil},
	{"vpn goes with its place", "DELETE", "bgpvpn/bgpvpns/$vpn", "", 204, "", nil},
	{"vpn is gone", "DELETE", "bgpvpn/bgpvpns/$vpn", "", 404, "BGPVPNNotFound", nil},
	{"second member goes", "DELETE", "routers/$second member", "", 204, "", nil},
	{"other vpn goes", "DELETE", "bgpvpn/bgpvpns/$other vpn", "", 204, "", nil},
}

// manyTargets are targets of 9 characters as JSON, each of which takes 10 with what is between
// them.
func manyTargets(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("%q", fmt.Sprint("64512:", 100+i))
	}
	return strings.Join(list, ", ")
}
