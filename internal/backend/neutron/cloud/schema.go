// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"net/url"

	"coelan.io/coelan/internal/backend/neutron/resource"
)

// collection is where the resources of a kind are in Neutron's API.
type collection struct {
	path             string
	singular, plural string // the names of one and of several in bodies
	// filter is what a list asks for beside the project; noProject says that what others have made
	// for Neutron's own use is of no project.
	filter    url.Values
	noProject bool
	// everywhere says that the cluster may have such resources in the projects of namespaces, too.
	everywhere bool
	// named says that the name says what a resource is the cluster's for: there is no description.
	named bool
}

// mark is the attribute that does.
func (c collection) mark() string {
	if c.named {
		return "name"
	}
	return "description"
}

// collections are those of the kinds. An Interface is found by its port; Routes are an attribute,
// and so are Associations.
var collections = map[resource.Kind]collection{
	resource.SecurityGroup: {
		path: "security-groups", singular: "security_group", plural: "security_groups", everywhere: true,
	},
	resource.SecurityGroupRule: {
		path: "security-group-rules", singular: "security_group_rule", plural: "security_group_rules",
		everywhere: true,
	},
	resource.Network:    {path: "networks", singular: "network", plural: "networks", everywhere: true},
	resource.SubnetPool: {path: "subnetpools", singular: "subnetpool", plural: "subnetpools"},
	resource.Subnet:     {path: "subnets", singular: "subnet", plural: "subnets", everywhere: true},
	resource.Router:     {path: "routers", singular: "router", plural: "routers"},
	resource.Interface: {
		path: "ports", singular: "port", plural: "ports", noProject: true,
		filter: url.Values{"device_owner": {
			"network:router_interface", "network:router_interface_distributed",
			"network:ha_router_replicated_interface",
		}},
	},
	resource.Port: {
		// Of whatever owner: Neutron gives ports on trunks another one, and none to those that
		// have left one.
		path: "ports", singular: "port", plural: "ports", everywhere: true,
	},
	resource.FloatingIP: {path: "floatingips", singular: "floatingip", plural: "floatingips"},
	resource.BGPVPN:     {path: "bgpvpn/bgpvpns", singular: "bgpvpn", plural: "bgpvpns", named: true},
}
