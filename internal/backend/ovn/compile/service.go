// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/internal/backend/ovn/nb"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/nodeview"
)

// serviceKind are Services: a Load_Balancer for each protocol. One of a shared Router is in a group
// that all switches have, so that it costs one row however many switches there are. One of a
// private Router is at the Router's switches, and there is one more of it for nodes, at theirs.
//
// Where nodes see different endpoints (policies Local, hints), each node has a Load_Balancer of its
// own, at the switches that are the node's; the switches that span nodes get what a node without
// any of the endpoints and without a zone sees.
type serviceKind struct {
	cluster names.Cluster
	private map[string]map[string]struct{} // keys of Services, by private Router
	varying map[string]struct{}            // keys of Services that nodes see differently
	// spanning says that no switch is one node's.
	spanning bool
	tenants  tenantEndpoints
}

func newServiceKind(c names.Cluster) *serviceKind {
	return &serviceKind{
		cluster: c, private: map[string]map[string]struct{}{}, varying: map[string]struct{}{},
		tenants: newTenantEndpoints(),
	}
}

// Name implements Kind.
func (*serviceKind) Name() string { return "Service" }

// Affected implements Kind.
func (k *serviceKind) Affected(from, to *intent.State, d intent.Delta, yield func(string)) {
	if from == nil {
		clear(k.private)
		clear(k.varying)
		k.tenants = newTenantEndpoints()
	}
	k.tenants.affected(from, to, d, yield)
	for _, key := range d.Services {
		if from != nil {
			if v, ok := from.Services().Get(key); ok {
				unindex(k.private, v.Router, key)
				delete(k.varying, key)
			}
		}
		if v, ok := to.Services().Get(key); ok {
			if isPrivate(to, v.Router) {
				index(k.private, v.Router, key)
			}
			if varies(v) {
				k.varying[key] = struct{}{}
			}
		}
		yield(key)
	}
	for _, key := range d.FloatingIPs {
		for _, s := range [...]*intent.State{from, to} {
			if s == nil {
				continue
			}
			if f, ok := s.FloatingIPs().Get(key); ok && f.Service != "" {
				yield(f.Service)
			}
		}
	}
	k.affectedByRouters(from, to, d, yield)
	if nodesDiffer(from, to, d) {
		for key := range k.varying {
			yield(key)
		}
	}
}

// affectedByRouters yields the Services of Routers that have come, gone, or become private or
// shared, and of private Routers with other Networks, routes or gateways.
func (k *serviceKind) affectedByRouters(from, to *intent.State, d intent.Delta, yield func(string)) {
	routers, changed := map[string]struct{}{}, false
	for _, name := range d.Routers {
		if from == nil {
			changed = true
			break
		}
		_, was := from.Routers().Get(name)
		_, is := to.Routers().Get(name)
		changed = changed || was != is || isPrivate(from, name) != isPrivate(to, name)
	}
	gatewayKind{k.cluster}.Affected(from, to, d, func(router string) { routers[router] = struct{}{} })
	if changed {
		clear(k.private)
		for v := range to.Services().All() {
			if isPrivate(to, v.Router) {
				index(k.private, v.Router, serviceKey(v))
			}
			yield(serviceKey(v))
		}
	}
	for router := range routers {
		for key := range k.private[router] {
			yield(key)
		}
	}
}

// nodesDiffer reports whether there are other nodes than before, or in other zones.
func nodesDiffer(from, to *intent.State, d intent.Delta) bool {
	return slices.ContainsFunc(d.Nodes, func(name string) bool {
		if from == nil {
			return true
		}
		a, was := from.Nodes().Get(name)
		b, is := to.Nodes().Get(name)
		return was != is || a.Zone != b.Zone
	})
}

func serviceKey(v intent.Service) string { return v.Namespace + "/" + v.Name }

// isPrivate reports whether a Router's addresses mean something on its own Networks only. One that
// is not known is: nothing of it is for others.
func isPrivate(s *intent.State, router string) bool {
	r, ok := s.Routers().Get(router)
	return !ok || r.Private()
}

// varies reports whether what a Service has depends on the node.
func varies(v intent.Service) bool {
	return v.InternalLocal || v.ExternalLocal || slices.ContainsFunc(v.Ports, func(p intent.ServicePort) bool {
		return slices.ContainsFunc(p.Endpoints, func(e intent.ServiceEndpoint) bool {
			return e.Topology.HasZones() || e.Topology.HasNodes()
		})
	})
}

// Compile implements Kind.
func (k *serviceKind) Compile(s *intent.State, key string, u *nb.Unit) {
	v, ok := s.Services().Get(key)
	if !ok {
		return
	}
	if _, known := s.Routers().Get(v.Router); !known {
		return
	}
	b := balancer{cluster: k.cluster, service: v, unit: u}
	b.report()
	if isPrivate(s, v.Router) {
		k.ofTenant(s, b)
		return
	}
	everywhere := nodeview.Service(v, nodeview.Node{FloatingIPs: s.FloatingIPsOfService})
	if varies(v) && !k.spanning {
		b.rows(everywhere, "", []nb.Ref{balancingGroup(spanningSwitches)})
		b.nodes(s)
		return
	}
	b.rows(everywhere, "", []nb.Ref{balancingGroup(everySwitch)})
	b.reportSpanning()
}

// ofTenant makes the rows of a Service of a private Router: its ClusterIP for pods of the Router,
// with their own addresses, and all of its addresses for nodes and those they forward, with the
// addresses by which nodes know these pods. To pods of others, which share switches with nodes, the
// Router's ports on these are closed (accessKind). What they send elsewhere for the ClusterIP is
// dropped: a node would forward it as its own.
func (k *serviceKind) ofTenant(s *intent.State, b balancer) {
	v := b.service
	b.service, b.inside = k.tenants.own(s, v), true
	b.rows(nodeview.Service(b.service, nodeview.Node{}), "", tenantSwitches(s, v.Router))
	b.reportSpanning()
	for _, p := range v.Ports {
		if p.ClusterIP.IsValid() {
			b.unit.Put(tenantsSetRef(p.ClusterIP), "addresses", p.ClusterIP.String())
		}
	}
	b.service, b.inside = k.tenants.held(s, v), false
	at := nodeSwitches
	switch {
	case k.spanning:
		at = everySwitch
		if v.ExternalLocal && s.AnswersElsewhere(v.Router) {
			b.unit.Problem("Service "+serviceKey(v), reasonUnsupported, "Router "+v.Router+" sends answers to clients "+
				"outside by its own gateway or default route: with externalTrafficPolicy Local they are not served; use "+
				"Cluster")
		}
	case varies(v):
		b.nodes(s)
		return
	}
	b.rows(nodeview.Service(b.service, nodeview.Node{FloatingIPs: s.FloatingIPsOfService}), "for nodes",
		[]nb.Ref{balancingGroup(at)})
}

// tenantSwitches are the switches of a private Router.
func tenantSwitches(s *intent.State, router string) (places []nb.Ref) {
	for n := range s.NetworksOf(router) {
		if !n.FromNodes() && n.LogicalSwitch == "" {
			places = append(places, switchRef(n.Name, ""))
		}
	}
	return places
}

// tenantsSetRef is the Address_Set of the ClusterIPs of Services of private Routers, of the family
// of an address.
func tenantsSetRef(like netip.Addr) nb.Ref {
	key := nb.Key("Router/"+intent.DefaultRouterName, "services of tenants", family(like))
	return nb.Ref{Table: "Address_Set", Key: key}
}

// balancer makes the rows of one Service.
type balancer struct {
	cluster names.Cluster
	service intent.Service
	unit    *nb.Unit
	inside  bool // ClusterIPs only
}

// nodes adds, for each node, the Load_Balancers of what it sees.
func (b balancer) nodes(s *intent.State) {
	at := nodeview.Node{FloatingIPs: s.FloatingIPsOfService}
	for n := range s.Nodes().All() {
		at.Name, at.Zone = n.Name, n.Zone
		b.rows(nodeview.Service(b.service, at), "at "+n.Name, []nb.Ref{balancingGroup(switchesOf(n.Name))})
	}
}

// rows adds the Load_Balancers of a view of the Service, which has a name if it is not the only
// one, at these places.
func (b balancer) rows(v intent.NodeService, view string, places []nb.Ref) {
	for _, protocol := range []intent.Protocol{intent.TCP, intent.UDP, intent.SCTP} {
		open, kept := b.vips(v, protocol)
		name := strings.ToLower(protocol.String())
		b.row(name, view, open, true, places)
		b.row(name+" local", view, kept, false, places)
	}
}

// row adds one Load_Balancer. Clients are refused where there is no endpoint on any node, but where
// a policy keeps them on a node without one, their packets are dropped.
func (b balancer) row(name, view string, vips map[string]string, reject bool, places []nb.Ref) {
	if len(vips) == 0 || len(places) == 0 {
		return
	}
	key := nb.Key("Service/"+serviceKey(b.service), name)
	if view != "" {
		key = nb.Key(key, view)
	}
	protocol, _, _ := strings.Cut(name, " ")
	options := map[string]string{
		"hairpin_snat_ip": hairpinAddresses, "reject": strconv.FormatBool(reject), "event": "false",
	}
	if protocol == "udp" {
		// A client that keeps its port would have the endpoint that is gone as long as it sends.
		// Connections of TCP end by themselves, and may go on while an endpoint is terminating.
		options["ct_flush"] = "true"
	}
	if b.service.AffinitySeconds > 0 {
		options["affinity_timeout"] = strconv.Itoa(min(b.service.AffinitySeconds, maxAffinity))
	}
	b.unit.Add(key, &nb.LoadBalancer{
		Name: b.cluster.Owner(key), VIPs: vips, Protocol: &protocol, Options: options,
	})
	for _, p := range places {
		b.unit.Put(p, "load_balancer", key)
	}
}

// maxAffinity is the longest affinity_timeout.
const maxAffinity = 65535

// vips are the addresses of a protocol with their endpoints: open ones, where a client without an
// endpoint is refused if none has one, and those where a policy keeps clients on the node.
func (b balancer) vips(v intent.NodeService, protocol intent.Protocol) (open, kept map[string]string) {
	open, kept = map[string]string{}, map[string]string{}
	for _, p := range v.Ports {
		if p.Protocol != protocol {
			continue
		}
		internal, external := open, open
		internals, externals := p.Endpoints, p.Endpoints
		if v.InternalLocal {
			internals = p.LocalEndpoints
		}
		if v.ExternalLocal {
			externals = p.LocalEndpoints
		}
		// If there are endpoints, but not for these clients, packets are dropped.
		if len(internals) == 0 && !p.Unserved {
			internal = kept
		}
		if len(externals) == 0 && !p.Unserved {
			external = kept
		}
		if p.ClusterIP.IsValid() {
			internal[joinHostPort(p.ClusterIP, p.Port)] = backends(internals)
		}
		if b.inside {
			continue
		}
		if p.NodePort != 0 {
			external[joinHostPort(nodePortAddress(p.IPv6), p.NodePort)] = backends(externals)
			// Nodes' kernels lead clients outside to the node port where a policy keeps these on
			// the node, so that only clients inside come to the other addresses.
			external, externals = open, p.Endpoints
		}
		for _, a := range p.ExternalIPs {
			external[joinHostPort(a, p.Port)] = backends(externals)
		}
		if !openTo(v.SourceRanges, p.IPv6) {
			continue // nodes' kernels judge the sources, and lead to the node port or the ClusterIP
		}
		for _, a := range p.LoadBalancerIPs {
			external[joinHostPort(a, p.Port)] = backends(externals)
		}
	}
	return open, kept
}

// report tells what the Service does not get.
func (b balancer) report() {
	v := b.service
	object := "Service " + serviceKey(v)
	undecided := slices.ContainsFunc(v.Ports, func(p intent.ServicePort) bool {
		return len(p.LoadBalancerIPs) > 0 && p.NodePort == 0 && v.ExternalLocal && !openTo(v.SourceRanges, p.IPv6)
	})
	if undecided {
		b.unit.Problem(object, reasonUnsupported, "with spec.loadBalancerSourceRanges the addresses of the load balancer"+
			" lead to the ClusterIP, as the Service has no node ports: its endpoints on all nodes get clients, and do not"+
			" see their addresses; allow node ports")
	}
	if v.AffinitySeconds > maxAffinity {
		b.unit.Problem(object, reasonUnsupported, "a client keeps its endpoint for "+strconv.Itoa(maxAffinity)+
			" seconds at most")
	}
}

// reportSpanning tells what the Service does not get on switches that span nodes.
func (b balancer) reportSpanning() {
	if b.service.InternalLocal {
		b.unit.Problem("Service "+serviceKey(b.service), reasonUnsupported, "networks span nodes, so that OVN does "+
			"not know a pod's own node: with internalTrafficPolicy Local pods are not served at the ClusterIP; use Cluster")
	}
}

// reasonUnsupported is that of Problems with what OVN cannot do.
const reasonUnsupported = "NotSupported"

func index[K comparable](of map[K]map[string]struct{}, key K, value string) {
	if of[key] == nil {
		of[key] = map[string]struct{}{}
	}
	of[key][value] = struct{}{}
}

func unindex[K comparable](of map[K]map[string]struct{}, key K, value string) {
	delete(of[key], value)
	if len(of[key]) == 0 {
		delete(of, key)
	}
}
