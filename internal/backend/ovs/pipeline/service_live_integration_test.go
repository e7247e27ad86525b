// SPDX-License-Identifier: Apache-2.0

//go:build integration

package pipeline

import (
	"net/netip"
	"strings"
	"testing"

	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ovstest"
)

// liveServices are Services of every kind, in a world.
type liveServices struct {
	near, far, both, self, none, local, internal, onHost, abroad, kept, restricted *liveService
	red, blue, iso, empty                                                          *liveService
}

func newLiveServices(b *balanced) (s liveServices, all []*liveService) {
	n1, n2 := b.nodes[0], b.nodes[1]
	add := func(v liveService) *liveService {
		v.number = len(all) + 1
		all = append(all, &v)
		return &v
	}
	s.near = add(liveService{name: "near", endpoints: b.endpoints(n1.pods[1])})
	s.far = add(liveService{name: "far", endpoints: b.endpoints(n2.pods[0])})
	s.both = add(liveService{name: "both", endpoints: b.endpoints(n1.pods[1], n2.pods[0]), outside: true})
	s.self = add(liveService{name: "self", endpoints: b.endpoints(n1.pods[0])})
	s.none = add(liveService{name: "none", outside: true})
	s.local = add(liveService{name: "local", endpoints: b.endpoints(n1.pods[1], n2.pods[0]), outside: true, externalLocal: true})
	s.internal = add(liveService{name: "internal", endpoints: b.endpoints(n1.pods[1], n2.pods[0]), internalLocal: true})
	s.onHost = add(liveService{name: "on-host", endpoints: []liveEndpoint{{n2.local.Node, n2, n2.address, answerPort}}})
	s.abroad = add(liveService{name: "abroad", endpoints: []liveEndpoint{{"outside", nil, outsideAddress, answerPort}}})
	s.kept = add(liveService{name: "kept", endpoints: b.endpoints(n1.pods[1], n2.pods[0]), affinity: 60, outside: true})
	s.restricted = add(liveService{name: "restricted", endpoints: b.endpoints(n1.pods[1]), outside: true, sourceRanges: []netip.Prefix{
		netip.MustParsePrefix("192.168.33.100/32"), netip.MustParsePrefix("fd33::100/128"),
		netip.MustParsePrefix(n1.pods[0].address(false) + "/32"), netip.MustParsePrefix(n1.pods[0].address(true) + "/128"),
	}})
	s.red = add(liveService{name: "red", router: "red", endpoints: b.endpoints(b.red[1], b.red[2]), outside: true})
	s.blue = add(liveService{name: "blue", router: "blue", endpoints: b.endpoints(b.blue[0], b.blue[1])})
	s.iso = add(liveService{name: "iso", router: "iso", endpoints: b.endpoints(b.iso[0], b.iso[1])})
	s.empty = add(liveService{name: "empty", router: "red", outside: true})
	return s, all
}

// Services of every kind answer the clients that they should, with real packets of real kernels,
// and see the addresses that they should.
func TestServices(t *testing.T) {
	b := newBalanced(t, intent.VXLAN)
	s, all := newLiveServices(b)
	b.set(all...)
	for _, v6 := range []bool{false, true} {
		t.Run(familyName(v6), func(t *testing.T) {
			for _, w := range b.ways(s, v6) {
				b.check(t, w)
			}
		})
	}
}

// Without tunnels, the nodes' kernels take packets to endpoints on other nodes, for shared Routers;
// a client that is a host is masked once more then.
func TestServicesWithoutTunnels(t *testing.T) {
	b := newBalanced(t, intent.NoEncap)
	s, all := newLiveServices(b)
	b.set(all...)
	for _, v6 := range []bool{false, true} {
		t.Run(familyName(v6), func(t *testing.T) {
			for _, w := range b.ways(s, v6) {
				if strings.Contains(w.name, "tenant") || strings.Contains(w.name, "isolated") {
					continue
				}
				if w.seen == b.nodes[0].gateway(v6) || w.seen == b.nodes[1].gateway(v6) {
					w.seen = ""
				}
				b.check(t, w)
			}
		})
	}
}

func (b *balanced) ways(s liveServices, v6 bool) []way {
	n1, n2 := b.nodes[0], b.nodes[1]
	pod, near, far, other := n1.pods[0], n1.pods[1], n2.pods[0], n2.pods[1]
	red, blue, iso := b.red, b.blue, b.iso
	ways := func(of *ovstest.Namespace, seen string) func(name string, to netip.AddrPort, want ...string) way {
		return func(name string, to netip.AddrPort, want ...string) way {
			return way{name: name, from: of, to: to, want: want, seen: seen}
		}
	}
	fromPod, fromOther := ways(pod.Namespace, pod.address(v6)), ways(other.Namespace, other.address(v6))
	fromRed, fromBlue, fromIso := ways(red[0].Namespace, red[0].inNode(v6)), ways(blue[0].Namespace, blue[0].inNode(v6)), ways(iso[0].Namespace, iso[0].address(v6))
	fromNode, fromNode2 := ways(n1.Namespace, n1.gateway(v6)), ways(n2.Namespace, n2.gateway(v6))
	masked, preserved := ways(b.outside, n1.gateway(v6)), ways(b.outside, outsideAddress(v6))
	unseen := func(of *ovstest.Namespace) func(string, netip.AddrPort, ...string) way { return ways(of, "") }
	hairpin := ways(pod.Namespace, datapath.ServiceSourceIPv4.String())
	if v6 {
		hairpin = ways(pod.Namespace, datapath.ServiceSourceIPv6.String())
	}
	either := []string{near.name(), far.name()}
	tcp := func(w way) way { w.only = "tcp"; return w }
	ip, lb := (*liveService).clusterIP, (*liveService).loadBalancerIP
	return []way{
		fromPod("pod, same node", ip(s.near, v6), near.name()),
		fromPod("pod, other node", ip(s.far, v6), far.name()),
		fromPod("pod, both nodes", ip(s.both, v6), either...),
		fromOther("pod of the other node", ip(s.both, v6), either...),
		fromPod("pod, node port of its node", s.both.at(n1, v6), either...),
		unseen(pod.Namespace)("pod, node port of the other node", s.both.at(n2, v6), either...),
		fromPod("pod, load balancer", lb(s.both, v6), either...),
		hairpin("pod to itself", ip(s.self, v6), pod.name()),
		fromPod("pod, no endpoints", ip(s.none, v6), refusedCall),
		fromPod("pod, no endpoints, node port", s.none.at(n1, v6), refusedCall),
		fromPod("pod, no endpoints, load balancer", lb(s.none, v6), refusedCall),
		fromPod("pod, local for the outside", ip(s.local, v6), either...),
		fromPod("pod, local for the outside, node port", s.local.at(n1, v6), either...),
		fromPod("pod, local for the outside, load balancer", lb(s.local, v6), either...),
		fromPod("pod, local for the inside", ip(s.internal, v6), near.name()),
		fromOther("pod of the other node, local for the inside", ip(s.internal, v6), far.name()),
		unseen(pod.Namespace)("pod, endpoint on the host network", ip(s.onHost, v6), n2.local.Node),
		unseen(pod.Namespace)("pod, endpoint outside", ip(s.abroad, v6), "outside"),
		fromPod("pod, among the source ranges", lb(s.restricted, v6), near.name()),
		fromOther("pod, not among the source ranges", lb(s.restricted, v6), lostCall),
		fromPod("pod, no Service has the port", netip.AddrPortFrom(ip(s.near, v6).Addr(), 81), lostCall),
		fromPod("pod, a tenant's", ip(s.red, v6), lostCall),
		unseen(pod.Namespace)("pod, a tenant's node port", s.red.at(n1, v6), red[1].name(), red[2].name()),
		unseen(pod.Namespace)("pod, a tenant's load balancer", lb(s.red, v6), red[1].name(), red[2].name()),

		fromNode("node, same node", ip(s.near, v6), near.name()),
		fromNode("node, other node", ip(s.far, v6), far.name()),
		fromNode("node, its own node port", s.both.at(n1, v6), either...),
		unseen(n1.Namespace)("node, node port of the other node", s.both.at(n2, v6), either...),
		fromNode("node, load balancer", lb(s.both, v6), either...),
		fromNode("node, no endpoints", ip(s.none, v6), refusedCall),
		fromNode("node, no endpoints, node port", s.none.at(n1, v6), refusedCall),
		fromNode("node, local for the inside", ip(s.internal, v6), near.name()),
		fromNode2("other node, local for the inside", ip(s.internal, v6), far.name()),
		unseen(n1.Namespace)("node, endpoint on another host", ip(s.onHost, v6), n2.local.Node),
		unseen(n2.Namespace)("node, endpoint on itself", ip(s.onHost, v6), n2.local.Node),
		unseen(n1.Namespace)("node, endpoint outside", ip(s.abroad, v6), "outside"),
		fromNode("node, a tenant's", ip(s.red, v6), red[1].name(), red[2].name()),
		fromNode("node, an isolated one's", ip(s.iso, v6), iso[0].name(), iso[1].name()),
		fromNode("node, a tenant's node port", s.red.at(n1, v6), red[1].name(), red[2].name()),

		masked("outside, node port", s.both.at(n1, v6), either...),
		masked("outside, load balancer", lb(s.both, v6), either...),
		masked("outside, no endpoints", s.none.at(n1, v6), refusedCall),
		masked("outside, no endpoints, load balancer", lb(s.none, v6), refusedCall),
		preserved("outside, local", s.local.at(n1, v6), near.name()),
		preserved("outside, local, of the other node", s.local.at(n2, v6), far.name()),
		preserved("outside, local, load balancer", lb(s.local, v6), near.name()),
		masked("outside, among the source ranges", lb(s.restricted, v6), near.name()),
		masked("outside, a tenant's node port", s.red.at(n1, v6), red[1].name(), red[2].name()),
		masked("outside, a tenant's load balancer", lb(s.red, v6), red[1].name(), red[2].name()),
		masked("outside, a tenant's without endpoints", s.empty.at(n1, v6), refusedCall),

		fromRed("tenant, its own", ip(s.red, v6), red[1].name(), red[2].name()),
		fromRed("tenant, its own node port", s.red.at(n1, v6), red[1].name(), red[2].name()),
		// What ICMP errors quote is not rewritten: such ends datagrams of tenants.
		tcp(fromRed("tenant, its own without endpoints", ip(s.empty, v6), refusedCall)),
		fromRed("tenant, another's", ip(s.blue, v6), lostCall),
		fromRed("tenant, the default network's", ip(s.both, v6), either...),
		fromRed("tenant, the default network's on another node", ip(s.far, v6), far.name()),
		tcp(fromRed("tenant, the default network's without endpoints", ip(s.none, v6), refusedCall)),
		unseen(red[0].Namespace)("tenant, endpoint on the host network", ip(s.onHost, v6), n2.local.Node),
		unseen(red[0].Namespace)("tenant, endpoint outside", ip(s.abroad, v6), "outside"),
		unseen(blue[0].Namespace)("another tenant, its own, itself among them", ip(s.blue, v6), blue[0].name(), blue[1].name()),
		fromBlue("another tenant, the default network's", ip(s.both, v6), either...),
		fromBlue("another tenant, the first's", ip(s.red, v6), lostCall),
		unseen(blue[0].Namespace)("another tenant, the first's node port", s.red.at(n1, v6), red[1].name(), red[2].name()),
		fromIso("isolated, the default network's", ip(s.both, v6), either...),
		unseen(iso[0].Namespace)("isolated, its own, itself among them", ip(s.iso, v6), iso[0].name(), iso[1].name()),
		fromIso("isolated, a tenant's", ip(s.red, v6), lostCall),
	}
}
