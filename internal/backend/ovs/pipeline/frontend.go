// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"net/netip"
	"slices"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// noEndpoint is why packets are dropped if a policy leaves no endpoint.
const noEndpoint = "no endpoint of the Service is for the client"

// served is a Service port being compiled.
type served struct {
	r     *rules
	of    intent.NodeService
	port  intent.NodeServicePort
	rt    intent.Router // if it is private
	inner bool          // it is
	all   *choice       // for all clients
	local *choice       // for those that a policy keeps on the node
}

// frontends are the flows of a Service's addresses, with the groups that choose an
// endpoint.
func frontends(r *rules, v intent.NodeService) {
	number, ok := r.serviceNumber(v)
	if !ok {
		return
	}
	rt, inner, ok := r.ownRouter(v)
	if !ok {
		return
	}
	groups := groupNumbers{base: number, last: maxGroups}
	ports := v.Ports[:groups.ports(len(v.Ports))]
	if len(ports) < len(v.Ports) {
		r.problem("it has %d ports, of which the first %d are served", len(v.Ports), len(ports))
	}
	r.flows, r.groups = slices.Grow(r.flows, howMany(v, ports)), slices.Grow(r.groups, len(ports))
	for i, port := range ports {
		s := served{r: r, of: v, port: port, rt: rt, inner: inner}
		s.all = r.choice(&groups, 2*i, v, port, port.Endpoints)
		s.local = s.all
		if v.InternalLocal || v.ExternalLocal {
			s.local = r.choice(&groups, 2*i+1, v, port, port.LocalEndpoints)
		}
		s.frontends()
		s.notByDefaultRoute()
		s.refusals()
		s.answersOfHost()
	}
}

// howMany is about how many flows a Service comes to: more than that takes more memory.
func howMany(v intent.NodeService, ports []intent.NodeServicePort) (n int) {
	for _, p := range ports {
		n += 1 + len(p.Endpoints) + len(p.LocalEndpoints) + len(p.ExternalIPs) + len(p.LoadBalancerIPs)
		if v.AffinitySeconds > 0 {
			n += 2 + len(p.Endpoints) + len(p.LocalEndpoints)
		}
		if p.NodePort != 0 {
			n++
		}
	}
	return n
}

// ownRouter is the private router that the Service belongs to, if it is one.
func (r *rules) ownRouter(v intent.NodeService) (rt intent.Router, private, ok bool) {
	if v.Router == intent.DefaultRouterName {
		return rt, false, true
	}
	r.dependOn(unitKey{kindRouter, v.Router})
	if rt, ok = r.state.Routers().Get(v.Router); !ok {
		r.problem("router %q does not exist", v.Router)
	}
	return rt, rt.Private(), ok
}

// frontends emits the flows of all addresses of a Service port.
func (s served) frontends() {
	internal := s.all
	if s.of.InternalLocal {
		internal = s.local
	}
	if a := s.port.ClusterIP; a.IsValid() {
		s.clusterIP(a, internal)
	}
	for _, a := range s.port.ExternalIPs {
		s.outside(serviceFrontend, s.at(a))
	}
	for _, a := range s.port.LoadBalancerIPs {
		if len(s.of.SourceRanges) > 0 {
			s.restricted(s.at(a))
		} else {
			s.outside(serviceFrontend, s.at(a))
		}
	}
	if s.port.NodePort != 0 {
		s.outside(nodePort, frontend{port: s.port.NodePort})
	}
}

// notByDefaultRoute keeps packets to the addresses from private routers' default routes,
// as those of the ranges are kept.
func (s served) notByDefaultRoute() {
	if !s.r.defaultRoutes {
		return
	}
	s.r.as(privateFeature, func() {
		if a := s.port.ClusterIP; a.IsValid() && !s.r.inRanges(a) {
			s.to(defaultRoute, 200, s.at(a)).goTo(clusterSource)
		}
		for _, list := range [][]netip.Addr{s.port.ExternalIPs, s.port.LoadBalancerIPs} {
			for _, a := range list {
				s.to(defaultRoute, 200, s.at(a)).goTo(clusterSource)
			}
		}
	})
}

// refusals lets pass what the host's kernel refuses connections with, which are
// not known to conntrack.
func (s served) refusals() {
	if !s.r.policed() || !s.port.Unserved || s.port.Protocol != intent.TCP {
		return
	}
	s.r.as(policyFeature, func() {
		for _, a := range slices.Concat([]netip.Addr{s.port.ClusterIP}, s.port.ExternalIPs, s.port.LoadBalancerIPs) {
			if a.IsValid() {
				s.r.on(policyConnection, 780, from(fromGateway), isFirst, openflow.IPSrc(a),
					openflow.L4Src(openflow.IPProtoTCP, s.port.Port),
					openflow.TCPFlags(tcpRST, tcpRST)).commit()
			}
		}
	})
}

// answersOfHost is for external addresses what clusterIPs has for those of the ranges. Of a private
// Router's Service, the host leads the connections of other Routers' Ports, and its answers belong
// to these.
func (s served) answersOfHost() {
	if s.inner {
		return
	}
	for _, a := range slices.Concat(s.port.ExternalIPs, s.port.LoadBalancerIPs) {
		s.r.answersOfHost(openflow.IPSrc(a), openflow.L4Src(uint8(s.port.Protocol), s.port.Port))
	}
}

// inRanges says whether an address is of a range of ClusterIPs.
func (r *rules) inRanges(a netip.Addr) bool {
	for s := range r.state.ServiceRanges().All() {
		if s.Prefix.Contains(a) {
			return true
		}
	}
	return false
}

// frontend is an address and a port of a Service; the address is not valid if
// registers hold it already.
type frontend struct {
	address netip.Addr
	port    uint16
	inside  bool // a ClusterIP
	// fragments is the IP protocol of such as are looked up without a port, which they do not tell;
	// 0: of none.
	fragments uint8
}

func (s served) at(a netip.Addr) frontend { return frontend{address: a, port: s.port.Port} }

// Priorities of frontends, by how much of the sender they match.
const (
	toAnybody uint16 = 100 + 10*iota
	toSome
	toSomeMore
	toFew
)

// clusterIP is what only members of the Service's router and hosts use.
func (s served) clusterIP(a netip.Addr, to *choice) {
	at := s.at(a)
	at.inside = true
	s.clusterFrontend(at, to)
	if s.onlyUDP() {
		at.fragments = openflow.IPProtoUDP
		s.clusterFrontend(at, to)
		if s.port.IPv6 && s.of.AffinitySeconds == 0 {
			at.fragments = ipProtoFragment
			s.clusterFrontend(at, to)
		}
	}
}

// ipProtoFragment is what Open vSwitch takes for the protocol of later fragments of IPv6.
const ipProtoFragment = 44

// onlyUDP says whether the port is the only one of UDP at its ClusterIP, so that fragments,
// of which Open vSwitch does not see the port, are for it. The userspace datapath has
// such behind conntrack, too: each of a datagram is translated by itself, and conntrack,
// which waits for the last one, does with all of them as with that.
func (s served) onlyUDP() bool {
	n := 0
	for _, p := range s.of.Ports {
		if p.Protocol == intent.UDP && p.IPv6 == s.port.IPv6 {
			n++
		}
	}
	return n == 1 && s.port.Protocol == intent.UDP
}

func (s served) clusterFrontend(at frontend, to *choice) {
	if !s.inner {
		s.lead(serviceFrontend, toAnybody, at, to)
		return
	}
	s.lead(serviceFrontend, toSome, at, to, inRouter(s.rt))
	s.lead(serviceFrontend, toSome, at, to, from(fromGateway))
	s.to(serviceFrontend, toAnybody, at).drop(isolated)
}

// outside adds the frontends for all clients. Ports of other routers than a private one are led to
// the host, which sends their packets back as its own.
func (s served) outside(t Table, at frontend) {
	s.fromOutside(t, at)
	if !s.inner {
		s.lead(t, toAnybody, at, s.all)
		return
	}
	s.lead(t, toAnybody, at, s.all, inRouter(s.rt))
	s.lead(t, toAnybody, at, s.all, from(fromGateway))
}

// fromOutside is for clients that a policy keeps on the node.
func (s served) fromOutside(t Table, at frontend) {
	if s.of.ExternalLocal {
		s.lead(t, toFew, at, s.local, external)
	}
}

// restricted is outside for an address that only some sources may use. The host's
// kernel has looked at the sources of what comes from it.
func (s served) restricted(at frontend) {
	t := serviceFrontend
	s.fromOutside(t, at)
	s.lead(t, toSomeMore, at, s.all, from(fromGateway))
	for _, p := range s.of.SourceRanges {
		if p.Addr().Is6() != s.port.IPv6 {
			continue
		}
		source := within(p)
		if !s.inner {
			s.lead(t, toSome, at, s.all, source...)
			continue
		}
		s.lead(t, toSome+1, at, s.all, append(source, inRouter(s.rt))...)
		s.to(t, toSome, at, source...).goTo(l2)
	}
	s.to(t, toAnybody, at).drop("the load balancer's source ranges do not have the sender")
}

// within matches packets from a prefix, which may be all of a family.
func within(p netip.Prefix) []openflow.FieldValue {
	if p.Bits() == 0 {
		return nil
	}
	return []openflow.FieldValue{openflow.IPSrc(p)}
}

// to begins the flow for packets to a frontend.
func (s served) to(t Table, priority uint16, at frontend, when ...openflow.FieldValue) flow {
	fields := make([]openflow.FieldValue, 0, 6)
	fields = append(fields, ipType(s.port))
	if at.fragments != 0 {
		fields = append(fields, openflow.IPProto(at.fragments), openflow.IPFrag(openflow.IPFragAny, openflow.IPFragAny))
	} else {
		fields = append(fields, openflow.L4Dst(uint8(s.port.Protocol), at.port))
	}
	if at.address.IsValid() {
		fields = append(fields, openflow.IPDst(at.address))
	}
	return s.r.on(t, priority, append(fields, when...)...)
}

// lead leads packets to a frontend to an endpoint.
func (s served) lead(t Table, priority uint16, at frontend, to *choice, when ...openflow.FieldValue) {
	switch {
	case to.empty() && s.port.Unserved:
		// The host's kernel tells the client.
		w := s.to(t, priority, at, when...).set(viaGateway()...)
		if s.r.policed() {
			w = w.set(refused)
		}
		w.deliver()
	case to.empty():
		s.to(t, priority, at, when...).drop(noEndpoint)
	case s.of.AffinitySeconds > 0:
		s.keep(s.to(t, priority, at, when...), at, to).do(openflow.Resubmit(affinityPin.ID)).goTo(affinity)
	case to.only != nil:
		e := to.only.endpoint
		w := s.keep(s.to(t, priority, at, when...), at, to).set(openflow.IPDst(e.Address))
		if at.fragments != ipProtoFragment {
			w = w.set(openflow.L4Dst(uint8(s.port.Protocol), e.Port))
		}
		w.goTo(serviceRoute)
	case at.fragments != 0: // without the client's port, which tells which part is asked
		s.keep(s.to(t, priority, at, when...), at, to).do(openflow.ToGroup(to.parts[0].group)).end()
	default:
		for _, one := range to.parts {
			w := s.to(t, priority, at, append(when[:len(when):len(when)], one.when...)...)
			s.keep(w, at, to).do(openflow.ToGroup(one.group)).end()
		}
	}
}

// keep stores the packet's original destination, where the endpoint is chosen, and which one if
// there is no choice.
func (s served) keep(w flow, at frontend, to *choice) flow {
	public, endpoint := uint64(1), uint64(0)
	if s.inner {
		public = 0
	}
	if to.only != nil {
		endpoint = uint64(to.only.id)
	}
	port := uint64(at.port)
	if s.r.policed() && at.inside {
		_, bit := byClusterIP.Num()
		port |= bit
	}
	// regServed to regPublic at once.
	w = w.set(openflow.XXReg(2).Value128(uint64(to.number)<<32|endpoint, port<<32|public))
	if at.address.IsValid() {
		w = w.set(addressed(at.address))
	}
	return w
}
