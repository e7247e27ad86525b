// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// egressCluster is three nodes, of which the first is this one, with Ports of all kinds of Routers:
// shop of the default one, which an Egress selects, office of a shared one, bank of a private one
// with an address in the cluster, and vm without.
func egressCluster() (o intent.Objects, states map[ExternalKey]EgressState) {
	o.Local = localForm(0)
	o.Nodes = []intent.Node{nodeForm(1, 2, "default"), nodeForm(2, 2, "default"), nodeForm(3, 2, "default")}
	o.Routers = []intent.Router{{Name: "red", ID: 20, VNI: 70020}, {Name: "shared", ID: 21, VNI: 70021, Shared: true}}
	subnet := func(prefixes ...string) (list []intent.NetworkSubnet) {
		for _, text := range prefixes {
			p := netip.MustParsePrefix(text)
			list = append(list, intent.NetworkSubnet{Prefix: p, Gateway: p.Addr().Next()})
		}
		return list
	}
	o.Networks = []intent.Network{
		{Name: "red", ID: 10, VNI: 70010, Router: "red", Subnets: subnet("10.60.0.0/24", "fd00:60::/64")},
		{Name: "shared", ID: 11, VNI: 70011, Router: "shared", Subnets: subnet("10.61.0.0/24", "fd00:61::/64")},
		{Name: "office", ID: 12, Physical: physicalNetwork(3), External: true, Subnets: subnet("192.0.2.0/24", "2001:db8:7::/64")},
		{Name: "inside", ID: 13, Physical: physicalNetwork(3), VLAN: 9, Subnets: subnet("198.18.0.0/24")},
	}
	port := func(n int, name, network string, addresses ...string) {
		p := intent.Port{
			ID: fmt.Sprintf("%d/eth0", n), Namespace: "default", Pod: name, Interface: "eth0", Object: name, Node: "o1", Network: network,
			MAC: intent.MAC{2, 0, 0, 0, 0, byte(n)},
		}
		for _, a := range addresses {
			p.Addresses = append(p.Addresses, netip.MustParseAddr(a))
		}
		o.Ports = append(o.Ports, p)
	}
	port(1, "shop", "default", "10.244.1.11", "fd00:1::11")
	port(2, "office", "shared", "10.61.0.12")
	port(3, "bank", "red", "10.60.0.13", "fd00:60::13")
	port(4, "vm", "red", "10.60.0.14")
	o.Ports[0].Egress, o.Ports[2].NodeAddresses = "batch", []netip.Addr{netip.MustParseAddr("10.244.1.13")}
	o.EgressAddresses = []intent.EgressAddress{
		{Router: "default", Egress: "batch", Network: "office", Address: netip.MustParseAddr("192.0.2.30"), Nodes: []string{"o1", "o2"}},
		{Router: "default", Egress: "batch", Network: "office", Address: netip.MustParseAddr("2001:db8:7::30"), Nodes: []string{"o1", "o2"}},
	}
	o.EgressPaths = []intent.EgressPath{{Name: "batch", Network: "office"}}
	states = map[ExternalKey]EgressState{}
	for _, e := range o.EgressAddresses {
		states[ExternalKey{e.Network, e.Address}] = EgressState{Active: "o1"}
	}
	return o, states
}

var (
	natText     = regexp.MustCompile(`nat\(src=([^)]+)\)`)
	tunnelText  = regexp.MustCompile(`set_field:([^,]+)->tun_(?:ipv6_)?dst`)
	familyText  = regexp.MustCompile(`ipv6|ip`)
	whereToText = regexp.MustCompile(`[a-z0-9]_dst=([0-9a-f.:]+/\d+|[0-9a-f.:]+)( |,)`)
)

// waysOut are the ways out of the cluster that a Port has, of each family the first one first.
func waysOut(c *Compiler, o intent.Objects, name string) (list []string) {
	i := slices.IndexFunc(o.Ports, func(p intent.Port) bool { return p.Pod == name })
	key := "port/" + o.Ports[i].Name() + "#" + o.Ports[i].ID
	flows := slices.Clone(flowsOf(c.desired, c)[key])
	flows = append(flows, flowsOf(c.desired, c)["floating-ip/default/f"]...)
	family := func(f openflow.Flow) string { return familyText.FindString(f.Match.String()) }
	slices.SortStableFunc(flows, func(a, b openflow.Flow) int {
		return cmp.Or(cmp.Compare(family(a), family(b)), cmp.Compare(b.Priority, a.Priority))
	})
	for _, f := range flows {
		m, _ := c.Explain(f.Cookie)
		if m.Feature != "egress" && m.Feature != "gateway" && m.Feature != "floating-ip" {
			continue
		}
		way, text := family(f), f.String()
		switch {
		case m.Drops():
			way += " dropped: " + m.Reason
		case natText.MatchString(text):
			way += " as " + natText.FindStringSubmatch(text)[1]
		case f.Table == externalSource.ID:
			way += " as the floating IP"
		case tunnelText.MatchString(text):
			way += " by node " + tunnelText.FindStringSubmatch(text)[1]
		default:
			continue
		}
		if to := whereToText.FindStringSubmatch(f.Match.String() + " "); to != nil {
			way += " to " + to[1]
		}
		list = append(list, way)
	}
	return list
}

// What is wrong with addresses that one of several nodes is active for, or with what a Port says,
// has a problem that names it, and no Port that is to leave by such an address leaves by another
// one.
func TestEgressOfBadInput(t *testing.T) {
	const reachable, unreachable = "ip as 192.0.2.30", "ip dropped: this node cannot translate to the address 192.0.2.30"
	four := func(o *intent.Objects, states map[ExternalKey]EgressState, a string) {
		key := ExternalKey{"office", netip.MustParseAddr(a)}
		states[key] = states[ExternalKey{"office", o.EgressAddresses[0].Address}]
		o.EgressAddresses[0].Address = key.Address
	}
	active := func(states map[ExternalKey]EgressState, node string) {
		for key := range states {
			states[key] = EgressState{Active: node}
		}
	}
	for _, tc := range []struct {
		name     string
		change   func(o *intent.Objects, states map[ExternalKey]EgressState)
		port     string // shop
		ways     []string
		problems []string // without those of other Ports
	}{
		{name: "nothing is", change: func(*intent.Objects, map[ExternalKey]EgressState) {},
			ways: []string{reachable, "ipv6 as 2001:db8:7::30"}},
		{name: "another node is active", change: func(_ *intent.Objects, states map[ExternalKey]EgressState) { active(states, "o2") },
			ways: []string{"ip by node 192.168.33.2", "ipv6 by node 192.168.33.2"}},
		{name: "no node is active", change: func(_ *intent.Objects, states map[ExternalKey]EgressState) { clear(states) },
			ways: []string{"ip dropped: no node is active for the address 192.0.2.30", "ipv6 dropped: no node is active for the address 2001:db8:7::30"}},
		{name: "address of no subnet", change: func(o *intent.Objects, states map[ExternalKey]EgressState) { four(o, states, "203.0.113.9") },
			ways:     []string{"ip dropped: this node cannot translate to the address 203.0.113.9", "ipv6 as 2001:db8:7::30"},
			problems: []string{`network "office" is not external, or has no subnet with 203.0.113.9`}},
		{name: "the gateway's address", change: func(o *intent.Objects, states map[ExternalKey]EgressState) { four(o, states, "192.0.2.1") },
			ways:     []string{"ip dropped: this node cannot translate to the address 192.0.2.1", "ipv6 as 2001:db8:7::30"},
			problems: []string{`network "office" is not external, or has no subnet with 192.0.2.1`}},
		{name: "the Network is not external", change: func(o *intent.Objects, _ map[ExternalKey]EgressState) { o.Networks[2].External = false },
			ways: []string{unreachable, "ipv6 dropped: this node cannot translate to the address 2001:db8:7::30"},
			problems: []string{`network "office" is not external, or has no subnet with 192.0.2.30`,
				`network "office" is not external, or has no subnet with 2001:db8:7::30`}},
		{name: "the Network is gone", change: func(o *intent.Objects, _ map[ExternalKey]EgressState) { o.Networks = slices.Delete(o.Networks, 2, 3) },
			ways:     []string{unreachable, "ipv6 dropped: this node cannot translate to the address 2001:db8:7::30"},
			problems: []string{`network "office" does not exist, or this node is not connected to it`}},
		{name: "the Router is gone", change: func(o *intent.Objects, _ map[ExternalKey]EgressState) { o.EgressAddresses[0].Router = "gone" },
			ways: []string{unreachable, "ipv6 as 2001:db8:7::30"}, problems: []string{`router "gone" does not exist`}},
		{name: "the active node is none of its nodes", change: func(o *intent.Objects, _ map[ExternalKey]EgressState) { o.EgressAddresses[0].Nodes = []string{"o2"} },
			ways: []string{unreachable, "ipv6 as 2001:db8:7::30"}},
		{name: "the active node is unknown", change: func(_ *intent.Objects, states map[ExternalKey]EgressState) { active(states, "gone") },
			ways: []string{"ip dropped: node gone, which is active for the address 192.0.2.30, is out of reach",
				"ipv6 dropped: node gone, which is active for the address 2001:db8:7::30, is out of reach"},
			problems: []string{`node "gone" does not exist`}},
		{name: "the active node has no address of the tunnel's family", change: func(o *intent.Objects, states map[ExternalKey]EgressState) {
			active(states, "o2")
			o.Nodes[1].Addresses = o.Nodes[1].Addresses[1:]
		},
			ways: []string{"ip dropped: node o2, which is active for the address 192.0.2.30, is out of reach",
				"ipv6 dropped: node o2, which is active for the address 2001:db8:7::30, is out of reach"},
			problems: []string{"node o2 has no address of the family of this node's tunnel address 192.168.33.1: 10.244.2.0/24 is out of reach",
				"node o2 has no address of the family of this node's tunnel address 192.168.33.1: 192.0.2.30/32 is out of reach",
				"node o2 has no address of the family of this node's tunnel address 192.168.33.1: 2001:db8:7::30/128 is out of reach",
				"node o2 has no address of the family of this node's tunnel address 192.168.33.1: fd00:2::/64 is out of reach"}},
		{name: "no encapsulation", change: func(o *intent.Objects, states map[ExternalKey]EgressState) {
			active(states, "o2")
			o.Local = intent.Local{Node: "o1", Encapsulation: intent.NoEncap, MTU: 1500}
		},
			ways: []string{"ip dropped: node o2, which is active for the address 192.0.2.30, is out of reach",
				"ipv6 dropped: node o2, which is active for the address 2001:db8:7::30, is out of reach"}},
		{name: "no encapsulation, on the active node", change: func(o *intent.Objects, _ map[ExternalKey]EgressState) {
			o.Local = intent.Local{Node: "o1", Encapsulation: intent.NoEncap, MTU: 1500}
		}, ways: []string{reachable, "ipv6 as 2001:db8:7::30"}},
		{name: "the Egress of the Port does not exist", change: func(o *intent.Objects, _ map[ExternalKey]EgressState) { o.Ports[0].Egress = "gone" }},
		{name: "the Egress does not take effect", change: func(o *intent.Objects, _ map[ExternalKey]EgressState) { o.EgressPaths = nil }},
		{name: "destinations of one family", change: func(o *intent.Objects, _ map[ExternalKey]EgressState) {
			o.EgressPaths[0].Destinations = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("203.0.113.8/29")}
		}, ways: []string{reachable + " to 203.0.113.0/24", reachable + " to 203.0.113.8/29"}},
		{name: "destinations, and no node is active", change: func(o *intent.Objects, states map[ExternalKey]EgressState) {
			clear(states)
			o.EgressPaths[0].Destinations = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}
		}, ways: []string{"ip dropped: no node is active for the address 192.0.2.30 to 203.0.113.0/24"}},
		{name: "all of a family as destination", change: func(o *intent.Objects, _ map[ExternalKey]EgressState) {
			o.EgressPaths[0].Destinations = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}
		}, ways: []string{reachable}},
		{name: "a Port of a private Router without an address in the cluster", port: "vm", change: func(o *intent.Objects, _ map[ExternalKey]EgressState) {
			o.Ports[3].Egress = "batch"
		}},
		{name: "a Port of a private Router with one", port: "bank", change: func(o *intent.Objects, _ map[ExternalKey]EgressState) {
			o.Ports[2].Egress = "batch"
		}, ways: []string{reachable}},
		{name: "a Port of a physical Network", port: "shop", change: func(o *intent.Objects, _ map[ExternalKey]EgressState) {
			o.Ports[0].Network = "inside"
		}},
		{name: "all ways", change: func(o *intent.Objects, states map[ExternalKey]EgressState) {
			o.EgressPaths[0].Destinations = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}
			o.FloatingIPs = []intent.FloatingIP{{Name: "default/f", Network: "office", Address: netip.MustParseAddr("2001:db8:7::31"), Port: "default/shop"}}
			for _, a := range []string{"192.0.2.40", "2001:db8:7::40"} {
				e := intent.EgressAddress{Router: "default", Network: "office", Address: netip.MustParseAddr(a), Nodes: []string{"o1"}}
				o.EgressAddresses = append(o.EgressAddresses, e)
				states[ExternalKey{e.Network, e.Address}] = EgressState{Active: "o1"}
			}
			// While the Router changes from one kind of gateway to the other.
			o.GatewayAddresses = []intent.GatewayAddress{{Router: "default", Node: "o1", Network: "office", Address: netip.MustParseAddr("192.0.2.50")}}
		}, ways: []string{reachable + " to 203.0.113.0/24", "ip as 192.0.2.50", "ip as 192.0.2.40", "ipv6 as the floating IP", "ipv6 as 2001:db8:7::40"}},
	} {
		for _, mode := range []intent.ServiceMode{intent.KubeProxy, intent.NativeServices} {
			for _, policies := range []intent.PolicyMode{intent.UnenforcedPolicies, intent.EnforcedPolicies} {
				t.Run(fmt.Sprintf("%s, %s, %s", tc.name, mode, policies), func(t *testing.T) {
					o, states := egressCluster()
					tc.change(&o, states)
					o.Local.ServiceMode, o.Local.PolicyMode = mode, policies
					in := inputOf(stateOf(t, o))
					in.Numbers = in.Numbers.WithEgress(states)
					c := New()
					d := c.Compile(in)
					port := tc.port
					if port == "" {
						port = "shop"
					}
					if diff := gocmp.Diff(tc.ways, waysOut(c, o, port)); diff != "" {
						t.Errorf("ways out (-want +got):\n%s", diff)
					}
					keys := map[openflow.FlowKey]bool{}
					for owner, flows := range flowsOf(d, c) {
						for _, f := range flows {
							if keys[f.Key()] {
								t.Errorf("%s: wanted twice: %s", owner, f.String())
							}
							keys[f.Key()] = true
						}
					}
					var problems []string
					for _, p := range c.Problems() {
						if !slices.Contains(problems, p.Text) {
							problems = append(problems, p.Text)
						}
					}
					slices.Sort(problems)
					if diff := gocmp.Diff(tc.problems, problems); diff != "" {
						t.Errorf("problems (-want +got):\n%s", diff)
					}
				})
			}
		}
	}
}
