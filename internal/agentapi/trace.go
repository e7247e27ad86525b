// SPDX-License-Identifier: Apache-2.0

package agentapi

import (
	"net/netip"
)

// TraceRequest is the body of POST /v1/trace: a packet as it enters this node's bridge.
type TraceRequest struct {
	// From is where it enters: a pod of this node as namespace/name or namespace/name/interface,
	// "gateway" for a packet of the host or from outside, "tunnel" for one from another node, or
	// "outside" for one from an external Network, to an address there that this node answers for.
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
	// Conntrack is what each lookup of the connection finds, in order, such as "trk,est"; "trk,new"
	// is the rest.
	Conntrack []string `json:"conntrack,omitempty"`
	// VNI and TunnelSource are those of a packet from the tunnel.
	VNI          uint32     `json:"vni,omitempty"`
	TunnelSource netip.Addr `json:"tunnelSource,omitzero"`
	// MAC is the destination within the tunnel; empty: the virtual router's.
	MAC string `json:"mac,omitempty"`
}

// Trace is the answer to POST /v1/trace.
type Trace struct {
	Node string `json:"node"`
	// Packet is the packet as ofproto/trace was asked for it, or ovn-trace is to be.
	Packet string      `json:"packet"`
	Steps  []TraceStep `json:"steps"`
	// Service is the one that has the packet's destination address; nil: none
	// that the bridge balances.
	Service *TracedService `json:"service,omitempty"`
	// LeavesAs is the FloatingIP with the address that becomes the packet's source.
	LeavesAs *TracedFloatingIP `json:"leavesAs,omitempty"`
	// SentTo is the FloatingIP with the packet's destination address.
	SentTo *TracedFloatingIP `json:"sentTo,omitempty"`
	// LeavesBy is the Router's gateway, or the Egress, with the address that becomes the packet's
	// source, unless it is Routed.
	LeavesBy *TracedGateway `json:"leavesBy,omitempty"`
	// SentToGateway is the Router's gateway with the packet's destination address.
	SentToGateway *TracedGateway `json:"sentToGateway,omitempty"`
	// Returns is the packet as this node's kernel gives it back to the bridge, of one that came
	// from outside for the FloatingIP of a Service; nil: it does not.
	Returns *TraceRequest `json:"returns,omitempty"`
	// NextHop is that of a packet which leaves by an external Network.
	NextHop *TracedNextHop `json:"nextHop,omitempty"`
	// Policies are what policies decide, in order.
	Policies []TracedPolicy `json:"policies,omitempty"`
	// Refused are objects that the packet's way would depend on, and that the switch refuses.
	Refused []Refused `json:"refused,omitempty"`
	// Outcome is where the packet goes.
	Outcome Outcome `json:"outcome"`
	// Text is ofproto/trace's own answer.
	Text string `json:"text"`
}

// TracedService is what becomes of a packet for a Service.
type TracedService struct {
	Name string `json:"name"` // namespace/name
	// Endpoint is the one that this packet gets, as a new connection gets any of
	// Endpoints; not valid: none.
	Endpoint  netip.AddrPort `json:"endpoint,omitzero"`
	Endpoints int            `json:"endpoints"`
	// Refused says that there is no endpoint, and the kernel of the client's node answers so.
	Refused bool `json:"refused,omitempty"`
}

// TracedFloatingIP is a FloatingIP on a packet's way.
type TracedFloatingIP struct {
	Name    string     `json:"name"` // namespace/name
	Network string     `json:"network"`
	Address netip.Addr `json:"address"`
	// Port or Service is the namespace/name of what the address stands for; none: it stands for
	// nothing.
	Port    string `json:"port,omitempty"`
	Service string `json:"service,omitempty"`
	// Node is that of the Port, or that which answers for the Service; empty if it is not this one
	// and this one does not know it.
	Node string `json:"node,omitempty"`
}

// TracedGateway is a Router's gateway, or an address of an Egress, on a packet's way.
type TracedGateway struct {
	Router string `json:"router"`
	// Egress is the name of the Egress that has the address; empty: the Router's gateway has.
	Egress  string     `json:"egress,omitempty"`
	Node    string     `json:"node"` // that has the address
	Network string     `json:"network"`
	Address netip.Addr `json:"address"`
	// Routed says that the packet keeps its addresses: the address is only where answers go.
	Routed bool `json:"routed,omitempty"`
}

// External is the address of an external Network that the packet leaves with, and the Network; not
// valid if it leaves with none.
func (t Trace) External() (network string, source netip.Addr) {
	switch {
	case t.LeavesAs != nil:
		return t.LeavesAs.Network, t.LeavesAs.Address
	case t.LeavesBy != nil:
		return t.LeavesBy.Network, t.LeavesBy.Address
	}
	return "", netip.Addr{}
}

// TracedNextHop is the station on an external Network that a packet is sent to.
type TracedNextHop struct {
	Address netip.Addr `json:"address"`
	// Gateway says that it is the subnet's gateway, and not the destination itself.
	Gateway bool `json:"gateway,omitempty"`
	// MAC is empty if it is not known: the agent asks for it.
	MAC string `json:"mac,omitempty"`
}

// TracedPolicy is what policies decide of a packet in one direction.
type TracedPolicy struct {
	// Direction is egress or ingress, Tier SecurityGroup, Admin, NetworkPolicy or Baseline; empty
	// if the Port is closed.
	Direction string `json:"direction"`
	Tier      string `json:"tier,omitempty"`
	// Decision is allowed, denied or passed.
	Decision string `json:"decision"`
	// Policies has the one with the rule that decides, or those of which no rule allows the packet.
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
	// Kind is pod, gateway, tunnel, physical, unresolved (the packet waits for the MAC of NextHop),
	// answer (the packet was a question and goes back answered), ovn (OVN's flows take it from
	// LogicalPort) or drop.
	Kind string `json:"kind"`
	// Pod is namespace/name/interface of the receiver, or namespace/name of a user's Port.
	Pod string `json:"pod,omitempty"`
	// Network is the receiver's, or the physical network that the packet leaves by.
	Network string `json:"network,omitempty"`
	// Node, TunnelIP and VNI say where the tunnel leads, MAC what the destination in it is. Node is
	// also that of the agent that answers; empty: the switch does by itself.
	Node     string `json:"node,omitempty"`
	TunnelIP string `json:"tunnelIP,omitempty"`
	VNI      uint32 `json:"vni,omitempty"`
	MAC      string `json:"mac,omitempty"`
	// MTU is the size of the largest packet that fits the way, if a pod of this node may send a
	// larger one, which is answered with ICMP; 0: all fit.
	MTU int `json:"mtu,omitempty"`
	// LogicalPort is the port's name in OVN, with the backend neutron its UUID in Neutron, and
	// Command follows the packet from there, where OVN's southbound database is.
	LogicalPort string `json:"logicalPort,omitempty"`
	Command     string `json:"command,omitempty"`
	// Incomplete says what Command lacks, and why; empty: nothing.
	Incomplete string `json:"incomplete,omitempty"`
	// Reason is why the packet is dropped.
	Reason string `json:"reason,omitempty"`
}
