// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/netip"
	"strings"
	"testing"

	"coelan.io/coelan/internal/agentapi"
)

func TestTraceOfExternalAddresses(t *testing.T) {
	web := &agentapi.TracedFloatingIP{
		Name: "shop/web", Network: "office", Address: netip.MustParseAddr("198.51.100.32"), Port: "shop/web.eth0", Node: "n1",
	}
	gateway := netip.MustParseAddr("198.51.100.1")
	red := &agentapi.TracedGateway{Router: "red", Node: "n1", Network: "office", Address: netip.MustParseAddr("198.51.100.40")}
	for name, tc := range map[string]struct {
		trace agentapi.Trace
		want  []string
	}{
		"out by the gateway": {
			agentapi.Trace{
				LeavesAs: web, NextHop: &agentapi.TracedNextHop{Address: gateway, Gateway: true, MAC: "02:00:00:00:00:fe"},
				Outcome: agentapi.Outcome{Kind: "physical", Network: "dc"},
			},
			[]string{
				"FloatingIP shop/web: the source becomes 198.51.100.32 of Network office, " +
					"the next hop is the gateway 198.51.100.1 with the MAC 02:00:00:00:00:fe",
				"⇒ to the physical network dc",
			},
		},
		"the MAC of the gateway is not known": {
			agentapi.Trace{
				LeavesAs: web, NextHop: &agentapi.TracedNextHop{Address: gateway, Gateway: true},
				Outcome: agentapi.Outcome{Kind: "unresolved"},
			},
			[]string{
				"FloatingIP shop/web: the source becomes 198.51.100.32 of Network office, the next hop is the gateway 198.51.100.1",
				"⇒ WAITS: the MAC of the gateway 198.51.100.1 is not known; the agent of node n1 asks for it. " +
					"If it never answers: are gateway and VLAN of Network office right, and does the uplink lead there?",
			},
		},
		"that of a host": {
			agentapi.Trace{
				LeavesAs: web, NextHop: &agentapi.TracedNextHop{Address: netip.MustParseAddr("198.51.100.9")},
				Outcome: agentapi.Outcome{Kind: "unresolved"},
			},
			[]string{
				"FloatingIP shop/web: the source becomes 198.51.100.32 of Network office, the next hop is 198.51.100.9",
				"⇒ WAITS: the MAC of 198.51.100.9 is not known; the agent of node n1 asks for it. " +
					"If it never answers: is there such a host on Network office?",
			},
		},
		"out by a Router's gateway": {
			agentapi.Trace{
				LeavesBy: red, NextHop: &agentapi.TracedNextHop{Address: gateway, Gateway: true, MAC: "02:00:00:00:00:fe"},
				Outcome: agentapi.Outcome{Kind: "physical", Network: "dc"},
			},
			[]string{
				"Gateway of Router red: the source becomes 198.51.100.40 of Network office, " +
					"the next hop is the gateway 198.51.100.1 with the MAC 02:00:00:00:00:fe",
				"⇒ to the physical network dc",
			},
		},
		"out by an Egress": {
			agentapi.Trace{
				LeavesBy: &agentapi.TracedGateway{Router: "default", Egress: "batch", Node: "n1", Network: "office", Address: red.Address},
				NextHop:  &agentapi.TracedNextHop{Address: gateway, Gateway: true, MAC: "02:00:00:00:00:fe"},
				Outcome:  agentapi.Outcome{Kind: "physical", Network: "dc"},
			},
			[]string{
				"Egress batch: the source becomes 198.51.100.40 of Network office, " +
					"the next hop is the gateway 198.51.100.1 with the MAC 02:00:00:00:00:fe",
				"⇒ to the physical network dc",
			},
		},
		"out by a routed gateway": {
			agentapi.Trace{
				LeavesBy: &agentapi.TracedGateway{Router: "red", Routed: true, Node: "n1", Network: "office", Address: red.Address},
				NextHop:  &agentapi.TracedNextHop{Address: gateway, Gateway: true, MAC: "02:00:00:00:00:fe"},
				Outcome:  agentapi.Outcome{Kind: "physical", Network: "dc"},
			},
			[]string{
				"Gateway of Router red: leaves as it is by Network office, from 198.51.100.40, " +
					"the next hop is the gateway 198.51.100.1 with the MAC 02:00:00:00:00:fe",
				"⇒ to the physical network dc",
			},
		},
		"in by a routed gateway": {
			agentapi.Trace{
				SentToGateway: &agentapi.TracedGateway{Router: "red", Routed: true, Node: "n1", Network: "office", Address: red.Address},
				Outcome:       agentapi.Outcome{Kind: "pod", Pod: "red/web/eth0", Network: "red"},
			},
			[]string{
				"Gateway of Router red: comes in by 198.51.100.40 of Network office, which routes to the Router's Networks on node n1",
			},
		},
		"by a Router's gateway to a host with an unknown MAC": {
			agentapi.Trace{
				LeavesBy: red, NextHop: &agentapi.TracedNextHop{Address: netip.MustParseAddr("198.51.100.9")},
				Outcome: agentapi.Outcome{Kind: "unresolved"},
			},
			[]string{
				"⇒ WAITS: the MAC of 198.51.100.9 is not known; the agent of node n1 asks for it. " +
					"If it never answers: is there such a host on Network office?",
			},
		},
		"to a Router's gateway": {
			agentapi.Trace{SentToGateway: red, Outcome: agentapi.Outcome{Kind: "drop", Reason: "why"}},
			[]string{
				"Gateway of Router red: 198.51.100.40 of Network office is for what leaves from node n1, and the replies; " +
					"nothing can open a connection to it",
				"⇒ DROPPED: why",
			},
		},
		"into OVN": {
			agentapi.Trace{Outcome: agentapi.Outcome{Kind: "ovn", LogicalPort: "0b1c", Command: "ovn-trace 'ip4'"}},
			[]string{"⇒ to OVN by the logical port 0b1c; ask it where its southbound database is:\n    ovn-trace 'ip4'"},
		},
		"into OVN, by an unknown next hop": {
			agentapi.Trace{Outcome: agentapi.Outcome{Kind: "ovn", LogicalPort: "0b1c", Command: "ovn-trace 'ip4'", Incomplete: "this"}},
			[]string{"⇒ to OVN by the logical port 0b1c; ask it where its southbound database is:\n    ovn-trace 'ip4'\n    add this"},
		},
		"to a Port": {
			agentapi.Trace{SentTo: web, Outcome: agentapi.Outcome{Kind: "pod", Pod: "shop/web/eth0"}},
			[]string{
				"FloatingIP shop/web: 198.51.100.32 of Network office stands for Port shop/web.eth0 on node n1",
				"⇒ delivered to shop/web/eth0",
			},
		},
		"to a Port on no node": {
			agentapi.Trace{SentTo: &agentapi.TracedFloatingIP{Name: "shop/x", Network: "office", Address: gateway, Port: "shop/x.eth0"}},
			[]string{"FloatingIP shop/x: 198.51.100.1 of Network office stands for Port shop/x.eth0, which no node has"},
		},
		"to none": {
			agentapi.Trace{SentTo: &agentapi.TracedFloatingIP{Name: "shop/x", Network: "office", Address: gateway}},
			[]string{"FloatingIP shop/x: 198.51.100.1 of Network office stands for no Port and no Service"},
		},
		"to a Service": {
			agentapi.Trace{
				SentTo:  &agentapi.TracedFloatingIP{Name: "shop/s", Network: "office", Address: gateway, Service: "shop/web", Node: "n1"},
				Returns: &agentapi.TraceRequest{Source: netip.MustParseAddr("10.244.1.1")}, Outcome: agentapi.Outcome{Kind: "gateway"},
			},
			[]string{
				"FloatingIP shop/s: 198.51.100.1 of Network office stands for Service shop/web, and node n1 answers for it",
				"⇒ to the kernel of node n1, which gives it back for the Service, from 10.244.1.1",
			},
		},
		"to a Service without endpoints": {
			agentapi.Trace{
				SentTo:  &agentapi.TracedFloatingIP{Name: "shop/s", Network: "office", Address: gateway, Service: "shop/web", Node: "n1"},
				Service: &agentapi.TracedService{Name: "shop/web", Refused: true}, Outcome: agentapi.Outcome{Kind: "gateway"},
			},
			[]string{"⇒ REFUSED by the kernel of node n1: the Service has no endpoints"},
		},
		"to a Service on no node": {
			agentapi.Trace{SentTo: &agentapi.TracedFloatingIP{Name: "shop/s", Network: "office", Address: gateway, Service: "shop/web"}},
			[]string{"FloatingIP shop/s: 198.51.100.1 of Network office stands for Service shop/web, and no node answers for it"},
		},
	} {
		tc.trace.Node = "n1"
		var text strings.Builder
		printTrace(&text, tc.trace, false)
		for _, want := range tc.want {
			if !strings.Contains(text.String(), "  "+want+"\n") {
				t.Errorf("%s: no line %q in\n%s", name, want, &text)
			}
		}
	}
}
