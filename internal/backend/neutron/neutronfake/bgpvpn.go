// SPDX-License-Identifier: Apache-2.0

package neutronfake

import (
	"net/http"
	"regexp"
	"slices"
)

// bgpvpnPrefix begins the paths of BGPVPNs.
const bgpvpnPrefix = "bgpvpn/"

// targetLists are the attributes of a BGPVPN that are lists of targets or distinguishers.
var targetLists = []string{"route_targets", "import_targets", "export_targets", "route_distinguishers"}

// maxTargets is how many characters such a list has in the database.
const maxTargets = 255

var targetForm = regexp.MustCompile(`^(0|[1-9]\d*|\d+\.\d+\.\d+\.\d+):(0|[1-9]\d*)$`)

// checkBGPVPN reads the lists of targets. What a body says as the description is lost.
func (n *Neutron) checkBGPVPN(o object) *refused {
	if o["type"] != "l2" && o["type"] != "l3" {
		return refuse(http.StatusBadRequest, "HTTPBadRequest", "Invalid input for type. Reason: %v is not in valid_values.", o["type"])
	}
	for _, name := range targetLists {
		length, seen := -1, map[any]bool{}
		for _, item := range list(o[name]) {
			text, _ := item.(string)
			if !targetForm.MatchString(text) {
				return refuse(http.StatusBadRequest, "HTTPBadRequest", "Invalid input for %s. Reason: '%v' is not a valid input.", name,
					item)
			}
			if seen[item] {
				return refuse(http.StatusBadRequest, "HTTPBadRequest", "Invalid input for %s. Reason: Duplicate items in the list: '%v'.",
					name, item)
			}
			seen[item] = true
			length += len(text) + 1
		}
		if length > maxTargets {
			return refuse(http.StatusInternalServerError, "HTTPInternalServerError",
				"Request Failed: internal server error while processing your request.")
		}
	}
	if _, there := o["routers"]; !there {
		o["routers"], o["networks"] = []any{}, []any{}
	}
	delete(o, "description")
	delete(o, "created_at")
	return nil
}

// forbidden says that the policy lets administrators alone change BGPVPNs.
func (n *Neutron) forbidden(r *http.Request, bgpvpn bool) *refused {
	if !n.bgpvpnsForbidden || !bgpvpn || r.Method == http.MethodGet {
		return nil
	}
	return refuse(http.StatusForbidden, "HTTPForbidden", "rule:%s_bgpvpn is disallowed by policy",
		map[string]string{http.MethodPost: "create", http.MethodPut: "update", http.MethodDelete: "delete"}[r.Method])
}

// associations are the places of routers in a BGPVPN.
func (n *Neutron) associations(method, vpn string, id []string, body object) (int, any, *refused) {
	const collection = "router_associations"
	v := n.find("bgpvpns", vpn)
	if v == nil {
		return 0, nil, refuse(http.StatusNotFound, "BGPVPNNotFound", "BGPVPN %s could not be found", vpn)
	}
	own := slices.DeleteFunc(slices.Clone(n.all[collection]), func(a object) bool { return a["bgpvpn_id"] != vpn })
	if method == http.MethodGet && len(id) == 0 {
		return http.StatusOK, object{collection: own}, nil
	}
	if method == http.MethodPost && len(id) == 0 {
		return n.associate(v, body)
	}
	if len(id) != 1 || !slices.ContainsFunc(own, func(a object) bool { return a["id"] == id[0] }) {
		return 0, nil, refuse(http.StatusNotFound, "BGPVPNRouterAssocNotFound",
			"BGPVPN router association %s could not be found for BGPVPN %s", id, vpn)
	}
	n.dissociate(func(a object) bool { return a["id"] == id[0] })
	return http.StatusNoContent, nil, nil
}

// associate wants a router of the BGPVPN's project.
func (n *Neutron) associate(v, body object) (int, any, *refused) {
	given, _ := body["router_association"].(object)
	for name := range given {
		if name != "router_id" && name != "project_id" {
			return 0, nil, refuse(http.StatusBadRequest, "HTTPBadRequest", "Unrecognized attribute(s) '%s'", name)
		}
	}
	router := n.find("routers", given["router_id"])
	switch {
	case router == nil:
		return 0, nil, refuse(http.StatusNotFound, "RouterNotFound", "Router %v could not be found", given["router_id"])
	case v["type"] != "l3":
		return 0, nil, refuse(http.StatusBadRequest, "BadRequest", "Bad bgpvpn request: Router associations require the bgpvpn to be of "+
			"type l3.")
	case router["project_id"] != v["project_id"] || given["project_id"] != v["project_id"]:
		return 0, nil, refuse(http.StatusForbidden, "NotAuthorized", "Not authorized.")
	case slices.Contains(list(v["routers"]), router["id"]):
		return 0, nil, refuse(http.StatusBadRequest, "BGPVPNRouterAssocAlreadyExists",
			"router %v is already associated to BGPVPN %v", router["id"], v["id"])
	}
	n.numbers++
	a := object{
		"id": uuid(n.numbers), "bgpvpn_id": v["id"], "router_id": router["id"], "project_id": given["project_id"],
	}
	n.all["router_associations"] = append(n.all["router_associations"], a)
	v["routers"] = append(list(v["routers"]), router["id"])
	return http.StatusCreated, object{"router_association": a}, nil
}

// dissociate removes places of routers. Those of a router, and of a BGPVPN, go with it.
func (n *Neutron) dissociate(which func(object) bool) {
	for _, a := range n.all["router_associations"] {
		if v := n.find("bgpvpns", a["bgpvpn_id"]); v != nil && which(a) {
			v["routers"] = slices.DeleteFunc(list(v["routers"]), func(id any) bool { return id == a["router_id"] })
		}
	}
	n.all["router_associations"] = slices.DeleteFunc(n.all["router_associations"], which)
}

// shown is a resource as its reader may see it.
func (n *Neutron) shown(collection string, o object) object {
	if collection != "bgpvpns" || !n.bgpvpnsForbidden {
		return o
	}
	o = clone(o)
	for _, name := range append([]string{"project_id"}, targetLists...) {
		delete(o, name)
	}
	return o
}

// NoBGPVPNs has there be no extension of that name.
func (n *Neutron) NoBGPVPNs(missing bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.noBGPVPNs = missing
}

// ForbidBGPVPNs has the policy be that of a user that is no administrator, or not.
func (n *Neutron) ForbidBGPVPNs(forbidden bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.bgpvpnsForbidden = forbidden
}
