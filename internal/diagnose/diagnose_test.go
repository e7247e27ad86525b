// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"coelan.io/coelan/internal/agentapi"
)

var addrs = cmpopts.EquateComparable(netip.Addr{})

func TestParseEndpoint(t *testing.T) {
	a := netip.MustParseAddr
	for _, tc := range []struct {
		text string
		want Endpoint
		err  string
	}{
		{text: "web-0", want: Endpoint{Pod: "here/web-0"}},
		{text: "shop/web-0:80", want: Endpoint{Pod: "shop/web-0", Port: 80}},
		{text: "10.0.0.1", want: Endpoint{Addresses: []netip.Addr{a("10.0.0.1")}}},
		{text: "10.0.0.1:53", want: Endpoint{Addresses: []netip.Addr{a("10.0.0.1")}, Port: 53}},
		{text: "fd00::1", want: Endpoint{Addresses: []netip.Addr{a("fd00::1")}}},
		{text: "[fd00::1]:53", want: Endpoint{Addresses: []netip.Addr{a("fd00::1")}, Port: 53}},
		{text: "[fd00::1]", want: Endpoint{Addresses: []netip.Addr{a("fd00::1")}}},
		{text: "::ffff:10.0.0.1", want: Endpoint{Addresses: []netip.Addr{a("10.0.0.1")}}},
		{text: "web:http", err: `"web:http": port "http" is not a number from 1 to 65535`},
		{text: "web:0", err: `port "0"`},
		{text: "", err: "neither an address nor POD"},
		{text: "a/b/c", err: "neither an address nor POD"},
		{text: "/web", err: "neither an address nor POD"},
	} {
		t.Run(tc.text, func(t *testing.T) {
			got, err := ParseEndpoint(tc.text, "here")
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("error %v, want one with %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got, addrs); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestNewPacketTakesACommonFamily(t *testing.T) {
	v4, v6 := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")
	dual := Endpoint{Pod: "a/b", Node: "n", Addresses: []netip.Addr{v4, v6}}
	only6 := Endpoint{Addresses: []netip.Addr{netip.MustParseAddr("fd00::2")}, Port: 80}
	for name, tc := range map[string]struct {
		from, to Endpoint
		v6       bool
		want     netip.Addr
		err      string
	}{
		"first":          {from: dual, to: dual, want: v4},
		"asked for IPv6": {from: dual, to: dual, v6: true, want: v6},
		"only IPv6":      {from: dual, to: only6, want: v6},
		"none":           {from: Endpoint{Pod: "a/b", Addresses: []netip.Addr{v4}}, to: only6, err: errFamilies.Error()},
		"host network":   {from: Endpoint{Pod: "a/b", Host: true, Addresses: []netip.Addr{v4}}, to: dual, err: "uses its node's network"},
		"an address":     {from: only6, to: dual, err: "the source has to be a pod"},
		"outside":        {from: Endpoint{Outside: true, Addresses: []netip.Addr{v4}}, to: dual, want: v4},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := NewPacket(tc.from, tc.to, tc.v6)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("error %v, want one with %q", err, tc.err)
				}
				return
			}
			if err != nil || p.Source != tc.want || p.Source.Is4() != p.Destination.Is4() {
				t.Errorf("packet %+v, error %v; want source %s", p, err, tc.want)
			}
		})
	}
}

// scripted are agents that answer traces by node.
type scripted struct {
	Agents
	outcomes map[string]agentapi.Outcome
	services map[string]*agentapi.TracedService
	as, to   map[string]*agentapi.TracedFloatingIP
	traces   map[string]agentapi.Trace // in place of the above
	answers  map[string]string         // node by FloatingIP
	lists    map[string][]agentapi.ServiceInfo
	asked    []agentapi.TraceRequest
}

func (s *scripted) Nodes(context.Context) ([]string, error) {
	return slices.Sorted(maps.Keys(s.lists)), nil
}

func (s *scripted) Answering(_ context.Context, f agentapi.TracedFloatingIP) (string, error) {
	return s.answers[f.Name], nil
}

func (s *scripted) Query(_ context.Context, node, path string, body, out any) error {
	var answer any = agentapi.Status{TunnelIP: "192.0.2.1"}
	if path == "/v1/trace" {
		s.asked = append(s.asked, body.(agentapi.TraceRequest))
		answer = agentapi.Trace{
			Node: node, Outcome: s.outcomes[node], Service: s.services[node], LeavesAs: s.as[node], SentTo: s.to[node],
		}
		if whole, ok := s.traces[node]; ok {
			answer = whole
		}
	}
	if path == "/v1/services" {
		if answer = s.lists[node]; s.lists[node] == nil {
			return fmt.Errorf("the agent of node %s does not answer", node)
		}
	}
	text, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, out)
}

func TestTraceFollowsTheTunnel(t *testing.T) {
	agents := &scripted{outcomes: map[string]agentapi.Outcome{
		"one": {Kind: "tunnel", Node: "two", TunnelIP: "192.0.2.2", VNI: 7},
		"two": {Kind: "pod", Pod: "a/y/eth0"},
	}}
	src, dst := netip.MustParseAddr("10.0.1.2"), netip.MustParseAddr("10.0.2.2")
	way, err := Trace(t.Context(), agents, Packet{
		Node: "one", From: "a/x", Source: src, Destination: dst, Protocol: "tcp", DestinationPort: 80, Conntrack: []string{"trk,est"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(way) != 2 || way[1].Node != "two" || way[1].Outcome.Pod != "a/y/eth0" {
		t.Errorf("way %+v", way)
	}
	want := agentapi.TraceRequest{
		From: "tunnel", Source: src, Destination: dst, Protocol: "tcp", DestinationPort: 80,
		VNI: 7, TunnelSource: netip.MustParseAddr("192.0.2.1"),
	}
	if diff := cmp.Diff(want, agents.asked[1], addrs); diff != "" {
		t.Errorf("the second node was asked for another packet:\n%s", diff)
	}
}

// Behind the tunnel a packet for a Service is one for its endpoint.
func TestTraceFollowsTheEndpoint(t *testing.T) {
	endpoint := netip.MustParseAddrPort("10.0.2.2:8080")
	agents := &scripted{
		outcomes: map[string]agentapi.Outcome{"one": {Kind: "tunnel", Node: "two", TunnelIP: "192.0.2.2", VNI: 7}, "two": {Kind: "pod"}},
		services: map[string]*agentapi.TracedService{"one": {Name: "shop/web", Endpoint: endpoint}},
	}
	_, err := Trace(t.Context(), agents, Packet{
		Node: "one", From: "a/x", Source: netip.MustParseAddr("10.0.1.2"), Destination: netip.MustParseAddr("10.96.0.1"), Protocol: "tcp", DestinationPort: 80,
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := netip.AddrPortFrom(agents.asked[1].Destination, agents.asked[1].DestinationPort); got != endpoint {
		t.Errorf("the second node was asked for a packet to %s, want %s", got, endpoint)
	}
}

func TestTraceEndsInALoop(t *testing.T) {
	agents := &scripted{outcomes: map[string]agentapi.Outcome{
		"one": {Kind: "tunnel", Node: "two", VNI: 1}, "two": {Kind: "tunnel", Node: "one", VNI: 1},
	}}
	_, err := Trace(t.Context(), agents, Packet{Node: "one", From: "a/x"})
	if err == nil || !strings.Contains(err.Error(), "not delivered after 4 nodes") {
		t.Errorf("error %v", err)
	}
}
