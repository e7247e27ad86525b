// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/backend/ovn/southbound"
	"coelan.io/coelan/internal/intent"
)

// newConnection has ovn-trace take the packet for the first one of a connection wherever the packet
// is tracked: on its way through two switches and the router between them. Else it is one of an
// established connection.
const newConnection = "--ct=new --ct=new --ct=new --ct=new"

// Trace answers with the command that follows the packet in OVN. The flows that decide about it are
// in OVN's southbound database, of which the agent reads bindings and addresses of ports alone.
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
		if !r.Source.IsValid() {
			r.Source = sourceOf(p, r.Destination)
		}
		if !r.Source.IsValid() {
			return agentapi.Trace{}, &backend.BadRequestError{Problem: fmt.Sprintf(
				"%s has no address of the family of %s", p.Name(), r.Destination)}
		}
		mac, incomplete := "", ""
		hop := nextHop(state, network, b.Node, r.Source, r.Destination)
		if mac, err = b.ethernetAddress(ctx, logical, hop); err != nil {
			incomplete = fmt.Sprintf("eth.dst, the Ethernet address of %s, to it: %v", hop, err)
		}
		flow := microflow(logical, p, mac, r)
		command := fmt.Sprintf("%s %s '%s'", b.logical.Trace(network, b.Node), newConnection, flow)
		return agentapi.Trace{
			Node: b.Node, Packet: flow, Steps: []agentapi.TraceStep{},
			Outcome: agentapi.Outcome{Kind: "ovn", LogicalPort: logical, Command: command, Incomplete: incomplete},
		}, nil
	}
	return agentapi.Trace{}, &backend.BadRequestError{Problem: fmt.Sprintf(
		"with the backend %s, a packet is followed from a pod of node %s; %q is none", b.Config.Backend.Type, b.Node, r.From)}
}

// sourceOf is the address by which a Port sends to a destination; invalid if it has none of that
// family.
func sourceOf(p intent.Port, destination netip.Addr) netip.Addr {
	at := slices.IndexFunc(p.Addresses, func(a netip.Addr) bool { return a.Is4() == destination.Is4() })
	if at < 0 {
		return netip.Addr{}
	}
	return p.Addresses[at]
}

// nextHop is where an interface on a Network sends what goes from a source to a destination: to the
// destination itself if that is on link, else to the gateway of the source's subnet. Without one it
// takes the destination to be on link.
func nextHop(s *intent.State, n intent.Network, node string, source, destination netip.Addr) netip.Addr {
	subnets := n.Subnets
	if own, _ := s.Nodes().Get(node); n.FromNodes() {
		for _, sn := range own.Subnets {
			subnets = append(subnets, intent.NetworkSubnet{Prefix: sn.Prefix, Gateway: sn.Gateway})
		}
	}
	for _, sn := range subnets {
		if sn.Prefix.Contains(source) && !sn.Prefix.Contains(destination) && sn.Gateway.IsValid() {
			return sn.Gateway
		}
	}
	return destination
}

// readEthernetAddress reads from OVN's southbound database. It is southbound.EthernetAddress.
type readEthernetAddress func(ctx context.Context, o southbound.Options, port string, a netip.Addr) (string, error)

// ethernetAddress is the Ethernet address that an IP address has on the switch of a logical port.
func (b *Backend) ethernetAddress(ctx context.Context, port string, a netip.Addr) (string, error) {
	ids, err := b.db.ExternalIDs(ctx)
	if err != nil {
		return "", err
	}
	servers := southboundOf(ids)
	if servers == "" {
		return "", errors.New("the node does not know OVN's southbound database")
	}
	o := southbound.Options{Remotes: strings.Split(servers, ",")}
	if why := b.withoutAccess(o.Remotes); why != "" {
		return "", fmt.Errorf("%s: %s", servers, why)
	}
	if err := b.secure(&o); err != nil {
		return "", err
	}
	mac, err := b.ethernet(ctx, o, port, a)
	if err == nil && mac == "" {
		err = errors.New("nothing on the port's switch has it in OVN's southbound database")
	}
	return mac, err
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

// microflow describes the packet in OVN's language (ovn-trace(8)), with the Ethernet address that
// it is sent to, if that is known.
func microflow(port string, p intent.Port, mac string, r agentapi.TraceRequest) string {
	ip, ttl := "ip6", r.TTL
	if r.Destination.Is4() {
		ip = "ip4"
	}
	if ttl == 0 {
		ttl = 64
	}
	terms := []string{fmt.Sprintf(`inport == "%s"`, port), "eth.src == " + p.MAC.String()}
	if mac != "" {
		terms = append(terms, "eth.dst == "+mac)
	}
	terms = append(terms, fmt.Sprintf("%s.src == %s", ip, r.Source), fmt.Sprintf("%s.dst == %s", ip, r.Destination),
		fmt.Sprintf("ip.ttl == %d", ttl))
	switch r.Protocol {
	case "", "icmp":
		terms = append(terms, strings.Replace(ip, "ip", "icmp", 1))
	default:
		terms = append(terms, fmt.Sprintf("%s.dst == %d", r.Protocol, r.DestinationPort))
	}
	return strings.Join(terms, " && ")
}
