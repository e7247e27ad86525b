// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/test/lab/probe"
)

const (
	vxlanPort  = 4789
	genevePort = 6081
	// victimPort is one that no pod serves: packets are looked for on its interface.
	victimPort = 9999
)

// attackEncapsulation has pods and a host outside send tunnel packets for another tenant's pod, in
// the name of an address of that tenant. The control is the same datagram from a node, which may
// send tunnel packets: it proves that the bytes are right.
func attackEncapsulation(t *testing.T) {
	ctx := within(t, 4*time.Minute)
	shop1, shop2 := world.tenant(ctx, t, "blue/shop1"), world.tenant(ctx, t, "blue/shop2")
	node1, node2 := world.machine(ctx, t, worker1), world.machine(ctx, t, worker2)
	var router v1alpha1.Router
	if err := world.objects.Get(ctx, types.NamespacedName{Name: "blue"}, &router); err != nil {
		t.Fatal(err)
	}
	vni := uint32(router.Status.VNI)
	wires := map[string]*probe.Wire{shop1.name: wireOf(t, shop1), shop2.name: wireOf(t, shop2)}

	inner := func(text []byte, victim place, f family) probe.Frame {
		src := netip.AddrPortFrom(neighbor(shop1.address(f)), victimPort)
		return routed(routerMAC, f, probe.UDP(src, netip.AddrPortFrom(victim.address(f), victimPort), text))
	}
	at := func(node place, port uint16) netip.AddrPort { return netip.AddrPortFrom(node.address(ipv4), port) }
	var attacks []attack
	for _, f := range families {
		vxlan := func(victim place) func([]byte) []byte {
			return func(text []byte) []byte { return probe.VXLAN(vni, inner(text, victim, f)) }
		}
		geneve := func(text []byte) []byte { return probe.Geneve(vni, inner(text, shop2, f)) }
		packet := func(text []byte) []byte { return inner(text, shop2, f).Payload() }
		number := "4" // IPv4 in IP
		if f == ipv6 {
			number = "41"
		}
		control := shot{datagram(node1, "udp", at(node2, vxlanPort), vxlan(shop2)), wires[shop2.name]}
		control1 := shot{datagram(node2, "udp", at(node1, vxlanPort), vxlan(shop1)), wires[shop1.name]}
		for _, from := range []place{world.pod(ctx, t, "client1"), world.tenant(ctx, t, "red/client1")} {
			who := string(f) + ": pod " + from.name
			service := tunnelService(ctx, t, from, node2)
			attacks = append(attacks, []attack{
				{who + " sends VXLAN to another node", shot{datagram(from, "udp", at(node2, vxlanPort), vxlan(shop2)), control.at}, control},
				{who + " sends VXLAN to its own node", shot{datagram(from, "udp", at(node1, vxlanPort), vxlan(shop1)), control1.at}, control1},
				{who + " sends VXLAN to a Service whose endpoint is a node", shot{datagram(from, "udp", service, vxlan(shop2)), control.at}, control},
				{who + " sends VXLAN in fragments", shot{datagram(from, "udp", at(node2, vxlanPort), padded(vxlan(shop2))), control.at}, control},
				{who + " sends Geneve to another node", shot{datagram(from, "udp", at(node2, genevePort), geneve), control.at}, control},
				{who + " sends VXLAN in VXLAN", shot{datagram(from, "udp", at(node2, vxlanPort), func(text []byte) []byte {
					outer := probe.UDP(at(node1, victimPort), at(node2, vxlanPort), vxlan(shop2)(text))
					return probe.VXLAN(1, routed(routerMAC, ipv4, outer))
				}), control.at}, control},
				{who + " sends GRE to another node", shot{datagram(from, "ip4:47", at(node2, 0), func(text []byte) []byte {
					return probe.GRE(packet(text))
				}), control.at}, control},
				{who + " sends IP in IP to another node", shot{datagram(from, "ip4:"+number, at(node2, 0), packet), control.at}, control},
			}...)
		}
		attacks = append(attacks, attack{
			string(f) + ": a host outside sends VXLAN to a node",
			shot{datagram(world.machine(ctx, t, "fabric"), "udp", at(node2, vxlanPort), vxlan(shop2)), control.at}, control,
		})
	}
	launch(ctx, t, attacks)
}

// neighbor is the address two after a pod's: of its subnet, and not its own.
func neighbor(a netip.Addr) netip.Addr { return a.Next().Next() }

// padded makes a datagram too long for one packet.
func padded(content func([]byte) []byte) func([]byte) []byte {
	return func(text []byte) []byte { return append(content(text), make([]byte, 2000)...) }
}

// tunnelService is a Service with a node's tunnel as its only endpoint. Any user may create one.
// Another port of it leads to a server on the node, which must answer: the way is there.
func tunnelService(ctx context.Context, t *testing.T, from, node place) netip.AddrPort {
	t.Helper()
	const serverPort = 8099
	namespace, _ := split(from.name)
	s := makeService(ctx, t, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "tunnel-", Namespace: namespace},
		Spec: corev1.ServiceSpec{
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports: []corev1.ServicePort{
				{Name: "tunnel", Protocol: corev1.ProtocolUDP, Port: vxlanPort},
				{Name: "server", Protocol: corev1.ProtocolUDP, Port: serverPort},
			},
		},
	})
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: s.Name + "-", Namespace: namespace,
			Labels:          map[string]string{discoveryv1.LabelServiceName: s.Name},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: s.Name, UID: s.UID}},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{node.address(ipv4).String()}}},
		Ports: []discoveryv1.EndpointPort{
			{Name: new("tunnel"), Protocol: new(corev1.ProtocolUDP), Port: new(int32(vxlanPort))},
			{Name: new("server"), Protocol: new(corev1.ProtocolUDP), Port: new(int32(serverPort))},
		},
	}
	if _, err := world.api.DiscoveryV1().EndpointSlices(namespace).Create(ctx, slice, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	address := netip.MustParseAddr(s.Spec.ClusterIP)
	ctx, cancel := context.WithTimeout(ctx, learning)
	defer cancel()
	err := eventually(ctx, func() error {
		short, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		_, err := probe.AskUDP(short, from, node, netip.AddrPortFrom(address, serverPort),
			netip.AddrPortFrom(node.address(ipv4), serverPort), "control")
		return err
	})
	if err != nil {
		t.Fatalf("%s: the Service's other port: %v", from.name, err)
	}
	return netip.AddrPortFrom(address, vxlanPort)
}
