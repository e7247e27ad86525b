// SPDX-License-Identifier: Apache-2.0

package neutronfake

import (
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// collection is what there is to know of a kind of resources.
type collection struct {
	class, singular, plural string
	// attributes are those that a body may have, with their values if it does not.
	attributes object
	// fixed are those that cannot be changed.
	fixed []string
	// check says what is wrong with a new or a changed resource, which it completes.
	check func(*Neutron, object) *refused
}

// collections are those of the API, by path.
var collections map[string]*collection

func init() { //nolint:gochecknoinits // the checks refer to the collections
	collections = map[string]*collection{
		"networks": {
			class: "Network", singular: "network", plural: "networks", attributes: object{
				"name": "", "mtu": 1442, "admin_state_up": true, "provider:network_type": "geneve",
				"provider:physical_network": nil, "provider:segmentation_id": 1, "router:external": false,
			}, fixed: []string{"provider:network_type", "provider:physical_network", "provider:segmentation_id"},
		},
		"subnets": {
			class: "Subnet", singular: "subnet", plural: "subnets", attributes: object{
				"name": "", "network_id": nil, "cidr": nil, "ip_version": nil, "gateway_ip": nil, "enable_dhcp": true,
				"allocation_pools": []any{}, "dns_nameservers": []any{}, "ipv6_ra_mode": nil, "ipv6_address_mode": nil,
				"subnetpool_id": nil, "host_routes": []any{},
			}, fixed: []string{"network_id", "cidr", "ip_version", "subnetpool_id"}, check: (*Neutron).checkSubnet,
		},
		"subnetpools": {
			class: "SubnetPool", singular: "subnetpool", plural: "subnetpools", attributes: object{
				"name": "", "prefixes": []any{}, "default_prefixlen": nil, "min_prefixlen": nil, "max_prefixlen": nil,
				"shared": false,
			}, fixed: []string{"shared"}, check: (*Neutron).checkSubnetPool,
		},
		"ports": {
			class: "Port", singular: "port", plural: "ports", attributes: object{
				"name": "", "network_id": nil, "mac_address": nil, "fixed_ips": []any{}, "device_id": "",
				"device_owner":   "",
				"admin_state_up": true, "binding:host_id": "", "port_security_enabled": true,
				"security_groups":       []any{},
				"allowed_address_pairs": []any{},
			}, fixed: []string{"network_id"}, check: (*Neutron).checkPort,
		},
		"routers": {
			class: "Router", singular: "router", plural: "routers", attributes: object{
				"name": "", "admin_state_up": true, "external_gateway_info": nil, "routes": []any{},
			}, check: (*Neutron).checkRouter,
		},
		"security-groups": {
			class: "SecurityGroup", singular: "security_group", plural: "security_groups",
			attributes: object{"name": ""}, check: (*Neutron).checkGroup,
		},
		"security-group-rules": {
			class: "SecurityGroupRule", singular: "security_group_rule", plural: "security_group_rules",
			attributes: object{
				"security_group_id": nil, "direction": nil, "ethertype": "IPv4", "protocol": nil,
				"remote_ip_prefix": nil,
				"remote_group_id":  nil, "port_range_min": nil, "port_range_max": nil,
			}, check: (*Neutron).checkRule,
		},
		"trunks": {
			class: "Trunk", singular: "trunk", plural: "trunks",
			attributes: object{"name": "", "port_id": nil, "admin_state_up": true, "sub_ports": []any{}},
			fixed:      []string{"port_id", "sub_ports"}, check: (*Neutron).checkTrunk,
		},
		"bgpvpns": {
			class: "BGPVPN", singular: "bgpvpn", plural: "bgpvpns", attributes: object{
				"name": "", "type": "l3", "route_targets": []any{}, "import_targets": []any{},
				"export_targets": []any{}, "route_distinguishers": []any{},
			}, fixed: []string{"type"}, check: (*Neutron).checkBGPVPN,
		},
		"floatingips": {
			class: "FloatingIP", singular: "floatingip", plural: "floatingips", attributes: object{
				"floating_network_id": nil, "floating_ip_address": nil, "port_id": nil, "fixed_ip_address": nil,
			}, fixed: []string{"floating_network_id", "floating_ip_address"}, check: (*Neutron).checkFloating,
		},
	}
}

// post makes a resource, or several rules.
func (n *Neutron) post(c *collection, path string, body object) (int, any, *refused) {
	if several, ok := body[c.plural].([]any); ok && path == "security-group-rules" {
		return n.postRules(c, path, several)
	}
	given, ok := body[c.singular].(object)
	if !ok || len(body) != 1 {
		return 0, nil, refuse(http.StatusBadRequest, "HTTPBadRequest", "Unable to find '%s' in request body",
			c.singular)
	}
	o, err := n.make(c, path, given)
	return http.StatusCreated, object{c.singular: o}, err
}

func (n *Neutron) make(c *collection, path string, given object) (object, *refused) {
	o := clone(c.attributes)
	for name, value := range given {
		if _, known := c.attributes[name]; !known && name != "description" && name != "project_id" {
			return nil, refuse(http.StatusBadRequest, "HTTPBadRequest", "Unrecognized attribute(s) '%s'", name)
		}
		o[name] = value
	}
	if quota, bounded := n.quotas[path]; bounded && n.count(path, o["project_id"]) >= quota {
		return nil, refuse(http.StatusConflict, "OverQuota", "Quota exceeded for resources: ['%s'].", c.singular)
	}
	const rules = "security-group-rules"
	if quota, bounded := n.quotas[rules]; bounded && path == "security-groups" &&
		n.count(rules, o["project_id"])+2 > quota {
		return nil, refuse(http.StatusConflict, "OverQuota", "Quota exceeded for resources: ['security_group_rule'].")
	}
	n.numbers++
	o["id"], o["created_at"] = uuid(n.numbers), fmt.Sprintf("2026-01-01T%09d", n.numbers)
	if c.check != nil {
		if err := c.check(n, o); err != nil {
			return nil, err
		}
	}
	n.all[path] = append(n.all[path], o)
	if path == "security-groups" {
		n.giveRules(o)
		return n.withItsRules(o), nil
	}
	return o, nil
}

// count is how many resources of a collection a project has.
func (n *Neutron) count(path string, project any) (count int) {
	for _, o := range n.all[path] {
		if o["project_id"] == project {
			count++
		}
	}
	return count
}

// changed is a resource with changes.
func (n *Neutron) changed(c *collection, path string, o, changes object) (object, *refused) {
	now := clone(o)
	for name, value := range changes {
		if _, known := c.attributes[name]; !known && name != "description" || slices.Contains(c.fixed, name) ||
			path == "security-group-rules" {
			return nil, refuse(http.StatusBadRequest, "HTTPBadRequest", "Cannot update read-only attribute %s", name)
		}
		now[name] = value
	}
	if c.check != nil {
		if err := c.check(n, now); err != nil {
			return nil, err
		}
	}
	return now, nil
}

func (n *Neutron) find(path string, id any) object {
	all := n.all[path]
	// With thousands of ports, where one was the last time spares looking at all of them.
	if i, ok := n.found[id]; ok && i < len(all) && all[i]["id"] == id {
		return all[i]
	}
	i := slices.IndexFunc(all, func(o object) bool { return o["id"] == id })
	if i < 0 {
		return nil
	}
	n.found[id] = i
	return all[i]
}

func (n *Neutron) checkSubnet(o object) *refused {
	if n.find("networks", o["network_id"]) == nil {
		return refuse(http.StatusNotFound, "NetworkNotFound", "Network %v could not be found.", o["network_id"])
	}
	text, _ := o["cidr"].(string)
	cidr, err := netip.ParsePrefix(text)
	if err != nil {
		return refuse(http.StatusBadRequest, "HTTPBadRequest", "Invalid input for cidr. Reason: '%s' is not a valid IP subnet.", text)
	}
	for _, other := range n.all["subnets"] {
		if other["network_id"] == o["network_id"] && other["id"] != o["id"] &&
			netip.MustParsePrefix(other["cidr"].(string)).Overlaps(cidr) {
			return refuse(http.StatusBadRequest, "InvalidInput", "Invalid input for operation: Requested subnet with cidr: %s "+
				"for network: %v overlaps with another subnet.", text, o["network_id"])
		}
	}
	return n.checkAllocation(o, cidr)
}

func (n *Neutron) checkPort(o object) *refused {
	if n.find("networks", o["network_id"]) == nil {
		return refuse(http.StatusNotFound, "NetworkNotFound", "Network %v could not be found.", o["network_id"])
	}
	groups := list(o["security_groups"])
	if len(groups) > 0 && o["port_security_enabled"] == false {
		return refuse(http.StatusBadRequest, "PortSecurityAndIPRequiredForSecurityGroups",
			"Port security must be enabled and port must have an IP address in order to use security groups.")
	}
	for _, g := range groups {
		if n.find("security-groups", g) == nil {
			return refuse(http.StatusNotFound, "SecurityGroupNotFound", "Security group %v does not exist", g)
		}
	}
	for _, ip := range list(o["fixed_ips"]) {
		if err := n.checkAddress(o, ip.(object)); err != nil {
			return err
		}
	}
	if o["mac_address"] == nil {
		o["mac_address"] = fmt.Sprintf("fa:16:3e:%02x:%02x:%02x", n.numbers>>16&0xff, n.numbers>>8&0xff, n.numbers&0xff)
	}
	for _, other := range n.all["ports"] {
		if other["mac_address"] == o["mac_address"] && other["network_id"] == o["network_id"] &&
			other["id"] != o["id"] {
			return refuse(http.StatusConflict, "MacAddressInUse", "Unable to complete operation for network %v. The mac address %v "+
				"is in use.", o["network_id"], o["mac_address"])
		}
	}
	return nil
}

func (n *Neutron) checkAddress(o, ip object) *refused {
	subnet := n.find("subnets", ip["subnet_id"])
	if subnet == nil || subnet["network_id"] != o["network_id"] {
		return refuse(http.StatusBadRequest, "InvalidInput", "Invalid input for operation: IP address %v is not a valid IP for the "+
			"specified subnet.", ip["ip_address"])
	}
	if ip["ip_address"] == nil {
		ip["ip_address"] = n.free(subnet)
	}
	text, _ := ip["ip_address"].(string)
	a, err := netip.ParseAddr(text)
	if err != nil || !netip.MustParsePrefix(subnet["cidr"].(string)).Contains(a) {
		return refuse(http.StatusBadRequest, "InvalidIpForSubnet", "IP address %s is not a valid IP for the specified subnet.", text)
	}
	for _, other := range n.all["ports"] {
		for _, taken := range list(other["fixed_ips"]) {
			if other["id"] != o["id"] && taken.(object)["subnet_id"] == subnet["id"] &&
				taken.(object)["ip_address"] == text {
				return refuse(http.StatusConflict, "IpAddressAlreadyAllocated",
					"IP address %s already allocated in subnet %v", text,
					subnet["id"])
			}
		}
	}
	return nil
}

// checkRouter wants the next hops of routes on a subnet of the router.
func (n *Neutron) checkRouter(o object) *refused {
	for _, route := range list(o["routes"]) {
		hop, _ := route.(object)["nexthop"].(string)
		a, err := netip.ParseAddr(hop)
		if err != nil || !slices.ContainsFunc(n.joined(o["id"]), func(p object) bool {
			subnet := n.find("subnets", list(p["fixed_ips"])[0].(object)["subnet_id"])
			return netip.MustParsePrefix(subnet["cidr"].(string)).Contains(a)
		}) {
			return refuse(http.StatusBadRequest, "InvalidRoutes", "Invalid format for routes: [%v], the nexthop is not connected with "+
				"router", route)
		}
	}
	return nil
}

const interfaceOwner = "network:router_interface"

// joined are the ports of a router's interfaces.
func (n *Neutron) joined(router any) (ports []object) {
	for _, p := range n.all["ports"] {
		if p["device_owner"] == interfaceOwner && p["device_id"] == router {
			ports = append(ports, p)
		}
	}
	return ports
}

// interfaces adds a subnet to a router, or removes it.
func (n *Neutron) interfaces(router, action string, body object) (int, any, *refused) {
	r, subnet := n.find("routers", router), n.find("subnets", body["subnet_id"])
	if r == nil {
		return 0, nil, refuse(http.StatusNotFound, "RouterNotFound", "Router %s could not be found", router)
	}
	if body["port_id"] != nil { // a port with an address that is made for the router
		p := n.find("ports", body["port_id"])
		if p == nil {
			return 0, nil, refuse(http.StatusNotFound, "PortNotFound", "Port %v could not be found.", body["port_id"])
		}
		p["device_owner"], p["device_id"] = interfaceOwner, router
		return http.StatusOK, object{"id": router, "port_id": p["id"]}, nil
	}
	if subnet == nil {
		return 0, nil, refuse(http.StatusNotFound, "SubnetNotFound", "Subnet %v could not be found.", body["subnet_id"])
	}
	ports := n.joined(router)
	on := func(ip any) bool { return ip.(object)["subnet_id"] == subnet["id"] }
	i := slices.IndexFunc(ports, func(p object) bool { return slices.ContainsFunc(list(p["fixed_ips"]), on) })
	if action == "remove_router_interface" {
		if i < 0 {
			return 0, nil, refuse(http.StatusNotFound, "RouterInterfaceNotFoundForSubnet",
				"Router %s has no interface on subnet %v",
				router, subnet["id"])
		}
		cidr := netip.MustParsePrefix(subnet["cidr"].(string))
		for _, route := range list(r["routes"]) {
			if hop, err := netip.ParseAddr(fmt.Sprint(route.(object)["nexthop"])); err == nil && cidr.Contains(hop) {
				return 0, nil, refuse(http.StatusConflict, "RouterInterfaceInUseByRoute",
					"Router interface for subnet %v on router %s "+
						"cannot be deleted, as it is required by one or more routes.", subnet["id"], router)
			}
		}
		if left := slices.DeleteFunc(list(ports[i]["fixed_ips"]), on); len(left) > 0 {
			ports[i]["fixed_ips"] = left
			return http.StatusOK, object{"id": router, "subnet_id": subnet["id"]}, nil
		}
		n.all["ports"] = slices.DeleteFunc(n.all["ports"], func(p object) bool { return p["id"] == ports[i]["id"] })
		return http.StatusOK, object{"id": router, "subnet_id": subnet["id"]}, nil
	}
	if i >= 0 {
		return 0, nil, refuse(http.StatusBadRequest, "BadRequest", "Bad router request: Router already has a port on subnet %v.",
			subnet["id"])
	}
	// IPv6 subnets of one network share a port.
	address := object{"subnet_id": subnet["id"], "ip_address": subnet["gateway_ip"]}
	for _, p := range ports {
		first, _ := list(p["fixed_ips"])[0].(object)["ip_address"].(string)
		if p["network_id"] == subnet["network_id"] && strings.Contains(first, ":") &&
			fmt.Sprint(subnet["ip_version"]) == "6" {
			p["fixed_ips"] = append(list(p["fixed_ips"]), address)
			return http.StatusOK, object{"id": router, "subnet_id": subnet["id"], "port_id": p["id"]}, nil
		}
	}
	p, err := n.make(collections["ports"], "ports", object{
		"network_id": subnet["network_id"], "device_id": router, "device_owner": interfaceOwner,
		"project_id": r["project_id"],
		"fixed_ips":  []any{address},
	})
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, object{"id": router, "subnet_id": subnet["id"], "port_id": p["id"]}, nil
}

// unused says what keeps a resource from being deleted.
func (n *Neutron) unused(path string, o object) *refused {
	id := o["id"]
	ports := func(uses func(object) bool) bool { return slices.ContainsFunc(n.all["ports"], uses) }
	switch {
	case path == "networks" && ports(func(p object) bool { return p["network_id"] == id }):
		return refuse(http.StatusConflict, "NetworkInUse", "Unable to complete operation on network %v. There are one or more ports "+
			"still in use on the network.", id)
	case path == "subnets" && ports(func(p object) bool {
		return slices.ContainsFunc(list(p["fixed_ips"]), func(ip any) bool { return ip.(object)["subnet_id"] == id })
	}):
		return refuse(http.StatusConflict, "SubnetInUse", "Unable to complete operation on subnet %v: One or more ports have an IP "+
			"allocation from this subnet.", id)
	case path == "subnetpools" &&
		slices.ContainsFunc(n.all["subnets"], func(s object) bool { return s["subnetpool_id"] == id }):
		return refuse(http.StatusBadRequest, "SubnetPoolDeleteError", "Unable to delete subnet pool: Subnet pool has existing "+
			"allocations.")
	case path == "routers" && len(n.joined(id)) > 0:
		return refuse(http.StatusConflict, "RouterInUse", "Router %v still has ports", id)
	case path == "security-groups" && ports(func(p object) bool { return slices.Contains(list(p["security_groups"]), id) }):
		return refuse(http.StatusConflict, "SecurityGroupInUse", "Security Group %v in use.", id)
	case path == "ports" && n.trunkOf(id) != nil:
		return refuse(http.StatusConflict, "PortInUseAsSubPort", "Port %v is currently a subport for trunk %v.", id,
			n.trunkOf(id)["id"])
	case path == "ports" && n.isParent(id):
		return refuse(http.StatusConflict, "PortInUseAsTrunkParent",
			"Port %v is currently a parent port for a trunk.", id)
	case path == "ports" && strings.HasPrefix(fmt.Sprint(o["device_owner"]), "network:"):
		return refuse(http.StatusConflict, "ServicePortInUse", "Port %v cannot be deleted directly via the port API: has device owner "+
			"%v.", id, o["device_owner"])
	}
	return nil
}

// removed takes away what goes with a resource.
func (n *Neutron) removed(path string, o object) {
	with := map[string]map[string]string{
		"networks": {"subnets": "network_id"}, "security-groups": {"security-group-rules": "security_group_id"},
	}[path]
	for _, f := range n.all["floatingips"] {
		if path == "ports" && f["port_id"] == o["id"] {
			f["port_id"], f["fixed_ip_address"] = nil, nil
		}
	}
	if path == "routers" || path == "bgpvpns" {
		n.dissociate(func(a object) bool { return a["router_id"] == o["id"] || a["bgpvpn_id"] == o["id"] })
	}
	if path == "trunks" {
		for _, p := range list(o["sub_ports"]) {
			n.find("ports", p.(object)["port_id"])["device_owner"] = ""
		}
	}
	for other, attribute := range maps.All(with) {
		n.all[other] = slices.DeleteFunc(n.all[other], func(p object) bool {
			return p[attribute] == o["id"] || path == "security-groups" && p["remote_group_id"] == o["id"]
		})
	}
}

func list(value any) []any {
	l, _ := value.([]any)
	return l
}

func uuid(number int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", number) }
