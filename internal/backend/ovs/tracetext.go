// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"cmp"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/backend/ovs/pipeline"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/packet"
)

// noMatch is what ofproto/trace prints of a table without a flow for the packet, and unmatched what
// that means where nothing else is known of it.
const (
	noMatch   = "No match."
	unmatched = "no flow matches"
)

// What ofproto/trace prints (ovs: ofproto/ofproto-dpif-trace.c).
var (
	// stepLine is " 5. ip,in_port=16, priority 100, cookie 0xc0e0…"; a table without a
	// match says "No match."
	stepLine = regexp.MustCompile(`^\s*(\d+)\. (.*?)(?:, priority (\d+))?(?:, cookie (0x[0-9a-f]+))?$`)
	// bridgeLine is where the packet comes into a bridge, with how far it is indented
	// and the bridge's name.
	bridgeLine = regexp.MustCompile(`^( *)bridge\("(.*)"\)$`)
	// outputLine is "output:17", or "-> output port is 17" where a register names the port;
	// "IN_PORT" goes back.
	outputLine = regexp.MustCompile(`^\s*(?:output:|-> output port is )?(\d+|(?i:IN_PORT))$`)
	innerDst   = regexp.MustCompile(`set_field:([0-9a-f:]+)->eth_dst`)
	tunnelDst  = regexp.MustCompile(`set_field:([0-9a-f.:]+)->tun(?:_ipv6)?_dst`)
	// endpointNAT is the translation to an endpoint of a new connection.
	endpointNAT = regexp.MustCompile(`\bnat\(dst=([0-9a-f.:\[\]]+)\)`)
	// narrowTunnel is the comparison with what fits the way, with the Ethernet header; both its
	// branches are printed.
	narrowTunnel = regexp.MustCompile(`check_pkt_larger\((\d+)\)`)
	tunnelKey    = regexp.MustCompile(`set_field:(0x[0-9a-f]+|\d+)->tun_id`)
)

// explainTrace turns ofproto/trace's answer into steps and an outcome.
func (t *tracer) explainTrace(packet, text string) agentapi.Trace {
	trace := agentapi.Trace{Node: t.node, Packet: packet, Text: text, Steps: []agentapi.TraceStep{}}
	var out string
	for _, line := range ownLines(text) {
		trimmed := strings.TrimSpace(line)
		if m := stepLine.FindStringSubmatch(line); m != nil {
			step, verdict := t.step(m)
			trace.Steps = append(trace.Steps, step)
			if verdict != nil {
				trace.Policies = append(trace.Policies, tracedPolicy(*verdict))
			}
			continue
		}
		if len(trace.Steps) == 0 || trimmed == "" || !strings.HasPrefix(line, "    ") {
			continue
		}
		last := &trace.Steps[len(trace.Steps)-1]
		if trimmed == "drop" && last.Flow == noMatch && last.Note != unmatched {
			continue // the packet goes on
		}
		last.Actions = append(last.Actions, trimmed)
		if m := outputLine.FindStringSubmatch(line); m != nil {
			out = m[1]
		}
	}
	trace.Outcome = t.outcome(out, trace.Steps, text)
	return trace
}

// ownLines are those about the bridge that the packet begins in. Other bridges, that it leaves to
// by a patch port or a tunnel, have flows of their own.
func ownLines(text string) []string {
	var lines []string
	var bridge string
	indent, other := 0, false
	for _, line := range strings.Split(text, "\n") {
		if m := bridgeLine.FindStringSubmatch(line); m != nil {
			bridge = cmp.Or(bridge, m[2])
			indent, other = len(m[1]), m[2] != bridge
		} else if trimmed := strings.TrimLeft(line, " "); trimmed != "" && len(line)-len(trimmed) < indent {
			other = false
		}
		if !other {
			lines = append(lines, line)
		}
	}
	return lines
}

// step is a line of ofproto/trace's answer, and what policies decide there.
func (t *tracer) step(m []string) (agentapi.TraceStep, *pipeline.Verdict) {
	table, _ := strconv.Atoi(m[1])
	s := agentapi.TraceStep{Table: table, Flow: m[2], Actions: []string{}}
	s.TableName = pipeline.TableName(uint8(table)) //nolint:gosec // OpenFlow has 255 tables
	if s.Flow == noMatch {
		s.Note = cmp.Or(pipeline.Unmatched(uint8(table)), unmatched) //nolint:gosec // OpenFlow has 255 tables
	}
	cookie, err := strconv.ParseUint(m[4], 0, 64)
	if err != nil {
		return s, nil
	}
	meaning, ok := t.flows.explain(cookie)
	if !ok {
		return s, nil
	}
	s.Feature, s.Owner, s.Reason = meaning.Feature, meaning.Owner, meaning.Reason
	return s, meaning.Verdict
}

// outcome says where a packet goes that was sent out of the port last, if any.
func (t *tracer) outcome(out string, steps []agentapi.TraceStep, text string) agentapi.Outcome {
	port, err := strconv.ParseUint(out, 10, 32)
	switch {
	case strings.EqualFold(out, "IN_PORT"):
		return agentapi.Outcome{Kind: "answer"}
	case asksAgent(steps):
		return agentapi.Outcome{Kind: "answer", Node: t.node}
	case err != nil || port == 0:
		return agentapi.Outcome{Kind: "drop", Reason: dropReason(steps)}
	case uint32(port) == datapath.GatewayPort:
		return agentapi.Outcome{Kind: "gateway"}
	case uint32(port) == datapath.TunnelPort:
		return t.throughTunnel(text)
	}
	if p, ok := t.portNumbered(uint32(port)); ok {
		return agentapi.Outcome{Kind: "pod", Pod: p.Name(), Network: p.Network}
	}
	for physical, uplink := range t.uplinks {
		if uplink == uint32(port) {
			return agentapi.Outcome{Kind: "physical", Network: physical}
		}
	}
	return agentapi.Outcome{Kind: "drop", Reason: "OpenFlow port " + out + " belongs to no pod"}
}

// asksAgent reports whether the packet is a machine's question about its addresses, which the agent
// answers.
func asksAgent(steps []agentapi.TraceStep) bool {
	if len(steps) == 0 {
		return false
	}
	last := steps[len(steps)-1]
	return last.Feature == pipeline.DHCPFeature && last.Reason == "" &&
		slices.ContainsFunc(last.Actions, func(a string) bool { return strings.HasPrefix(a, "controller(") })
}

// throughTunnel finds the other end in the actions that chose it.
func (t *tracer) throughTunnel(text string) agentapi.Outcome {
	o := agentapi.Outcome{Kind: "tunnel"}
	if m := lastMatch(tunnelKey, text); m != "" {
		vni, _ := strconv.ParseUint(m, 0, 24)
		o.VNI = uint32(vni)
	}
	if m := lastMatch(narrowTunnel, text); m != "" {
		frame, _ := strconv.Atoi(m)
		o.MTU = frame - packet.EthernetLen
	}
	o.MAC = lastMatch(innerDst, text)
	o.TunnelIP = lastMatch(tunnelDst, text)
	ip, err := netip.ParseAddr(o.TunnelIP)
	if err != nil {
		return o
	}
	for n := range t.intent.State().Nodes().All() {
		if n.AddressIn(ip) == ip {
			o.Node = n.Name
		}
	}
	return o
}

func lastMatch(re *regexp.Regexp, text string) string {
	all := re.FindAllStringSubmatch(text, -1)
	if len(all) == 0 {
		return ""
	}
	return all[len(all)-1][1]
}

// dropReason is that of the last flow which gives one, or that there was none: what a policy denies
// is noted behind the flow that denies it.
func dropReason(steps []agentapi.TraceStep) string {
	if len(steps) == 0 {
		return "no flow was reached"
	}
	for _, s := range slices.Backward(steps) {
		if s.Reason != "" {
			return s.Reason
		}
	}
	last := steps[len(steps)-1]
	switch {
	case last.Feature == "":
		return "no flow of table " + strconv.Itoa(last.Table) + " matches"
	}
	return "the flow of " + last.Feature + " for " + last.Owner + " does not send it on"
}

// tracedService is the Service with the flows that a packet has matched.
func tracedService(s *intent.State, r agentapi.TraceRequest, t agentapi.Trace) *agentapi.TracedService {
	var service *agentapi.TracedService
	for _, step := range t.Steps {
		name, ok := strings.CutPrefix(step.Owner, "service/")
		if !ok {
			continue
		}
		if service == nil {
			service = &agentapi.TracedService{Name: name}
		}
		for _, action := range step.Actions {
			if m := endpointNAT.FindStringSubmatch(action); m != nil {
				service.Endpoint, _ = netip.ParseAddrPort(m[1])
			}
		}
	}
	if service == nil {
		return nil
	}
	v, _ := s.NodeServices().Get(service.Name)
	for _, p := range v.Ports {
		at := p.ClusterIP == r.Destination || slices.Contains(p.ExternalIPs, r.Destination) ||
			slices.Contains(p.LoadBalancerIPs, r.Destination)
		if p.IPv6 == r.Destination.Is6() && strings.EqualFold(p.Protocol.String(), r.Protocol) &&
			(at && p.Port == r.DestinationPort || !at && p.NodePort == r.DestinationPort) {
			service.Endpoints, service.Refused = len(p.Endpoints), p.Unserved
		}
	}
	return service
}

// portNumbered is the port of this node with an OpenFlow port number.
func (t *tracer) portNumbered(number uint32) (intent.Port, bool) {
	id, _ := t.numbers.get().PortAt(number)
	return t.intent.State().Ports().Get(id)
}
