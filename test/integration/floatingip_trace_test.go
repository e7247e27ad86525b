// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/diagnose"
	"coelan.io/coelan/test/lab"
)

// floatingTraces asks as `coelan trace` does.
func floatingTraces(t *testing.T, w *external, s floatingIPs) {
	takeWays(t, to("another node", w.a.Host, s.c, s.a.address)) // n1 learns the MAC
	for f := range lab.Dual.Each {
		gateway, onLink := office(f, officeGateway), w.near.Address(f)
		for name, tc := range map[string]struct {
			from   floating
			source netip.Addr // not valid: from the Port; else outside
			to     netip.Addr
			want   string
		}{
			"out":                       {from: s.a, to: lab.Internet(f), want: fmt.Sprint("n1 as a by gateway ", gateway, " physical")},
			"out to a host of the VLAN": {from: s.a, to: onLink, want: fmt.Sprint("n1 as a by ", onLink, " physical")},
			"a virtual machine":         {from: s.vm, to: lab.Internet(f), want: fmt.Sprint("n1 as vm by gateway ", gateway, " physical")},
			"a tenant":                  {from: s.red, to: lab.Internet(f), want: fmt.Sprint("n1 as r0 by gateway ", gateway, " physical")},
			"a host that is not there": {
				from: s.a, to: office(f, 77), want: fmt.Sprint("n1 as a by ", office(f, 77), " unresolved"),
			},
			"on the same node": {from: s.a, to: s.b.address(f), want: "n1 as a to b of n1 pod lab/b/eth0"},
			"itself":           {from: s.a, to: s.a.address(f), want: "n1 as a to a of n1 pod lab/a/eth0"},
			"on another node": {
				from: s.a, to: s.c.address(f), want: fmt.Sprint(
					"n1 as a to c of n2 by ", s.c.address(f), " physical, n2 to c of n2 pod lab/c/eth0"),
			},
			"from outside":              {source: w.far.Address(f), from: s.a, to: s.a.address(f), want: "n1 to a of n1 pod lab/a/eth0"},
			"from the VLAN to a tenant": {source: onLink, from: s.blue, to: s.blue.address(f), want: "n1 to b0 of n1 pod blue/b0/eth0"},
			"with a pod's address": {
				source: w.c.Address(f), from: s.a, to: s.a.address(f),
				want: "n1 drop the source address is the cluster's, which the outside cannot have",
			},
		} {
			packet := diagnose.Packet{
				Node: tc.from.node.Name, From: "outside", Source: tc.source, Destination: tc.to, Protocol: "tcp", SourcePort: 49152,
				DestinationPort: 80,
			}
			if !tc.source.IsValid() {
				packet.From, packet.Source = tc.from.namespace+"/"+strings.TrimSuffix(tc.from.port, ".eth0"), tc.from.own(f)
			}
			way, err := diagnose.Trace(t.Context(), labAgents{w.Lab}, packet)
			if err != nil {
				t.Errorf("%s %s: %v", f, name, err)
			}
			if got := wayOf(way, f); got != tc.want {
				t.Errorf("%s %s: %q, want %q", f, name, got, tc.want)
			}
		}
		_, err := diagnose.Trace(t.Context(), labAgents{w.Lab}, diagnose.Packet{
			Node: "n2", From: "outside", Source: w.far.Address(f), Destination: s.a.address(f),
		})
		want := fmt.Sprintf("node n2 does not answer for %s: FloatingIP lab/a-%s: the Port is not on this node", s.a.address(f), f)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s from outside at the wrong node: %v, want %q", f, err, want)
		}
	}
}

// wayOf says in short what each node does with a packet.
func wayOf(way []agentapi.Trace, f lab.Family) string {
	var nodes []string
	short := func(x *agentapi.TracedFloatingIP) string {
		_, name, _ := strings.Cut(strings.TrimSuffix(x.Name, "-"+f.String()), "/")
		return name
	}
	for _, n := range way {
		words := []string{n.Node}
		if n.LeavesAs != nil {
			words = append(words, "as", short(n.LeavesAs))
		}
		if n.SentTo != nil {
			words = append(words, "to", short(n.SentTo), "of", n.SentTo.Node)
		}
		if hop := n.NextHop; hop != nil {
			words = append(words, "by")
			if hop.Gateway {
				words = append(words, "gateway")
			}
			words = append(words, hop.Address.String())
			if known := hop.MAC != ""; known != (n.Outcome.Kind == "physical") {
				words = append(words, "with MAC "+hop.MAC)
			}
		}
		words = append(words, n.Outcome.Kind)
		if n.Service != nil && n.Service.Refused {
			words = append(words, "refused")
		}
		if o := n.Outcome; o.Pod+o.Reason != "" {
			words = append(words, o.Pod+o.Reason)
		}
		nodes = append(nodes, strings.Join(words, " "))
	}
	return strings.Join(nodes, ", ")
}
