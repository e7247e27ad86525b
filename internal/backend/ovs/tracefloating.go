// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"fmt"
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

// fromOutside is a packet from the wire for a floating IP that this node answers for. The tag comes
// behind all other fields: ofproto/trace takes it for the Ethernet type else.
func (t *tracer) fromOutside(r agentapi.TraceRequest) (fields, tag []string, err error) {
	in := t.input()
	var errs []string
	for f := range in.State.FloatingIPsAt(r.Destination) {
		inbound, err := pipeline.InboundOf(in, f)
		if err != nil {
			errs = append(errs, fmt.Sprintf("FloatingIP %s: %s", f.Name, err))
			continue
		}
		if inbound.VLAN != 0 {
			tag = []string{fmt.Sprintf("vlan_tci=%#x", 0x1000|inbound.VLAN)}
		}
		mac := pipeline.NextHop(in, f.Network, f.Address, r.Source).MAC
		if mac == (intent.MAC{}) {
			mac = outsideMAC
		}
		return []string{
			fmt.Sprintf("in_port=%d", inbound.Uplink), "dl_src=" + mac.String(), "dl_dst=" + inbound.MAC.String(),
		}, tag, nil
	}
	if errs == nil {
		errs = []string{"no FloatingIP has this address"}
	}
	return nil, nil, bad("destination: node %s does not answer for %s: %s", t.node, r.Destination,
		strings.Join(errs, "; "))
}

func (t *tracer) input() pipeline.Input {
	return pipeline.Input{State: t.intent.State(), Numbers: t.numbers.get()}
}

// nameFloatingIPs names those that the addresses of the packet are, or become, and the next hop of
// one that leaves by an external Network.
func (t *tracer) nameFloatingIPs(r agentapi.TraceRequest, way *agentapi.Trace) {
	in := t.input()
	for _, step := range way.Steps {
		name, _ := strings.CutPrefix(step.Owner, "floating-ip/")
		f, ok := in.State.FloatingIPs().Get(name)
		switch {
		case ok && pipeline.WritesSource(step.Table):
			way.LeavesAs = tracedFloatingIP(in.State, f)
		case ok && pipeline.WritesDestination(step.Table):
			way.SentTo = tracedFloatingIP(in.State, f)
		}
	}
	destination := r.Destination
	if way.Service != nil && way.Service.Endpoint.IsValid() {
		destination = way.Service.Endpoint.Addr()
	}
	if way.LeavesAs != nil && waitsForMAC(way) {
		way.Outcome = agentapi.Outcome{Kind: "unresolved"}
	}
	switch way.Outcome.Kind {
	case "physical", "unresolved":
		if way.LeavesAs != nil {
			way.NextHop = tracedNextHop(in, *way.LeavesAs, destination)
		}
	case "gateway":
	default:
		return
	}
	for f := range in.State.FloatingIPsAt(destination) {
		if way.LeavesAs == nil || way.LeavesAs.Network == f.Network {
			way.SentTo = tracedFloatingIP(in.State, f)
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
	traced := &agentapi.TracedFloatingIP{Name: f.Name, Network: f.Network, Address: f.Address, Port: f.Port}
	if f.Port == "" {
		return traced
	}
	for p := range s.PortsNamed(f.Port) {
		traced.Node = p.Node
	}
	return traced
}

func tracedNextHop(in pipeline.Input, as agentapi.TracedFloatingIP, destination netip.Addr) *agentapi.TracedNextHop {
	hop := pipeline.NextHop(in, as.Network, as.Address, destination)
	traced := &agentapi.TracedNextHop{Address: hop.Address, Gateway: hop.Gateway}
	if hop.MAC != (intent.MAC{}) {
		traced.MAC = hop.MAC.String()
	}
	return traced
}
