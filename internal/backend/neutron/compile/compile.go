// SPDX-License-Identifier: Apache-2.0

// Package compile makes resources of Neutron (package resource) of a cluster's intent. It does no
// I/O, and what is wanted depends on present intent only.
package compile

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"

	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/internal/intent"
)

// Options are what resources depend on beside intent.
type Options struct {
	Cluster names.Cluster
	// Spare is how many ports each node has, at least, that no pod has yet; on each Network that it
	// has blocks of, no more than reserved.NeutronSpareOfNetwork. Ports of pods are then known by
	// their addresses, and stay when the pod goes. 0: each is made as its pod comes.
	Spare int
	// Supplemented says that OVN's northbound database has what Neutron lacks: Services, the way
	// out of the cluster, and what lets nodes reach their Ports (ovn/compile.Supplement).
	Supplemented bool
	// SubnetPools are what the controller has the subnets of namespaces' Networks of, and
	// GivenPools the ids of subnet pools of other programs that these are a part of. For those that
	// are a part of none Neutron gets a pool.
	SubnetPools []intent.SubnetPool
	GivenPools  []string
	// Given are those of GivenPools that Neutron has.
	Given Given
	// Own is the id of the cluster's own project.
	Own string
	// Placed says where Networks are that are to be in another one.
	Placed Placed
	// Loans are the Networks that name networks of other programs.
	Loans Loans
	// Trunks are those of nodes that are machines of OpenStack, by the nodes' names.
	Trunks map[string]resource.Trunk
	// BGPVPNs says whether Neutron has them.
	BGPVPNs resource.Extension
	// Groups are the security groups that there are. They stay while there is what they are made
	// of, be it without a Port.
	Groups []resource.Ref
}

// With are the Options for a Neutron that has this, with a State.
func (o Options) With(s *intent.State, have *resource.Inventory) Options {
	o.Own, o.Placed, o.Loans = have.Own, Place(s, have), Borrow(s, have)
	o.Given = Give(o.SubnetPools, o.GivenPools, have)
	o.Groups, o.Trunks, o.BGPVPNs = have.All(resource.SecurityGroup), have.Trunks(), have.BGPVPNs
	return o
}

// Equal reports whether a State wants the same with both.
func (o Options) Equal(other Options) bool { return reflect.DeepEqual(o, other) }

// compiler makes one Set.
type compiler struct {
	Options
	state *intent.State
	set   *resource.Set
	// unreached are the private Routers with Ports that nodes cannot reach.
	unreached map[string]bool
	groups    *firewall
	targets   exchange
	// used are the addresses that Ports have, by Network; those of nodes' podCIDRs are at "".
	used map[string]map[netip.Addr]bool
}

// Compile returns what a State wants of Neutron.
func Compile(s *intent.State, o Options) *resource.Set {
	c := &compiler{
		Options: o, state: s, set: resource.NewSet(), unreached: map[string]bool{},
		used: map[string]map[netip.Addr]bool{},
	}
	c.tenants()
	c.trunks()
	c.groups, c.targets = c.firewall(), c.exchange()
	for r := range s.Routers().All() {
		c.router(r)
	}
	c.set.Problems = append(c.set.Problems, o.Given.Problems...)
	for _, p := range o.SubnetPools {
		c.subnetPool(p)
	}
	for n := range s.Networks().All() {
		c.network(n)
	}
	for n := range s.Nodes().All() {
		c.node(n)
	}
	for p := range s.Ports().All() {
		c.port(p)
	}
	c.spares()
	for f := range s.FloatingIPs().All() {
		c.floatingIP(f)
	}
	for e := range s.EgressPaths().All() {
		c.set.Problem("Egress "+e.Name, "EgressUnsupported", "with Neutron pods leave by the gateway of their Router alone")
	}
	for _, router := range slices.Sorted(maps.Keys(c.unreached)) {
		c.set.Problem("Router "+router, "NodeAddressesUnsupported", "with Neutron nodes do not reach Ports of private "+
			"Routers: use no probes by the network, and a centralized gateway for the way out")
	}
	return c.set
}

// NetworkRef is a Network in the cluster's own project.
func NetworkRef(network string) resource.Ref {
	return resource.Ref{Kind: resource.Network, Key: resource.Key("Network/" + network)}
}

// SubnetRef is a subnet of a Network in the cluster's own project.
func SubnetRef(network string, prefix netip.Prefix) resource.Ref {
	return resource.Ref{Kind: resource.Subnet, Key: resource.Key("Network/"+network, prefix.String())}
}

// SubnetPoolRef is the pool of a prefix.
func SubnetPoolRef(prefix netip.Prefix) resource.Ref {
	return resource.Ref{Kind: resource.SubnetPool, Key: resource.Key("SubnetPool/" + prefix.String())}
}

// RouterRef is a Router.
func RouterRef(router string) resource.Ref {
	return resource.Ref{Kind: resource.Router, Key: resource.Key("Router/" + router)}
}

// PortRef is the port of a Port in the cluster's own project, namespace/name of the object, unless
// that has one of addresses.
func PortRef(object string) resource.Ref {
	return resource.Ref{Kind: resource.Port, Key: resource.Key("Port/" + object)}
}

// BorrowedRef is the port of a Port for which the container runtime has named one, in the cluster's
// own project.
func BorrowedRef(object, id string) resource.Ref { return resource.BorrowedPort("Port/"+object, id) }

// NodePortRef is the port by which a node's kernel reaches pods.
func NodePortRef(node string) resource.Ref {
	return resource.Ref{Kind: resource.Port, Key: resource.Key("Node/" + node)}
}

// FloatingIPRef is the floating IP of a FloatingIP, namespace/name.
func FloatingIPRef(name string) resource.Ref {
	return resource.Ref{Kind: resource.FloatingIP, Key: resource.Key("FloatingIP/" + name)}
}

// FloatingIPObject is how resources call a FloatingIP, namespace/name.
func FloatingIPObject(name string) string { return "FloatingIP " + name }

// PortObject is how resources call a Port, namespace/name.
func PortObject(port string) string { return "Port " + port }

// NetworkObject is how resources call a Network.
func NetworkObject(network string) string { return "Network " + network }

// NodeObject is how resources call a node. The port by which its kernel reaches pods is the only
// one that is not Spare.
func NodeObject(node string) string { return "Node " + node }

// name is what people see of a resource, with the cluster's name before it.
func (c *compiler) name(of string) string {
	if c.Cluster == "" {
		return of
	}
	return string(c.Cluster) + ":" + of
}

// RouterObject is what people call a Router.
func RouterObject(router string) string { return "Router " + router }

// RouterOf is the name of the Router that a Router is made into: shared ones are one with the
// Router default, since their addresses mean the same.
func RouterOf(r intent.Router) string {
	if r.Private() {
		return r.Name
	}
	return intent.DefaultRouterName
}
