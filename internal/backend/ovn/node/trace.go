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

// Trace answers with the command that follows the packet in OVN: what decides about it is in OVN's
// southbound database, which the agent has no access to.
func (b *Backend) Trace(_ context.Context, r agentapi.TraceRequest) (agentapi.Trace, error) {
	state := b.Intent.State()
	for p := range state.PortsAt(b.Node) {
		if p.Name() != r.From && p.Namespace+"/"+p.Pod != r.From {
			continue
		}
		network, _ := state.Networks().Get(p.Network)
		at := ""
		if network.FromNodes() {
			at = b.Node
		}
		return agentapi.Trace{}, &backend.BadRequestError{Problem: fmt.Sprintf(
			"with the backend ovn, ask OVN where its southbound database is: ovn-trace %s '%s'",
			b.cluster.Switch(p.Network, at), microflow(b.cluster.Port(p.ObjectKey()), p, r))}
	}
	return agentapi.Trace{}, &backend.BadRequestError{Problem: fmt.Sprintf(
		"with the backend ovn, a packet is followed from a pod of node %s; %q is none", b.Node, r.From)}
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
