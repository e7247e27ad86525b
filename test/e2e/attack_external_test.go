// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/reserved"
	"coelan.io/coelan/test/lab/probe"
)

// contested are the external addresses of a case, and what it looks at.
type contested struct {
	red, blue *gateway
	floating  *floating   // red's, of its pod web1 on worker1
	office    *probe.Wire // the fabric's end of the external Network
	officeMAC net.HardwareAddr
	// insider and bystander are pods of worker1 with an interface on the external Network itself.
	insider, bystander place
}

// insideOffice is the interface of the insider and the bystander.
const insideOffice = "net0"

// attackExternalAddresses has pods take addresses of an external Network that are others', by what
// they send and by what they answer: a floating IP, the addresses of Routers' gateways, those of
// hosts and pods there. A host outside sends in the name of the cluster, and past translation. And
// a tenant takes all connections that its gateway can have.
func attackExternalAddresses(t *testing.T) {
	ctx := within(t, 4*time.Minute)
	useOffice(ctx, t)
	x := &contested{red: openGateway(ctx, t, "red", `"network": "office"`), blue: openGateway(ctx, t, "blue", `"network": "office"`)}
	x.floating = floatingPair(ctx, t, "red/prize", "web1.eth0")
	x.insider, x.bystander = insideOfficePod(ctx, t, "insider"), insideOfficePod(ctx, t, "bystander")
	for _, g := range []*gateway{x.red, x.blue} {
		g.onNodes(ctx, t, worker1, worker2)
	}
	x.office, x.officeMAC = officeWire(t), macOn(t, world.netns("fabric"), officeLink)
	before := x.neighbours(ctx, t)

	launch(ctx, t, slices.Concat(x.fromPods(ctx, t), x.fromInside(ctx, t), x.fromOutside(ctx, t)))
	// After all of it the outside finds the addresses where they were, and has seen no other ones.
	for _, f := range families {
		x.floating.answers(ctx, t, f, "web1")
		leaves(ctx, t, world.tenant(ctx, t, "blue/shop1"), x.blue.addresses[worker1])
	}
	if after := x.neighbours(ctx, t); !slices.Equal(after, before) {
		t.Errorf("the outside knows other neighbors: %v, and before %v", after, before)
	}
	onlyKnown(t, x.office, x.known(t)...)
	t.Run("all connections", func(t *testing.T) { x.allConnections(t) })
}

// insideOfficePod makes a pod with an interface on the external Network.
func insideOfficePod(ctx context.Context, t *testing.T, key string) place {
	t.Helper()
	makePod(ctx, t, annotated(webServer(key, worker1), nfnAnnotation,
		`{"type": "ovn4nfv", "interface": [{"name": "office", "interface": "`+insideOffice+`", "defaultGateway": "false"}]}`))
	t.Cleanup(func() { removePods(context.WithoutCancel(ctx), t, key) })
	if err := world.waitReady(ctx, key); err != nil {
		t.Fatal(err)
	}
	p := world.pod(ctx, t, key)
	p.addresses = p.on(t, insideOffice)
	return p
}

// known are the addresses that have a right to be seen outside.
func (x *contested) known(t *testing.T) []netip.Addr {
	t.Helper()
	list := slices.Concat(x.red.all(), x.blue.all(), x.insider.addresses, x.bystander.addresses)
	for _, f := range families {
		list = append(list, x.floating.addresses[f])
	}
	return list
}

// neighbours are the MACs that the fabric knows of the floating IP and the gateways' addresses,
// once it has asked for them.
func (x *contested) neighbours(ctx context.Context, t *testing.T) (list []string) {
	t.Helper()
	fabric := world.netns("fabric")
	for _, f := range families {
		for _, a := range []netip.Addr{x.floating.addresses[f], x.red.addresses[worker1][f], x.blue.addresses[worker1][f]} {
			want := a.String() + " is at " + reserved.PodMAC(a).String()
			if err := eventually(ctx, func() error {
				if err := datagram(fabric, "udp", netip.AddrPortFrom(a, victimPort), whole)([]byte("where?")); err != nil {
					return err
				}
				out := fabric.run(ctx, t, "ip", "neigh", "show", "to", a.String(), "dev", officeLink)
				fields := strings.Fields(out)
				if at := slices.Index(fields, "lladdr"); at >= 0 && at+1 < len(fields) {
					list = append(list, a.String()+" is at "+fields[at+1])
					return nil
				}
				return fmt.Errorf("the fabric has %q", out)
			}); err != nil {
				t.Fatal(err)
			}
			if got := list[len(list)-1]; got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
	}
	return list
}

// fromPods sends from interfaces on overlays, in the name of external addresses. Controls leave in
// the sender's own name: by blue's gateway, and as the node.
func (x *contested) fromPods(ctx context.Context, t *testing.T) (attacks []attack) {
	nodes := wireOn(t, world.netns("fabric"), "fabric")
	for _, sender := range []struct {
		from place
		at   *probe.Wire
	}{{world.tenant(ctx, t, "blue/shop1"), x.office}, {world.pod(ctx, t, "client1"), nodes}} {
		wire, mac, who := wireOf(t, sender.from), macOf(t, sender.from), sender.from.name
		for _, f := range families {
			to := netip.AddrPortFrom(officeGateway[f].Addr(), victimPort)
			say := func(mac net.HardwareAddr, source netip.Addr) func([]byte) error {
				return frame(wire, func(text []byte) probe.Frame {
					return routed(mac, f, probe.UDP(netip.AddrPortFrom(source, 1000), to, text))
				})
			}
			control := shot{say(mac, sender.from.address(f)), sender.at}
			prize := x.floating.addresses[f]
			for _, c := range []struct {
				name   string
				mac    net.HardwareAddr
				source netip.Addr
			}{
				{"the floating IP of another tenant", mac, prize},
				{"the floating IP of another tenant, with its MAC", reserved.PodMAC(prize).HardwareAddr(), prize},
				{"the gateway of another Router", mac, x.red.addresses[worker1][f]},
				{"the gateway of its Router on another node", mac, x.blue.addresses[worker2][f]},
				{"the gateway of its Router on its node", mac, x.blue.addresses[worker1][f]},
				{"a host of the external Network", mac, officeGateway[f].Addr()},
				{"a pod of the external Network", mac, x.insider.address(f)},
			} {
				attacks = append(attacks, attack{
					fmt.Sprintf("%s: %s sends outside as %s", f, who, c.name), shot{say(c.mac, c.source), sender.at}, control,
				})
			}
			for name, make := range x.claims(f, mac, prize, routerMAC, sender.from.address(f)) {
				attacks = append(attacks, attack{
					fmt.Sprintf("%s: %s %s", f, who, name), shot{frame(wire, make), x.office}, control,
				})
			}
		}
	}
	return attacks
}

// claims say that an address is at a MAC: as an announcement to all, as an answer to one neighbor,
// and as a question of its owner.
func (x *contested) claims(f family, mac net.HardwareAddr, owned netip.Addr, neighbour net.HardwareAddr, own netip.Addr) map[string]func([]byte) probe.Frame {
	outside := officeGateway[f].Addr()
	if f == ipv4 {
		arp := func(dst net.HardwareAddr, op uint16, target netip.Addr) func([]byte) probe.Frame {
			return func(text []byte) probe.Frame {
				return append(probe.Ethernet(mac, dst, probe.EtherARP, probe.ARP(op, mac, owned, dst, target)), text...)
			}
		}
		return map[string]func([]byte) probe.Frame{
			"announces " + owned.String() + " by an ARP request": arp(probe.Broadcast, probe.ARPRequest, owned),
			"announces " + owned.String() + " by an ARP reply":   arp(probe.Broadcast, probe.ARPReply, owned),
			"answers ARP for " + owned.String():                  arp(neighbour, probe.ARPReply, outside),
			"asks by ARP as " + owned.String():                   arp(probe.Broadcast, probe.ARPRequest, outside),
		}
	}
	allNodes, allNodes6 := net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}, netip.MustParseAddr("ff02::1")
	nd := func(dst net.HardwareAddr, kind uint8, src, to netip.Addr) func([]byte) probe.Frame {
		return func(text []byte) probe.Frame {
			m := probe.Neighbour(kind, src, to, owned, mac)[40:]
			return probe.Ethernet(mac, dst, probe.EtherIPv6, probe.IP(src, to, 58, 255, append(m, ndOption(text)...)))
		}
	}
	return map[string]func([]byte) probe.Frame{
		"announces " + owned.String() + " by ND":                  nd(allNodes, probe.NeighbourAdvertisement, owned, allNodes6),
		"announces " + owned.String() + " by ND, in its own name": nd(allNodes, probe.NeighbourAdvertisement, own, allNodes6),
		"answers ND for " + owned.String():                        nd(neighbour, probe.NeighbourAdvertisement, owned, outside),
		"answers ND for " + owned.String() + ", in its own name":  nd(neighbour, probe.NeighbourAdvertisement, own, outside),
		"asks by ND as " + owned.String():                         nd(neighbour, probe.NeighbourSolicitation, owned, outside),
	}
}

// fromInside sends from an interface on the external Network itself, to the host there and to
// another pod.
func (x *contested) fromInside(ctx context.Context, t *testing.T) (attacks []attack) {
	wire := wireOn(t, x.insider, insideOffice)
	mac := macOn(t, x.insider, insideOffice)
	for _, to := range []struct {
		name      string
		addresses func(family) netip.Addr
		mac       net.HardwareAddr
		at        *probe.Wire
	}{
		{"a host outside", func(f family) netip.Addr { return officeGateway[f].Addr() }, x.officeMAC, x.office},
		{"a pod beside it", x.bystander.address, macOn(t, x.bystander, insideOffice), wireOn(t, x.bystander, insideOffice)},
	} {
		for _, f := range families {
			say := func(mac net.HardwareAddr, source netip.Addr) func([]byte) error {
				return frame(wire, func(text []byte) probe.Frame {
					return probe.Ethernet(mac, to.mac, etherType(f),
						probe.UDP(netip.AddrPortFrom(source, 1000), netip.AddrPortFrom(to.addresses(f), victimPort), text))
				})
			}
			control := shot{say(mac, x.insider.address(f)), to.at}
			prize, free := x.floating.addresses[f], map[family]netip.Addr{
				ipv4: netip.MustParseAddr("198.51.100.149"), ipv6: netip.MustParseAddr("2001:db8:70::ffff"),
			}[f]
			for _, c := range []struct {
				name   string
				mac    net.HardwareAddr
				source netip.Addr
			}{
				{"the floating IP of another namespace", mac, prize},
				{"that floating IP, with its MAC", reserved.PodMAC(prize).HardwareAddr(), prize},
				{"itself, with the MAC of a floating IP", reserved.PodMAC(prize).HardwareAddr(), x.insider.address(f)},
				{"a Router's gateway", mac, x.red.addresses[worker1][f]},
				{"a Router's gateway on another node", mac, x.red.addresses[worker2][f]},
				{"the gateway of the external Network", mac, officeGateway[f].Addr()},
				{"an address that nothing has", mac, free},
				{"a pod of the cluster", mac, world.pod(ctx, t, "client1").address(f)},
				{"its node", mac, world.nodeAddress(ctx, t, worker1, f)},
			} {
				attacks = append(attacks, attack{
					fmt.Sprintf("%s: %s sends to %s as %s", f, x.insider.name, to.name, c.name), shot{say(c.mac, c.source), to.at}, control,
				})
			}
			for _, owned := range []netip.Addr{prize, x.red.addresses[worker1][f], officeGateway[f].Addr()} {
				for name, make := range x.claims(f, mac, owned, to.mac, x.insider.address(f)) {
					attacks = append(attacks, attack{
						fmt.Sprintf("%s: %s %s to %s", f, x.insider.name, name, to.name), shot{frame(wire, make), to.at}, control,
					})
				}
			}
		}
	}
	return attacks
}

// fromOutside sends from a host of the external Network, in the name of the cluster and of external
// addresses, to a floating IP and into a connection of a gateway; and to Ports' own addresses.
func (x *contested) fromOutside(ctx context.Context, t *testing.T) (attacks []attack) {
	web, red := world.tenant(ctx, t, "red/web1"), world.tenant(ctx, t, "red/client1")
	webWire, redWire, redMAC := wireOf(t, web), wireOf(t, red), macOf(t, red)
	for _, f := range families {
		host := officeGateway[f].Addr()
		// say sends to an external address, as if from there, what is for another one perhaps.
		say := func(external, source, dst netip.Addr, port uint16) func([]byte) error {
			return frame(x.office, func(text []byte) probe.Frame {
				return probe.Ethernet(x.officeMAC, reserved.PodMAC(external).HardwareAddr(), etherType(f),
					probe.UDP(netip.AddrPortFrom(source, victimPort), netip.AddrPortFrom(dst, port), text))
			})
		}
		prize, gw := x.floating.addresses[f], x.red.addresses[worker1][f]
		// The pod begins a connection, which conntrack knows by the same port outside.
		const port = 3999
		begun := func(answer func([]byte) error) func([]byte) error {
			return func(text []byte) error {
				if err := redWire.Send(routed(redMAC, f, probe.UDP(
					netip.AddrPortFrom(red.address(f), port), netip.AddrPortFrom(host, victimPort), nil))); err != nil {
					return err
				}
				return answer(text)
			}
		}
		toFloating := shot{say(prize, host, prize, victimPort), webWire}
		toGateway := shot{begun(say(gw, host, gw, port)), redWire}
		for name, source := range map[string]netip.Addr{
			"a pod":                       world.pod(ctx, t, "client2").address(f),
			"a Service":                   world.serviceAddress(ctx, t, "web1", f),
			"the cluster's address of it": world.pod(ctx, t, "red/web1").address(f),
			"a node's gateway":            world.gateway(ctx, t, worker1, f),
			"a pod of the tenant":         red.address(f),
		} {
			attacks = append(attacks,
				attack{fmt.Sprintf("%s: a host outside sends to a floating IP as %s", f, name),
					shot{say(prize, source, prize, victimPort), webWire}, toFloating},
				attack{fmt.Sprintf("%s: a host outside sends into a connection of a gateway as %s", f, name),
					shot{begun(say(gw, source, gw, port)), redWire}, toGateway})
		}
		attacks = append(attacks,
			attack{fmt.Sprintf("%s: another host outside sends into a connection of a gateway", f),
				shot{begun(say(gw, outside(f), gw, port)), redWire}, toGateway},
			attack{fmt.Sprintf("%s: a host outside sends to a gateway's address what no pod has asked for", f),
				shot{say(gw, host, gw, webPort), webWire}, toFloating},
			attack{fmt.Sprintf("%s: a host outside sends to a tenant's own address", f),
				shot{say(prize, host, web.address(f), victimPort), webWire}, toFloating},
			attack{fmt.Sprintf("%s: a host outside sends to a tenant's address in the cluster", f),
				shot{say(prize, host, world.pod(ctx, t, "red/web1").address(f), victimPort), webWire}, toFloating},
			attack{fmt.Sprintf("%s: a host outside sends to a gateway what is for a tenant's own address", f),
				shot{say(gw, host, web.address(f), victimPort), webWire}, toFloating},
		)
	}
	return attacks
}

// allConnections has a pod of red begin connections to one server outside until its gateway on the
// node can have no more. Meanwhile pods of blue on that node, by a gateway on the same external
// Network, and of no tenant connect, every time.
func (x *contested) allConnections(t *testing.T) {
	ctx := within(t, 2*time.Minute)
	red, shop, plain := world.tenant(ctx, t, "red/client1"), world.tenant(ctx, t, "blue/shop1"), world.pod(ctx, t, "client1")
	gatewayZone := func(router string) int { return int(datapath.GatewayZone(intent.RouterID(zoneOf(ctx, t, router)))) }
	full, others := gatewayZone("red"), gatewayZone("blue")
	t.Cleanup(func() {
		for _, zone := range []int{full, zoneOf(context.WithoutCancel(ctx), t, "red")} {
			appctl(context.WithoutCancel(ctx), t, worker1, "dpctl/flush-conntrack", fmt.Sprintf("zone=%d", zone))
		}
	})
	for _, f := range families {
		noise := probe.Noise{MAC: macOf(t, red), Router: routerMAC, Address: red.address(f), Peer: outside(f)}
		flood, err := probe.StartFlood(red, "eth0", noisyRate, noise.Connections)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if _, err := flood.Stop(); err != nil {
				t.Errorf("the noise: %v", err)
			}
		})
	}
	taken, cancel := context.WithTimeout(ctx, learning)
	defer cancel()
	if err := eventually(taken, func() error {
		if l := zoneLimits(ctx, t, worker1)[full]; l.limit != officeConnections || l.count < l.limit*9/10 {
			return fmt.Errorf("the gateway has %d connections of %d, want %d", l.count, l.limit, officeConnections)
		}
		return nil
	}); err != nil {
		t.Fatalf("the noise does not fill the connections of red's gateway: %v", err)
	}
	for i := range neighbors {
		for _, from := range []place{shop, plain} {
			c := connection(ctx, t, from, netip.AddrPortFrom(outside(families[i%2]), 80))
			t.Cleanup(func() { c.Close() })
		}
	}
	limits := zoneLimits(ctx, t, worker1)
	if l := limits[others]; l.count < neighbors {
		t.Errorf("conntrack remembers %d connections of blue's gateway, which has at least %d", l.count, neighbors)
	}
	if l := limits[full]; l.count > l.limit {
		t.Errorf("red's gateway has %d connections of %d", l.count, l.limit)
	}
	for _, f := range families {
		if seen, err := clientOf(ctx, shop, netip.AddrPortFrom(outside(f), 80)); err != nil || seen != x.blue.addresses[worker1][f] {
			t.Errorf("%s is seen as %s, %v; want %s", shop.name, seen, err, x.blue.addresses[worker1][f])
		}
	}
}
