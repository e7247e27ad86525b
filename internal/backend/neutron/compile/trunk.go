// SPDX-License-Identifier: Apache-2.0

package compile

import "coelan.io/coelan/internal/backend/neutron/resource"

// trunks says which of the nodes that are machines of OpenStack cannot be connected.
func (c *compiler) trunks() {
	for n := range c.state.Nodes().All() {
		if t := c.Trunks[n.Name]; n.TrunkPort != "" && t.Reason != "" {
			c.set.Problem(NodeObject(n.Name), t.Reason, t.Why)
		}
	}
}

// onTrunk is a port as it has to be on a node. On one that is a machine of OpenStack the trunk
// decides on the owner and the binding, which Neutron itself sets; and it puts no port on a trunk
// that has a device.
func (c *compiler) onTrunk(node string, r resource.Resource) resource.Resource {
	if n, _ := c.state.Nodes().Get(node); n.TrunkPort == "" {
		return r
	}
	r.Trunk, r.Initial = node, resource.Attributes{"device_owner": resource.DeviceOwner}
	delete(r.Mutable, "device_owner")
	delete(r.Mutable, "binding:host_id")
	r.Mutable["device_id"] = ""
	return r
}
