// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/diagnose"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// TestGatewayTraces asks as `coelan trace` does about what leaves by Routers' gateways, and what
// comes to them, and as `coelan get` does what nodes have.
func TestGatewayTraces(t *testing.T) {
	t.Parallel()
	w := startExternal(t)
	const red1, red2, lan1 = 151, 152, 153
	gateways := map[string][]string{}
	for number, at := range map[int]struct {
		router string
		node   *lab.Node
	}{red1: {"red", w.n1}, red2: {"red", w.n2}, lan1: {"lan", w.n1}} {
		if err := w.API.AddRouterGateway(at.router, "office"); err != nil {
			t.Fatal(err)
		}
		for f := range lab.Dual.Each {
			w.API.AddGatewayAddress(at.router, at.node.Name, "office", office(f, number).String())
			gateways[at.node.Name] = append(gateways[at.node.Name], fmt.Sprint(at.router, " ", office(f, number)))
		}
	}
	awaitGateways(t, w, gateways)
	for f := range lab.Dual.Each {
		becomes(t, "a virtual machine has a way out", func(ctx context.Context) error {
			r, err := (probe.Ping{Dst: w.far.Address(f), Wait: time.Second}).Run(ctx, w.vm.Host)
			if err == nil && r.Lost() > 0 {
				err = errLost
			}
			return err
		})
		gateway := office(f, officeGateway)
		for name, tc := range map[string]struct {
			node, from string
			source, to netip.Addr
			want       string
		}{
			"a virtual machine": {
				"n1", "lab/vm", netip.Addr{}, lab.Internet(f), fmt.Sprintf("n1 by lan as %s via %s physical", office(f, lan1), gateway),
			},
			"a tenant": {
				"n1", "red/r0", netip.Addr{}, lab.Internet(f), fmt.Sprintf("n1 by red as %s via %s physical", office(f, red1), gateway),
			},
			"to a host that is not there": {
				"n1", "red/r0", netip.Addr{}, office(f, 77), fmt.Sprintf("n1 by red as %s via %s unresolved", office(f, red1), office(f, 77)),
			},
			"to a gateway on the same node": {
				"n1", "red/r0", netip.Addr{}, office(f, lan1),
				fmt.Sprintf("n1 by red as %s to lan drop no port has opened the connection by the gateway", office(f, red1)),
			},
			"a Router without one": {"n1", "blue/b0", netip.Addr{}, lab.Internet(f), "n1 gateway"},
			"from outside": {
				"n1", "outside", w.far.Address(f), office(f, red1), "n1 to red drop no port has opened the connection by the gateway",
			},
			"from outside to another node": {
				"n2", "outside", w.near.Address(f), office(f, red2), "n2 to red drop no port has opened the connection by the gateway",
			},
		} {
			way, err := diagnose.Trace(t.Context(), labAgents{w.Lab}, diagnose.Packet{
				Node: tc.node, From: tc.from, Source: tc.source, Destination: tc.to, Protocol: "tcp", SourcePort: 49152, DestinationPort: 80,
			})
			if err != nil {
				t.Errorf("%s %s: %v", f, name, err)
			}
			if got := gatewayWayOf(way); got != tc.want {
				t.Errorf("%s %s: %q, want %q", f, name, got, tc.want)
			}
		}
		_, err := diagnose.Trace(t.Context(), labAgents{w.Lab}, diagnose.Packet{
			Node: "n2", From: "outside", Source: w.far.Address(f), Destination: office(f, red1),
		})
		want := fmt.Sprintf("node n2 does not answer for %s: gateway of Router red: it is the address of node n1", office(f, red1))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s from outside at the wrong node: %v, want %q", f, err, want)
		}
	}
	externalLists(t, w)
}

// gatewayWayOf says in short what each node does with a packet.
func gatewayWayOf(way []agentapi.Trace) string {
	var nodes []string
	for _, n := range way {
		words := []string{n.Node}
		if g := n.LeavesBy; g != nil {
			words = append(words, "by", g.Router, "as", g.Address.String())
		}
		if g := n.SentToGateway; g != nil {
			words = append(words, "to", g.Router)
		}
		if hop := n.NextHop; hop != nil {
			words = append(words, "via", hop.Address.String())
		}
		words = append(words, n.Outcome.Kind)
		if n.Outcome.Reason != "" {
			words = append(words, n.Outcome.Reason)
		}
		nodes = append(nodes, strings.Join(words, " "))
	}
	return strings.Join(nodes, ", ")
}
