// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"context"
	"fmt"
	"net/netip"

	"coelan.io/coelan/internal/agentapi"
)

// Packet is what is traced.
type Packet struct {
	// Node is where it starts, and From the pod there as namespace/name, "gateway" for a packet of
	// the host, or "outside" for one from an external Network.
	Node, From string
	// Source and Destination are of one family.
	Source, Destination netip.Addr
	// Protocol is icmp, tcp, udp or sctp.
	Protocol                    string
	SourcePort, DestinationPort uint16
	// Conntrack is what each lookup of the connection finds on the first node, such as "trk,est".
	Conntrack []string
}

// maxNodes bounds a packet's way: the other end of a tunnel, or of an external Network, hands it to
// a pod or to its host, which may give it to the bridge once more, for an endpoint on a third node.
const maxNodes = 4

// Trace follows a packet from node to node and returns what each node does with it, in order.
func Trace(ctx context.Context, agents Agents, p Packet) ([]agentapi.Trace, error) {
	request := agentapi.TraceRequest{
		From: p.From, Source: p.Source, Destination: p.Destination, Protocol: p.Protocol,
		SourcePort: p.SourcePort, DestinationPort: p.DestinationPort, Conntrack: p.Conntrack,
	}
	var way []agentapi.Trace
	for node := p.Node; ; {
		var t agentapi.Trace
		if err := agents.Query(ctx, node, "/v1/trace", request, &t); err != nil {
			return way, err
		}
		var unknown error
		if f := t.SentTo; f != nil && f.Port+f.Service != "" && f.Node == "" {
			f.Node, unknown = agents.Answering(ctx, *f)
		}
		way = append(way, t)
		if unknown != nil {
			return way, unknown
		}
		next := t.Outcome.Node
		if to := answering(t); to != "" {
			next = to
		} else if t.Returns != nil {
			next = node
		} else if t.Outcome.Kind != "tunnel" {
			return way, nil
		}
		if next == "" {
			return way, fmt.Errorf("node %s sends the packet to %s, which is no node's address", node,
				t.Outcome.TunnelIP)
		}
		if len(way) == maxNodes {
			return way, fmt.Errorf("the packet was not delivered after %d nodes", maxNodes)
		}
		if t.Returns != nil {
			request = *t.Returns
			continue
		}
		if t.Outcome.Kind == "physical" {
			_, source := t.External()
			request.From, request.Source, request.Conntrack = "outside", source, nil
			node = next
			continue
		}
		sender, err := Status(ctx, agents, node)
		if err != nil {
			return way, err
		}
		if request, err = through(request, t, sender.TunnelIP); err != nil {
			return way, err
		}
		node = next
	}
}

// answering is the node that gets a packet which leaves for another node's floating IP, or its
// address as a gateway, by the external Network; empty if it does not.
func answering(t agentapi.Trace) (node string) {
	_, source := t.External()
	if t.Outcome.Kind != "physical" || !source.IsValid() {
		return ""
	}
	switch {
	case t.SentTo != nil:
		node = t.SentTo.Node
	case t.SentToGateway != nil:
		node = t.SentToGateway.Node
	}
	if node == t.Node {
		return ""
	}
	return node
}

// through is the packet as it comes out of the tunnel that t sent it into.
func through(r agentapi.TraceRequest, t agentapi.Trace, tunnelIP string) (agentapi.TraceRequest, error) {
	source, err := netip.ParseAddr(tunnelIP)
	if err != nil {
		return r, fmt.Errorf("tunnel address of node %s: %w", t.Node, err)
	}
	r.From, r.VNI, r.TunnelSource, r.MAC = "tunnel", t.Outcome.VNI, source, t.Outcome.MAC
	r.Conntrack = nil
	if t.Service != nil && t.Service.Endpoint.IsValid() {
		r.Destination, r.DestinationPort = t.Service.Endpoint.Addr(), t.Service.Endpoint.Port()
	}
	return r, nil
}
