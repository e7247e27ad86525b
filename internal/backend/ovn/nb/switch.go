// SPDX-License-Identifier: Apache-2.0

package nb

// LogicalSwitch is a row of the table Logical_Switch.
type LogicalSwitch struct {
	UUID               string            `ovsdb:"_uuid"`
	Name               string            `ovsdb:"name"`
	Ports              []string          `ovsdb:"ports" nb:"Logical_Switch_Port"`
	ACLs               []string          `ovsdb:"acls" nb:"ACL"`
	QoSRules           []string          `ovsdb:"qos_rules" nb:"QoS"`
	LoadBalancers      []string          `ovsdb:"load_balancer" nb:"Load_Balancer"`
	LoadBalancerGroups []string          `ovsdb:"load_balancer_group" nb:"Load_Balancer_Group"`
	Copp               *string           `ovsdb:"copp" nb:"Copp"`
	OtherConfig        map[string]string `ovsdb:"other_config"`
	ExternalIDs        map[string]string `ovsdb:"external_ids"`
	// Adopted says that it is another system's switch of that name: nothing of it is ours but
	// elements of its sets.
	Adopted bool `nb:"-"`
}

// LogicalSwitchPort is a row of the table Logical_Switch_Port.
type LogicalSwitchPort struct {
	UUID           string            `ovsdb:"_uuid"`
	Name           string            `ovsdb:"name"`
	Type           string            `ovsdb:"type"`
	Options        map[string]string `ovsdb:"options"`
	Tag            *int              `ovsdb:"tag"`
	Addresses      []string          `ovsdb:"addresses"`
	PortSecurity   []string          `ovsdb:"port_security"`
	Enabled        *bool             `ovsdb:"enabled"`
	DHCPv4Options  *string           `ovsdb:"dhcpv4_options" nb:"DHCP_Options"`
	DHCPv6Options  *string           `ovsdb:"dhcpv6_options" nb:"DHCP_Options"`
	HAChassisGroup *string           `ovsdb:"ha_chassis_group" nb:"HA_Chassis_Group"`
	ExternalIDs    map[string]string `ovsdb:"external_ids"`
	// Up says that a chassis has the interface. OVN writes it.
	Up *bool `ovsdb:"up" nb:"-"`
}

// DHCPOptions is a row of the table DHCP_Options.
type DHCPOptions struct {
	UUID        string            `ovsdb:"_uuid"`
	CIDR        string            `ovsdb:"cidr"`
	Options     map[string]string `ovsdb:"options"`
	ExternalIDs map[string]string `ovsdb:"external_ids"`
}

// QoS is a row of the table QoS.
type QoS struct {
	UUID        string            `ovsdb:"_uuid"`
	Priority    int               `ovsdb:"priority"`
	Direction   string            `ovsdb:"direction"`
	Match       string            `ovsdb:"match"`
	Action      map[string]int    `ovsdb:"action"`
	Bandwidth   map[string]int    `ovsdb:"bandwidth"`
	ExternalIDs map[string]string `ovsdb:"external_ids"`
}
