// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/backend/ovs/pipeline"
	"coelan.io/coelan/internal/intent"
)

// outsideMAC is the sender of traced packets from the wire where the MAC of the station that they
// come by is not known.
var outsideMAC = intent.MAC{0x02, 0, 0, 0, 0, 0x01}

// fromOutside is a packet from the wire for an address that this node answers for. The tag comes
// behind all other fields: ofproto/trace takes it for the Ethernet type else.
func (t *tracer) fromOutside(r agentapi.TraceRequest) (fields, tag []string, err error) {
	in := t.input()
	inbound, network, err := inboundTo(in, r.Destination)
	if err != nil {
		return nil, nil, bad("destination: node %s does not answer for %s: %s", t.node, r.Destination, err)
	}
	if inbound.VLAN != 0 {
		tag = []string{fmt.Sprintf("vlan_tci=%#x", 0x1000|inbound.VLAN)}
	}
	mac := pipeline.NextHop(in, network, r.Destination, r.Source).MAC
	if mac == (intent.MAC{}) {
		mac = outsideMAC
	}
	return []string{
		fmt.Sprintf("in_port=%d", inbound.Uplink), "dl_src=" + mac.String(), "dl_dst=" + inbound.MAC.String(),
	}, tag, nil
}

// inboundTo is what leads a packet from the wire of an external Network to an address there. The
// error says why this node does not answer for it.
func inboundTo(in pipeline.Input, a netip.Addr) (inbound pipeline.Inbound, network string, err error) {
	var errs []string
	for f := range in.State.FloatingIPsAt(a) {
		if inbound, err = pipeline.InboundOf(in, f); err == nil {
			return inbound, f.Network, nil
		}
		errs = append(errs, fmt.Sprintf("FloatingIP %s: %s", f.Name, err))
	}
	for g := range gatewaysAt(in.State, a) {
		if inbound, err = pipeline.InboundOfGateway(in, g); err == nil {
			return inbound, g.Network, nil
		}
		errs = append(errs, fmt.Sprintf("gateway of Router %s: %s", g.Router, err))
	}
	for e := range in.State.EgressAddresses().All() {
		if e.Address != a {
			continue
		}
		if inbound, err = inboundToEgress(in, e); err == nil {
			return inbound, e.Network, nil
		}
		errs = append(errs, fmt.Sprintf("%s: %s", egressName(e), err))
	}
	if errs == nil {
		g, ok, err := pipeline.RoutedTo(in, a)
		if err != nil {
			return inbound, "", err
		}
		if ok {
			inbound, err = pipeline.InboundOfGateway(in, g)
			return inbound, g.Network, err
		}
		errs = []string{"no FloatingIP, no Egress and no Router's gateway has this address"}
	}
	return inbound, "", errors.New(strings.Join(errs, "; "))
}

// inboundToEgress is what leads a packet from the wire to an address that this node is active for.
func inboundToEgress(in pipeline.Input, e intent.EgressAddress) (pipeline.Inbound, error) {
	switch active := pipeline.ActiveFor(in, e); active {
	case in.State.Local().Node:
		return pipeline.InboundOfEgress(in, e)
	case "":
		return pipeline.Inbound{}, errors.New("no node is active for it")
	default:
		return pipeline.Inbound{}, fmt.Errorf("node %s is active for it: trace there", active)
	}
}

// egressName is what has an address that one of several nodes is active for.
func egressName(e intent.EgressAddress) string {
	if e.Egress != "" {
		return "Egress " + e.Egress
	}
	return "gateway of Router " + e.Router
}

// gatewaysAt are the gateways with an address, each of another external Network.
func gatewaysAt(s *intent.State, a netip.Addr) iter.Seq[intent.GatewayAddress] {
	return func(yield func(intent.GatewayAddress) bool) {
		for g := range s.GatewayAddresses().All() {
			if g.Address == a && !yield(g) {
				return
			}
		}
	}
}

func (t *tracer) input() pipeline.Input {
	return pipeline.Input{State: t.intent.State(), Numbers: t.numbers.get()}
}

// nameExternal names the floating IPs and Routers' gateways that the addresses of the packet are,
// or become, and the next hop of one that leaves by an external Network.
func (t *tracer) nameExternal(r agentapi.TraceRequest, way *agentapi.Trace) {
	in := t.input()
	for _, step := range way.Steps {
		nameOwner(in, step, way)
		if g, ok := pipeline.RoutedBy(in, step.Table, step.Actions); ok {
			way.LeavesBy = tracedGateway(g)
		}
	}
	destination := r.Destination
	if way.Service != nil && way.Service.Endpoint.IsValid() {
		destination = way.Service.Endpoint.Addr()
	}
	network, source := way.External()
	if source.IsValid() && waitsForMAC(way) {
		way.Outcome = agentapi.Outcome{Kind: "unresolved"}
	}
	switch way.Outcome.Kind {
	case "physical", "unresolved":
		if source.IsValid() && way.NextHop == nil {
			way.NextHop = tracedNextHop(pipeline.NextHop(in, network, source, destination))
		}
	case "gateway":
		if way.SentTo != nil && way.SentTo.Service != "" {
			leadByKernel(in.State, r, way)
			return
		}
	default:
		return
	}
	for f := range in.State.FloatingIPsAt(destination) {
		if network == "" || network == f.Network {
			way.SentTo = tracedFloatingIP(in.State, f)
		}
	}
	for g := range gatewaysAt(in.State, destination) {
		if network == "" || network == g.Network {
			way.SentToGateway = tracedGateway(g)
		}
	}
}

// leadByKernel says what the kernel makes of a packet from outside for the FloatingIP of a Service:
// it refuses it, or gives it back to the bridge, with the address of the node's gateway where the
// Service does not want to see the client's.
func leadByKernel(s *intent.State, r agentapi.TraceRequest, way *agentapi.Trace) {
	v, _ := s.NodeServices().Get(way.SentTo.Service)
	node, _ := s.Nodes().Get(s.Local().Node)
	back := r
	back.From, back.Conntrack = "gateway", nil
	back.Source, _ = gatewayOf(node, r.Destination)
	for _, p := range v.Ports {
		if p.Port != r.DestinationPort || !strings.EqualFold(p.Protocol.String(), r.Protocol) ||
			!slices.Contains(p.ExternalIPs, r.Destination) && !slices.Contains(p.LoadBalancerIPs, r.Destination) {
			continue
		}
		if slices.Contains(p.LoadBalancerIPs, r.Destination) && !mayUse(v.SourceRanges, r.Source) {
			way.Outcome = agentapi.Outcome{Kind: "drop",
				Reason: "spec.loadBalancerSourceRanges of service " + way.SentTo.Service + " do not have the sender"}
			return
		}
		if p.Unserved {
			way.Service = &agentapi.TracedService{Name: way.SentTo.Service, Refused: true}
			return
		}
		if v.ExternalLocal {
			back.Source = r.Source
		}
	}
	way.Returns = &back
}

// mayUse says whether the source ranges of a Service have a client. They have prefixes of all of
// its families, or none at all.
func mayUse(ranges []netip.Prefix, client netip.Addr) bool {
	return len(ranges) == 0 ||
		slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(client) })
}

// nameOwner names what the flow of a step is for, where it is a floating IP, a Router's gateway or
// an Egress.
func nameOwner(in pipeline.Input, step agentapi.TraceStep, way *agentapi.Trace) {
	s := in.State
	kind, name, _ := strings.Cut(step.Owner, "/")
	switch kind {
	case "floating-ip":
		f, ok := s.FloatingIPs().Get(name)
		switch {
		case ok && pipeline.WritesSource(step.Table):
			way.LeavesAs = tracedFloatingIP(s, f)
		case ok && pipeline.WritesDestination(step.Table):
			way.SentTo = tracedFloatingIP(s, f)
		}
	case "gateway":
		g, ok := s.GatewayAddresses().Get(name)
		switch {
		case ok && pipeline.LetsOut(step.Table):
			way.LeavesBy = tracedGateway(g)
		case ok && pipeline.WritesDestination(step.Table):
			way.SentToGateway = tracedGateway(g)
		}
	case "egress-address":
		network, text, _ := strings.Cut(name, " ")
		a, _ := netip.ParseAddr(text)
		e, ok := s.EgressAddress(network, a)
		traced := &agentapi.TracedGateway{
			Router: e.Router, Egress: e.Egress, Node: s.Local().Node, Network: e.Network, Address: e.Address,
		}
		switch {
		case ok && pipeline.ByPolicy(step.Table):
			traced.Routed, way.LeavesBy = true, traced
			if hop := pipeline.PolicyHop(in, e, step.Actions); hop.Address.IsValid() {
				way.NextHop = tracedNextHop(hop)
			}
		case ok && pipeline.LetsOut(step.Table):
			way.LeavesBy = traced
		case ok && pipeline.WritesDestination(step.Table):
			way.SentToGateway = traced
		}
	}
}

// waitsForMAC reports whether the agent is given the packet, for its next hop has no known MAC.
func waitsForMAC(way *agentapi.Trace) bool {
	last := way.Steps[len(way.Steps)-1]
	return way.Outcome.Kind == "drop" && pipeline.FindsNextHop(last.Table) &&
		slices.ContainsFunc(last.Actions, func(a string) bool { return strings.HasPrefix(a, "controller(") })
}

func tracedFloatingIP(s *intent.State, f intent.FloatingIP) *agentapi.TracedFloatingIP {
	traced := &agentapi.TracedFloatingIP{
		Name: f.Name, Network: f.Network, Address: f.Address, Port: f.Port, Service: f.Service,
	}
	if _, chosen := s.ChosenAddresses().Get(f.Address.String()); chosen && f.Service != "" {
		traced.Node = s.Local().Node
	}
	if f.Port == "" {
		return traced
	}
	for p := range s.PortsNamed(f.Port) {
		traced.Node = p.Node
	}
	return traced
}

func tracedGateway(g intent.GatewayAddress) *agentapi.TracedGateway {
	return &agentapi.TracedGateway{Router: g.Router, Node: g.Node, Network: g.Network, Address: g.Address,
		Routed: g.Routed}
}

func tracedNextHop(hop pipeline.Hop) *agentapi.TracedNextHop {
	traced := &agentapi.TracedNextHop{Address: hop.Address, Gateway: hop.Gateway}
	if hop.MAC != (intent.MAC{}) {
		traced.MAC = hop.MAC.String()
	}
	return traced
}
