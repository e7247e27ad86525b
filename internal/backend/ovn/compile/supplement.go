// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/internal/backend/ovn/nb"
	"coelan.io/coelan/internal/intent"
)

// Others are what another system has made, such as ML2/OVN of OpenStack.
type Others struct {
	// Rows are those for objects of the cluster: by Network and by Router the name of the row, by
	// node that of its port's row, and by FloatingIP the address.
	Rows map[intent.Ref]string
	// Foreign are, by Router, the subnets on its router that are not the cluster's, if their hosts
	// answer by it, in order.
	Foreign map[string][]netip.Prefix
}

// network is the name of the switch of a Network; empty: there is none.
func (o Others) network(name string) string {
	return o.Rows[intent.Ref{Kind: intent.KindNetwork, Key: name}]
}

// router is the name of the router of a Router; empty: there is none.
func (o Others) router(name string) string {
	return o.Rows[intent.Ref{Kind: intent.KindRouter, Key: name}]
}

// node is the name of the port of a node; empty: there is none.
func (o Others) node(name string) string { return o.Rows[intent.Ref{Kind: intent.KindNode, Key: name}] }

// has reports whether the other system has the address of a FloatingIP for it.
func (o Others) has(f intent.FloatingIP) bool {
	return o.Rows[intent.Ref{Kind: intent.KindFloatingIP, Key: f.Name}] == f.Address.String()
}

// routed reports whether there is a switch of a Network that has a Router.
func (o Others) routed(n intent.Network) bool {
	return o.network(n.Name) != "" && n.Router != "" && n.Physical == ""
}

// mayTake reports whether the cluster may take what comes for a FloatingIP of a Service. Without
// another system it may. That one keeps addresses of IPv4 alone.
func (o *Others) mayTake(s *intent.State, f intent.FloatingIP) bool {
	if o == nil {
		return true
	}
	v, _ := s.Services().Get(f.Service)
	return !v.Octavia && o.network(f.Network) != "" && o.router(intent.DefaultRouterName) != "" &&
		(f.Address.Is6() || o.has(f))
}

func ofSharedRouter(s *intent.State, n intent.Network) bool {
	r, ok := s.Routers().Get(n.Router)
	return ok && !r.Private()
}

// Supplement keeps rows that another system's lack: Load_Balancers of Services, policies that lead
// what leaves the cluster to nodes, FloatingIPs of Services, and ACLs that let nodes' own processes
// reach Ports. Of the other system's rows it wants references to these alone. One switch has all
// Ports of the Network default, and one router all shared Routers.
type Supplement struct {
	compiler *Compiler
	others   *Others
}

// NewSupplement returns a Supplement without rows.
func NewSupplement(o Options) *Supplement {
	others := &Others{}
	services := newServiceKind(o.Cluster)
	services.spanning = true
	return &Supplement{others: others, compiler: newCompiler(
		services, groupKind{o.Cluster}, otherSwitchKind{o.Cluster, others}, otherRouterKind{o.Cluster, others},
		otherNodeKind{others}, ownNodeKind{o.Cluster, others},
		newAccessKind(o.Cluster, othersLayout{o.Cluster, others}), frontKind{o.Cluster, others}, rangeKind{},
	)}
}

// Rows are those of the last Update. They change with the next one.
func (c *Supplement) Rows() *nb.Rows { return c.compiler.Rows() }

// Update makes the rows those of a State, next to rows that others have made of it.
func (c *Supplement) Update(s *intent.State, others Others) {
	before := *c.others
	*c.others = others
	c.compiler.Update(s)
	if !maps.Equal(before.Rows, others.Rows) || !maps.EqualFunc(before.Foreign, others.Foreign, slices.Equal) {
		c.compiler.update(nil, s)
	}
}

// groupKind is the Load_Balancer_Group of Services of shared Routers.
type groupKind struct{ cluster names.Cluster }

// Name implements Kind.
func (groupKind) Name() string { return "Balancing" }

// Affected implements Kind.
func (groupKind) Affected(from, _ *intent.State, _ intent.Delta, yield func(string)) {
	if from == nil {
		yield(everySwitch)
	}
}

// Compile implements Kind.
func (k groupKind) Compile(_ *intent.State, key string, u *nb.Unit) {
	group := balancingGroup(key)
	u.Add(group.Key, &nb.LoadBalancerGroup{Name: k.cluster.Owner(group.Key)})
}

// otherSwitchKind are Networks that another system has made switches of. Those of shared
// Routers have the group of Services: what pods of private ones send for these goes by their node,
// and they do not reach pods of the cluster otherwise.
type otherSwitchKind struct {
	cluster names.Cluster
	others  *Others
}

// Name implements Kind.
func (otherSwitchKind) Name() string { return "Network" }

// Affected implements Kind.
func (otherSwitchKind) Affected(from, to *intent.State, d intent.Delta, yield func(string)) {
	for _, name := range d.Networks {
		yield(name)
	}
	for _, s := range states(from, to) {
		for _, router := range d.Routers {
			for n := range s.NetworksOf(router) {
				yield(n.Name)
			}
		}
	}
}

// Compile implements Kind.
func (k otherSwitchKind) Compile(s *intent.State, name string, u *nb.Unit) {
	n, ok := s.Networks().Get(name)
	external := n.External && n.Physical != "" && k.others.network(name) != ""
	if !ok || !external && !k.others.routed(n) {
		return
	}
	sw := switchRef(name, "")
	u.Add(sw.Key, &nb.LogicalSwitch{Name: k.others.network(name), Adopted: true})
	if external { // for the ports of FloatingIPs
		return
	}
	if ofSharedRouter(s, n) {
		u.Put(sw, "load_balancer_group", balancingGroup(everySwitch).Key)
		for _, sn := range n.Subnets {
			ofPods(u, sn.Prefix)
		}
	} else if k.others.router(intent.DefaultRouterName) != "" { // which has the Address_Sets
		networkKind{k.cluster}.isolate(sw, u)
	}
}

// otherRouterKind are Routers that another system has made, one of all shared ones. What is in the
// cluster keeps its ways, and nothing leaves for a ClusterIP that no Service has. A foreign subnet
// is reached by the router: a node would send it elsewhere, and answers with a node's address.
type otherRouterKind struct {
	cluster names.Cluster
	others  *Others
}

const (
	// staysPriority is that of policies for destinations that the router has ways to.
	staysPriority = 950
	// foreignPriority is that of policies for foreign subnets, before those that lead to nodes.
	foreignPriority = sourcePriority + 50
)

// Name implements Kind.
func (otherRouterKind) Name() string { return "Router" }

// Affected implements Kind.
func (k otherRouterKind) Affected(_, _ *intent.State, d intent.Delta, yield func(string)) {
	for _, name := range d.Routers {
		yield(name)
	}
	if len(d.Nodes) > 0 {
		for name := range k.others.Foreign {
			yield(name)
		}
	}
}

// hasNode reports whether a prefix has the address of a node.
func hasNode(s *intent.State, p netip.Prefix) bool {
	for n := range s.Nodes().All() {
		if slices.ContainsFunc(n.Addresses, p.Contains) {
			return true
		}
	}
	return false
}

// Compile implements Kind.
func (k otherRouterKind) Compile(s *intent.State, name string, u *nb.Unit) {
	r, ok := s.Routers().Get(name)
	ref, made := routerRef(name), k.others.router(name)
	if ok && made != "" && (r.Private() || name == intent.DefaultRouterName) {
		u.Add(ref.Key, &nb.LogicalRouter{Name: made, Adopted: true})
	}
	if !ok || r.Private() {
		return
	}
	for _, route := range effective(r) {
		ofPods(u, route.Destination)
	}
	if name != intent.DefaultRouterName || made == "" {
		return
	}
	for _, p := range k.others.Foreign[name] {
		if hasNode(s, p) {
			continue // what is for nodes goes by the sender's
		}
		u.AddTo(ref, "policies", nb.Key(ref.Key, "foreign", p.String()), &nb.RouterPolicy{
			Priority: foreignPriority, Match: fmt.Sprintf("%s.dst == %s", family(p.Addr()), p), Action: "allow",
		})
	}
	for _, all := range everything {
		dst := all.Destination.Addr()
		stays, within := podsSetRef(dst), clusterSetRef(dst)
		for _, set := range []nb.Ref{stays, within, tenantsSetRef(dst)} {
			u.Add(set.Key, &nb.AddressSet{Name: k.cluster.Set(family(dst), set.Key)})
		}
		u.AddTo(ref, "policies", nb.Key(ref.Key, "stays", family(dst)), &nb.RouterPolicy{
			Priority: staysPriority, Match: inSet(dst, k.cluster, stays), Action: "allow",
		})
		u.AddTo(ref, "policies", nb.Key(ref.Key, "within", family(dst)), &nb.RouterPolicy{
			Priority: withinPriority, Match: inSet(dst, k.cluster, within), Action: "drop",
		})
	}
}

// inSet matches what is for an address of a set.
func inSet(like netip.Addr, c names.Cluster, set nb.Ref) string {
	return fmt.Sprintf("%s.dst == $%s", family(like), c.Set(family(like), set.Key))
}

// otherNodeKind are nodes that another system has made ports of: what leaves the cluster goes to
// the node that its sender is on, as with nodeKind. So does what is for other nodes, whatever way
// the router has to them: a node that has led a client to a Port translates the answer.
type otherNodeKind struct{ others *Others }

// Name implements Kind.
func (otherNodeKind) Name() string { return "Node" }

// Affected implements Kind.
func (otherNodeKind) Affected(_, _ *intent.State, d intent.Delta, yield func(string)) {
	for _, name := range d.Nodes {
		yield(name)
	}
}

// Compile implements Kind.
func (k otherNodeKind) Compile(s *intent.State, name string, u *nb.Unit) {
	if _, ok := s.Nodes().Get(name); !ok {
		return
	}
	port := k.others.node(name)
	for _, sn := range nodeSubnets(s, name) {
		ofPods(u, sn.Prefix)
		a, room := names.ManagementAddress(sn.Prefix)
		if !room || port == "" {
			continue
		}
		nodeKind{}.policy(u, name, "source", sourcePriority, a, fmt.Sprintf("%s.src == %s", family(a), sn.Prefix))
		nodeKind{}.policy(u, name, "resident", residentPriority, a,
			fmt.Sprintf("%s && is_chassis_resident(%q)", family(a), port))
	}
}
