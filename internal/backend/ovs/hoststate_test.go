// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/backend/ovs/hostnet"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/reserved"
	"coelan.io/coelan/internal/translate"
)

func node(name string, addresses, podCIDRs []string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid"}, Spec: corev1.NodeSpec{PodCIDRs: podCIDRs}}
	for _, a := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return n
}

// cluster is a State of three nodes, the last without addresses of IPv6.
func cluster(t *testing.T, local intent.Local) *intent.State {
	t.Helper()
	nodes, problems := translate.Nodes([]*corev1.Node{
		node("n1", []string{"192.168.33.11", "fd33::11"}, []string{"10.244.1.0/24", "fd44:1::/64"}),
		node("n2", []string{"192.168.33.12", "fd33::12"}, []string{"10.244.2.0/24", "fd44:2::/64"}),
		node("n3", []string{"192.168.33.13"}, []string{"10.244.3.0/24"}),
	})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	s, err := intent.NewStore().Update(func(tx *intent.Tx) error {
		tx.SetLocal(local)
		tx.ReplaceNodes(nodes)
		tx.ReplaceGuardedPorts([]intent.GuardedPort{
			{Protocol: intent.TCP, Port: 10463}, {Protocol: intent.UDP, Port: 10362}, {Protocol: intent.TCP, Port: 10362},
		})
		network, router := translate.Default()
		router.SNAT = intent.SNAT{Enabled: true, Direct: prefixes("172.16.0.0/12")}
		tx.ReplaceNetworks([]intent.Router{router}, []intent.Network{network}, nil)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func prefixes(s ...string) (ps []netip.Prefix) {
	for _, p := range s {
		ps = append(ps, netip.MustParsePrefix(p))
	}
	return ps
}

func TestHostState(t *testing.T) {
	gateway := hostnet.Gateway{Name: "coelan-gw0", MTU: 1450, Addresses: prefixes("10.244.1.1/24", "fd44:1::1/64")}
	snat := hostnet.SNAT{
		Enabled: true, Pods: prefixes("10.244.1.0/24", "fd44:1::/64"),
		Direct: prefixes("172.16.0.0/12", "10.244.1.0/24", "fd44:1::/64", "10.244.2.0/24", "fd44:2::/64", "10.244.3.0/24"),
	}
	guarded := hostnet.Guard{
		Nodes: []netip.Addr{
			addr("192.168.33.11"), addr("fd33::11"), addr("192.168.33.12"), addr("fd33::12"), addr("192.168.33.13"),
		},
		Ports: []hostnet.NodePort{
			{Protocol: intent.TCP, Port: 10362}, {Protocol: intent.UDP, Port: 10362}, {Protocol: intent.TCP, Port: 10463},
		},
	}
	own4 := hostnet.Route{Destination: prefixes("10.244.1.0/24")[0], Gateway: true, Source: addr("10.244.1.1")}
	own6 := hostnet.Route{Destination: prefixes("fd44:1::/64")[0], Gateway: true, Source: addr("fd44:1::1")}
	for _, tc := range []struct {
		name  string
		local intent.Local
		want  []hostnet.Route
	}{
		{"tunnel", intent.Local{Node: "n1", Encapsulation: intent.VXLAN, TunnelIP: addr("192.168.33.11"), MTU: 1450}, []hostnet.Route{
			own4,
			{Destination: prefixes("10.244.2.0/24")[0], Via: addr("10.244.2.1"), Gateway: true, Source: addr("10.244.1.1")},
			{Destination: prefixes("10.244.3.0/24")[0], Via: addr("10.244.3.1"), Gateway: true, Source: addr("10.244.1.1")},
			own6,
			{Destination: prefixes("fd44:2::/64")[0], Via: addr("fd44:2::1"), Gateway: true, Source: addr("fd44:1::1")},
		}},
		{"tunnel over IPv6", intent.Local{Datapath: intent.DatapathSystem, Node: "n1", Encapsulation: intent.Geneve, TunnelIP: addr("fd33::11"), MTU: 1450}, []hostnet.Route{
			own4,
			{Destination: prefixes("10.244.2.0/24")[0], Via: addr("10.244.2.1"), Gateway: true, Source: addr("10.244.1.1")},
			own6,
			{Destination: prefixes("fd44:2::/64")[0], Via: addr("fd44:2::1"), Gateway: true, Source: addr("fd44:1::1")},
		}},
		{"no encapsulation", intent.Local{Node: "n1", Encapsulation: intent.NoEncap, MTU: 1450}, []hostnet.Route{
			own4,
			{Destination: prefixes("10.244.2.0/24")[0], Via: addr("192.168.33.12")},
			{Destination: prefixes("10.244.3.0/24")[0], Via: addr("192.168.33.13")},
			own6,
			{Destination: prefixes("fd44:2::/64")[0], Via: addr("fd33::12")},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.local.Gateway = "coelan-gw0"
			got := hostState(cluster(t, tc.local), "br-phy", []string{"eth0"})
			want := hostnet.Desired{
				Gateway: gateway, Routes: tc.want, SNAT: snat, Guard: guarded, Uplink: "br-phy", Cards: []string{"eth0"},
			}
			want.Guard.Tunnel = map[intent.Encapsulation]uint16{intent.VXLAN: 4789, intent.Geneve: 6081}[tc.local.Encapsulation]
			if tc.local.Datapath == intent.DatapathSystem {
				want.Guard.TunnelToKernel, want.Guard.TunnelMark = true, reserved.TunnelMark
			}
			if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestTunnelPeers(t *testing.T) {
	for name, tc := range map[string]struct {
		local intent.Local
		want  []netip.Addr
	}{
		"IPv4": {intent.Local{Node: "n1", Encapsulation: intent.VXLAN, TunnelIP: addr("192.168.33.11")},
			[]netip.Addr{addr("192.168.33.12"), addr("192.168.33.13")}},
		"IPv6": {intent.Local{Node: "n1", Encapsulation: intent.VXLAN, TunnelIP: addr("fd33::11")}, []netip.Addr{addr("fd33::12")}},
		"none": {intent.Local{Node: "n1", Encapsulation: intent.NoEncap}, nil},
	} {
		if diff := cmp.Diff(tc.want, tunnelPeers(cluster(t, tc.local)), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestOwnNode(t *testing.T) {
	s := cluster(t, intent.Local{})
	if n, err := backend.OwnNode(s, "n1"); err != nil || n.Name != "n1" {
		t.Errorf("n1: %+v, %v", n, err)
	}
	for _, tc := range []struct {
		name string
		node *corev1.Node
		want string
	}{
		{"unknown", node("other", []string{"192.168.33.20"}, []string{"10.1.0.0/24"}),
			"node x is not known: has the API server been reached, and is --node-name right?"},
		{"without address", node("x", nil, []string{"10.1.0.0/24"}), "node x has no InternalIP in its status"},
		{"without podCIDR", node("x", []string{"192.168.33.20"}, nil),
			"node x has no podCIDR: does the controller manager run with --allocate-node-cidrs?"},
	} {
		nodes, _ := translate.Nodes([]*corev1.Node{tc.node})
		s, err := intent.NewStore().Update(func(tx *intent.Tx) error { tx.ReplaceNodes(nodes); return nil })
		if err != nil {
			t.Fatal(err)
		}
		if _, err := backend.OwnNode(s, "x"); err == nil || err.Error() != tc.want {
			t.Errorf("%s: %v, want %s", tc.name, err, tc.want)
		}
	}
}

// Routes to a node that carries less say so: the kernel then answers or cuts what it
// sends or forwards there.
func TestRouteMTU(t *testing.T) {
	for _, local := range []intent.Local{
		{Node: "n1", Encapsulation: intent.VXLAN, TunnelIP: addr("192.168.33.11"), MTU: 1450},
		{Node: "n1", Encapsulation: intent.NoEncap, MTU: 1450},
	} {
		s := cluster(t, local)
		st, err := intent.NewStore().Update(func(tx *intent.Tx) error {
			tx.SetLocal(local)
			var nodes []intent.Node
			for n := range s.Nodes().All() {
				n.MTU = map[string]int{"n1": 1450, "n2": 1300, "n3": 9000}[n.Name]
				nodes = append(nodes, n)
			}
			tx.ReplaceNodes(nodes)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range hostState(st, "br-phy", nil).Routes {
			want := 0
			if r.Destination == prefixes("10.244.2.0/24")[0] || r.Destination == prefixes("fd44:2::/64")[0] {
				want = 1300
			}
			if r.MTU != want {
				t.Errorf("%s: route to %s has MTU %d, want %d", local.Encapsulation, r.Destination, r.MTU, want)
			}
		}
	}
}
