// SPDX-License-Identifier: Apache-2.0

package neutronfake

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
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
}

// Cases build on each other. They hold for the fake and for the real one.
var Cases = []Case{
	{"unknown attribute", "POST", "networks", `{"network": {"project_id": "p", "bogus": 1}}`, 400, "HTTPBadRequest"},
	{"tags of a new network", "POST", "networks", `{"network": {"project_id": "p", "tags": ["a"]}}`, 400,
		"HTTPBadRequest"},
	{"net", "POST", "networks", `{"network": {"project_id": "p", "name": "n", "description": "d"}}`, 201, ""},
	{"sub", "POST", "subnets", `{"subnet": {"project_id": "p", "network_id": "$net", "cidr": "10.90.0.0/24", "ip_version": 4,
		"gateway_ip": "10.90.0.1", "enable_dhcp": false}}`, 201, ""},
	{"overlapping subnet", "POST", "subnets", `{"subnet": {"project_id": "p", "network_id": "$net", "cidr": "10.90.0.0/25",
		"ip_version": 4}}`, 400, "InvalidInput"},
	{"subnet without network", "POST", "subnets", `{"subnet": {"project_id": "p", "network_id":
		"00000000-0000-0000-0000-000000000000", "cidr": "10.91.0.0/24", "ip_version": 4}}`, 404, "NetworkNotFound"},
	{"other cidr", "PUT", "subnets/$sub", `{"subnet": {"cidr": "10.92.0.0/24"}}`, 400, "HTTPBadRequest"},
	{"port", "POST", "ports", `{"port": {"project_id": "p", "network_id": "$net", "mac_address": "0a:58:0a:5a:00:07",
		"fixed_ips": [{"subnet_id": "$sub", "ip_address": "10.90.0.7"}], "device_owner": "compute:kuryr"}}`, 201, ""},
	{"address in use", "POST", "ports", `{"port": {"project_id": "p", "network_id": "$net",
		"fixed_ips": [{"subnet_id": "$sub", "ip_address": "10.90.0.7"}]}}`, 409, "IpAddressAlreadyAllocated"},
	{"MAC in use", "POST", "ports", `{"port": {"project_id": "p", "network_id": "$net", "mac_address": "0a:58:0a:5a:00:07",
		"fixed_ips": [{"subnet_id": "$sub", "ip_address": "10.90.0.8"}]}}`, 409, "MacAddressInUse"},
	{"address elsewhere", "POST", "ports", `{"port": {"project_id": "p", "network_id": "$net",
		"fixed_ips": [{"subnet_id": "$sub", "ip_address": "10.99.0.8"}]}}`, 400, "InvalidIpForSubnet"},
	{"other network", "PUT", "ports/$port", `{"port": {"network_id": "$net"}}`, 400, "HTTPBadRequest"},
	{"network in use", "DELETE", "networks/$net", "", 409, "NetworkInUse"},
	{"subnet in use", "DELETE", "subnets/$sub", "", 409, "SubnetInUse"},
	{"router", "POST", "routers", `{"router": {"project_id": "p", "name": "r"}}`, 201, ""},
	{"sub6", "POST", "subnets", `{"subnet": {"project_id": "p", "network_id": "$net", "cidr": "fd00:90::/64", "ip_version": 6,
		"gateway_ip": "fd00:90::1", "enable_dhcp": false}}`, 201, ""},
	{"sub6b", "POST", "subnets", `{"subnet": {"project_id": "p", "network_id": "$net", "cidr": "fd00:91::/64", "ip_version": 6,
		"gateway_ip": "fd00:91::1", "enable_dhcp": false}}`, 201, ""},
	{"join6", "PUT", "routers/$router/add_router_interface", `{"subnet_id": "$sub6"}`, 200, ""},
	{"join6b", "PUT", "routers/$router/add_router_interface", `{"subnet_id": "$sub6b"}`, 200, ""},
	{"join6b again", "PUT", "routers/$router/add_router_interface", `{"subnet_id": "$sub6b"}`, 400, "BadRequest"},
	{"leave6", "PUT", "routers/$router/remove_router_interface", `{"subnet_id": "$sub6"}`, 200, ""},
	{"leave6b", "PUT", "routers/$router/remove_router_interface", `{"subnet_id": "$sub6b"}`, 200, ""},
	{"leave6b again", "PUT", "routers/$router/remove_router_interface", `{"subnet_id": "$sub6b"}`, 404,
		"RouterInterfaceNotFoundForSubnet"},
	{"next hop elsewhere", "PUT", "routers/$router", `{"router": {"routes": [{"destination": "10.99.0.0/24",
		"nexthop": "10.90.0.7"}]}}`, 400, "InvalidRoutes"},
	{"join", "PUT", "routers/$router/add_router_interface", `{"subnet_id": "$sub"}`, 200, ""},
	{"join again", "PUT", "routers/$router/add_router_interface", `{"subnet_id": "$sub"}`, 400, "BadRequest"},
	{"routes", "PUT", "routers/$router", `{"router": {"routes": [{"destination": "10.99.0.0/24", "nexthop": "10.90.0.7"}]}}`, 200, ""},
	{"interface in use", "PUT", "routers/$router/remove_router_interface", `{"subnet_id": "$sub"}`, 409,
		"RouterInterfaceInUseByRoute"},
	{"router in use", "DELETE", "routers/$router", "", 409, "RouterInUse"},
	{"no routes", "PUT", "routers/$router", `{"router": {"routes": []}}`, 200, ""},
	{"leave", "PUT", "routers/$router/remove_router_interface", `{"subnet_id": "$sub"}`, 200, ""},
	{"leave again", "PUT", "routers/$router/remove_router_interface", `{"subnet_id": "$sub"}`, 404,
		"RouterInterfaceNotFoundForSubnet"},
	{"router goes", "DELETE", "routers/$router", "", 204, ""},
	{"group", "POST", "security-groups", `{"security_group": {"project_id": "p", "name": "g"}}`, 201, ""},
	{"group named default", "POST", "security-groups", `{"security_group": {"project_id": "p", "name": "default"}}`, 409,
		"SecurityGroupDefaultAlreadyExists"},
	{"peers", "POST", "security-groups", `{"security_group": {"project_id": "p", "name": "peers", "description": "d"}}`, 201, ""},
	{"rule that a new group has", "POST", "security-group-rules", `{"security_group_rule": {"project_id": "p", "security_group_id": "$group",
		"direction": "egress", "ethertype": "IPv4"}}`, 409, "SecurityGroupRuleExists"},
	{"rule", "POST", "security-group-rules", `{"security_group_rule": {"project_id": "p", "security_group_id": "$group",
		"direction": "ingress", "ethertype": "IPv4", "description": "d"}}`, 201, ""},
	{"rule again", "POST", "security-group-rules", `{"security_group_rule": {"project_id": "p", "security_group_id": "$group",
		"direction": "ingress", "ethertype": "IPv4"}}`, 409, "SecurityGroupRuleExists"},
	{"rule of all addresses", "POST", "security-group-rules", `{"security_group_rule": {"project_id": "p", "security_group_id": "$group",
		"direction": "ingress", "ethertype": "IPv4", "remote_ip_prefix": "0.0.0.0/0"}}`,
		409, "SecurityGroupRuleExists"},
	{"rule of members", "POST", "security-group-rules", `{"security_group_rule": {"project_id": "p", "security_group_id": "$group",
		"direction": "ingress", "ethertype": "IPv4", "protocol": "tcp", "port_range_min": 80,
		"port_range_max": 81, "remote_group_id": "$peers"}}`, 201, ""},
	{"rule of a prefix", "POST", "security-group-rules", `{"security_group_rule": {"project_id": "p", "security_group_id": "$group",
		"direction": "egress", "ethertype": "IPv6", "protocol": "sctp", "remote_ip_prefix": "fd00::/16"}}`, 201, ""},
	{"rule of a protocol by its number", "POST", "security-group-rules", `{"security_group_rule": {"project_id": "p", "security_group_id": "$group",
		"direction": "ingress", "ethertype": "IPv4", "protocol": "47"}}`, 201, ""},
	{"rule of a type of ICMP", "POST", "security-group-rules", `{"security_group_rule": {"project_id": "p", "security_group_id": "$group",
		"direction": "ingress", "ethertype": "IPv6", "protocol": "ipv6-icmp", "port_range_min": 128}}`, 201, ""},
	{"rule of a code of ICMP alone", "POST", "security-group-rules", `{"security_group_rule": {"project_id": "p", "security_group_id": "$group",
		"direction": "ingress", "ethertype": "IPv4", "protocol": "icmp", "port_range_max": 1}}`,
		400, "SecurityGroupMissingIcmpType"},
	{"rule of the other ICMP", "POST", "security-group-rules", `{"security_group_rule": {"project_id": "p", "security_group_id": "$group",
		"direction": "ingress", "ethertype": "IPv4", "protocol": "ipv6-icmp"}}`,
		400, "SecurityGroupEthertypeConflictWithProtocol"},
	{"rule of both", "POST", "security-group-rules", `{"security_group_rule": {"project_id": "p", "security_group_id": "$group",
		"direction": "ingress", "ethertype": "IPv4", "remote_group_id": "$peers",
		"remote_ip_prefix": "10.0.0.0/8"}}`, 400, "SecurityGroupMultipleRemoteEntites"},
	{"rule of no group", "POST", "security-group-rules", `{"security_group_rule": {"project_id": "p", "security_group_id": "$group",
		"direction": "ingress", "ethertype": "IPv4",
		"remote_group_id": "00000000-0000-0000-0000-000000000000"}}`, 404, "SecurityGroupNotFound"},
	{"rule of the other family", "POST", "security-group-rules", `{"security_group_rule": {"project_id": "p", "security_group_id": "$group",
		"direction": "ingress", "ethertype": "IPv6", "remote_ip_prefix": "10.0.0.0/8"}}`,
		400, "SecurityGroupRuleParameterConflict"},
	{"rule of port 0", "POST", "security-group-rules", `{"security_group_rule": {"project_id": "p", "security_group_id": "$group",
		"direction": "ingress", "ethertype": "IPv4", "protocol": "tcp", "port_range_min": 0,
		"port_range_max": 80}}`, 400, "SecurityGroupInvalidPortValue"},
	{"rule of ports of no protocol", "POST", "security-group-rules", `{"security_group_rule": {"project_id": "p", "security_group_id": "$group",
		"direction": "ingress", "ethertype": "IPv4", "port_range_min": 80, "port_range_max": 80}}`,
		400, "SecurityGroupProtocolRequiredWithPorts"},
	{"rule of ports of another protocol", "POST", "security-group-rules", `{"security_group_rule": {"project_id": "p", "security_group_id": "$group",
		"direction": "ingress", "ethertype": "IPv4", "protocol": "47", "port_range_min": 80,
		"port_range_max": 80}}`, 400, "SecurityGroupInvalidProtocolForPort"},
	{"other rule", "PUT", "security-group-rules/$rule", `{"security_group_rule": {"direction": "egress"}}`, 400,
		"HTTPBadRequest"},
	{"rule of members goes", "DELETE", "security-group-rules/$rule of members", "", 204, ""},
	{"rule of members is gone", "DELETE", "security-group-rules/$rule of members", "",
		404, "SecurityGroupRuleNotFound"},
	{"peers go", "DELETE", "security-groups/$peers", "", 204, ""},
	{"port without security", "PUT", "ports/$port", `{"port": {"port_security_enabled": false, "security_groups": ["$group"]}}`, 400,
		"PortSecurityAndIPRequiredForSecurityGroups"},
	{"port of no group", "PUT", "ports/$port", `{"port": {"security_groups": ["00000000-0000-0000-0000-000000000000"]}}`, 404,
		"SecurityGroupNotFound"},
	{"port of the group", "PUT", "ports/$port", `{"port": {"security_groups": ["$group"]}}`, 200, ""},
	{"group in use", "DELETE", "security-groups/$group", "", 409, "SecurityGroupInUse"},
	{"outside", "POST", "networks", `{"network": {"project_id": "p", "name": "outside", "router:external": true}}`, 201, ""},
	{"outside subnet", "POST", "subnets", `{"subnet": {"project_id": "p", "network_id": "$outside", "cidr": "192.0.2.0/24", "ip_version": 4,
		"enable_dhcp": false}}`, 201, ""},
	{"floating IP of another network", "POST", "floatingips", `{"floatingip": {"project_id": "p", "floating_network_id": "$net"}}`, 400,
		"BadRequest"},
	{"floating IP without a way", "POST", "floatingips", `{"floatingip": {"project_id": "p", "floating_network_id": "$outside",
		"port_id": "$port"}}`, 404, "ExternalGatewayForFloatingIPNotFound"},
	{"gateway", "POST", "routers", `{"router": {"project_id": "p", "name": "gateway",
		"external_gateway_info": {"network_id": "$outside"}}}`, 201, ""},
	{"gateway joins", "PUT", "routers/$gateway/add_router_interface", `{"subnet_id": "$sub"}`, 200, ""},
	{"floating IP of no port", "POST", "floatingips", `{"floatingip": {"project_id": "p", "floating_network_id": "$outside",
		"port_id": "00000000-0000-0000-0000-000000000000"}}`, 404, "PortNotFound"},
	{"float", "POST", "floatingips", `{"floatingip": {"project_id": "p", "floating_network_id": "$outside", "description": "d",
		"floating_ip_address": "192.0.2.77", "port_id": "$port"}}`, 201, ""},
	{"floating IP again", "POST", "floatingips", `{"floatingip": {"project_id": "p", "floating_network_id": "$outside",
		"floating_ip_address": "192.0.2.77"}}`, 409, "IpAddressAlreadyAllocated"},
	{"floating IP elsewhere", "POST", "floatingips", `{"floatingip": {"project_id": "p", "floating_network_id": "$outside",
		"floating_ip_address": "198.51.100.7"}}`, 400, "InvalidIpForNetwork"},
	{"floating IP of the same port", "POST", "floatingips", `{"floatingip": {"project_id": "p", "floating_network_id": "$outside",
		"port_id": "$port"}}`, 409, "FloatingIPPortAlreadyAssociated"},
	{"other address", "PUT", "floatingips/$float", `{"floatingip": {"floating_ip_address": "192.0.2.78"}}`, 400, "HTTPBadRequest"},
	{"free", "POST", "floatingips", `{"floatingip": {"project_id": "p", "floating_network_id": "$outside"}}`, 201, ""},
	{"free goes", "DELETE", "floatingips/$free", "", 204, ""},
	{"port goes", "DELETE", "ports/$port", "", 204, ""},
	{"float goes", "DELETE", "floatingips/$float", "", 204, ""},
	{"float is gone", "DELETE", "floatingips/$float", "", 404, "FloatingIPNotFound"},
	{"port is gone", "DELETE", "ports/$port", "", 404, "PortNotFound"},
	{"group goes", "DELETE", "security-groups/$group", "", 204, ""},
}

// Check runs all Cases with a Neutron.
func Check(t *testing.T, endpoint string) {
	ids := map[string]string{}
	for _, c := range Cases {
		t.Run(c.Name, func(t *testing.T) {
			path, body := c.Path, c.Body
			for name, id := range ids {
				path = strings.Replace(path+"/", "/$"+name+"/", "/"+id+"/", 1)
				path = strings.TrimSuffix(path, "/")
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
			for _, made := range answer {
				if o, ok := made.(map[string]any); ok && o["id"] != nil {
					ids[c.Name] = fmt.Sprint(o["id"])
				}
			}
		})
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
