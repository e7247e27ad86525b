// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/intent"
)

// The kernel refuses what comes for the floating IP of a Service without endpoints, and gives all
// else back to the bridge: from the client where the Service keeps it, else from the gateway.
func TestLeadByKernel(t *testing.T) {
	six := addr("2001:db8::1")
	refused := &agentapi.TracedService{Name: "shop/web", Refused: true}
	// balanced makes its addresses those of a load balancer.
	balanced := func(ranges ...string) func(*intent.NodeService) {
		return func(v *intent.NodeService) {
			v.SourceRanges = prefixes(ranges...)
			for i := range v.Ports {
				v.Ports[i].LoadBalancerIPs, v.Ports[i].ExternalIPs = v.Ports[i].ExternalIPs, nil
			}
		}
	}
	for name, tc := range map[string]struct {
		change      func(*intent.NodeService)
		destination netip.Addr
		protocol    string
		port        uint16
		source      string // that the kernel gives it; empty: it does not
		dropped     bool
	}{
		"to the load balancer":             {change: balanced(), protocol: "tcp", port: 80, source: "10.244.1.1"},
		"from its source ranges":           {change: balanced("203.0.113.0/24"), protocol: "tcp", port: 80, source: "10.244.1.1"},
		"from elsewhere":                   {change: balanced("198.51.100.0/24"), protocol: "tcp", port: 80, dropped: true},
		"from elsewhere, by IPv6":          {change: balanced("203.0.113.0/24", "2001:db8:8::/48"), destination: six, protocol: "tcp", port: 80, dropped: true},
		"from elsewhere, to a port":        {change: balanced("198.51.100.0/24"), protocol: "tcp", port: 81, source: "10.244.1.1"},
		"to the Service":                   {protocol: "tcp", port: 80, source: "10.244.1.1"},
		"by IPv6":                          {destination: six, protocol: "tcp", port: 80, source: "fd00:10:244:1::1"},
		"where endpoints see clients":      {change: func(v *intent.NodeService) { v.ExternalLocal = true }, protocol: "tcp", port: 80, source: "203.0.113.9"},
		"by IPv6 where they do":            {change: func(v *intent.NodeService) { v.ExternalLocal = true }, destination: six, protocol: "tcp", port: 80, source: "2001:db8:9::9"},
		"to no port of it":                 {change: func(v *intent.NodeService) { v.ExternalLocal = true }, protocol: "tcp", port: 81, source: "10.244.1.1"},
		"by another protocol":              {change: func(v *intent.NodeService) { v.ExternalLocal = true }, protocol: "udp", port: 80, source: "10.244.1.1"},
		"ping":                             {protocol: "icmp", source: "10.244.1.1"},
		"without endpoints":                {change: func(v *intent.NodeService) { v.Ports[0].Unserved = true }, protocol: "tcp", port: 80},
		"to no port of it, where all fail": {change: func(v *intent.NodeService) { v.Ports[0].Unserved = true }, protocol: "tcp", port: 81, source: "10.244.1.1"},
	} {
		t.Run(name, func(t *testing.T) {
			v := intent.NodeService{Namespace: "shop", Name: "web", Ports: []intent.NodeServicePort{
				{Protocol: intent.TCP, Port: 80, ExternalIPs: []netip.Addr{addr("192.0.2.1")}},
				{Protocol: intent.TCP, Port: 80, IPv6: true, ExternalIPs: []netip.Addr{six}},
			}}
			if tc.change != nil {
				tc.change(&v)
			}
			state, err := intent.NewStore().Update(func(tx *intent.Tx) error {
				tx.Replace(intent.Objects{
					Local: intent.Local{Node: "n1"}, NodeServices: []intent.NodeService{v},
					Nodes: []intent.Node{{Name: "n1", Subnets: []intent.Subnet{
						{Prefix: netip.MustParsePrefix("10.244.1.0/24"), Gateway: addr("10.244.1.1")},
						{Prefix: netip.MustParsePrefix("fd00:10:244:1::/64"), Gateway: addr("fd00:10:244:1::1")},
					}}},
				})
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			r := agentapi.TraceRequest{
				From: "outside", Source: addr("203.0.113.9"), Destination: addr("192.0.2.1"), Protocol: tc.protocol, DestinationPort: tc.port,
				Conntrack: []string{"trk,new"},
			}
			if tc.destination.IsValid() {
				r.Source, r.Destination = addr("2001:db8:9::9"), tc.destination
			}
			way := agentapi.Trace{SentTo: &agentapi.TracedFloatingIP{Service: "shop/web"}}
			leadByKernel(state, r, &way)
			want := way
			want.Service, want.Returns = refused, nil
			if tc.dropped {
				want.Service, want.Returns = nil, nil
				if way.Outcome.Kind != "drop" || way.Outcome.Reason == "" {
					t.Errorf("outcome: %+v", way.Outcome)
				}
			}
			if tc.source != "" {
				back := r
				back.From, back.Source, back.Conntrack = "gateway", addr(tc.source), nil
				want.Service, want.Returns = nil, &back
			}
			if diff := cmp.Diff(want, way, cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{})); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
