// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"

	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/intent"
)

// Placed are the Networks that intent has another project for than the cluster's own, and those
// that it has none for yet, each with whether its network is in the cluster's own: there it stays,
// with its ports.
type Placed map[string]bool

// Place looks where the networks are of which that matters.
func Place(s *intent.State, have *resource.Inventory) Placed {
	p := Placed{}
	for n := range s.Networks().All() {
		if n.Project != "" || n.Undecided {
			_, p[n.Name] = have.Get(NetworkRef(n.Name))
		}
	}
	return p
}

// tenants notes what Namespaces ask for.
func (c *compiler) tenants() {
	for t := range c.state.Tenants().All() {
		object := "Namespace " + t.Namespace
		c.set.Asks(object, c.named(t.Project))
		if t.Denied != "" {
			c.set.Problem(object, "ProjectNotAllowed", fmt.Sprintf("the namespace asks for the project %s of OpenStack, and has what "+
				"it had before, or the cluster's: its administrator has to let it (--neutron-projects)", t.Denied))
		}
	}
}

// named is a project as Refs have it.
func (o Options) named(project string) string {
	if project == o.Own {
		return ""
	}
	return project
}

// ProjectOf is the project that a Network's network, subnets and ports are in, as Refs have it. It
// does not change once there is a network: ports cannot be given to another project.
func (o Options) ProjectOf(n intent.Network) string {
	project := o.named(n.Project)
	if project == "" || n.FromNodes() || o.Placed[n.Name] {
		return ""
	}
	return project
}

// policyProject is the project of a policy's security groups: that of its namespace.
func (c *compiler) policyProject(p intent.PolicyRef) string {
	t, _ := c.state.Tenants().Get(p.Namespace)
	return c.named(t.Project)
}

// waits reports whether a Network has no network, since it is not known where that is to be.
func (c *compiler) waits(n intent.Network) bool { return n.Undecided && !c.Placed[n.Name] }

// placed says what is not as asked for of the project of a Network.
func (c *compiler) placed(n intent.Network) {
	object := NetworkObject(n.Name)
	switch {
	case c.waits(n):
		c.set.Problem(object, "NamespaceMissing", "its network of Neutron is made when namespaceSelector selects a Namespace: that "+
			"says in which project")
	case c.Placed[n.Name] && c.named(n.Project) != "":
		c.set.Problem(object, "ProjectKept", fmt.Sprintf("its network of Neutron and the ports on it stay in the cluster's project: "+
			"make the Network anew to have it in the project %s", n.Project))
	}
	c.set.Asks(object, c.ProjectOf(n))
}
