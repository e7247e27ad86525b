// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"coelan.io/coelan/internal/backend/ovs/bridge"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/rapidtest"
	"coelan.io/coelan/internal/reserved"
)

// floatingChange is a change of an object that flows of floating IPs depend on, drawn in one of
// several forms. Port and FloatingIP agree in the names of objects only now and then.
func floatingChange(t *rapid.T) step {
	kind := rapid.SampledFrom([]string{
		"local", "router", "network", "external", "external", "node", "range", "port", "port", "port", "floating", "floating", "floating", "chosen", "chosen", "gateway", "gateway",
		"egress", "egress", "egress", "path",
	}).Draw(t, "kind")
	n := rapid.IntRange(1, 3).Draw(t, "object")
	s := step{name: fmt.Sprint(kind, " ", n)}
	if kind == "local" {
		return step{kind, drawFloatingLocal(t)}
	}
	if kind == "router" && n == 1 {
		s.name = "router default"
	}
	if rapid.IntRange(0, 4).Draw(t, "gone") == 0 {
		return s
	}
	switch kind {
	case "router":
		rt := intent.Router{Name: []string{"default", "red", "blue"}[n-1], ID: intent.RouterID(n), VNI: uint32(20 + n), Shared: n == 1 || rapid.Bool().Draw(t, "shared")}
		s.add = func(o *intent.Objects) { o.Routers = append(o.Routers, rt) }
	case "network":
		network := intent.Network{
			Name: []string{"default", "red", "blue"}[n-1], ID: intent.NetworkID(n), VNI: uint32(10 + n),
			Router: rapid.SampledFrom([]string{"default", "red", "blue"}).Draw(t, "router"),
		}
		if n > 1 {
			network.Subnets = drawSubnets(t, "10.60.0.0/24", "fd00:60::/64")
		}
		s.add = func(o *intent.Objects) { o.Networks = append(o.Networks, network) }
	case "external":
		network := intent.Network{
			Name: externals[n-1], ID: intent.NetworkID(10 + n), Physical: rapid.SampledFrom([]string{"physical-3", "physical-4", ""}).Draw(t, "physical"),
			External: rapid.IntRange(0, 3).Draw(t, "not external") > 0, VLAN: rapid.SampledFrom([]uint16{0, 70}).Draw(t, "vlan"),
			Subnets: drawSubnets(t, "192.0.2.0/25", "192.0.2.128/25", "2001:db8:7::/64"),
		}
		s.add = func(o *intent.Objects) { o.Networks = append(o.Networks, network) }
	case "node":
		node := nodeForm(n, rapid.IntRange(1, 2).Draw(t, "form"), "default")
		s.add = func(o *intent.Objects) { o.Nodes = append(o.Nodes, node) }
	case "range":
		s.add = func(o *intent.Objects) {
			o.ServiceRanges = append(o.ServiceRanges, intent.ServiceRange{Prefix: netip.PrefixFrom(address4(10, 95+n, 0, 0), 16)})
		}
	case "port":
		p := drawFloatingPort(t, n)
		s.add = func(o *intent.Objects) { o.Ports = append(o.Ports, p) }
	case "gateway":
		g := intent.GatewayAddress{
			Router: rapid.SampledFrom([]string{"default", "red", "blue", "gone"}).Draw(t, "router"), Node: rapid.SampledFrom([]string{"o1", "o1", "o2"}).Draw(t, "node"),
			Network: externals[n-1], Address: rapid.SampledFrom(floatingAddresses).Draw(t, "address"),
		}
		s.add = func(o *intent.Objects) { o.GatewayAddresses = append(o.GatewayAddresses, g) }
	case "chosen":
		c := intent.ChosenAddress{Address: rapid.SampledFrom(floatingAddresses).Draw(t, "address")}
		s.name = "chosen " + c.Address.String()
		s.add = func(o *intent.Objects) { o.ChosenAddresses = append(o.ChosenAddresses, c) }
	case "egress":
		e := drawEgressAddress(t, n)
		s.add = func(o *intent.Objects) { o.EgressAddresses = append(o.EgressAddresses, e) }
	case "path":
		path := intent.EgressPath{Name: fmt.Sprint("e", n), Network: externals[n-1]}
		for _, d := range []string{"198.51.100.0/24", "198.51.100.7/32", "2001:db8:9::/48", "0.0.0.0/0"} {
			if rapid.IntRange(0, 2).Draw(t, "to "+d) == 0 {
				path.Destinations = append(path.Destinations, netip.MustParsePrefix(d))
			}
		}
		s.add = func(o *intent.Objects) { o.EgressPaths = append(o.EgressPaths, path) }
	case "floating":
		f := intent.FloatingIP{
			Name: fmt.Sprint("default/f", n), Network: rapid.SampledFrom(append([]string{"office", "office", "red", "gone"}, externals...)).Draw(t, "network"),
			Address: rapid.SampledFrom(floatingAddresses).Draw(t, "address"), Port: rapid.SampledFrom([]string{"default/a", "default/b", "other/a", ""}).Draw(t, "port"),
		}
		if rapid.IntRange(0, 2).Draw(t, "service") == 0 {
			s.name, f.Name, f.Port, f.Service = "floating 4", "default/f4", "", "default/web"
		}
		s.add = func(o *intent.Objects) { o.FloatingIPs = append(o.FloatingIPs, f) }
	}
	return s
}

var (
	externals         = []string{"office", "dmz", "lab"}
	floatingAddresses = []netip.Addr{
		netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("192.0.2.11"),
		netip.MustParseAddr("192.0.2.200"), netip.MustParseAddr("2001:db8:7::10"), netip.MustParseAddr("203.0.113.1"),
		netip.MustParseAddr("192.0.2.20"),
	}
	ofEgress = netip.MustParseAddr("192.0.2.12")
)

func drawEgressAddress(t *rapid.T, n int) intent.EgressAddress {
	e := intent.EgressAddress{
		Router: rapid.SampledFrom([]string{"default", "red", "blue", "gone"}).Draw(t, "router"), Network: externals[n-1],
		Address: rapid.SampledFrom(floatingAddresses).Draw(t, "address"),
		Nodes:   rapid.SampledFrom([][]string{{"o1"}, {"o1", "o2"}, {"o1", "o2", "o3"}, {"o2"}, nil}).Draw(t, "nodes"),
	}
	if rapid.Bool().Draw(t, "of an Egress") {
		e.Router, e.Egress = rapid.SampledFrom([]string{"default", "default", "red"}).Draw(t, "router of it"), fmt.Sprint("e", rapid.IntRange(1, 3).Draw(t, "which"))
	}
	return e
}

func drawFloatingLocal(t *rapid.T) func(*intent.Objects) {
	local := localForm(rapid.IntRange(0, 2).Draw(t, "form"))
	if rapid.Bool().Draw(t, "native services") {
		local.ServiceMode = intent.NativeServices
	}
	if rapid.Bool().Draw(t, "policies are enforced") {
		local.PolicyMode = intent.EnforcedPolicies
	}
	return func(o *intent.Objects) { o.Local = local }
}

func drawSubnets(t *rapid.T, prefixes ...string) (list []intent.NetworkSubnet) {
	for _, text := range prefixes {
		if p := netip.MustParsePrefix(text); rapid.IntRange(0, 3).Draw(t, "no "+text) > 0 {
			list = append(list, intent.NetworkSubnet{Prefix: p, Gateway: p.Addr().Next()})
		}
	}
	return list
}

func drawFloatingPort(t *rapid.T, n int) intent.Port {
	p := intent.Port{
		ID: fmt.Sprintf("o%d/eth0", n), Namespace: rapid.SampledFrom([]string{"default", "default", "other"}).Draw(t, "namespace"), Pod: fmt.Sprint("web-", n), Interface: "eth0",
		Object:  rapid.SampledFrom([]string{"a", "a", "b", ""}).Draw(t, "name"),
		Network: rapid.SampledFrom([]string{"default", "red", "red", "blue", "office", "gone"}).Draw(t, "network"),
		Node:    rapid.SampledFrom([]string{"o1", "o1", "o2"}).Draw(t, "node"),
	}
	own := []netip.Addr{address4(10, 60, 0, 10+n), address6(60, 0, 10+n)}
	p.Addresses = own[:rapid.IntRange(0, 2).Draw(t, "addresses")]
	if rapid.Bool().Draw(t, "node addresses") {
		p.NodeAddresses = []netip.Addr{address4(10, 244, 1, 10+n)}
	}
	p.Egress = rapid.SampledFrom([]string{"", "e1", "e1", "e2"}).Draw(t, "egress")
	p.MAC = reserved.PodMAC(own[0])
	return p
}

// floatingNumbers changes what is known of the node's surroundings.
func floatingNumbers(t *rapid.T, n *Numbers) *Numbers {
	id := fmt.Sprintf("o%d/eth0", rapid.IntRange(1, 3).Draw(t, "port"))
	switch rapid.SampledFrom([]string{"port", "no port", "uplink", "neighbours", "neighbours", "egress", "egress", "egress"}).Draw(t, "number") {
	case "port":
		return n.WithPort(id, uint32(16+rapid.IntRange(0, 5).Draw(t, "number of it")))
	case "no port":
		return n.WithoutPort(id)
	case "uplink":
		uplinks := map[string]uint32{"physical-3": 3}
		if rapid.Bool().Draw(t, "both") {
			uplinks["physical-4"] = 4
		}
		return NewNumbers(n.ports, uplinks).WithNeighbours(n.neighbours).WithEgress(n.egress)
	case "egress":
		states := maps.Clone(n.egress)
		if states == nil {
			states = map[ExternalKey]EgressState{}
		}
		network := rapid.SampledFrom(append([]string{"office", "office"}, externals...)).Draw(t, "external")
		for _, a := range append(floatingAddresses, ofEgress) {
			states[ExternalKey{network, a}] = EgressState{
				Active: rapid.SampledFrom([]string{"o1", "o1", "o2", "o3", "gone", ""}).Draw(t, "active"), Silent: rapid.IntRange(0, 2).Draw(t, "silent") == 0,
			}
		}
		return n.WithEgress(states)
	}
	known := map[NeighbourKey]intent.MAC{}
	for range rapid.IntRange(0, 3).Draw(t, "neighbours") {
		k := NeighbourKey{rapid.SampledFrom(externals).Draw(t, "network"), rapid.SampledFrom(floatingAddresses).Draw(t, "neighbour")}
		known[k] = intent.MAC{2, 0, 0, 0, 0, byte(rapid.IntRange(1, 2).Draw(t, "mac"))}
	}
	return n.WithNeighbours(known)
}

// floatingStart is a shared and a private Router with a Port each, a floating IP of either, and one
// of a Service.
var floatingStart = []step{
	{"router default", func(o *intent.Objects) {
		o.Routers = append(o.Routers, intent.Router{Name: "default", ID: 1, VNI: 21, Shared: true})
	}},
	{"router 2", func(o *intent.Objects) { o.Routers = append(o.Routers, intent.Router{Name: "red", ID: 2, VNI: 22}) }},
	{"network 1", func(o *intent.Objects) {
		o.Networks = append(o.Networks, intent.Network{Name: "default", ID: 1, VNI: 11, Router: "default"})
	}},
	{"network 2", func(o *intent.Objects) {
		n := intent.Network{Name: "red", ID: 2, VNI: 12, Router: "red", Subnets: []intent.NetworkSubnet{{Prefix: netip.MustParsePrefix("10.60.0.0/24")}}}
		o.Networks = append(o.Networks, n)
	}},
	{"external 1", func(o *intent.Objects) {
		n := intent.Network{Name: "office", ID: 11, Physical: "physical-3", External: true}
		for _, p := range []string{"192.0.2.0/24", "2001:db8:7::/64"} {
			n.Subnets = append(n.Subnets, intent.NetworkSubnet{Prefix: netip.MustParsePrefix(p), Gateway: netip.MustParsePrefix(p).Addr().Next()})
		}
		o.Networks = append(o.Networks, n)
	}},
	{"port 1", func(o *intent.Objects) {
		p := portForm(1, 1, "default")
		p.Object = "a"
		o.Ports = append(o.Ports, p)
	}},
	{"port 2", func(o *intent.Objects) {
		p := portForm(2, 1, "red")
		p.Object = "b"
		o.Ports = append(o.Ports, p)
	}},
	{"floating 1", func(o *intent.Objects) {
		o.FloatingIPs = append(o.FloatingIPs, intent.FloatingIP{Name: "default/f1", Network: "office", Address: floatingAddresses[1], Port: "default/a"})
	}},
	{"floating 2", func(o *intent.Objects) {
		o.FloatingIPs = append(o.FloatingIPs, intent.FloatingIP{Name: "default/f2", Network: "office", Address: floatingAddresses[2], Port: "default/b"})
	}},
	{"egress 1", func(o *intent.Objects) {
		o.EgressAddresses = append(o.EgressAddresses, intent.EgressAddress{
			Router: "default", Egress: "e1", Network: "office", Address: ofEgress, Nodes: []string{"o1", "o2"},
		})
	}},
	{"path 1", func(o *intent.Objects) {
		o.EgressPaths = append(o.EgressPaths, intent.EgressPath{Name: "e1", Network: "office"})
	}},
	{"floating 3", func(o *intent.Objects) {
		o.FloatingIPs = append(o.FloatingIPs, intent.FloatingIP{Name: "default/f3", Network: "office", Address: floatingAddresses[4], Port: "default/a"})
	}},
	{"floating 4", func(o *intent.Objects) {
		o.FloatingIPs = append(o.FloatingIPs, intent.FloatingIP{Name: "default/f4", Network: "office", Address: floatingAddresses[6], Service: "default/web"})
	}},
	{"chosen 192.0.2.20", func(o *intent.Objects) {
		o.ChosenAddresses = append(o.ChosenAddresses, intent.ChosenAddress{Address: floatingAddresses[6]})
	}},
}

// Floating IPs, and all that their flows depend on, come, change and go one by one: that gives the
// same as compiling anew. An address has flows if this node answers for it, and only then.
func TestIncrementalFloatingIPs(t *testing.T) {
	answered := map[string]int{}
	check := func(t *rapid.T) {
		store, all := intent.NewStore(), things{}
		numbers := NewNumbers(map[string]uint32{"o1/eth0": 17, "o2/eth0": 18, "o3/eth0": 19}, map[string]uint32{"physical-3": 3, "physical-4": 4})
		step{"local", drawFloatingLocal(t)}.apply(all)
		for _, s := range floatingStart {
			s.apply(all)
		}
		if rapid.Bool().Draw(t, "tagged") {
			untagged := all["external 1"]
			all["external 1"] = func(o *intent.Objects) {
				untagged(o)
				o.Networks[len(o.Networks)-1].VLAN = 70
			}
		}
		incremental := New()
		var names []string
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			if rapid.IntRange(0, 5).Draw(t, "numbers change") == 0 {
				numbers = floatingNumbers(t, numbers)
				names = append(names, fmt.Sprintf("numbers %v %v %v %v", numbers.ports, numbers.uplinks, numbers.neighbours, numbers.egress))
			} else {
				s := floatingChange(t)
				names = append(names, fmt.Sprintf("%s (set: %v)", s.name, s.add != nil))
				s.apply(all)
			}
			in := Input{State: all.update(t, store), Numbers: numbers}
			full := New()
			want, got := full.Compile(in), incremental.Compile(in)
			if !sameRules(rulesOf(want, full), rulesOf(got, incremental)) {
				t.Fatalf("after %v (-full +incremental):\n%s", names, cmp.Diff(texts(full, want), texts(incremental, got)))
			}
			if diff := cmp.Diff(full.Problems(), incremental.Problems()); diff != "" {
				t.Fatalf("problems after %v (-full +incremental):\n%s", names, diff)
			}
			var answers, flows []string
			for _, a := range LocalAddresses(in) {
				text := a.Network + " " + a.Address.String()
				if a.Silent {
					text += ", silent" // what leaves by it needs next hops all the same
				}
				answers = append(answers, text)
			}
			for f := range in.State.FloatingIPs().All() {
				if !want.Get("floating-ip/" + f.Name).Empty() {
					flows = append(flows, f.Network+" "+f.Address.String())
					n, _ := in.State.Networks().Get(f.Network)
					answered[fmt.Sprintf("VLAN: %v, IPv6: %v", n.VLAN != 0, f.Address.Is6())]++
					if f.Service != "" {
						answered["Service"]++
					}
				}
			}
			for g := range in.State.GatewayAddresses().All() {
				if !want.Get("gateway/" + g.Network + " " + g.Address.String()).Empty() {
					flows = append(flows, g.Network+" "+g.Address.String())
					answered["gateway"]++
				}
			}
			for e := range in.State.EgressAddresses().All() {
				if want.Get("egress-address/" + e.Network + " " + e.Address.String()).Empty() {
					continue
				}
				state := in.Numbers.egressState(ExternalKey{e.Network, e.Address})
				active := state.Active == in.State.Local().Node
				answered[fmt.Sprintf("egress address, active here: %v, silent: %v", active, active && state.Silent)]++
				if text := e.Network + " " + e.Address.String(); active && state.Silent {
					flows = append(flows, text+", silent")
				} else if active {
					flows = append(flows, text)
				}
			}
			slices.Sort(answers)
			slices.Sort(flows)
			// One address may be of several objects.
			answers, flows = slices.Compact(answers), slices.Compact(flows)
			if diff := cmp.Diff(answers, flows); diff != "" {
				t.Fatalf("after %v: (-answered for +with flows):\n%s", names, diff)
			}
		}
	}
	// Some kinds are rare: there are more cases until all have come.
	const kinds, rounds = 9, 20
	for i := 0; i < rounds && len(answered) < kinds; i++ {
		rapidtest.Round(t, i, check)
	}
	t.Logf("addresses with flows: %v", answered)
	if len(answered) < kinds {
		t.Errorf("addresses with flows: %v: the cases say too little", answered)
	}
}

// floatingCluster has an external Network, and a Port of each kind on this node and on another. Its
// floating IPs come from the tests.
func floatingCluster(vlan uint16) intent.Objects {
	o := manyNetworks(1, 1) // with the private Router net0
	office := intent.Network{Name: "office", ID: 5000, Physical: physicalNetwork(3), External: true, VLAN: vlan}
	for _, text := range []string{"192.0.0.0/16", "2001:db8:7::/64"} {
		p := netip.MustParsePrefix(text)
		office.Subnets = append(office.Subnets, intent.NetworkSubnet{Prefix: p, Gateway: p.Addr().Next()})
	}
	o.Networks = append(o.Networks, office)
	inCluster := portOfMany(0, 0)
	inCluster.Object = "node-address"
	hidden := portOfMany(0, 1)
	hidden.Object, hidden.NodeAddresses = "hidden", nil
	shared := portOfMany(1, 0)
	shared.Object, shared.Network, shared.Addresses, shared.NodeAddresses = "shared", "default", shared.NodeAddresses, nil
	shared.Addresses = []netip.Addr{address4(10, 244, 0, 77), address6(244, 0, 77)}
	remote := portOfMany(1, 1)
	remote.Object, remote.Network, remote.Node, remote.NodeAddresses = "remote", "net0", "n1", nil
	remote.Addresses = []netip.Addr{address4(10, 60, 0, 99)}
	o.Ports = []intent.Port{inCluster, hidden, shared, remote}
	return o
}

// What a floating IP costs does not grow, and one of a Port on another node costs nothing.
func TestFlowsOfFloatingIPs(t *testing.T) {
	for _, tc := range []struct {
		name            string
		port            string
		address         string
		vlan            uint16
		policed, native bool
		attached        bool // this node has a Port on the external Network
		flows           int
	}{
		{name: "shared Router", port: "shared", address: "192.0.2.10", flows: 7},
		{name: "shared Router, IPv6", port: "shared", address: "2001:db8:7::10", flows: 7},
		{name: "VLAN", port: "shared", address: "192.0.2.10", vlan: 70, flows: 7},
		{name: "policies", port: "shared", address: "192.0.2.10", policed: true, flows: 8},
		{name: "native Services", port: "shared", address: "192.0.2.10", native: true, flows: 7},
		{name: "private Router, node address", port: "node-address", address: "192.0.2.10", flows: 14},
		{name: "private Router, node address, IPv6", port: "node-address", address: "2001:db8:7::10", flows: 16},
		{name: "private Router, no node address", port: "hidden", address: "192.0.2.10", flows: 8},
		{name: "private Router, IPv6", port: "hidden", address: "2001:db8:7::10", flows: 8},
		{name: "beside Ports on the Network", port: "shared", address: "192.0.2.10", attached: true, flows: 8},
		{name: "beside Ports on the Network, policies", port: "shared", address: "192.0.2.10", attached: true, policed: true, flows: 9},
		{name: "another node's Port", port: "remote", address: "192.0.2.10"},
		{name: "no Port", address: "192.0.2.10"},
		{name: "unknown Port", port: "gone", address: "192.0.2.10"},
		{name: "address of no subnet", port: "shared", address: "203.0.113.10"},
		{name: "the gateway's address", port: "shared", address: "192.0.0.1"},
		{name: "address of a family that the Port lacks", port: "remote", address: "2001:db8:7::10"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := floatingCluster(tc.vlan)
			if tc.policed {
				o.Local.PolicyMode = intent.EnforcedPolicies
			}
			if tc.native {
				o.Local.ServiceMode = intent.NativeServices
			}
			if tc.attached {
				o.Ports = append(o.Ports, intent.Port{
					ID: "c9/eth0", Namespace: "default", Pod: "wired", Interface: "eth0", Network: "office", Node: "n0",
					Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.99")}, MAC: intent.MAC{2, 0, 0, 0, 0, 9},
				})
			}
			// With another one, so that what all floating IPs share is there.
			o.FloatingIPs = []intent.FloatingIP{floatingTo(0, "shared")}
			before := New()
			without := count(before.Compile(inputOf(stateFrom(t, o))), before)
			f := intent.FloatingIP{Name: "default/f", Network: "office", Address: netip.MustParseAddr(tc.address)}
			if tc.port != "" {
				f.Port = "default/" + tc.port
			}
			o.FloatingIPs = append(o.FloatingIPs, f)
			c := New()
			d := c.Compile(inputOf(stateFrom(t, o)))
			if r := d.Get("floating-ip/default/f"); !r.Empty() && len(r.Flows) != tc.flows || r.Empty() && tc.flows > 0 {
				t.Errorf("want %d flows, got %s", tc.flows, cmp.Diff(nil, r))
			}
			if more := count(d, c) - without; more != tc.flows {
				t.Errorf("%d flows more in all, want %d", more, tc.flows)
			}
		})
	}
}

func count(d *bridge.Desired, c *Compiler) (n int) {
	for _, flows := range flowsOf(d, c) {
		n += len(flows)
	}
	return n
}

// floatingTo is one of many floating IPs.
func floatingTo(i int, port string) intent.FloatingIP {
	return intent.FloatingIP{Name: fmt.Sprint("default/many-", i), Network: "office", Address: address4(192, 0, 1+i/250, 2+i%250), Port: "default/" + port}
}

// Among 10,000 floating IPs of other nodes' Ports one comes, moves to this node and goes: that
// compiles it alone. The others, and external Networks of which the node answers for no address,
// have no flows at all.
func TestManyFloatingIPs(t *testing.T) {
	const many = 10000
	o := floatingCluster(70)
	none := New()
	without := count(none.Compile(inputOf(stateFrom(t, o))), none)
	for i := range many {
		o.FloatingIPs = append(o.FloatingIPs, floatingTo(i, []string{"remote", "gone"}[i%2]))
	}
	store, c := storeOf(t, o), New()
	if with := count(c.Compile(inputOf(store.State())), c); with != without {
		t.Errorf("%d flows with %d floating IPs of other nodes, %d without", with, many, without)
	}
	set := func(f intent.FloatingIP) (compiled []string) {
		t.Helper()
		before := maps.Clone(c.units)
		if _, err := store.Update(func(tx *intent.Tx) error { tx.SetFloatingIP(f); return nil }); err != nil {
			t.Fatal(err)
		}
		c.Compile(inputOf(store.State()))
		for key, u := range c.units {
			if before[key] != u {
				compiled = append(compiled, u.owner)
			}
		}
		slices.Sort(compiled)
		return compiled
	}
	// The first one brings what all have in common.
	set(floatingTo(many, "shared"))
	for _, change := range []struct {
		name string
		to   intent.FloatingIP
		own  bool // has it flows then?
	}{
		{"another node's comes", floatingTo(many+1, "remote"), false},
		{"it moves here", floatingTo(many+1, "hidden"), true},
		{"to another Port", floatingTo(many+1, "node-address"), true},
		{"it moves away", floatingTo(many+1, "remote"), false},
		{"a second of this node comes", floatingTo(many+2, "hidden"), true},
		{"of another node, one changes", floatingTo(7, "other"), false},
	} {
		compiled := set(change.to)
		if want := []string{"floating-ip/" + change.to.Name}; !slices.Equal(compiled, want) {
			t.Errorf("%s: compiled %v, want %v", change.name, compiled, want)
		}
		if has := !c.desired.Get("floating-ip/" + change.to.Name).Empty(); has != change.own {
			t.Errorf("%s: flows: %v, want %v", change.name, has, change.own)
		}
	}
}

// A Port that comes, changes its name or moves takes its floating IPs along: they are compiled, and
// no other Port or floating IP.
func TestPortTakesItsFloatingIPs(t *testing.T) {
	o := floatingCluster(0)
	o.FloatingIPs = []intent.FloatingIP{floatingTo(1, "hidden"), floatingTo(2, "shared"), floatingTo(3, "remote"), floatingTo(4, "new")}
	store, c := storeOf(t, o), New()
	c.Compile(inputOf(store.State()))
	port := func(i int, change func(*intent.Port)) intent.Port {
		p := o.Ports[i]
		change(&p)
		return p
	}
	for _, step := range []struct {
		name     string
		to       intent.Port
		compiled []string
		with     []string // the floating IPs with flows
	}{
		{"renamed", port(1, func(p *intent.Port) { p.Object = "new" }), []string{"1", "4"}, []string{"2", "4"}},
		{"named as before", o.Ports[1], []string{"1", "4"}, []string{"1", "2"}},
		{"another node's moves here", port(3, func(p *intent.Port) { p.Node = "n0" }), []string{"3"}, []string{"1", "2", "3"}},
		{"and back", o.Ports[3], []string{"3"}, []string{"1", "2"}},
	} {
		before := maps.Clone(c.units)
		if _, err := store.Update(func(tx *intent.Tx) error { tx.SetPort(step.to); return nil }); err != nil {
			t.Fatal(err)
		}
		c.Compile(inputOf(store.State()))
		var compiled, with []string
		for _, f := range o.FloatingIPs {
			key := unitKey{kindFloatingIP, f.Name}
			number := f.Name[len("default/many-"):]
			if before[key] != c.units[key] {
				compiled = append(compiled, number)
			}
			if !c.desired.Get("floating-ip/" + f.Name).Empty() {
				with = append(with, number)
			}
		}
		if !slices.Equal(compiled, step.compiled) || !slices.Equal(with, step.with) {
			t.Errorf("%s: compiled %v, want %v; with flows %v, want %v", step.name, compiled, step.compiled, with, step.with)
		}
		for key, u := range c.units {
			if key.kind == kindPort && before[key] != u && key.key != step.to.ID {
				t.Errorf("%s: compiled %s", step.name, u.owner)
			}
		}
	}
}
