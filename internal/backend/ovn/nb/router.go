// SPDX-License-Identifier: Apache-2.0

package nb

// LogicalRouter is a row of the table Logical_Router.
type LogicalRouter struct {
	UUID               string            `ovsdb:"_uuid"`
	Name               string            `ovsdb:"name"`
	Ports              []string          `ovsdb:"ports" nb:"Logical_Router_Port"`
	StaticRoutes       []string          `ovsdb:"static_routes" nb:"Logical_Router_Static_Route"`
	Policies           []string          `ovsdb:"policies" nb:"Logical_Router_Policy"`
	NAT                []string          `ovsdb:"nat" nb:"NAT"`
	LoadBalancers      []string          `ovsdb:"load_balancer" nb:"Load_Balancer"`
	LoadBalancerGroups []string          `ovsdb:"load_balancer_group" nb:"Load_Balancer_Group"`
	Copp               *string           `ovsdb:"copp" nb:"Copp"`
	Enabled            *bool             `ovsdb:"enabled"`
	Options            map[string]string `ovsdb:"options"`
	ExternalIDs        map[string]string `ovsdb:"external_ids"`
	// Adopted is as that of LogicalSwitch.
	Adopted bool `nb:"-"`
}

// LogicalRouterPort is a row of the table Logical_Router_Port.
type LogicalRouterPort struct {
	UUID           string            `ovsdb:"_uuid"`
	Name           string            `ovsdb:"name"`
	MAC            string            `ovsdb:"mac"`
	Networks       []string          `ovsdb:"networks"`
	Peer           *string           `ovsdb:"peer"`
	Enabled        *bool             `ovsdb:"enabled"`
	GatewayChassis []string          `ovsdb:"gateway_chassis" nb:"Gateway_Chassis"`
	HAChassisGroup *string           `ovsdb:"ha_chassis_group" nb:"HA_Chassis_Group"`
	IPv6RAConfigs  map[string]string `ovsdb:"ipv6_ra_configs"`
	Options        map[string]string `ovsdb:"options"`
	ExternalIDs    map[string]string `ovsdb:"external_ids"`
}

// StaticRoute is a row of the table Logical_Router_Static_Route.
type StaticRoute struct {
	UUID        string            `ovsdb:"_uuid"`
	RouteTable  string            `ovsdb:"route_table"`
	IPPrefix    string            `ovsdb:"ip_prefix"`
	Policy      *string           `ovsdb:"policy"`
	Nexthop     string            `ovsdb:"nexthop"`
	OutputPort  *string           `ovsdb:"output_port"`
	BFD         *string           `ovsdb:"bfd" nb:"BFD"`
	Options     map[string]string `ovsdb:"options"`
	ExternalIDs map[string]string `ovsdb:"external_ids"`
}

// RouterPolicy is a row of the table Logical_Router_Policy.
type RouterPolicy struct {
	UUID        string            `ovsdb:"_uuid"`
	Priority    int               `ovsdb:"priority"`
	Match       string            `ovsdb:"match"`
	Action      string            `ovsdb:"action"`
	Nexthops    []string          `ovsdb:"nexthops"`
	Options     map[string]string `ovsdb:"options"`
	ExternalIDs map[string]string `ovsdb:"external_ids"`
}

// NAT is a row of the table NAT.
type NAT struct {
	UUID           string            `ovsdb:"_uuid"`
	Type           string            `ovsdb:"type"`
	ExternalIP     string            `ovsdb:"external_ip"`
	ExternalMAC    *string           `ovsdb:"external_mac"`
	LogicalIP      string            `ovsdb:"logical_ip"`
	LogicalPort    *string           `ovsdb:"logical_port"`
	AllowedExtIPs  *string           `ovsdb:"allowed_ext_ips" nb:"Address_Set"`
	ExemptedExtIPs *string           `ovsdb:"exempted_ext_ips" nb:"Address_Set"`
	GatewayPort    *string           `ovsdb:"gateway_port" nb:"Logical_Router_Port"`
	Options        map[string]string `ovsdb:"options"`
	ExternalIDs    map[string]string `ovsdb:"external_ids"`
}

// GatewayChassis is a row of the table Gateway_Chassis.
type GatewayChassis struct {
	UUID        string            `ovsdb:"_uuid"`
	Name        string            `ovsdb:"name"`
	ChassisName string            `ovsdb:"chassis_name"`
	Priority    int               `ovsdb:"priority"`
	Options     map[string]string `ovsdb:"options"`
	ExternalIDs map[string]string `ovsdb:"external_ids"`
}

// HAChassisGroup is a row of the table HA_Chassis_Group.
type HAChassisGroup struct {
	UUID        string            `ovsdb:"_uuid"`
	Name        string            `ovsdb:"name"`
	HAChassis   []string          `ovsdb:"ha_chassis" nb:"HA_Chassis"`
	ExternalIDs map[string]string `ovsdb:"external_ids"`
}

// HAChassis is a row of the table HA_Chassis.
type HAChassis struct {
	UUID        string            `ovsdb:"_uuid"`
	ChassisName string            `ovsdb:"chassis_name"`
	Priority    int               `ovsdb:"priority"`
	ExternalIDs map[string]string `ovsdb:"external_ids"`
}

// BFD is a row of the table BFD.
type BFD struct {
	UUID        string            `ovsdb:"_uuid"`
	LogicalPort string            `ovsdb:"logical_port"`
	DstIP       string            `ovsdb:"dst_ip"`
	MinTx       *int              `ovsdb:"min_tx"`
	MinRx       *int              `ovsdb:"min_rx"`
	DetectMult  *int              `ovsdb:"detect_mult"`
	Options     map[string]string `ovsdb:"options"`
	ExternalIDs map[string]string `ovsdb:"external_ids"`
	// Status of the session. OVN writes it.
	Status *string `ovsdb:"status" nb:"-"`
}
