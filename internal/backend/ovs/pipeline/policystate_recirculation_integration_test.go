// SPDX-License-Identifier: Apache-2.0

//go:build integration

package pipeline

import (
	"fmt"
	"net/netip"
	"testing"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ovstest"
)

// Policies cost no lookup: what a packet is looked up for anyway says all that they ask of its
// connection. Where nothing was looked up, one is enough.
func TestPolicyRecirculations(t *testing.T) {
	for _, mode := range []intent.ServiceMode{intent.NativeServices, intent.KubeProxy} {
		t.Run(string(mode), func(t *testing.T) {
			g := newPoliced(t, mode)
			n1, n2 := g.nodes[0], g.nodes[1]
			pod, near, far := n1.pods[0], n1.pods[1], n2.pods[0]
			some := &liveService{name: "some", number: 1, endpoints: g.endpoints(near, far), outside: true}
			self := &liveService{name: "self", number: 2, endpoints: g.endpoints(pod)}
			red := &liveService{name: "red", number: 3, router: "red", endpoints: g.endpoints(g.red[1:]...)}
			alone := &liveService{name: "alone", number: 4, endpoints: g.endpoints(far), outside: true}
			g.services = []*liveService{some, self, red, alone}
			judged := governance{
				ingress: []string{"10.0.0.0/8", "192.168.33.100", "fd00::/8"}, egress: []string{"10.0.0.0/8", "fd00::/8"},
				ports: []intent.PortRange{{Protocol: uint8(intent.TCP), First: answerPort, Last: answerPort}},
			}
			how := map[*livePod]governance{}
			for _, n := range g.nodes {
				for _, p := range n.pods {
					how[p] = judged
				}
			}
			g.govern(how)
			one, whole := map[string]int{newPacket: 1, laterPacket: 1, replyPacket: 1}, map[string]int{newPacket: 2, laterPacket: 1, replyPacket: 1}
			to := func(p *livePod) func(bool) netip.AddrPort {
				return func(v6 bool) netip.AddrPort { return direct(p)(answerPort, v6) }
			}
			for _, tc := range []struct {
				name   string
				from   *ovstest.Namespace
				to     func(v6 bool) netip.AddrPort
				want   map[string]int
				native bool
			}{
				{"same node", pod.Namespace, to(near), one, false},
				{"other node", pod.Namespace, to(far), one, false},
				{"from the node", n1.Namespace, to(near), one, false},
				{"tenant", g.red[0].Namespace, to(g.red[1]), one, false},
				{"tenant, other node", g.red[0].Namespace, to(g.red[2]), one, false},
				{"physical network", g.wire, to(g.onWire), one, false},
				{"Service", pod.Namespace, some.clusterIP, whole, true},
				{"Service with one endpoint", pod.Namespace, alone.clusterIP, one, true},
				{"Service, from the node", n1.Namespace, some.clusterIP, whole, true},
				{"Service, node port from outside", g.outside, func(v6 bool) netip.AddrPort { return some.at(n1, v6) }, whole, true},
				{"Service, to itself", pod.Namespace, self.clusterIP, map[string]int{newPacket: 1, laterPacket: 2, replyPacket: 2}, true},
				{"Service, tenant to its own", g.red[0].Namespace, red.clusterIP, whole, true},
				{"Service, tenant to the default network's", g.red[0].Namespace, some.clusterIP, whole, true},
			} {
				for _, v6 := range []bool{false, true} {
					if tc.native && mode != intent.NativeServices {
						continue
					}
					t.Run(tc.name+"/"+familyName(v6), func(t *testing.T) {
						if got, text := g.recirculationsOf(t, tc.from, tc.to(v6)); fmt.Sprint(got) != fmt.Sprint(tc.want) {
							t.Errorf("%v, want %v:\n%s", got, tc.want, text)
						}
					})
				}
			}
		})
	}
}
