// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
)

func gatewayRouter(change func(*v1alpha1.RouterSpec)) *v1alpha1.Router {
	r := &v1alpha1.Router{
		ObjectMeta: metav1.ObjectMeta{Name: "red"},
		Spec:       v1alpha1.RouterSpec{Gateway: &v1alpha1.RouterGateway{Network: "office"}},
	}
	if change != nil {
		change(&r.Spec)
	}
	return r
}

// gatewayNode is connected to physical networks; "" says that it does not say so, "-" to none.
func gatewayNode(name, physical string) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}},
		Spec:       corev1.NodeSpec{PodCIDR: "10.244.0.0/24", PodCIDRs: []string{"10.244.0.0/24"}},
	}
	if physical != "" {
		n.Annotations = map[string]string{v1alpha1.AnnotationPhysicalNetworks: strings.Trim(physical, "-")}
	}
	return n
}

func routerNetwork(cidrs ...string) *v1alpha1.Network {
	n := &v1alpha1.Network{
		ObjectMeta: metav1.ObjectMeta{Name: "lan"},
		Spec:       v1alpha1.NetworkSpec{Type: v1alpha1.Overlay, IPAM: v1alpha1.Blocks, Router: "red"},
	}
	for _, c := range cidrs {
		n.Spec.Subnets = append(n.Spec.Subnets, v1alpha1.Subnet{CIDR: c})
	}
	return n
}

func set(names ...string) map[string]bool {
	m := map[string]bool{}
	for _, n := range names {
		m[n] = true
	}
	return m
}

// What is wrong with the Router or with the Network. Only what may be for a while, or cannot be
// judged, leaves nodes what they have.
func TestCheckGatewayRefuses(t *testing.T) {
	now := metav1.NewTime(time.Unix(1e9, 0))
	for _, c := range []struct {
		name    string
		router  func(*v1alpha1.RouterSpec)
		network func(*v1alpha1.Network) *v1alpha1.Network
		want    string
	}{
		{"a bad selector", func(s *v1alpha1.RouterSpec) {
			s.Gateway.Nodes = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}
		}, nil, `keep Invalid: spec.gateway.nodes: "Near" is not a valid label selector operator`},
		{"a default route", func(s *v1alpha1.RouterSpec) {
			s.Routes = []v1alpha1.Route{{Destination: "10.1.0.0/16", NextHop: "10.0.0.9"}, {Destination: "0.0.0.0/0", NextHop: "10.0.0.9"}}
		}, nil, "RouteConflict: spec.routes has a route for 0.0.0.0/0, which is where the gateway leads: remove the route, or the gateway"},
		{"a default route for IPv6", func(s *v1alpha1.RouterSpec) {
			s.Routes = []v1alpha1.Route{{Destination: "::/0", NextHop: "fd00::9"}}
		}, nil, "RouteConflict: spec.routes has a route for ::/0, which is where the gateway leads: remove the route, or the gateway"},
		{"no Network", nil, func(*v1alpha1.Network) *v1alpha1.Network { return nil },
			"keep NetworkNotFound: network office does not exist: create it, or name an external Network that does"},
		{"not external", nil, func(n *v1alpha1.Network) *v1alpha1.Network {
			n.Spec.External = false
			return n
		}, "NetworkNotExternal: network office does not lead out of the cluster: name a Network with external: true"},
		{"being deleted", nil, func(n *v1alpha1.Network) *v1alpha1.Network {
			n.DeletionTimestamp = &now
			return n
		}, "keep NetworkNotReady: network office is being deleted: name another one"},
		{"not ready", nil, func(n *v1alpha1.Network) *v1alpha1.Network {
			n.Status.ID = 0
			return n
		}, "keep NetworkNotReady: network office is not ready: its condition Ready says what to do"},
		{"subnets that cannot be read", nil, func(n *v1alpha1.Network) *v1alpha1.Network {
			n.Spec.Subnets[0].CIDR = "all"
			return n
		}, `keep NetworkNotReady: network office: spec.subnets[0].cidr: "all" is not a CIDR without bits set after its length`},
		{"another family", nil, func(n *v1alpha1.Network) *v1alpha1.Network {
			n.Spec.Subnets = n.Spec.Subnets[1:2]
			return n
		}, "WrongFamily: network office has no IPv4 subnet: add one to it, or name an external Network that has"},
	} {
		network := external()
		if c.network != nil {
			network = c.network(network)
		}
		v := CheckGateway(gatewayRouter(c.router), GatewayCluster{
			Network: network, Networks: []*v1alpha1.Network{routerNetwork("10.0.0.0/24")},
			Nodes: []*corev1.Node{gatewayNode("w1", "p")}, Present: set("w1"), Having: set("w1"),
		})
		got := v.Reason + ": " + v.Message
		if v.Keep {
			got = "keep " + got
		}
		if got != c.want || v.Nodes != nil {
			t.Errorf("%s: %s, nodes %v\nwant %s", c.name, got, v.Nodes, c.want)
		}
	}
}

// A node is a gateway if it is connected and selected, and has something of the Router.
func TestGatewayNodes(t *testing.T) {
	lan, onW2 := routerNetwork("10.0.0.0/24"), routerNetwork()
	pods := routerNetwork()
	pods.Spec.IPAM, onW2.Spec.IPAM, onW2.Spec.Node = v1alpha1.PodCIDR, v1alpha1.PodCIDR, "w2"
	noPods := gatewayNode("w4", "p")
	noPods.Spec = corev1.NodeSpec{}
	selecting := func(names ...string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "name", Operator: metav1.LabelSelectorOpIn, Values: names}}}
	}
	const none = "NoConnectedNode: no node that may be a gateway is connected to physical network p: name it in their bridgeMappings or uplinks"
	const theseNot = "NoConnectedNode: of the nodes that have something of the Router, none is connected to physical network p, not node w2: name it in their bridgeMappings or uplinks"
	for _, c := range []struct {
		name            string
		nodes           []*corev1.Node
		network         *v1alpha1.Network
		selected        *metav1.LabelSelector
		present, having map[string]bool
		want            string
	}{
		{"no node", nil, lan, nil, nil, nil, "[] not [] " + none},
		{"none connected", []*corev1.Node{gatewayNode("w1", "-"), gatewayNode("w2", "q,pp")}, lan, nil, set("w1"), set("w1"),
			"[] not [w1] " + none},
		{"none says what it is connected to", []*corev1.Node{gatewayNode("w1", "")}, lan, nil, set("w1"), nil, "[] not [w1] " + none},
		{"none selected", []*corev1.Node{gatewayNode("w1", "p")}, lan, selecting("w2"), set("w1"), set("w1"), "[] not [] " + none},
		{"another one is connected", []*corev1.Node{gatewayNode("w1", "p"), gatewayNode("w2", "q")}, lan, nil, set("w2"), nil,
			"[] not [w2] " + theseNot},
		{"nothing anywhere", []*corev1.Node{gatewayNode("w1", "p")}, lan, nil, nil, set("w1"), "[] not [] "},
		{"two of three", []*corev1.Node{gatewayNode("w3", "a,p,q"), gatewayNode("w2", "p"), gatewayNode("w1", "p")}, lan, nil,
			set("w3", "w1"), nil, "[w1 w3] not [] "},
		{"selected", []*corev1.Node{gatewayNode("w1", "p"), gatewayNode("w2", "p")}, lan, selecting("w2"), set("w1", "w2"), set("w1"),
			"[w2] not [] "},
		{"selected, not connected", []*corev1.Node{gatewayNode("w1", "p"), gatewayNode("w2", "q"), gatewayNode("w3", "q")}, lan,
			selecting("w1", "w2"), set("w1", "w2", "w3"), nil, "[w1] not [w2] "},
		{"an agent starts again", []*corev1.Node{gatewayNode("w1", ""), gatewayNode("w2", "")}, lan, nil, set("w1", "w2"), set("w1"),
			"[w1] not [w2] "},
		{"an agent starts with other networks", []*corev1.Node{gatewayNode("w1", "q"), gatewayNode("w2", "p")}, lan, nil,
			set("w1", "w2"), set("w1"), "[w2] not [w1] "},
		{"podCIDRs", []*corev1.Node{gatewayNode("w1", "p"), gatewayNode("w2", "p"), gatewayNode("w3", "q"), noPods}, pods, nil, nil,
			nil, "[w1 w2] not [w3] "},
		{"one node's podCIDRs", []*corev1.Node{gatewayNode("w1", "p"), gatewayNode("w2", "p")}, onW2, nil, nil, nil, "[w2] not [] "},
	} {
		v := CheckGateway(gatewayRouter(func(s *v1alpha1.RouterSpec) { s.Gateway.Nodes = c.selected }), GatewayCluster{
			Network: external(), Networks: []*v1alpha1.Network{c.network}, Nodes: c.nodes, Present: c.present, Having: c.having,
		})
		got := fmt.Sprintf("%v not %v ", v.Nodes, v.Unconnected)
		if v.Reason != "" {
			got += v.Reason + ": " + v.Message
		}
		if diff := cmp.Diff(c.want, got); diff != "" || v.Keep {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// Each family of the Router that the external Network has gets an address, and none that is held.
func TestGatewayPools(t *testing.T) {
	dual := gatewayNode("w1", "p")
	dual.Spec.PodCIDRs = append(dual.Spec.PodCIDRs, "fd00:1::/64")
	pods := routerNetwork()
	pods.Spec.IPAM = v1alpha1.PodCIDR
	held := HeldAddresses([]*corev1.Node{{Status: corev1.NodeStatus{
		Addresses: []corev1.NodeAddress{{Address: "2001:db8::7"}, {Address: "192.0.2.70"}},
	}}}, nil)
	const v4, v6 = "192.0.2.0/24-1 198.51.100.0/24-0", "2001:db8::/64-1"
	for _, c := range []struct {
		name     string
		networks []*v1alpha1.Network
		node     *corev1.Node
		want     []string
	}{
		{"no Network yet", nil, dual, []string{v4, v6}},
		{"IPv4", []*v1alpha1.Network{routerNetwork("10.0.0.0/24", "10.0.1.0/24")}, dual, []string{v4}},
		{"IPv6", []*v1alpha1.Network{routerNetwork("fd00::/64")}, dual, []string{v6}},
		{"both", []*v1alpha1.Network{routerNetwork("fd00::/64"), routerNetwork("bad", "10.0.0.0/24")}, dual, []string{v4, v6}},
		{"podCIDRs", []*v1alpha1.Network{pods}, dual, []string{v4, v6}},
		{"podCIDRs of one family", []*v1alpha1.Network{pods}, gatewayNode("w1", "p"), []string{v4}},
	} {
		network := external()
		v := CheckGateway(gatewayRouter(nil), GatewayCluster{
			Network: network, Networks: c.networks, Nodes: []*corev1.Node{c.node}, Held: held,
		})
		var got []string
		for _, pools := range v.Pools {
			var texts []string
			for _, p := range pools {
				texts = append(texts, fmt.Sprintf("%s-%d", p.Prefix, len(p.Except)))
			}
			got = append(got, strings.Join(texts, " "))
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

func TestGatewayReady(t *testing.T) {
	exhausted := func(nodes ...string) (list []GatewayRefusal) {
		for _, n := range nodes {
			list = append(list, GatewayRefusal{n, v1alpha1.ReasonExhausted, "all are taken: add a subnet"})
		}
		return list
	}
	for _, c := range []struct {
		name    string
		verdict GatewayVerdict
		count   int
		refused []GatewayRefusal
		want    string
	}{
		{"refused", GatewayVerdict{Reason: "R", Message: "m"}, 2, nil, "False R: m"},
		{"one without", GatewayVerdict{Unconnected: []string{"w9"}}, 2, exhausted("w1", "w1"),
			"False AddressesExhausted: no address for node w1: all are taken: add a subnet"},
		{"many without", GatewayVerdict{}, 2, exhausted("w1", "w1", "w2", "w3", "w4", "w5"),
			"False AddressesExhausted: no address for nodes w1, w2, w3 and 2 more: all are taken: add a subnet"},
		{"none", GatewayVerdict{}, 0, nil, "True Ready: no node has anything of the Router"},
		{"one", GatewayVerdict{}, 1, nil, "True Ready: 1 node is a gateway"},
		{"two, and one that is not connected", GatewayVerdict{Unconnected: []string{"w3"}}, 2, nil,
			"True NodesNotConnected: 2 nodes are gateways; not connected to physical network p: node w3, which the Router leaves as without a gateway"},
	} {
		got := GatewayReady(c.verdict, external(), c.count, c.refused)
		if text := fmt.Sprintf("%s %s: %s", got.Status, got.Reason, got.Message); text != c.want || got.Type != v1alpha1.ConditionGatewayReady {
			t.Errorf("%s: %s\nwant %s", c.name, text, c.want)
		}
	}
}
