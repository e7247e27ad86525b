// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"coelan.io/coelan/internal/compile"
	"coelan.io/coelan/internal/intent"
)

// noMatch is what ofproto/trace prints of a table without a flow for the packet, and unmatched what that means where nothing else is
// known of it.
const (
	noMatch   = "No match."
	unmatched = "no flow matches"
)

// What ofproto/trace prints (ovs: ofproto/ofproto-dpif-trace.c).
var (
	// stepLine is " 5. ip,in_port=16, priority 100, cookie 0xc0e0…"; a table without a match says "No match."
	stepLine = regexp.MustCompile(`^\s*(\d+)\. (.*?)(?:, priority (\d+))?(?:, cookie (0x[0-9a-f]+))?$`)
	// bridgeLine is where the packet comes into a bridge, with how far it is indented and the bridge's name.
	bridgeLine = regexp.MustCompile(`^( *)bridge\("(.*)"\)$`)
	// outputLine is "output:17", or "-> output port is 17" where a register names the port; "IN_PORT" goes back.
	outputLine = regexp.MustCompile(`^\s*(?:output:|-> output port is )?(\d+|(?i:IN_PORT))$`)
	tunnelDst  = regexp.MustCompile(`set_field:([0-9a-f.:]+)->tun(?:_ipv6)?_dst`)
	// endpointNAT is the translation to an endpoint of a new connection.
	endpointNAT = regexp.MustCompile(`\bnat\(dst=([0-9a-f.:\[\]]+)\)`)
	tunnelKey   = regexp.MustCompile(`set_field:(0x[0-9a-f]+|\d+)->tun_id`)
)

// explainTrace turns ofproto/trace's answer into steps and an outcome.
func (a *Agent) explainTrace(packet, text string) Trace {
	t := Trace{Node: a.opts.NodeName, Packet: packet, Text: text, Steps: []TraceStep{}}
	var out string
	for _, line := range ownLines(text) {
		trimmed := strings.TrimSpace(line)
		if m := stepLine.FindStringSubmatch(line); m != nil {
			step, verdict := a.step(m)
			t.Steps = append(t.Steps, step)
			if verdict != nil {
				t.Policies = append(t.Policies, tracedPolicy(*verdict))
			}
			continue
		}
		if len(t.Steps) == 0 || trimmed == "" || !strings.HasPrefix(line, "    ") {
			continue
		}
		last := &t.Steps[len(t.Steps)-1]
		if trimmed == "drop" && last.Flow == noMatch && last.Note != unmatched {
			continue // the packet goes on
		}
		last.Actions = append(last.Actions, trimmed)
		if m := outputLine.FindStringSubmatch(line); m != nil {
			out = m[1]
		}
	}
	t.Outcome = a.outcome(out, t.Steps, text)
	return t
}

// ownLines are those about the bridge that the packet begins in. Other bridges, that it leaves to by a patch port or a tunnel, have
// flows of their own.
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
func (a *Agent) step(m []string) (TraceStep, *compile.Verdict) {
	table, _ := strconv.Atoi(m[1])
	s := TraceStep{Table: table, Flow: m[2], Actions: []string{}}
	s.TableName = compile.TableName(uint8(table)) //nolint:gosec // OpenFlow has 255 tables
	if s.Flow == noMatch {
		s.Note = cmp.Or(compile.Unmatched(uint8(table)), unmatched) //nolint:gosec // OpenFlow has 255 tables
	}
	cookie, err := strconv.ParseUint(m[4], 0, 64)
	if err != nil {
		return s, nil
	}
	meaning, ok := a.flows.explain(cookie)
	if !ok {
		return s, nil
	}
	s.Feature, s.Owner, s.Reason = meaning.Feature, meaning.Owner, meaning.Reason
	return s, meaning.Verdict
}

// outcome says where a packet goes that was sent out of the port last, if any.
func (a *Agent) outcome(out string, steps []TraceStep, text string) Outcome {
	port, err := strconv.ParseUint(out, 10, 32)
	switch {
	case strings.EqualFold(out, "IN_PORT"):
		return Outcome{Kind: "answer"}
	case err != nil || port == 0:
		return Outcome{Kind: "drop", Reason: dropReason(steps)}
	case uint32(port) == intent.GatewayPort:
		return Outcome{Kind: "gateway"}
	case uint32(port) == intent.TunnelPort:
		return a.throughTunnel(text)
	}
	if p, ok := portNumbered(a.intent.State(), uint32(port)); ok {
		return Outcome{Kind: "pod", Pod: p.Name(), Network: p.Network}
	}
	for physical, uplink := range a.uplinks {
		if uplink == uint32(port) {
			return Outcome{Kind: "physical", Network: physical}
		}
	}
	return Outcome{Kind: "drop", Reason: "OpenFlow port " + out + " belongs to no pod"}
}

// throughTunnel finds the other end in the actions that chose it.
func (a *Agent) throughTunnel(text string) Outcome {
	o := Outcome{Kind: "tunnel"}
	if m := lastMatch(tunnelKey, text); m != "" {
		vni, _ := strconv.ParseUint(m, 0, 24)
		o.VNI = uint32(vni)
	}
	o.TunnelIP = lastMatch(tunnelDst, text)
	ip, err := netip.ParseAddr(o.TunnelIP)
	if err != nil {
		return o
	}
	for n := range a.intent.State().Nodes().All() {
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

// dropReason is that of the last flow which gives one, or that there was none: what a policy denies is noted behind the flow that
// denies it.
func dropReason(steps []TraceStep) string {
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

// tracedService is the Service whose flows a packet has matched.
func tracedService(s *intent.State, r TraceRequest, t Trace) *TracedService {
	var service *TracedService
	for _, step := range t.Steps {
		name, ok := strings.CutPrefix(step.Owner, "service/")
		if !ok {
			continue
		}
		if service == nil {
			service = &TracedService{Name: name}
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
	v, _ := s.Services().Get(service.Name)
	for _, p := range v.Ports {
		at := p.ClusterIP == r.Destination || slices.Contains(p.ExternalIPs, r.Destination) || slices.Contains(p.LoadBalancerIPs, r.Destination)
		if p.IPv6 == r.Destination.Is6() && strings.EqualFold(p.Protocol.String(), r.Protocol) &&
			(at && p.Port == r.DestinationPort || !at && p.NodePort == r.DestinationPort) {
			service.Endpoints, service.Refused = len(p.Endpoints), p.Unserved
		}
	}
	return service
}
