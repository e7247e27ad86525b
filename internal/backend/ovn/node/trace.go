// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"strings"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/intent"
)

// Trace answers with the command that follows the packet in OVN. The flows that decide about it are
// in OVN's southbound database, of which the agent reads bindings of ports alone.
func (b *Backend) Trace(ctx context.Context, r agentapi.TraceRequest) (agentapi.Trace, error) {
	state := b.Intent.State()
	for p := range state.PortsAt(b.Node) {
		if p.Name() != r.From && p.Namespace+"/"+p.Pod != r.From {
			continue
		}
		network, _ := state.Networks().Get(p.Network)
		logical, err := b.logicalName(ctx, p)
		if err != nil {
			return agentapi.Trace{}, err
		}
		if logical == "" {
			return agentapi.Trace{},
				&backend.BadRequestError{Problem: fmt.Sprintf("the port of %s in Neutron is not known", p.Name())}
		}
		flow := microflow(logical, p, r)
		command := fmt.Sprintf("%s '%s'", b.logical.Trace(network, b.Node), flow)
		return agentapi.Trace{
			Node: b.Node, Packet: flow, Steps: []agentapi.TraceStep{},
			Outcome: agentapi.Outcome{Kind: "ovn", LogicalPort: logical, Command: command},
		}, nil
	}
	return agentapi.Trace{}, &backend.BadRequestError{Problem: fmt.Sprintf(
		"with the backend %s, a packet is followed from a pod of node %s; %q is none", b.Config.Backend.Type, b.Node, r.From)}
}

// logicalName is the name of the Logical_Switch_Port of a Port of this node. Open vSwitch is asked
// if its interface alone tells.
func (b *Backend) logicalName(ctx context.Context, p intent.Port) (string, error) {
	for _, at := range b.Attachments.List() {
		if at.PortKey() != p.ObjectKey() {
			continue
		}
		if logical, _ := b.logical.Port(at); logical != "" || !at.IsPort() {
			return logical, nil
		}
		states, err := b.ports.states(ctx)
		if err != nil {
			return "", err
		}
		logical, _ := b.ports.name(at, states[at.HostInterface])
		return logical, nil
	}
	return "", nil
}

// microflow describes the packet in OVN's language (ovn-trace(8)).
func microflow(port string, p intent.Port, r agentapi.TraceRequest) string {
	source := r.Source
	for _, a := range p.Addresses {
		if !source.IsValid() && a.Is4() == r.Destination.Is4() {
			source = a
		}
	}
	ip, ttl := "ip6", r.TTL
	if r.Destination.Is4() {
		ip = "ip4"
	}
	if ttl == 0 {
		ttl = 64
	}
	terms := []string{
		fmt.Sprintf(`inport == "%s"`, port), "eth.src == " + p.MAC.String(),
		fmt.Sprintf("%s.src == %s", ip, source), fmt.Sprintf("%s.dst == %s", ip, r.Destination),
		fmt.Sprintf("ip.ttl == %d", ttl),
	}
	switch r.Protocol {
	case "", "icmp":
		terms = append(terms, strings.Replace(ip, "ip", "icmp", 1))
	default:
		terms = append(terms, fmt.Sprintf("%s.dst == %d", r.Protocol, r.DestinationPort))
	}
	return strings.Join(terms, " && ")
}
