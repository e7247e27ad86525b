// SPDX-License-Identifier: Apache-2.0

package neutronfake

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"testing"
)

// Case is a call, and what a Neutron answers.
type Case struct {
	Name         string
	Method, Path string
	// Body is JSON. $NAME in it and in Path stands for the id of what the case NAME has made.
	Body   string
	Status int
	Kind   string // of the error
	// Lists are the names of the cases that have made what the answer lists.
	Lists []string
}

// Cases build on each other. They hold for the fake and for the real one.
var Cases = slices.Concat(ownCases, trunkCases, bgpvpnCases, subnetPoolCases, projectCases, lastCases)

var ownCases = []Case{
	{"unknown attribute", "POST", "networks", `{"network": {"project_id": "p", "bogus": 1}}`,
		400, "HTTPBadRequest", nil},
	{"tags of a new network", "POST", "networks", `{"network": {"project_id": "p", "tags": ["a"]}}`,
		400, "HTTPBadRequest", nil},
	{"net", "POST", "networks", `{"network": {"project_id": "p", "name": "n", "description": "d"}}`, 201, "", nil},
	{"tag", "PUT", "networks/$net/tags/blue", "", 201, "", nil},
	{"tag of no network", "PUT", "networks/none/tags/blue", "", 404, "TagResourceNotFound", nil},
	{"with the tag", "GET", "networks?project_id=p&tags=blue", "", 200, "", []string{"net"}},
	{"with another tag", "GET", "networks?project_id=p&tags=red", "", 200, "", []string{}},
	{"no network", "GET", "networks/none", "", 404, "NetworkNotFound", nil},
	{"sub", "POST", "subnets", `{"subnet": {"project_id": "p", "network_id": "$net", "cidr": "10.90.0.0/24", "ip_version": 4,
		"gateway_ip": "10.90.0.1", "enable_dhcp": false}}`, 201, "", nil},
	{"overlapping subnet", "POST", "subnets", `{"subnet": {"project_id": "p", "network_id": "$net", "cidr": "10.90.0.0/25",
		"ip_version": 4}}`, 400, "InvalidInput", nil},
	{"subnet without network", "POST", "subnets", `{"subnet": {"project_id": "p", "network_id":
		"00000000-0000-0000-0000-000000000000", "cidr": "10.91.0.0/24", "ip_version": 4}}`,
		404, "NetworkNotFound", nil},
	{"other cidr", "PUT", "subnets/$sub", `{"subnet": {"cidr": "10.92.0.0/24"}}`, 400, "HTTPBadRequest", nil},
	{"port", "POST", "ports", `{"port": {"project_id": "p", "network_id": "$net", "mac_address": "0a:58:0a:5a:00:07",
		"fixed_ips": [{"subnet_id": "$sub", "ip_address": "10.90.0.7"}], "device_owner": "compute:kuryr"}}`,
		201, "", nil},
	{"address in use", "POST", "ports", `{"port": {"project_id": "p", "network_id": "$net",
		"fixed_ips": [{"subnet_id": "$sub", "ip_address": "10.90.0.7"}]}}`, 409, "IpAddressAlreadyAllocated", nil},
	{"MAC in use", "POST", "ports", `{"port": {"project_id": "p", "network_id": "$net", "mac_address": "0a:58:0a:5a:00:07",
		"fixed_ips": [{"subnet_id": "$sub", "ip_address": "10.90.0.8"}]}}`, 409, "MacAddressInUse", nil},
	{"address elsewhere", "POST", "ports", `{"port": {"project_id": "p", "network_id": "$net",
		"fixed_ips": [{"subnet_id": "$sub", "ip_address": "10.99.0.8"}]}}`, 400, "InvalidIpForSubnet", nil},
	{"other network", "PUT", "ports/$port", `{"port": {"network_id": "$net"}}`, 400, "HTTPBadRequest", nil},
	{"network in use", "DELETE", "networks/$net", "", 409, "NetworkInUse", nil},
	{"subnet in use", "DELETE", "subnets/$sub", "", 409, "SubnetInUse", nil},
	{"router", "POST", "routers", `{"router": {"project_id": "p", "name": "r"}}`, 201, "", nil},
	{"sub6", "POST", "subnets", `{"subnet": {"project_id": "p", "network_id": "$net", "cidr": "fd00:90::/64", "ip_version": 6,
		"gateway_ip": "fd00:90::1", "enable_dhcp": false}}`, 201, "", nil},
	{"sub6b", "POST", "subnets", `{"subnet": {"project_id": "p", "network_id": "$net", "cidr": "fd00:91::/64", "ip_version": 6,
		"gateway_ip": "fd00:91::1", "enable_dhcp": false}}`, 201, "", nil},
	{"join6", "PUT", "routers/$router/add_router_interface", `{"subnet_id": "$sub6"}`, 200, "", nil},
	{"join6b", "PUT", "routers/$router/add_router_interface", `{"subnet_id": "$sub6b"}`, 200, "", nil},
	{"join6b again", "PUT", "routers/$router/add_router_interface", `{"subnet_id": "$sub6b"}`, 400, "BadRequest", nil},
	{"leave6", "PUT", "routers/$router/remove_router_interface", `{"subnet_id": "$sub6"}`, 200, "", nil},
	{"leave6b", "PUT", "routers/$router/remove_router_interface", `{"subnet_id": "$sub6b"}`, 200, "", nil},
	{"leave6b again", "PUT", "routers/$router/remove_router_interface", `{"subnet_id": "$sub6b"}`,
		404, "RouterInterfaceNotFoundForSubnet", nil},
	{"next hop elsewhere", "PUT", "routers/$router", `{"router": {"routes": [{"destination": "10.99.0.0/24",
		"nexthop": "10.90.0.7"}]}}`, 400, "InvalidRoutes", nil},
	{"join", "PUT", "routers/$router/add_router_interface", `{"subnet_id": "$sub"}`, 200, "", nil},
	{"join again", "PUT", "routers/$router/add_router_interface", `{"subnet_id": "$sub"}`, 400, "BadRequest", nil},
	{"routes", "PUT", "routers/$router", `{"router": {"routes": [{"destination": "10.99.0.0/24", "nexthop": "10.90.0.7"}]}}`, 200, "", nil},
	{"interface in use", "PUT", "routers/$router/remove_router_interface", `{"subnet_id": "$sub"}`,
		409, "RouterInterfaceInUseByRoute", nil},
	{"router in use", "DELETE", "routers/$router", "", 409, "RouterInUse", nil},
	{"no routes", "PUT", "routers/$router", `{"router": {"routes": []}}`, 200, "", nil},
	{"leave", "PUT", "routers/$router/remove_router_interface", `{"subnet_id": "$sub"}`, 200, "", nil},
	{"leave again", "PUT", "routers/$router/remove_router_interface", `{"subnet_id": "$sub"}`,
		404, "RouterInterfaceNotFoundForSubnet", nil},
	{"way", "POST", "ports", `{"port": {"project_id": "p", "network_id": "$net",
		"fixed_ips": [{"subnet_id": "$sub", "ip_address": "10.90.0.77"}]}}`, 201, "", nil},
	{"join by a port", "PUT", "routers/$router/add_router_interface", `{"port_id": "$way"}`, 200, "", nil},
	{"leave by a port", "PUT", "routers/$router/remove_router_interface", `{"subnet_id": "$sub"}`, 200, "", nil},
	{"way is gone", "DELETE", "ports/$way", "", 404, "PortNotFound", nil},
	{"routes of hosts", "PUT", "subnets/$sub", `{"subnet": {"host_routes": [{"destination": "10.0.0.0/8",
		"nexthop": "10.90.0.77"}]}}`, 200, "", nil},
	{"no routes of hosts", "PUT", "subnets/$sub", `{"subnet": {"host_routes": []}}`, 200, "", nil},
	{"router goes", "DELETE", "routers/$router", "", 204, "", nil},
	{"group", "POST", "security-groups", `{"security_group": {"project_id": "p", "name": "g"}}`, 201, "", nil},
	{"group named default", "POST", "security-groups", `{"security_group": {"project_id": "p", "name": "default"}}`, 409, "SecurityGroupDefaultAlreadyExists", nil},
	{"peers", "POST", "security-groups", `{"security_group": {"project_id": "p", "name": "peers", "description": "d"}}`, 201, "", nil},
	{"rule that a new group has", "POST", "security-group-rules", `{"security_group_rule": {"project_id": "p", "security_group_id": "$group",
		"direction": "egress", "ethertype": "IPv4"}}`, 409, "SecurityGroupRuleExists", nil},
	{"rule", "POST", "security-group-rules", `{"security_group_rule": {"project_id": "p", "security_group_id": "$group",
		"direction": "ingress", "ethertype": "IPv4", "description": "d"}}`, 201, "", nil},
	{"rule again", "POST", "security-group-rules", `{"security_group_rule": {"project_id": "p", "security_group_id": "$group",
		"direction": "ingress", "ethertype": "IPv4"}}`, 409, "SecurityGroupRuleExists", nil},
	{"rule of all addresses", "POST", "security-group-rules", `{"security_group_rule": {"project_id": "p", "security_group_id": "$group",
		"direction": "ingress", "ethertype": "IPv4", "remote_ip_prefix": "0.0.0.0/0"}}`,
		409, "SecurityGroupRuleExists", nil},
	{"rule of members", "POST", "security-group-rules", `{"security_group_rule": {"project_id": "p", "security_group_id": "$group",
		"direction": "ingress", "ethertype": "IPv4", "protocol": "tcp", "port_range_min": 80,
		"port_range_max": 81, "remote_group_id": "$peers"}}`, 201, "", nil},
	{"rule of a prefix", "POST", "security-group-rules", `{"security_group_rule": {"project_id": "p", "security_group_id": "$group",
		"direction": "egress", "ethertype": "IPv6", "protocol": "sctp", "remote_ip_prefix": "fd00::/16"}}`,
		201, "", nil},
	{"rule of an address in ::/96", "POST", "security-group-rules", `{"security_group_rule": {"project_id": "p", "security_group_id": "$group",
		"direction": "egress", "ethertype": "IPv6", "remote_ip_prefix": "::a00:1/128"}}`, 201, "", nil},
	{"it is written otherwise", "GET", "security-group-rules?remote_ip_prefix=::10.0.0.1/128", "", 200, "", []string{"rule of an address in ::/96"}},
	{"rule of a protocol by its number", "POST", "security-group-rules", `{"security_group_rule": {"project_id": "p", "security_group_id": "$group",
		"direction": "ingress", "ethertype": "IPv4", "protocol": "47"}}`, 201, "", nil},
	{"rule of a type of ICMP", "POST", "security-group-rules", `{"security_group_rule": {"project_id": "p", "security_group_id": "$group",
		"direction": "ingress", "ethertype": "IPv6", "protocol": "ipv6-icmp", "port_range_min": 128}}`, 201, "", nil},
	{"rule of a code of ICMP alone", "POST", "security-group-rules", `{"security_group_rule": {"project_id": "p", "security_group_id": "$group",
		"direction": "ingress", "ethertype": "IPv4", "protocol": "icmp", "port_range_max": 1}}`,
		400, "SecurityGroupMissingIcmpType", nil},
	{"rule of the other ICMP", "POST", "security-group-rules", `{"security_group_rule": {"project_id": "p", "security_group_id": "$group",
		"direction": "ingress", "ethertype": "IPv4", "protocol": "ipv6-icmp"}}`,
		400, "SecurityGroupEthertypeConflictWithProtocol", nil},
	{"rule of both", "POST", "security-group-rules", `{"security_group_rule": {"project_id": "p", "security_group_id": "$group",
		"direction": "ingress", "ethertype": "IPv4", "remote_group_id": "$peers",
		"remote_ip_prefix": "10.0.0.0/8"}}`, 400, "SecurityGroupMultipleRemoteEntites", nil},
	{"rule of no group", "POST", "security-group-rules", `{"security_group_rule": {"project_id": "p", "security_group_id": "$group",
		"direction": "ingress", "ethertype": "IPv4",
		"remote_group_id": "00000000-0000-0000-0000-000000000000"}}`, 404, "SecurityGroupNotFound", nil},
	{"rule of the other family", "POST", "security-group-rules", `{"security_group_rule": {"project_id": "p", "security_group_id": "$group",
		"direction": "ingress", "ethertype": "IPv6", "remote_ip_prefix": "10.0.0.0/8"}}`,
		400, "SecurityGroupRuleParameterConflict", nil},
	{"rule of port 0", "POST", "security-group-rules", `{"security_group_rule": {"project_id": "p", "security_group_id": "$group",
		"direction": "ingress", "ethertype": "IPv4", "protocol": "tcp", "port_range_min": 0,
		"port_range_max": 80}}`, 400, "SecurityGroupInvalidPortValue", nil},
	{"rule of ports of no protocol", "POST", "security-group-rules", `{"security_group_rule": {"project_id": "p", "security_group_id": "$group",
		"direction": "ingress", "ethertype": "IPv4", "port_range_min": 80, "port_range_max": 80}}`,
		400, "SecurityGroupProtocolRequiredWithPorts", nil},
	{"rule of ports of another protocol", "POST", "security-group-rules", `{"security_group_rule": {"project_id": "p", "security_group_id": "$group",
		"direction": "ingress", "ethertype": "IPv4", "protocol": "47", "port_range_min": 80,
		"port_range_max": 80}}`, 400, "SecurityGroupInvalidProtocolForPort", nil},
	{"other rule", "PUT", "security-group-rules/$rule", `{"security_group_rule": {"direction": "egress"}}`,
		400, "HTTPBadRequest", nil},
	{"rule of members goes", "DELETE", "security-group-rules/$rule of members", "", 204, "", nil},
	{"rule of members is gone", "DELETE", "security-group-rules/$rule of members", "",
		404, "SecurityGroupRuleNotFound", nil},
	{"two rules", "POST", "security-group-rules", `{"security_group_rules": [{"project_id": "p", "security_group_id": "$peers",
		"direction": "ingress", "ethertype": "IPv4", "protocol": "tcp", "port_range_min": 80, "port_range_max": 80},
		{"project_id": "p", "security_group_id": "$peers", "direction": "ingress", "ethertype": "IPv6"}]}`,
		201, "", nil},
	{"two rules of which there is one", "POST", "security-group-rules", `{"security_group_rules": [{"project_id": "p", "security_group_id": "$peers",
		"direction": "ingress", "ethertype": "IPv4", "protocol": "udp"},
		{"project_id": "p", "security_group_id": "$peers", "direction": "ingress", "ethertype": "IPv6"}]}`,
		409, "SecurityGroupRuleExists", nil},
	{"the other was not made", "POST", "security-group-rules", `{"security_group_rule": {"project_id": "p", "security_group_id": "$peers",
		"direction": "ingress", "ethertype": "IPv4", "protocol": "udp"}}`, 201, "", nil},
	{"two rules that say the same", "POST", "security-group-rules", `{"security_group_rules": [{"project_id": "p", "security_group_id": "$peers",
		"direction": "ingress", "ethertype": "IPv4", "protocol": "sctp", "description": "a"},
		{"project_id": "p", "security_group_id": "$peers", "direction": "ingress", "ethertype": "IPv4",
		"protocol": "sctp", "description": "b"}]}`, 409, "DuplicateSecurityGroupRuleInPost", nil},
	{"rules of two groups", "POST", "security-group-rules", `{"security_group_rules": [{"project_id": "p", "security_group_id": "$peers",
		"direction": "ingress", "ethertype": "IPv4", "protocol": "50"},
		{"project_id": "p", "security_group_id": "$group", "direction": "ingress", "ethertype": "IPv4",
		"protocol": "50"}]}`,
		400, "SecurityGroupNotSingleGroupRules", nil},
	{"peers go", "DELETE", "security-groups/$peers", "", 204, "", nil},
	{"port without security", "PUT", "ports/$port", `{"port": {"port_security_enabled": false, "security_groups": ["$group"]}}`, 400, "PortSecurityAndIPRequiredForSecurityGroups", nil},
	{"port of no group", "PUT", "ports/$port", `{"port": {"security_groups": ["00000000-0000-0000-0000-000000000000"]}}`, 404, "SecurityGroupNotFound", nil},
	{"port of the group", "PUT", "ports/$port", `{"port": {"security_groups": ["$group"]}}`, 200, "", nil},
	{"group in use", "DELETE", "security-groups/$group", "", 409, "SecurityGroupInUse", nil},
}

// projectCases are what a user that may use all projects does in another one, q.
var projectCases = []Case{
	{"other net", "POST", "networks", `{"network": {"project_id": "q", "name": "n"}}`, 201, "", nil},
	{"other sub", "POST", "subnets", `{"subnet": {"project_id": "q", "network_id": "$other net", "cidr": "10.93.0.0/24",
		"ip_version": 4}}`, 201, "", nil},
	{"other group", "POST", "security-groups", `{"security_group": {"project_id": "q", "name": "g"}}`, 201, "", nil},
	{"rule of another project's members", "POST", "security-group-rules", `{"security_group_rule": {"project_id": "q",
		"security_group_id": "$other group", "direction": "ingress", "ethertype": "IPv4",
		"remote_group_id": "$group"}}`, 201, "", nil},
	{"port with groups of two projects", "PUT", "ports/$port", `{"port": {"security_groups": ["$group", "$other group"]}}`, 200, "", nil},
	{"other port", "POST", "ports", `{"port": {"project_id": "q", "network_id": "$other net", "mac_address": "0a:58:0a:5a:00:07",
		"fixed_ips": [{"subnet_id": "$other sub", "ip_address": "10.93.0.7"}],
		"security_groups": ["$group"]}}`, 201, "", nil},
	{"port on another project's network", "POST", "ports", `{"port": {"project_id": "p", "network_id": "$other net"}}`, 201, "", nil},
	{"MAC in use by another project", "POST", "ports", `{"port": {"project_id": "p", "network_id": "$other net",
		"mac_address": "0a:58:0a:5a:00:07"}}`, 409, "MacAddressInUse", nil},
	{"port to another project", "PUT", "ports/$port", `{"port": {"project_id": "q"}}`, 400, "HTTPBadRequest", nil},
	{"network to another project", "PUT", "networks/$net", `{"network": {"project_id": "q"}}`, 400,
		"HTTPBadRequest", nil},
	{"group in use by another project", "DELETE", "security-groups/$other group", "", 409, "SecurityGroupInUse", nil},
	{"networks of one project", "GET", "networks?project_id=q", "", 200, "", []string{"other net"}},
	{"networks of two projects", "GET", "networks?project_id=q&project_id=p", "", 200, "",
		[]string{"net", "other net"}},
	{"networks of no project", "GET", "networks?project_id=none", "", 200, "", nil},
	{"other port goes", "DELETE", "ports/$other port", "", 204, "", nil},
	{"port of the first group again", "PUT", "ports/$port", `{"port": {"security_groups": ["$group"]}}`, 200, "", nil},
	{"other group goes", "DELETE", "security-groups/$other group", "", 204, "", nil},
}

// lastCases are of floating IPs, and remove what is left.
var lastCases = []Case{
	{"outside", "POST", "networks", `{"network": {"project_id": "p", "name": "outside", "router:external": true}}`, 201, "", nil},
	{"outside subnet", "POST", "subnets", `{"subnet": {"project_id": "p", "network_id": "$outside", "cidr": "192.0.2.0/24", "ip_version": 4,
		"enable_dhcp": false}}`, 201, "", nil},
	{"floating IP of another network", "POST", "floatingips", `{"floatingip": {"project_id": "p", "floating_network_id": "$net"}}`, 400,
		"BadRequest", nil},
	{"floating IP without a way", "POST", "floatingips", `{"floatingip": {"project_id": "p", "floating_network_id": "$outside",
		"port_id": "$port"}}`, 404, "ExternalGatewayForFloatingIPNotFound", nil},
	{"gateway", "POST", "routers", `{"router": {"project_id": "p", "name": "gateway",
		"external_gateway_info": {"network_id": "$outside"}}}`, 201, "", nil},
	{"gateway joins", "PUT", "routers/$gateway/add_router_interface", `{"subnet_id": "$sub"}`, 200, "", nil},
	{"floating IP of no port", "POST", "floatingips", `{"floatingip": {"project_id": "p", "floating_network_id": "$outside",
		"port_id": "00000000-0000-0000-0000-000000000000"}}`, 404, "PortNotFound", nil},
	{"float", "POST", "floatingips", `{"floatingip": {"project_id": "p", "floating_network_id": "$outside", "description": "d",
		"floating_ip_address": "192.0.2.77", "port_id": "$port"}}`, 201, "", nil},
	{"floating IP again", "POST", "floatingips", `{"floatingip": {"project_id": "p", "floating_network_id": "$outside",
		"floating_ip_address": "192.0.2.77"}}`, 409, "IpAddressAlreadyAllocated", nil},
	{"floating IP elsewhere", "POST", "floatingips", `{"floatingip": {"project_id": "p", "floating_network_id": "$outside",
		"floating_ip_address": "198.51.100.7"}}`, 400, "InvalidIpForNetwork", nil},
	{"floating IP of the same port", "POST", "floatingips", `{"floatingip": {"project_id": "p", "floating_network_id": "$outside",
		"port_id": "$port"}}`, 409, "FloatingIPPortAlreadyAssociated", nil},
	{"floating IP of another program", "PUT", "floatingips/$float", `{"floatingip": {"description": "coelan/FloatingIP/shop/web", "port_id": null}}`, 200, "", nil},
	{"it has its description", "GET", "floatingips?description=coelan/FloatingIP/shop/web", "", 200, "", []string{"float"}},
	{"another of the port that it has left", "POST", "floatingips", `{"floatingip": {"project_id": "p", "floating_network_id": "$outside",
		"port_id": "$port"}}`, 201, "", nil},
	{"the other one goes", "DELETE", "floatingips/$another of the port that it has left", "", 204, "", nil},
	{"it leads to the port again", "PUT", "floatingips/$float", `{"floatingip": {"description": "d", "port_id": "$port"}}`, 200, "", nil},
	{"it has another description", "GET", "floatingips?description=coelan/FloatingIP/shop/web", "", 200, "", nil},
	{"other address", "PUT", "floatingips/$float", `{"floatingip": {"floating_ip_address": "192.0.2.78"}}`, 400, "HTTPBadRequest", nil},
	{"free", "POST", "floatingips", `{"floatingip": {"project_id": "p", "floating_network_id": "$outside"}}`, 201, "", nil},
	{"free goes", "DELETE", "floatingips/$free", "", 204, "", nil},
	{"port goes", "DELETE", "ports/$port", "", 204, "", nil},
	{"float stays", "GET", "floatingips?description=d", "", 200, "", []string{"float"}},
	{"float goes", "DELETE", "floatingips/$float", "", 204, "", nil},
	{"float is gone", "DELETE", "floatingips/$float", "", 404, "FloatingIPNotFound", nil},
	{"port is gone", "DELETE", "ports/$port", "", 404, "PortNotFound", nil},
	{"group goes", "DELETE", "security-groups/$group", "", 204, "", nil},
}

// Check runs all Cases with a Neutron.
func Check(t *testing.T, endpoint string) {
	t.Run("quotas", func(t *testing.T) { checkQuotas(t, endpoint) })
	ids := map[string]string{}
	for _, c := range Cases {
		t.Run(c.Name, func(t *testing.T) {
			path, body := c.Path, c.Body
			for name, id := range ids {
				path = strings.Replace(path+"/", "/$"+name+"/", "/"+id+"/", 1)
				path = strings.ReplaceAll(strings.TrimSuffix(path, "/")+"&", "=$"+name+"&", "="+id+"&")
				path = strings.TrimSuffix(path, "&")
				body = strings.ReplaceAll(body, `"$`+name+`"`, `"`+id+`"`)
			}
			status, answer, err := Call(t.Context(), c.Method, endpoint+"v2.0/"+path, body)
			if err != nil {
				t.Fatal(err)
			}
			failure, _ := answer["NeutronError"].(map[string]any)
			if kind, _ := failure["type"].(string); status != c.Status || kind != c.Kind {
				t.Errorf("status %d, %v; want %d, %s", status, answer, c.Status, c.Kind)
			}
			if c.Method == http.MethodGet {
				checkList(t, c, answer, ids)
			}
			for _, made := range answer {
				if o, ok := made.(map[string]any); ok && o["id"] != nil {
					ids[c.Name] = fmt.Sprint(o["id"])
				}
			}
		})
	}
}

// checkQuotas wants the details of quotas to count what a project has.
func checkQuotas(t *testing.T, endpoint string) {
	t.Helper()
	const project, path = "quotas-of-one", "v2.0/quotas/quotas-of-one/details"
	expect := func(networks float64) {
		t.Helper()
		status, answer, err := Call(t.Context(), http.MethodGet, endpoint+path, "")
		if err != nil || status != http.StatusOK {
			t.Fatalf("status %d, %v, %v", status, answer, err)
		}
		all, _ := answer["quota"].(map[string]any)
		for _, name := range []string{
			"network", "subnet", "port", "router", "floatingip", "security_group", "security_group_rule",
		} {
			is, _ := all[name].(map[string]any)
			limit, _ := is["limit"].(float64)
			used, counts := is["used"].(float64)
			reserved, reserves := is["reserved"].(float64)
			if limit == 0 || limit < -1 || !counts || !reserves || reserved != 0 ||
				name == "network" && used != networks {
				t.Errorf("%s: %v", name, all[name])
			}
		}
	}
	expect(0)
	status, answer, err := Call(t.Context(), http.MethodPost, endpoint+"v2.0/networks",
		fmt.Sprintf(`{"network": {"project_id": %q, "name": "n"}}`, project))
	if err != nil || status != http.StatusCreated {
		t.Fatalf("status %d, %v, %v", status, answer, err)
	}
	expect(1)
	network, _ := answer["network"].(map[string]any)
	status, _, err = Call(t.Context(), http.MethodDelete, fmt.Sprint(endpoint, "v2.0/networks/", network["id"]), "")
	if err != nil || status != http.StatusNoContent {
		t.Fatalf("status %d, %v", status, err)
	}
	expect(0)
}

// checkList wants exactly what the cases have made that a Case names.
func checkList(t *testing.T, c Case, answer map[string]any, ids map[string]string) {
	t.Helper()
	var want, got []string
	for _, name := range c.Lists {
		want = append(want, ids[name])
	}
	location, _, _ := strings.Cut(c.Path, "?")
	for _, o := range list(answer[strings.ReplaceAll(path.Base(location), "-", "_")]) {
		made, _ := o.(map[string]any)
		got = append(got, fmt.Sprint(made["id"]))
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the list has %v, not %v", got, want)
	}
}

// Call makes one call.
func Call(ctx context.Context, method, url, body string) (status int, answer map[string]any, err error) {
	return CallAs(ctx, method, url, body, func(*http.Request) {})
}

// CallAs makes one call by a request that is changed before it is sent.
func CallAs(
	ctx context.Context, method, url, body string, change func(*http.Request),
) (status int, answer map[string]any, err error) {
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewBufferString(body))
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	change(request)
	got, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer got.Body.Close()
	data, err := io.ReadAll(got.Body)
	if err == nil && len(data) > 0 {
		err = json.Unmarshal(data, &answer)
	}
	return got.StatusCode, answer, err
}
