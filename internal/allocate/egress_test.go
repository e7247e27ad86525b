// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/wellknown"
)

func addrs(texts ...string) (list []netip.Addr) {
	for _, text := range texts {
		list = append(list, netip.MustParseAddr(text))
	}
	return list
}

// verdictText is an EgressVerdict as a few lines.
func verdictText(v EgressVerdict) string {
	var lines []string
	if v.Reason != "" {
		line := v.Reason + ": " + v.Message
		if v.Keep {
			line = "keep " + line
		}
		lines = append(lines, line)
	}
	if len(v.Fixed) > 0 {
		lines = append(lines, fmt.Sprintf("fixed %v", v.Fixed))
	}
	for _, pools := range v.Pools {
		line := fmt.Sprintf("%d of", v.Count)
		for _, p := range pools {
			line += fmt.Sprintf(" %s-%d", p.Prefix, len(p.Except))
		}
		lines = append(lines, line)
	}
	for _, r := range v.Refused {
		lines = append(lines, "refused "+r.Reason+": "+r.Message)
	}
	if v.NoNode != "" {
		lines = append(lines, "no node: "+v.NoNode)
	} else if v.Reason == "" {
		lines = append(lines, fmt.Sprintf("nodes %v", v.Nodes))
	}
	return strings.Join(lines, "\n")
}

// What is wrong with a centralized gateway, its Network and its addresses: an address that cannot
// be had does not keep the others from being had.
func TestCheckCentralized(t *testing.T) {
	now := metav1.NewTime(time.Unix(1e9, 0))
	v4, v6 := routerNetwork("10.0.0.0/24"), routerNetwork("fd00::/64")
	const ok = "\nnodes [w1]"
	const ask = ": ask for another one, or for none"
	pool := &v1alpha1.LoadBalancerPool{ObjectMeta: metav1.ObjectMeta{Name: "blue"}}
	pool.Status.Ranges = []string{"192.0.2.100-192.0.2.110"}
	server := gatewayNode("server", "-")
	server.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.70"}}
	for _, c := range []struct {
		name      string
		addresses []string
		networks  []*v1alpha1.Network
		has       []netip.Addr
		router    func(*v1alpha1.RouterSpec)
		network   func(*v1alpha1.Network) *v1alpha1.Network
		want      string
	}{
		{"a bad selector", nil, nil, nil, func(s *v1alpha1.RouterSpec) {
			s.Gateway.Nodes = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}
		}, nil, `keep Invalid: spec.gateway.nodes: "Near" is not a valid label selector operator`},
		{"a default route", nil, nil, nil, func(s *v1alpha1.RouterSpec) {
			s.Routes = []v1alpha1.Route{{Destination: "0.0.0.0/0", NextHop: "10.0.0.9"}}
		}, nil, "RouteConflict: spec.routes has a route for 0.0.0.0/0, which is where the gateway leads: remove the route, or the gateway"},
		{"no Network", []string{"192.0.2.80"}, nil, nil, nil, func(*v1alpha1.Network) *v1alpha1.Network { return nil },
			"keep NetworkNotFound: network office does not exist: create it, or name an external Network that does"},
		{"not external", nil, nil, nil, nil, func(n *v1alpha1.Network) *v1alpha1.Network {
			n.Spec.External = false
			return n
		}, "NetworkNotExternal: network office does not lead out of the cluster: name a Network with external: true"},
		{"being deleted", nil, nil, nil, nil, func(n *v1alpha1.Network) *v1alpha1.Network {
			n.DeletionTimestamp = &now
			return n
		}, "keep NetworkNotReady: network office is being deleted: name another one"},
		{"subnets that cannot be read", nil, nil, nil, nil, func(n *v1alpha1.Network) *v1alpha1.Network {
			n.Spec.Subnets[0].CIDR = "all"
			return n
		}, `keep NetworkNotReady: network office: spec.subnets[0].cidr: "all" is not a CIDR without bits set after its length`},
		{"another family", nil, []*v1alpha1.Network{v4}, nil, nil, func(n *v1alpha1.Network) *v1alpha1.Network {
			n.Spec.Subnets = n.Spec.Subnets[1:2]
			return n
		}, "WrongFamily: network office has no IPv4 subnet: add one to it, or name an external Network that has"},

		{"none asked for", nil, []*v1alpha1.Network{v4}, nil, nil, nil, "1 of 192.0.2.0/24-2 198.51.100.0/24-0" + ok},
		{"none asked for, no Network yet", nil, nil, nil, nil, nil, "1 of 192.0.2.0/24-2 198.51.100.0/24-0\n1 of 2001:db8::/64-0" + ok},
		{"none asked for, with one of a family of before", nil, []*v1alpha1.Network{v4}, addrs("2001:db8::9"), nil, nil,
			"1 of 192.0.2.0/24-2 198.51.100.0/24-0\n1 of 2001:db8::/64-0" + ok},
		{"one of each family", []string{"192.0.2.80", "2001:db8::80"}, []*v1alpha1.Network{v4, v6}, nil, nil, nil,
			"fixed [192.0.2.80 2001:db8::80]" + ok},
		{"in no subnet", []string{"203.0.113.9", "192.0.2.80"}, []*v1alpha1.Network{v4}, nil, nil, nil,
			"fixed [192.0.2.80]\nrefused AddressOutside: spec.gateway.addresses[0]: 203.0.113.9 is in no subnet of the Network" + ask + ok},
		{"outside of the ranges", []string{"192.0.2.10"}, []*v1alpha1.Network{v4}, nil, nil, nil,
			"refused AddressOutside: spec.gateway.addresses[0]: address 192.0.2.10 is not one that network office hands out, and spec.fixed.addresses is Ranges" + ask + ok},
		{"outside of the ranges of now", []string{"192.0.2.10"}, []*v1alpha1.Network{v4}, addrs("192.0.2.10"), nil, nil,
			"fixed [192.0.2.10]" + ok},
		{"the subnet's gateway", []string{"192.0.2.254"}, []*v1alpha1.Network{v4}, nil, nil, nil,
			"refused AddressOutside: spec.gateway.addresses[0]: 192.0.2.254 is the gateway of 192.0.2.0/24" + ask + ok},
		{"the subnet's last", []string{"198.51.100.255"}, []*v1alpha1.Network{v4}, nil, nil, nil,
			"refused AddressOutside: spec.gateway.addresses[0]: 198.51.100.255 is not an address of an interface in 198.51.100.0/24" + ask + ok},
		{"of a node", []string{"192.0.2.70"}, []*v1alpha1.Network{v4}, nil, nil, nil,
			"refused AddressTaken: spec.gateway.addresses[0]: 192.0.2.70 is that of node server" + ask + ok},
		{"of a node, since", []string{"192.0.2.70"}, []*v1alpha1.Network{v4}, addrs("192.0.2.70"), nil, nil, "fixed [192.0.2.70]" + ok},
		{"of a pool", []string{"192.0.2.105"}, []*v1alpha1.Network{v4}, nil, nil, nil,
			"refused AddressTaken: spec.gateway.addresses[0]: 192.0.2.105 is that of loadbalancerpool blue" + ask + ok},
		{"of another family than the Router", []string{"192.0.2.80", "2001:db8::80"}, []*v1alpha1.Network{v4}, nil, nil, nil,
			"fixed [192.0.2.80]\nrefused WrongFamily: spec.gateway.addresses[1]: 2001:db8::80 would not be used, the Router's Networks have IPv4 addresses alone: leave it out" + ok},
		{"of another family than the Router has now", []string{"192.0.2.80", "2001:db8::80"}, []*v1alpha1.Network{v4}, addrs("2001:db8::80"), nil, nil,
			"fixed [192.0.2.80 2001:db8::80]" + ok},
		{"what is none", []string{"office", "::ffff:192.0.2.80", "fe80::1%eth0"}, []*v1alpha1.Network{v4}, nil, nil, nil,
			`refused Invalid: spec.gateway.addresses[0]: "office" is not an address` +
				"\nrefused Invalid: spec.gateway.addresses[1]: \"::ffff:192.0.2.80\" is not an address" +
				"\nrefused Invalid: spec.gateway.addresses[2]: \"fe80::1%eth0\" is not an address" + ok},
	} {
		network := external()
		if c.network != nil {
			network = c.network(network)
		}
		r := gatewayRouter(c.router)
		r.Spec.Gateway.SNAT, r.Spec.Gateway.Addresses = v1alpha1.CentralizedSNAT, c.addresses
		nodes := []*corev1.Node{server, gatewayNode("w1", "p")}
		got := verdictText(CheckCentralized(r, GatewayCluster{
			Network: network, Networks: c.networks, Nodes: nodes, Has: c.has,
			Held: HeldAddresses(nodes, []*v1alpha1.LoadBalancerPool{pool}),
		}))
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// A node may be active if it is selected and connected, also while it is about to leave: it needs
// nothing of the Router.
func TestCentralizedNodes(t *testing.T) {
	leaving := func(name, physical string) *corev1.Node {
		n := gatewayNode(name, physical)
		n.Spec.Taints = []corev1.Taint{{Key: wellknown.TaintToBeDeleted}}
		return n
	}
	excluded := gatewayNode("w4", "p")
	excluded.Labels[corev1.LabelNodeExcludeBalancers] = ""
	selecting := func(names ...string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "name", Operator: metav1.LabelSelectorOpIn, Values: names}}}
	}
	const none = "no node: no node that may be active is connected to physical network p: name it in their bridgeMappings or uplinks"
	for _, c := range []struct {
		name     string
		nodes    []*corev1.Node
		selected *metav1.LabelSelector
		want     string
	}{
		{"no node", nil, nil, none},
		{"none connected", []*corev1.Node{gatewayNode("w1", "-"), gatewayNode("w2", "q,pp"), gatewayNode("w3", "")}, nil, none},
		{"none selected", []*corev1.Node{gatewayNode("w1", "p")}, selecting("w2"), none},
		{"some", []*corev1.Node{gatewayNode("w3", "q,p"), gatewayNode("w2", "q"), gatewayNode("w1", "p"), leaving("w5", "p"), excluded}, nil,
			"nodes [w1 w3 w4 w5]"},
		{"selected", []*corev1.Node{gatewayNode("w1", "p"), gatewayNode("w2", "p")}, selecting("w2"), "nodes [w2]"},
		{"all leave", []*corev1.Node{leaving("w1", "p"), excluded, gatewayNode("w2", "q")}, nil,
			"nodes [w1 w4]"},
	} {
		r := gatewayRouter(func(s *v1alpha1.RouterSpec) {
			s.Gateway.Nodes, s.Gateway.SNAT, s.Gateway.Addresses = c.selected, v1alpha1.CentralizedSNAT, []string{"192.0.2.80"}
		})
		v := CheckCentralized(r, GatewayCluster{Network: external(), Nodes: c.nodes})
		if diff := cmp.Diff("fixed [192.0.2.80]\n"+c.want, verdictText(v)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

func TestEgressReady(t *testing.T) {
	refused := []EgressRefusal{{Reason: v1alpha1.ReasonAddressTaken, Message: "m: mend it"}}
	outside := []EgressRefusal{{Reason: v1alpha1.ReasonAddressOutside, Message: "o: mend it"}, {Reason: v1alpha1.ReasonInvalid, Message: "i"}}
	for _, c := range []struct {
		name    string
		verdict EgressVerdict
		has     []netip.Addr
		refused []EgressRefusal
		want    string
	}{
		{"nothing", EgressVerdict{Reason: "R", Message: "m", NoNode: "n"}, nil, refused, "False R: m"},
		{"an address is taken", EgressVerdict{NoNode: "n"}, nil, refused, "False AddressTaken: m: mend it"},
		{"several cannot be had", EgressVerdict{Refused: outside}, addrs("192.0.2.1"), refused, "False AddressOutside: o: mend it; and 2 more"},
		{"no node", EgressVerdict{NoNode: "n"}, addrs("192.0.2.1"), nil, "False NoConnectedNode: n"},
		{"one node", EgressVerdict{Nodes: []string{"w1"}}, addrs("192.0.2.1", "2001:db8::1"), nil,
			"True Ready: 1 node may be active for 192.0.2.1, 2001:db8::1"},
		{"many", EgressVerdict{Nodes: []string{"w1", "w2"}}, addrs("192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"), nil,
			"True Ready: 2 nodes may be active for 192.0.2.1, 192.0.2.2, 192.0.2.3 and 1 more"},
	} {
		got := EgressReady(v1alpha1.ConditionGatewayReady, c.verdict, c.has, c.refused)
		if text := fmt.Sprintf("%s %s: %s", got.Status, got.Reason, got.Message); text != c.want || got.Type != v1alpha1.ConditionGatewayReady {
			t.Errorf("%s: %s\nwant %s", c.name, text, c.want)
		}
	}
}

func testEgress(change func(*v1alpha1.EgressSpec)) *v1alpha1.Egress {
	e := &v1alpha1.Egress{ObjectMeta: metav1.ObjectMeta{Name: "bank"}}
	e.Spec.Network, e.Spec.PodSelector = "office", &metav1.LabelSelector{}
	if change != nil {
		change(&e.Spec)
	}
	return e
}

// What is wrong with an Egress, its Network and its addresses; and how many it is to have.
func TestCheckEgress(t *testing.T) {
	const ok, ask = "\nnodes [w1]", ": ask for another one, or for none"
	const pools = "1 of 192.0.2.0/24-1 198.51.100.0/24-0\n1 of 2001:db8::/64-0"
	bad := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}
	server := gatewayNode("server", "-")
	server.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.70"}}
	addresses := func(list ...string) func(*v1alpha1.EgressSpec) {
		return func(s *v1alpha1.EgressSpec) { s.Addresses = list }
	}
	hops := func(list ...string) func(*v1alpha1.EgressSpec) {
		return func(s *v1alpha1.EgressSpec) { s.PolicyRoute = &v1alpha1.PolicyRoute{NextHops: list} }
	}
	for _, c := range []struct {
		name     string
		egress   func(*v1alpha1.EgressSpec)
		has      []netip.Addr
		network  func(*v1alpha1.Network) *v1alpha1.Network
		want     string
		unserved string
	}{
		{"no selector", func(s *v1alpha1.EgressSpec) { s.PodSelector = nil }, nil, nil,
			"keep Invalid: spec: neither namespaceSelector nor podSelector is set; {} selects all", ""},
		{"a bad selector of pods", func(s *v1alpha1.EgressSpec) { s.PodSelector = bad }, nil, nil,
			`keep Invalid: spec.podSelector: "Near" is not a valid label selector operator`, ""},
		{"a bad selector of namespaces", func(s *v1alpha1.EgressSpec) { s.NamespaceSelector = bad }, nil, nil,
			`keep Invalid: spec.namespaceSelector: "Near" is not a valid label selector operator`, ""},
		{"a bad selector of nodes", func(s *v1alpha1.EgressSpec) { s.Nodes = bad }, nil, nil,
			`keep Invalid: spec.nodes: "Near" is not a valid label selector operator`, ""},
		{"a destination with host bits", func(s *v1alpha1.EgressSpec) { s.Destinations = []string{"203.0.113.0/24", "203.0.113.1/24"} }, nil, nil,
			`keep Invalid: spec.destinations[1]: "203.0.113.1/24" is not a CIDR without bits set after its length`, ""},
		{"no next hop", hops(), nil, nil,
			"keep Invalid: spec.policyRoute.nextHops: there is none: name one, or leave policyRoute out", ""},
		{"a next hop that is no address", hops("192.0.2.300"), nil, nil,
			`keep Invalid: spec.policyRoute.nextHops[0]: "192.0.2.300" is not an address`, ""},
		{"a next hop in no subnet", hops("203.0.113.1"), nil, nil,
			"keep AddressOutside: spec.policyRoute.nextHops: 203.0.113.1 is in no subnet of network office: name a host of the Network", ""},
		{"a next hop that is a node", hops("192.0.2.70"), nil, nil,
			"keep AddressTaken: spec.policyRoute.nextHops: 192.0.2.70 is that of node server: name a host outside of the cluster", ""},
		{"no Network", nil, nil, func(*v1alpha1.Network) *v1alpha1.Network { return nil },
			"keep NetworkNotFound: network office does not exist: create it, or name an external Network that does", ""},
		{"not external", nil, nil, func(n *v1alpha1.Network) *v1alpha1.Network {
			n.Spec.External = false
			return n
		}, "NetworkNotExternal: network office does not lead out of the cluster: name a Network with external: true", ""},
		{"not ready", nil, nil, func(n *v1alpha1.Network) *v1alpha1.Network {
			n.Status.ID = 0
			return n
		}, "keep NetworkNotReady: network office is not ready: its condition Ready says what to do", ""},
		{"no subnet", nil, nil, func(n *v1alpha1.Network) *v1alpha1.Network {
			n.Spec.Subnets = nil
			return n
		}, "WrongFamily: network office has no IPv4 or IPv6 subnet: add one to it, or name an external Network that has", ""},

		{"one of each family", nil, nil, nil, pools + ok, ""},
		{"three of each family", func(s *v1alpha1.EgressSpec) { s.Count = 3 }, nil, nil, strings.ReplaceAll(pools, "1 of", "3 of") + ok, ""},
		{"asked for", addresses("192.0.2.80", "2001:db8::80"), nil, nil, "fixed [192.0.2.80 2001:db8::80]" + ok, ""},
		{"outside", addresses("203.0.113.9", "192.0.2.80"), nil, nil,
			"fixed [192.0.2.80]\nrefused AddressOutside: spec.addresses[0]: 203.0.113.9 is in no subnet of the Network" + ask + ok, ""},
		{"the subnet's gateway", addresses("192.0.2.254"), nil, nil,
			"refused AddressOutside: spec.addresses[0]: 192.0.2.254 is the gateway of 192.0.2.0/24" + ask + ok, ""},
		{"of a node", addresses("192.0.2.70"), nil, nil,
			"refused AddressTaken: spec.addresses[0]: 192.0.2.70 is that of node server" + ask + ok, ""},
		{"of a node, since", addresses("192.0.2.70"), addrs("192.0.2.70"), nil, "fixed [192.0.2.70]" + ok, ""},
		{"to the other family", func(s *v1alpha1.EgressSpec) {
			s.Addresses, s.Destinations = []string{"192.0.2.80"}, []string{"203.0.113.0/24", "2001:db8:1::/48"}
		}, nil, nil, "fixed [192.0.2.80]" + ok,
			"spec.destinations: 2001:db8:1::/48 is IPv6, and no address of the Egress is: ask for one that is, or leave the destination out"},
		{"to both families", func(s *v1alpha1.EgressSpec) { s.Destinations = []string{"203.0.113.0/24", "2001:db8:1::/48"} }, nil, nil,
			pools + ok, ""},
		{"to a family that the Network lacks", func(s *v1alpha1.EgressSpec) { s.Destinations = []string{"203.0.113.0/24"} }, nil,
			func(n *v1alpha1.Network) *v1alpha1.Network {
				n.Spec.Subnets = n.Spec.Subnets[1:2]
				return n
			}, "1 of 2001:db8::/64-0" + ok,
			"spec.destinations: 203.0.113.0/24 is IPv4, and no address of the Egress is: ask for one that is, or leave the destination out"},
	} {
		network := external()
		if c.network != nil {
			network = c.network(network)
		}
		nodes := []*corev1.Node{server, gatewayNode("w1", "p")}
		v := CheckEgress(testEgress(c.egress), EgressCluster{
			Network: network, Nodes: nodes, Has: c.has, Held: HeldAddresses(nodes, nil),
		})
		if diff := cmp.Diff([]string{c.want, c.unserved}, []string{verdictText(v), v.Unserved}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

func TestWithRivals(t *testing.T) {
	ready := metav1.Condition{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady, Message: "m"}
	not := metav1.Condition{Status: metav1.ConditionFalse, Reason: "R", Message: "m"}
	for _, c := range []struct {
		condition metav1.Condition
		rivals    EgressRivals
		want      string
	}{
		{ready, EgressRivals{}, "True Ready: m"},
		{ready, EgressRivals{1, "a/web", "old"}, "True PodsTaken: m; pod a/web leaves by Egress old, which is older: change the selectors of one of them"},
		{ready, EgressRivals{3, "a/web", "old"},
			"True PodsTaken: m; 3 pods leave by older Egresses, such as a/web by old: change the selectors of one of them"},
		{not, EgressRivals{3, "a/web", "old"}, "False R: m"},
	} {
		got := WithRivals(c.condition, c.rivals)
		if text := fmt.Sprintf("%s %s: %s", got.Status, got.Reason, got.Message); text != c.want {
			t.Errorf("%s\nwant %s", text, c.want)
		}
	}
	got := EgressReady(v1alpha1.ConditionReady, EgressVerdict{Unserved: "u", NoNode: "n"}, nil, nil)
	if text := fmt.Sprintf("%s %s: %s", got.Status, got.Reason, got.Message); text != "False WrongFamily: u" {
		t.Error(text)
	}
}
