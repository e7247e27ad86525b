// SPDX-License-Identifier: Apache-2.0

package neutronfake

import (
	"net/http"
	"slices"
)

// subportOwner is the owner that ports on a trunk have.
const subportOwner = "trunk:subport"

// trunkOf is the trunk that a port is on; nil: none.
func (n *Neutron) trunkOf(port any) object {
	i := slices.IndexFunc(n.all["trunks"], func(t object) bool {
		return slices.ContainsFunc(list(t["sub_ports"]), func(p any) bool { return p.(object)["port_id"] == port })
	})
	if i < 0 {
		return nil
	}
	return n.all["trunks"][i]
}

// isParent reports whether a port is the parent of a trunk.
func (n *Neutron) isParent(port any) bool {
	return slices.ContainsFunc(n.all["trunks"], func(t object) bool { return t["port_id"] == port })
}

// checkTrunk wants a parent port that is on no other trunk.
func (n *Neutron) checkTrunk(o object) *refused {
	port := o["port_id"]
	if n.find("ports", port) == nil {
		return refuse(http.StatusNotFound, "PortNotFound", "Port %v could not be found.", port)
	}
	if n.trunkOf(port) != nil {
		return refuse(http.StatusConflict, "TrunkPortInUse", "Port %v is in use by another trunk.", port)
	}
	for _, t := range n.all["trunks"] {
		if t["port_id"] == port && t["id"] != o["id"] {
			return refuse(http.StatusConflict, "ParentPortInUse", "Port %v is currently in use and is not eligible for use as a parent "+
				"port.", port)
		}
	}
	return nil
}

// subports puts ports on a trunk, or takes them off it: all, or none.
func (n *Neutron) subports(id, action string, body object) (int, any, *refused) {
	t := n.find("trunks", id)
	if t == nil {
		return 0, nil, refuse(http.StatusNotFound, "TrunkNotFound", "Trunk %s could not be found.", id)
	}
	if t["admin_state_up"] == false {
		return 0, nil, refuse(http.StatusConflict, "TrunkDisabled", "Trunk %s is currently disabled.", id)
	}
	now := slices.Clone(list(t["sub_ports"]))
	owner := subportOwner
	for _, item := range list(body["sub_ports"]) {
		p := item.(object)
		at := slices.IndexFunc(now, func(other any) bool { return other.(object)["port_id"] == p["port_id"] })
		if action == "remove_subports" {
			if owner = ""; at < 0 {
				return 0, nil, refuse(http.StatusNotFound, "SubPortNotFound",
					"SubPort %v on trunk %s could not be found.", p["port_id"], id)
			}
			now = slices.Delete(now, at, at+1)
			continue
		}
		if err := n.checkSubport(t, p, now); err != nil {
			return 0, nil, err
		}
		now = append(now, p)
	}
	t["sub_ports"] = now
	for _, item := range list(body["sub_ports"]) {
		n.find("ports", item.(object)["port_id"])["device_owner"] = owner
	}
	return http.StatusOK, t, nil
}

// checkSubport says why a port cannot be put on a trunk that has others.
func (n *Neutron) checkSubport(t, p object, others []any) *refused {
	vlan, _ := p["segmentation_id"].(float64)
	port := n.find("ports", p["port_id"])
	switch {
	case p["segmentation_type"] != "vlan" || vlan < 1 || vlan > 4094:
		return refuse(http.StatusBadRequest, "InvalidInput", "Invalid input for operation: Segmentation ID '%v' is not in range.",
			p["segmentation_id"])
	case n.isParent(p["port_id"]):
		return refuse(http.StatusConflict, "ParentPortInUse",
			"Port %v is currently in use and is not eligible for use as a parent port.", p["port_id"])
	case n.trunkOf(p["port_id"]) != nil:
		return refuse(http.StatusConflict, "TrunkPortInUse", "Port %v is in use by another trunk.", p["port_id"])
	case port == nil:
		return refuse(http.StatusNotFound, "PortNotFound", "Port %v could not be found.", p["port_id"])
	case port["device_id"] != "":
		return refuse(http.StatusConflict, "PortInUse", "Unable to complete operation on port %v for network %v. Port already has an "+
			"attached device %v.", port["id"], port["network_id"], port["device_id"])
	case n.mtu(port) > n.mtu(n.find("ports", t["port_id"])):
		return refuse(http.StatusConflict, "SubPortMtuGreaterThanTrunkPortMtu", "MTU %v of subport %v cannot be greater than MTU of "+
			"trunk %v.", n.mtu(port), port["id"], t["id"])
	case slices.ContainsFunc(others, func(o any) bool {
		return o.(object)["segmentation_id"] == vlan
	}):
		return refuse(http.StatusConflict, "DuplicateSubPort", "segmentation_type vlan and segmentation_id %v already in use on trunk %v.",
			vlan, t["id"])
	}
	return nil
}

// mtu is that of a port's network.
func (n *Neutron) mtu(port object) float64 {
	mtu, _ := n.find("networks", port["network_id"])["mtu"].(float64)
	return mtu
}
