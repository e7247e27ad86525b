// SPDX-License-Identifier: Apache-2.0

//go:build integration

package pipeline

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ovstest"
)

// tenants are pods of two private routers with the same subnets, red and blue, of
// an isolated one with the nodes' addresses, iso, and of a VLAN.
type tenants struct {
	*world
	red, blue []*livePod // two on the first node, then one on the second
	iso       []*livePod // one on the first node, then one on the second
	onWire    *livePod   // on the first node
	wire      *ovstest.Namespace
}

const liveVLAN = 100

var (
	tenant4 = netip.MustParsePrefix("10.60.0.0/24")
	tenant6 = netip.MustParsePrefix("fd60::/64")
	wire4   = netip.MustParsePrefix("10.63.0.0/24")
	wire6   = netip.MustParsePrefix("fd63::/64")
)

func newTenants(t *testing.T, encap intent.Encapsulation, more ...func(context.Context, *world)) *tenants {
	t.Helper()
	tn := &tenants{}
	tn.world = newWorld(t, encap, func(ctx context.Context, w *world) {
		tn.world = w
		w.known.Routers = []intent.Router{{Name: "red", ID: 20, VNI: 70020}, {Name: "blue", ID: 21, VNI: 70021}, {Name: "iso", ID: 22, VNI: 70022}}
		subnets := []intent.NetworkSubnet{{Prefix: tenant4, Gateway: at(tenant4, 1)}, {Prefix: tenant6, Gateway: at(tenant6, 1)}}
		w.known.Networks = []intent.Network{
			{Name: "red", ID: 10, VNI: 70010, Router: "red", Subnets: subnets},
			{Name: "blue", ID: 11, VNI: 70011, Router: "blue", Subnets: subnets},
			{Name: "iso-1", ID: 12, VNI: 70012, Router: "iso"},
			{Name: "iso-2", ID: 13, VNI: 70013, Router: "iso"},
			{Name: "wire", ID: 14, Physical: physicalNetwork(datapath.FirstUplinkPort), VLAN: liveVLAN, Subnets: []intent.NetworkSubnet{{Prefix: wire4}, {Prefix: wire6}}},
		}
		for _, network := range []string{"red", "blue"} {
			for i, n := range w.nodes {
				for _, s := range subnets {
					w.known.Blocks = append(w.known.Blocks, intent.Block{
						Network: network, Node: n.local.Node, Prefix: netip.PrefixFrom(at(s.Prefix, 16*(i+1)), s.Prefix.Addr().BitLen()-4),
					})
				}
			}
		}
		for i, n := range w.nodes {
			for range 2 - i {
				tn.red = append(tn.red, tn.addTenant(ctx, n, i, "red"))
				tn.blue = append(tn.blue, tn.addTenant(ctx, n, i, "blue"))
			}
			tn.iso = append(tn.iso, w.plugPod(ctx, n, intent.Port{
				Network: fmt.Sprint("iso-", i+1), Addresses: []netip.Addr{at(n.subnet(false), 100), at(n.subnet(true), 100)},
			}, n.gateway(false), n.gateway(true)))
		}
		tn.addWire(ctx)
		for _, add := range more {
			add(ctx, w)
		}
	})
	return tn
}

// addTenant makes the next pod of a network on a node, with node addresses.
func (tn *tenants) addTenant(ctx context.Context, n *liveNode, node int, network string) *livePod {
	tn.t.Helper()
	number := 16*(node+1) + 2
	for _, p := range n.pods {
		if p.port.Network == network {
			number++
		}
	}
	return tn.plugPod(ctx, n, intent.Port{
		Network: network, Addresses: []netip.Addr{at(tenant4, number), at(tenant6, number)},
		NodeAddresses: []netip.Addr{at(n.subnet(false), 50+len(n.pods)), at(n.subnet(true), 50+len(n.pods))},
	}, at(tenant4, 1).String(), at(tenant6, 1).String())
}

// addWire gives the first node a physical network: a bridge that plays its
// switch, with a host on a port of the VLAN.
func (tn *tenants) addWire(ctx context.Context) {
	tn.t.Helper()
	n := tn.nodes[0]
	tn.wire = tn.namespace()
	tn.join(n.Namespace, "wire", tn.wire, "eth0", wireMTU)
	tn.hostEnds[n] = append(tn.hostEnds[n], "wire")
	tn.vsctl(ctx, n, fmt.Sprintf(`add-br br-wire -- set bridge br-wire datapath_type=%s -- add-port br-wire wire tag=%d
		-- add-port br-wire to-int -- set interface to-int type=patch options:peer=to-wire
		-- add-port br-int to-wire -- set interface to-wire type=patch options:peer=to-int ofport_request=%d`, n.ovs.Datapath, liveVLAN, datapath.FirstUplinkPort))
	tn.run(tn.wire, "ip link set eth0 up", fmt.Sprintf("ip addr add %s/24 dev eth0", at(wire4, 100)), fmt.Sprintf("ip addr add %s/64 dev eth0 nodad", at(wire6, 100)))
	tn.onWire = tn.plugPod(ctx, n, intent.Port{
		Network: "wire", Addresses: []netip.Addr{at(wire4, 2), at(wire6, 2)},
		NodeAddresses: []netip.Addr{at(n.subnet(false), 80), at(n.subnet(true), 80)},
	}, at(wire4, 100).String(), at(wire6, 100).String())
}

// inNode is the node address of a pod.
func (p *livePod) inNode(v6 bool) string {
	if v6 {
		return p.port.NodeAddresses[1].String()
	}
	return p.port.NodeAddresses[0].String()
}

// rewritten is exchange where addresses are rewritten on the way. The userspace
// datapath damages IPv4 fragments then: it corrects a checksum that is not there.
func (tn *tenants) rewritten(t *testing.T, ns *ovstest.Namespace, network, address, client string) error {
	if tn.netdev && network == "udp" && !strings.Contains(client, ":") {
		return exchangeData(t.Context(), ns, network, address, client, "coelan")
	}
	return exchange(t.Context(), ns, network, address, client)
}

// Tenants with the same subnets on the same nodes, with real packets of real kernels: each reaches
// its own pods, hosts and Services, and nothing else.
func TestTenants(t *testing.T) {
	tn := newTenants(t, intent.VXLAN)
	// No sender learns the MTU of a path by the first packet.
	tn.run(tn.outside, fmt.Sprintf("ip link set eth0 mtu %d", tn.nodes[0].local.MTU))
	tn.run(tn.wire, fmt.Sprintf("ip link set eth0 mtu %d", tn.nodes[0].local.MTU))
	for _, n := range tn.nodes {
		_, _ = ping(n.Namespace, tn.nodes[2-n.number].address(false), "")
	}
	for _, v6 := range []bool{false, true} {
		t.Run(map[bool]string{false: "IPv4", true: "IPv6"}[v6], func(t *testing.T) {
			t.Run("Reach", func(t *testing.T) { testTenantReach(t, tn, v6) })
			t.Run("Streams", func(t *testing.T) { testTenantStreams(t, tn, v6) })
			t.Run("Service", func(t *testing.T) { testTenantService(t, tn, v6) })
			t.Run("Wire", func(t *testing.T) { testWire(t, tn, v6) })
		})
	}
}

func testTenantReach(t *testing.T, tn *tenants, v6 bool) {
	a, b := tn.nodes[0], tn.nodes[1]
	stranger := a.pods[0] // of the default network
	for _, tc := range []struct {
		name string
		from *ovstest.Namespace
		to   string
		ttl  string // of the reply; empty: there must be none
	}{
		{"red to red, same node", tn.red[0].Namespace, tn.red[1].address(v6), "64"},
		{"blue to blue, same node", tn.blue[0].Namespace, tn.blue[1].address(v6), "64"},
		{"red to red, other node", tn.red[0].Namespace, tn.red[2].address(v6), "63"},
		{"blue to blue, other node", tn.blue[0].Namespace, tn.blue[2].address(v6), "63"},
		{"red to red by node address", tn.red[0].Namespace, tn.red[1].inNode(v6), "64"},
		{"red to red by node address, other node", tn.red[0].Namespace, tn.red[2].inNode(v6), "63"},
		{"iso to iso, other node", tn.iso[0].Namespace, tn.iso[1].address(v6), "63"},
		{"host to red", a.Namespace, tn.red[0].inNode(v6), "64"},
		{"host to blue", a.Namespace, tn.blue[0].inNode(v6), "64"},
		{"host to iso", a.Namespace, tn.iso[0].address(v6), "64"},
		{"other host to red", b.Namespace, tn.red[0].inNode(v6), "63"},
		{"outside to red", tn.outside, tn.red[0].inNode(v6), "63"},
		{"red to its host", tn.red[0].Namespace, a.gateway(v6), "64"},
		{"red to outside", tn.red[0].Namespace, outsideAddress(v6), "63"},
		{"iso to outside", tn.iso[0].Namespace, outsideAddress(v6), "63"},
		{"stranger to red", stranger.Namespace, tn.red[0].inNode(v6), ""},
		{"stranger to red, other node", stranger.Namespace, tn.red[2].inNode(v6), ""},
		{"stranger to iso", stranger.Namespace, tn.iso[0].address(v6), ""},
		{"red to stranger", tn.red[0].Namespace, stranger.address(v6), ""},
		{"red to blue by node address", tn.red[0].Namespace, tn.blue[0].inNode(v6), ""},
		{"iso to stranger, other node", tn.iso[0].Namespace, b.pods[0].address(v6), ""},
	} {
		options := ""
		if tc.ttl == "" {
			options = "-W1"
		}
		out, err := ping(tc.from, tc.to, options)
		if got := err == nil; got != (tc.ttl != "") || got && !strings.Contains(out, "ttl="+tc.ttl+" ") {
			t.Errorf("%s: want a reply with ttl=%q: %v\n%s", tc.name, tc.ttl, err, out)
		}
	}
	// What is on link but on another node is behind the router.
	if out, err := runIn(tn.red[0].Namespace, "ip neigh show "+tn.red[2].address(v6)); err != nil || !strings.Contains(out, datapath.RouterMAC.String()) {
		t.Errorf("the neighbour %s is not the router: %v\n%s", tn.red[2].address(v6), err, out)
	}
}

// testTenantStreams has a pod of red serve at an address that blue has as well.
func testTenantStreams(t *testing.T, tn *tenants, v6 bool) {
	for _, server := range tn.red[1:] {
		serve(t, server.Namespace, server.address(v6), 8080)
		to := net.JoinHostPort(server.address(v6), "8080")
		for _, network := range []string{"tcp", "udp"} {
			if err := exchange(t.Context(), tn.red[0].Namespace, network, to, tn.red[0].address(v6)); err != nil {
				t.Errorf("%s from red to red %s: %v", network, to, err)
			}
			byNode := net.JoinHostPort(server.inNode(v6), "8080")
			if err := tn.rewritten(t, tn.red[0].Namespace, network, byNode, tn.red[0].inNode(v6)); err != nil {
				t.Errorf("%s from red to red by node address %s: %v", network, byNode, err)
			}
			if err := tn.rewritten(t, tn.nodes[0].Namespace, network, byNode, tn.nodes[0].gateway(v6)); err != nil {
				t.Errorf("%s from the host to red %s: %v", network, byNode, err)
			}
		}
		if err := exchange(t.Context(), tn.blue[0].Namespace, "tcp", to, ""); err == nil || !strings.Contains(err.Error(), "refused") {
			t.Errorf("tcp from blue to %s: %v, not refused by its own pod", to, err)
		}
	}
	serve(t, tn.outside, outsideAddress(v6), 8082)
	for _, network := range []string{"tcp", "udp"} {
		if err := tn.rewritten(t, tn.red[0].Namespace, network, net.JoinHostPort(outsideAddress(v6), "8082"), tn.red[0].inNode(v6)); err != nil {
			t.Errorf("%s from red to outside: %v", network, err)
		}
	}
}

// testTenantService has the host translate addresses as kube-proxy does, to pods
// of the same tenant, and to pods of the default network, such as DNS.
func testTenantService(t *testing.T, tn *tenants, v6 bool) {
	a, b := tn.nodes[0], tn.nodes[1]
	type endpoint struct {
		pod     *livePod
		address string // that the Service has
		clients []*livePod
	}
	reds, isos := tn.red[:1], tn.iso[:1]
	for i, e := range []endpoint{
		{tn.red[1], tn.red[1].inNode(v6), reds},
		{tn.red[2], tn.red[2].inNode(v6), reds},
		{tn.iso[1], tn.iso[1].address(v6), isos},
		{a.pods[0], a.pods[0].address(v6), slices.Concat(reds, isos)},
		{b.pods[0], b.pods[0].address(v6), slices.Concat(reds, isos)},
	} {
		family, vip, to := "ip", fmt.Sprint("10.96.1.", 1+i), e.address
		if v6 {
			family, vip, to = "ip6", fmt.Sprint("fd00:96::1:", 1+i), "["+e.address+"]"
		}
		table := fmt.Sprintf("tenants%d_%s", i, family)
		tn.run(a.Namespace, "nft add table "+family+" "+table, "nft add chain "+family+" "+table+" pre { type nat hook prerouting priority -100 ; }")
		for _, network := range []string{"tcp", "udp"} {
			tn.run(a.Namespace, fmt.Sprintf("nft add rule %s %s pre %s daddr %s %s dport 80 dnat to %s:8084", family, table, family, vip, network, to))
		}
		serve(t, e.pod.Namespace, e.pod.address(v6), 8084)
		for _, client := range e.clients {
			as := client.address(v6)
			if len(client.port.NodeAddresses) > 0 {
				as = client.inNode(v6)
			}
			for _, network := range []string{"tcp", "udp"} {
				if err := tn.rewritten(t, client.Namespace, network, net.JoinHostPort(vip, "80"), as); err != nil {
					t.Errorf("%s from %s to the Service of %s: %v", network, client.port.Network, e.address, err)
				}
			}
		}
	}
}

func testWire(t *testing.T, tn *tenants, v6 bool) {
	outside := at(wire4, 100).String()
	if v6 {
		outside = at(wire6, 100).String()
	}
	for _, tc := range []struct {
		name string
		from *ovstest.Namespace
		to   string
	}{
		{"pod to the wire", tn.onWire.Namespace, outside},
		{"the wire to the pod", tn.wire, tn.onWire.address(v6)},
		{"host to the pod", tn.nodes[0].Namespace, tn.onWire.inNode(v6)},
	} {
		if out, err := ping(tc.from, tc.to, ""); err != nil || !strings.Contains(out, "ttl=64 ") {
			t.Errorf("%s: no reply with ttl=64: %v\n%s", tc.name, err, out)
		}
	}
	serve(t, tn.wire, outside, 8080)
	for _, network := range []string{"tcp", "udp"} {
		if err := exchange(t.Context(), tn.onWire.Namespace, network, net.JoinHostPort(outside, "8080"), tn.onWire.address(v6)); err != nil {
			t.Errorf("%s to the wire: %v", network, err)
		}
	}
}
