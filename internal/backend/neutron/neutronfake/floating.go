// SPDX-License-Identifier: Apache-2.0

package neutronfake

import (
	"net/http"
	"net/netip"
	"slices"
)

// free is an address of a subnet that nothing has.
func (n *Neutron) free(subnet object) string {
	cidr := netip.MustParsePrefix(subnet["cidr"].(string))
	for a := cidr.Addr().Next(); cidr.Contains(a); a = a.Next() {
		if text := a.String(); text != subnet["gateway_ip"] && !n.taken(subnet, text) && a != cidr.Addr().Next() {
			return text
		}
	}
	return ""
}

// taken reports whether a port, or a floating IP, has an address of a subnet.
func (n *Neutron) taken(subnet object, address string) bool {
	return slices.ContainsFunc(n.all["ports"], func(p object) bool {
		return slices.ContainsFunc(list(p["fixed_ips"]), func(ip any) bool {
			return ip.(object)["subnet_id"] == subnet["id"] && ip.(object)["ip_address"] == address
		})
	}) || slices.ContainsFunc(n.all["floatingips"], func(f object) bool {
		return f["floating_network_id"] == subnet["network_id"] && f["floating_ip_address"] == address
	})
}

// checkFloating wants an address of an external network, and a port that a router leads to.
func (n *Neutron) checkFloating(o object) *refused {
	if _, there := o["status"]; !there {
		if err := n.float(o); err != nil {
			return err
		}
	}
	if o["port_id"] == nil {
		o["fixed_ip_address"] = nil
		return nil
	}
	port := n.find("ports", o["port_id"])
	if port == nil {
		return refuse(http.StatusNotFound, "PortNotFound", "Port %v could not be found.", o["port_id"])
	}
	for _, other := range n.all["floatingips"] {
		if other["id"] != o["id"] && other["port_id"] == o["port_id"] {
			return refuse(http.StatusConflict, "FloatingIPPortAlreadyAssociated", "Cannot associate floating IP %v (%v) with port %v using "+
				"fixed IP, as that fixed IP already has a floating IP.", o["floating_ip_address"], o["id"], o["port_id"])
		}
	}
	for _, ip := range list(port["fixed_ips"]) {
		if n.leads(ip.(object)["subnet_id"], o["floating_network_id"]) {
			o["fixed_ip_address"] = ip.(object)["ip_address"]
			return nil
		}
	}
	return refuse(http.StatusNotFound, "ExternalGatewayForFloatingIPNotFound", "External network %v is not reachable from the port %v. "+
		"Therefore, cannot associate Port with a Floating IP.", o["floating_network_id"], o["port_id"])
}

// float gives a new floating IP its address.
func (n *Neutron) float(o object) *refused {
	network := n.find("networks", o["floating_network_id"])
	if network == nil || network["router:external"] != true {
		return refuse(http.StatusBadRequest, "BadRequest", "Bad floatingip request: Network %v is not a valid external network.",
			o["floating_network_id"])
	}
	o["status"] = "DOWN"
	text, _ := o["floating_ip_address"].(string)
	for _, subnet := range n.all["subnets"] {
		a, err := netip.ParseAddr(text)
		switch {
		case subnet["network_id"] != network["id"]:
		case text == "":
			o["floating_ip_address"] = n.free(subnet)
			return nil
		case err == nil && netip.MustParsePrefix(subnet["cidr"].(string)).Contains(a) && n.taken(subnet, text):
			return refuse(http.StatusConflict, "IpAddressAlreadyAllocated",
				"IP address %s already allocated in subnet %v", text, subnet["id"])
		case err == nil && netip.MustParsePrefix(subnet["cidr"].(string)).Contains(a):
			return nil
		}
	}
	return refuse(http.StatusBadRequest, "InvalidIpForNetwork", "IP address %s is not a valid IP for any of the subnets on the specified "+
		"network.", text)
}

// leads reports whether a subnet is on a router with a way out by an external network.
func (n *Neutron) leads(subnet, external any) bool {
	return slices.ContainsFunc(n.all["routers"], func(r object) bool {
		gateway, _ := r["external_gateway_info"].(object)
		on := func(ip any) bool { return ip.(object)["subnet_id"] == subnet }
		return gateway["network_id"] == external && slices.ContainsFunc(n.joined(r["id"]), func(p object) bool {
			return slices.ContainsFunc(list(p["fixed_ips"]), on)
		})
	})
}
