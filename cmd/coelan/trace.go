// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/spf13/cobra"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/diagnose"
)

// clientPort is the source port of a traced packet, the first of the dynamic ones (RFC 6335).
const clientPort = 49152

func newTraceCommand() *cobra.Command {
	var protocol string
	var v6, verbose bool
	var conntrack []string
	c := &cobra.Command{
		Use:   "trace POD|outside:ADDRESS POD|ADDRESS[:PORT]",
		Short: "Show the way of a packet from a pod, a Port or outside, over all nodes, and why it ends where it ends",
		Example: "  coelan trace web-0 shop/db-0:5432\n" +
			"  coelan trace web-0 [2001:db8::1]:443\n" +
			"  coelan trace web-0 10.96.0.10:53 --protocol udp\n" +
			"  coelan trace web-0 db-0 --ipv6 -v\n" +
			"  coelan trace outside:203.0.113.9 198.51.100.32:443",
		Args: cobra.ExactArgs(2),
	}
	flags := addClusterFlags(c)
	fs := c.Flags()
	fs.StringVar(&protocol, "protocol", "", "icmp, tcp, udp or sctp (default tcp with a port, else icmp)")
	fs.BoolVar(&v6, "ipv6", false, "between the pods' IPv6 addresses")
	fs.StringSliceVar(&conntrack, "conntrack", nil, "states of the connection on the first node, such as trk,est;"+
		" may be repeated (default a new connection)")
	fs.BoolVarP(&verbose, "verbose", "v", false, "also the flows that matched and what they did")
	fs.BoolVar(&flags.json, "json", false, "print the agents' own answers as JSON")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		cluster, namespace, err := flags.connect()
		if err != nil {
			return err
		}
		packet, err := packetBetween(cmd.Context(), cluster, args, namespace, v6)
		if err != nil {
			return err
		}
		if packet.Protocol, err = chooseProtocol(protocol, packet.DestinationPort); err != nil {
			return err
		}
		if packet.Protocol != "icmp" {
			packet.SourcePort = clientPort
		}
		packet.Conntrack = conntrack
		way, err := diagnose.Trace(cmd.Context(), cluster, packet)
		if flags.json {
			return errors.Join(printJSON(cmd.OutOrStdout(), way), err)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s %s → %s%s\n", packet.Protocol, packet.Source, packet.Destination,
			portSuffix(packet))
		for _, t := range way {
			printTrace(cmd.OutOrStdout(), t, verbose)
		}
		return err
	}
	return c
}

func packetBetween(ctx context.Context, cluster *diagnose.Cluster, names []string, namespace string,
	v6 bool,
) (diagnose.Packet, error) {
	ends := make([]diagnose.Endpoint, len(names))
	for i, parse := range []func(text, namespace string) (diagnose.Endpoint, error){
		diagnose.ParseSource, diagnose.ParseEndpoint,
	} {
		e, err := parse(names[i], namespace)
		if err != nil {
			return diagnose.Packet{}, err
		}
		if i == 1 && ends[0].Outside {
			if ends[1], err = cluster.FindAnswering(ctx, e); err != nil {
				return diagnose.Packet{}, err
			}
			break
		}
		if e, err = cluster.Resolve(ctx, e); err != nil {
			return diagnose.Packet{}, err
		}
		if ends[i], err = diagnose.Locate(ctx, cluster, e); err != nil {
			return diagnose.Packet{}, err
		}
	}
	return diagnose.NewPacket(ends[0], ends[1], v6)
}

// chooseProtocol is the asked for one, or what the presence of a port suggests.
func chooseProtocol(asked string, port uint16) (string, error) {
	switch {
	case asked == "" && port != 0:
		return "tcp", nil
	case asked == "" || asked == "icmp" && port == 0:
		return "icmp", nil
	case asked == "icmp":
		return "", errors.New("icmp has no ports")
	case asked != "tcp" && asked != "udp" && asked != "sctp":
		return "", fmt.Errorf("protocol %q is not one of icmp, tcp, udp, sctp", asked)
	case port == 0:
		return "", fmt.Errorf("%s needs a port behind the destination, such as :80", asked)
	}
	return asked, nil
}

func portSuffix(p diagnose.Packet) string {
	if p.DestinationPort == 0 {
		return ""
	}
	return fmt.Sprintf(" port %d", p.DestinationPort)
}

func printTrace(w io.Writer, t agentapi.Trace, verbose bool) {
	fmt.Fprintf(w, "node %s\n", t.Node)
	for _, s := range t.Steps {
		step := s.TableName
		if step == "" {
			step = fmt.Sprintf("table %d", s.Table)
		}
		fmt.Fprintf(w, "  %-18s %s\n", step, stepOf(s))
		if verbose {
			fmt.Fprintf(w, "  %-18s   match   %s\n", "", s.Flow)
			for _, a := range s.Actions {
				fmt.Fprintf(w, "  %-18s   action  %s\n", "", a)
			}
		}
	}
	if s := t.Service; s != nil && s.Endpoint.IsValid() {
		fmt.Fprintf(w, "  Service %s: endpoint %s, one of %d\n", s.Name, s.Endpoint, s.Endpoints)
	} else if s != nil {
		fmt.Fprintf(w, "  Service %s\n", s.Name)
	}
	for _, line := range floatingIPsOf(t) {
		fmt.Fprintf(w, "  FloatingIP %s\n", line)
	}
	for _, line := range gatewaysOf(t) {
		fmt.Fprintf(w, "  %s\n", line)
	}
	for _, p := range t.Policies {
		fmt.Fprintf(w, "  Policies, %s: %s\n", p.Direction, p.Text)
	}
	for _, r := range t.Refused {
		fmt.Fprintf(w, "  LEFT OUT: %s\n", r)
	}
	fmt.Fprintf(w, "  ⇒ %s\n", outcomeOf(t))
}

// floatingIPsOf says what floating IPs the packet's addresses are, or become.
func floatingIPsOf(t agentapi.Trace) (lines []string) {
	if f := t.LeavesAs; f != nil {
		lines = append(lines, becomes(t, f.Name, f.Address, f.Network))
	}
	if f := t.SentTo; f != nil {
		line := fmt.Sprintf("%s: %s of Network %s stands for ", f.Name, f.Address, f.Network)
		switch {
		case f.Service != "" && f.Node == "":
			line += "Service " + f.Service + ", and no node answers for it"
		case f.Service != "":
			line += "Service " + f.Service + ", and node " + f.Node + " answers for it"
		case f.Port == "":
			line += "no Port and no Service"
		case f.Node == "":
			line += "Port " + f.Port + ", which no node has"
		default:
			line += "Port " + f.Port + " on node " + f.Node
		}
		lines = append(lines, line)
	}
	return lines
}

// gatewaysOf says what Routers' gateways have the packet's addresses, or those that they become.
func gatewaysOf(t agentapi.Trace) (lines []string) {
	if g := t.LeavesBy; g != nil {
		if g.Routed {
			lines = append(lines, fmt.Sprintf("%s: leaves as it is by Network %s, from %s", gatewayName(*g), g.Network,
				g.Address)+byHop(t))
		} else {
			lines = append(lines, becomes(t, gatewayName(*g), g.Address, g.Network))
		}
	}
	if g := t.SentToGateway; g != nil {
		text := "%s: %s of Network %s is for what leaves from node %s, and the replies; nothing can open a connection to it"
		if g.Routed {
			text = "%s: comes in by %s of Network %s, which routes to the Router's Networks on node %s"
		}
		lines = append(lines, fmt.Sprintf(text, gatewayName(*g), g.Address, g.Network, g.Node))
	}
	return lines
}

// gatewayName is what has an address that packets leave by.
func gatewayName(g agentapi.TracedGateway) string {
	if g.Egress != "" {
		return "Egress " + g.Egress
	}
	return "Gateway of Router " + g.Router
}

// becomes is the line about an address that is written over the source.
func becomes(t agentapi.Trace, name string, a netip.Addr, network string) string {
	return fmt.Sprintf("%s: the source becomes %s of Network %s", name, a, network) + byHop(t)
}

// byHop is the end of a line about a packet that leaves by an external Network.
func byHop(t agentapi.Trace) string {
	if t.NextHop == nil {
		return ""
	}
	return ", the next hop is " + hopOf(*t.NextHop)
}

func hopOf(h agentapi.TracedNextHop) string {
	text := h.Address.String()
	if h.Gateway {
		text = "the gateway " + text
	}
	if h.MAC != "" {
		text += " with the MAC " + h.MAC
	}
	return text
}

// stepOf says which feature decided, and for which object.
func stepOf(s agentapi.TraceStep) string {
	switch {
	case s.Note != "":
		return s.Note
	case s.Feature == "":
		return "no flow of Coelan"
	case s.Owner == "":
		return s.Feature
	}
	return s.Feature + ", " + s.Owner
}

func outcomeOf(t agentapi.Trace) string {
	switch o := t.Outcome; o.Kind {
	case "pod":
		if o.Network != "" && o.Network != v1alpha1.DefaultNetwork {
			return "delivered to " + o.Pod + " on network " + o.Network
		}
		return "delivered to " + o.Pod
	case "physical":
		return "to the physical network " + o.Network
	case "unresolved":
		return unresolved(t)
	case "gateway":
		if t.Service != nil && t.Service.Refused {
			return "REFUSED by the kernel of node " + t.Node + ": the Service has no endpoints"
		}
		if t.Returns != nil {
			return "to the kernel of node " + t.Node + ", which gives it back for the Service, from " +
				t.Returns.Source.String()
		}
		return "to the kernel of node " + t.Node + ", which routes it on (Services, other networks, the node itself)"
	case "tunnel":
		text := fmt.Sprintf("through the tunnel to node %s (%s, VNI %d)", o.Node, o.TunnelIP, o.VNI)
		if o.MTU != 0 {
			text += fmt.Sprintf("; packets of more than %d bytes are answered with ICMP", o.MTU)
		}
		return text
	case "ovn":
		text := fmt.Sprintf("to OVN by the logical port %s; ask it where its southbound database is:\n    %s",
			o.LogicalPort, o.Command)
		if o.Incomplete != "" {
			text += "\n    add " + o.Incomplete
		}
		return text
	case "answer":
		if o.Node != "" {
			return "answered by the agent of node " + o.Node
		}
		return "answered by the switch"
	default:
		return "DROPPED: " + o.Reason
	}
}

func unresolved(t agentapi.Trace) string {
	text := "WAITS: the MAC of " + hopOf(*t.NextHop) + " is not known; the agent of node " + t.Node + " asks for it. " +
		"If it never answers: "
	network, _ := t.External()
	if t.NextHop.Gateway {
		return text + "are gateway and VLAN of Network " + network + " right, and does the uplink lead there?"
	}
	return text + "is there such a host on Network " + network + "?"
}
