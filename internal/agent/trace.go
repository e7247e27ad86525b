// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"strings"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/intent"
)

// TraceRequest is the body of POST /v1/trace: a packet as it enters this node's bridge.
type TraceRequest struct {
	// From is where it enters: a pod of this node as namespace/name or namespace/name/interface, "gateway" for a packet of
	// the host or from outside, or "tunnel" for one from another node.
	From string `json:"from"`
	// Source may be left out for a pod: its address of Destination's family.
	Source      netip.Addr `json:"source,omitzero"`
	Destination netip.Addr `json:"destination"`
	// Protocol is tcp, udp, sctp or icmp; empty is icmp.
	Protocol        string `json:"protocol,omitempty"`
	SourcePort      uint16 `json:"sourcePort,omitempty"`
	DestinationPort uint16 `json:"destinationPort,omitempty"`
	// TTL is 64 if it is left out.
	TTL uint8 `json:"ttl,omitempty"`
	// Conntrack is what each lookup of the connection finds, in order, such as "trk,est"; "trk,new" is the rest.
	Conntrack []string `json:"conntrack,omitempty"`
	// VNI and TunnelSource are those of a packet from the tunnel.
	VNI          uint32     `json:"vni,omitempty"`
	TunnelSource netip.Addr `json:"tunnelSource,omitzero"`
}

// Trace is the answer to POST /v1/trace.
type Trace struct {
	Node string `json:"node"`
	// Packet is the packet as ofproto/trace was asked for it.
	Packet string      `json:"packet"`
	Steps  []TraceStep `json:"steps"`
	// Service is the one whose address the packet is sent to; nil: none that the bridge balances.
	Service *TracedService `json:"service,omitempty"`
	// Policies are what policies decide, in order.
	Policies []TracedPolicy `json:"policies,omitempty"`
	// Outcome is where the packet goes.
	Outcome Outcome `json:"outcome"`
	// Text is ofproto/trace's own answer.
	Text string `json:"text"`
}

// TracedService is what becomes of a packet for a Service.
type TracedService struct {
	Name string `json:"name"` // namespace/name
	// Endpoint is the one that this packet gets, as a new connection gets any of Endpoints; not valid: none.
	Endpoint  netip.AddrPort `json:"endpoint,omitzero"`
	Endpoints int            `json:"endpoints"`
	// Refused says that there is no endpoint, and the kernel of the client's node answers so.
	Refused bool `json:"refused,omitempty"`
}

// TracedPolicy is what policies decide of a packet in one direction.
type TracedPolicy struct {
	// Direction is egress or ingress, Tier SecurityGroup, Admin, NetworkPolicy or Baseline; empty if the Port is closed.
	Direction string `json:"direction"`
	Tier      string `json:"tier,omitempty"`
	// Decision is allowed, denied or passed.
	Decision string `json:"decision"`
	// Policies has the one whose rule decides, or those of which no rule allows the packet.
	Policies []string `json:"policies,omitempty"`
	// Rule is the rule's number in its direction's list, from 1; 0 if none decides.
	Rule int `json:"rule,omitempty"`
	// Text is all of it in words.
	Text string `json:"text"`
}

// TraceStep is one flow that the packet matched.
type TraceStep struct {
	Table     int    `json:"table"`
	TableName string `json:"tableName,omitempty"`
	// Feature and Owner say which part of Coelan made the flow, and for which object.
	Feature string `json:"feature,omitempty"`
	Owner   string `json:"owner,omitempty"`
	// Reason is why the flow drops the packet; empty if it does not.
	Reason string `json:"reason,omitempty"`
	// Note is what it means that no flow of the table matches.
	Note string `json:"note,omitempty"`
	// Flow is what the flow matches, Actions what it does.
	Flow    string   `json:"flow"`
	Actions []string `json:"actions"`
}

// Outcome is the end of a packet's way through a node's bridge.
type Outcome struct {
	// Kind is pod, gateway, tunnel, physical, answer (the packet was a question and goes back answered) or drop.
	Kind string `json:"kind"`
	// Pod is namespace/name/interface of the receiver, or namespace/name of a user's Port.
	Pod string `json:"pod,omitempty"`
	// Network is the receiver's, or the physical network that the packet leaves by.
	Network string `json:"network,omitempty"`
	// Node, TunnelIP and VNI say where the tunnel leads.
	Node     string `json:"node,omitempty"`
	TunnelIP string `json:"tunnelIP,omitempty"`
	VNI      uint32 `json:"vni,omitempty"`
	// Reason is why the packet is dropped.
	Reason string `json:"reason,omitempty"`
}

// trace asks ovs-vswitchd for the packet's way, and names what it finds.
func (a *Agent) trace(ctx context.Context, r TraceRequest) (Trace, error) {
	packet, err := a.packet(r)
	if err != nil {
		return Trace{}, err
	}
	args := []string{a.cfg.Bridge, packet}
	for _, state := range r.Conntrack {
		args = append(args, "--ct-next", state)
	}
	text, err := a.vswitchd.Call(ctx, "ofproto/trace", args...)
	if err != nil {
		return Trace{}, fmt.Errorf("ofproto/trace: %w", err)
	}
	t := a.explainTrace(packet, text)
	t.Service = tracedService(a.intent.State(), r, t)
	return t, nil
}

// anyHash stands for the hash of a packet by which its endpoint is chosen, which ofproto/trace does not make.
const anyHash = "dp_hash=1"

// badRequest is an error of the one who asks.
type badRequest struct{ error }

func bad(format string, args ...any) error { return badRequest{fmt.Errorf(format, args...)} }

// packet writes the request as a flow that ofproto/trace understands.
func (a *Agent) packet(r TraceRequest) (string, error) {
	if !r.Destination.IsValid() {
		return "", bad("destination: is missing")
	}
	var f []string
	var err error
	switch r.From {
	case "":
		return "", bad("from: is missing; name a pod of this node, gateway or tunnel")
	case "gateway":
		f = a.fromGateway()
	case "tunnel":
		f, err = a.fromTunnel(r)
	default:
		f, err = a.fromPod(&r)
	}
	if err != nil {
		return "", err
	}
	if !r.Source.IsValid() {
		return "", bad("source: is missing; it can be left out for a pod only")
	}
	if r.Source.Is4() != r.Destination.Is4() {
		return "", bad("source %s and destination %s are of different families", r.Source, r.Destination)
	}
	if a.native() {
		f = append(f, anyHash)
	}
	header, err := networkHeader(r)
	return strings.Join(append(f, header...), ","), err
}

func (a *Agent) fromGateway() []string {
	return []string{
		fmt.Sprintf("in_port=%d", intent.GatewayPort), "dl_src=" + intent.GatewayMAC.String(), "dl_dst=" + intent.RouterMAC.String(),
	}
}

func (a *Agent) fromTunnel(r TraceRequest) ([]string, error) {
	if !r.TunnelSource.IsValid() || r.VNI == 0 {
		return nil, bad("tunnelSource and vni: are needed for a packet from the tunnel")
	}
	tun := "tun_src"
	if r.TunnelSource.Is6() {
		tun = "tun_ipv6_src"
	}
	return []string{
		fmt.Sprintf("in_port=%d", intent.TunnelPort), fmt.Sprintf("tun_id=%d", r.VNI), tun + "=" + r.TunnelSource.String(),
		"dl_src=" + intent.RouterMAC.String(), "dl_dst=" + intent.RouterMAC.String(),
	}, nil
}

// fromPod also fills in the source. A pod sends directly to its neighbours, and all else to its router.
func (a *Agent) fromPod(r *TraceRequest) ([]string, error) {
	at, err := a.findPod(r.From)
	if err != nil {
		return nil, err
	}
	to := intent.RouterMAC
	for _, p := range at.Addresses {
		if p.Addr().Is4() != r.Destination.Is4() {
			continue
		}
		if !r.Source.IsValid() {
			r.Source = p.Addr()
		}
		if peer, ok := a.portOn(at.NetworkName, r.Destination); ok && p.Contains(r.Destination) {
			to = peer.MAC
		}
	}
	if !r.Source.IsValid() {
		return nil, bad("%s has no address of the family of %s", r.From, r.Destination)
	}
	return []string{fmt.Sprintf("in_port=%d", at.OFPort), "dl_src=" + at.MAC.String(), "dl_dst=" + to.String()}, nil
}

// findPod finds the attachment of namespace/name/interface, or the first one of namespace/name. A user's Port is
// namespace/name.
func (a *Agent) findPod(name string) (attachment.Attachment, error) {
	var found *attachment.Attachment
	for _, at := range a.store.List() {
		switch {
		case at.PodRef() == name || at.IsPort() && at.PortKey() == name:
			return at, nil
		case at.PodNamespace+"/"+at.PodName == name && (found == nil || first(at)):
			found = &at
		}
	}
	if found == nil {
		return attachment.Attachment{}, bad("from: node %s has no pod %s", a.opts.NodeName, name)
	}
	return *found, nil
}

// first says whether an attachment is its pod's first interface. What an older release recorded does not say so.
func first(at attachment.Attachment) bool { return at.Primary || at.NetworkName == "" }

// portOn finds the port on a network that has an address; an empty network is the default one.
func (a *Agent) portOn(network string, address netip.Addr) (intent.Port, bool) {
	for p := range a.intent.State().PortsWith(address) {
		if p.Network == cmp.Or(network, intent.DefaultNetworkName) {
			return p, true
		}
	}
	return intent.Port{}, false
}

// networkHeader writes addresses, protocol and ports.
func networkHeader(r TraceRequest) ([]string, error) {
	if r.TTL == 0 {
		r.TTL = 64
	}
	src, dst, suffix := "nw_src", "nw_dst", ""
	if r.Source.Is6() {
		src, dst, suffix = "ipv6_src", "ipv6_dst", "6"
	}
	var f []string
	switch r.Protocol {
	case "", "icmp":
		f = []string{"icmp", "icmp_type=8", "icmp_code=0"}
		if r.Source.Is6() {
			f = []string{"icmp6", "icmpv6_type=128", "icmpv6_code=0"}
		}
	case "tcp", "udp", "sctp":
		f = []string{
			r.Protocol + suffix, fmt.Sprintf("%s_src=%d", r.Protocol, r.SourcePort), fmt.Sprintf("%s_dst=%d", r.Protocol, r.DestinationPort),
		}
	default:
		return nil, bad("protocol: %q is not one of tcp, udp, sctp, icmp", r.Protocol)
	}
	return append(f, src+"="+r.Source.String(), dst+"="+r.Destination.String(), fmt.Sprintf("nw_ttl=%d", r.TTL)), nil
}
