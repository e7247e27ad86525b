// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"encoding/json"
	"net/netip"
	"slices"
	"testing"

	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/intenttest"
)

// onTheirs has a Network on a network of another program, with a Port, in a Router of its own.
func onTheirs(change func(*intent.Network)) func(*intent.Objects) {
	return func(o *intent.Objects) {
		n := intent.Network{
			Name: "old", Router: "old", NeutronNetwork: "blue", Subnets: intenttest.Subnets("10.30.0.0/24"), MTU: 1400,
		}
		change(&n)
		o.Networks = append(o.Networks, n)
		o.Routers = append(o.Routers, intent.Router{Name: "old", ID: 99})
		o.Ports = append(o.Ports, intenttest.Port("shop", "web", "old", "n1", "10.30.0.5"))
	}
}

// theirs is that network, with a subnet.
func theirs(network resource.Attributes, cidr string) *resource.Inventory {
	have := resource.NewInventory()
	object := NetworkObject("old")
	have.Lend(resource.LentNetwork(object), resource.Loan{Actual: resource.Actual{ID: "t", Attributes: network}})
	have.Lend(resource.LentSubnet(object, netip.MustParsePrefix(cidr)), resource.Loan{Actual: resource.Actual{ID: "s"}})
	return have
}

func TestLentNetworks(t *testing.T) {
	const subnet = "10.30.0.0/24"
	network := resource.Attributes{"mtu": float64(1442), "router:external": false}
	asIs := func(*intent.Network) {}
	refused := resource.NewInventory()
	refused.Lend(resource.LentNetwork(NetworkObject("old")), resource.Loan{Refused: "Neutron has none"})
	kept, keptInProject := theirs(network, subnet), theirs(network, subnet)
	kept.Set(NetworkRef("old"), resource.Actual{ID: "own"})
	keptInProject.Set(NetworkRef("old").In("T1"), resource.Actual{ID: "own"})
	for name, tc := range map[string]struct {
		have    *resource.Inventory
		change  func(*intent.Network)
		reasons []string
		own     bool // it has a network of its own
	}{
		"as it says":            {theirs(network, subnet), asIs, nil, false},
		"not looked for yet":    {resource.NewInventory(), asIs, nil, false},
		"there is none":         {refused, asIs, []string{"NetworkNotFound"}, false},
		"another subnet":        {theirs(network, "10.31.0.0/24"), asIs, []string{"SubnetNotFound"}, false},
		"smaller packets":       {theirs(resource.Attributes{"mtu": float64(1300)}, subnet), asIs, []string{"MTUTooLarge"}, false},
		"the same, by its UUID": {theirs(resource.Attributes{"mtu": json.Number("1300")}, subnet), asIs, []string{"MTUTooLarge"}, false},
		"a network of its own":  {kept, asIs, []string{"NetworkKept"}, true},
		"one in its project":    {keptInProject, func(n *intent.Network) { n.Project = "T1" }, []string{"NetworkKept"}, true},
		"the nodes' ranges":     {theirs(network, subnet), func(n *intent.Network) { n.Subnets = nil }, []string{"NeutronNetworkIgnored"}, false},
		"a shared Router":       {theirs(network, subnet), func(n *intent.Network) { n.Router = "default" }, []string{"RouterUnsupported"}, false},
		"an external network":   {theirs(resource.Attributes{"router:external": true}, subnet), external, nil, false},
		"one that is no such":   {theirs(network, subnet), external, []string{"NotExternal"}, false},
		"another project's own": {theirs(network, subnet), func(n *intent.Network) { n.Project = "T1" }, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := stateOf(onTheirs(tc.change))
			set := Compile(s, Options{Loans: Borrow(s, tc.have)})
			for _, problem := range dangling(set) {
				t.Error(problem)
			}
			var reasons []string
			for _, p := range set.Problems {
				if p.Object == NetworkObject("old") {
					reasons = append(reasons, p.Reason)
				}
			}
			if !slices.Equal(reasons, tc.reasons) {
				t.Errorf("problems %v, want %v: %v", reasons, tc.reasons, set.Problems)
			}
			for _, k := range []resource.Kind{resource.Network, resource.Subnet, resource.Interface} {
				for _, r := range set.All(k) {
					ours := r.Object == NetworkObject("old") && !r.Optional
					if ours && !tc.own {
						t.Errorf("%s is made", r.Ref)
					}
				}
			}
			for _, p := range set.All(resource.Port) {
				on, _ := p.Fixed["network_id"].(resource.Ref)
				if lent := on == resource.LentNetwork(NetworkObject("old")); p.Object == PortObject("shop/web") && lent == tc.own {
					t.Errorf("the port is on %s", on)
				}
			}
		})
	}
}

func external(n *intent.Network) { n.Router, n.Physical, n.External, n.MTU = "", "provider", true, 0 }

// A Port is on the network and the subnet of the other program, and nothing is planned for these.
func TestPortOnLentNetwork(t *testing.T) {
	s := stateOf(onTheirs(func(*intent.Network) {}))
	have := theirs(resource.Attributes{"mtu": float64(1442)}, "10.30.0.0/24")
	set := Compile(s, Options{Loans: Borrow(s, have)})
	for _, c := range resource.Plan(set, have) {
		if c.Ref == PortRef("shop/web") {
			resolved := resource.Resolve(c.Attributes, func(r resource.Ref) (string, bool) { a, ok := have.Get(r); return a.ID, ok }).(map[string]any)
			ip, _ := resolved["fixed_ips"].([]any)[0].(map[string]any)
			if c.Operation != resource.Create || resolved["network_id"] != "t" || ip["subnet_id"] != "s" || ip["ip_address"] != "10.30.0.5" {
				t.Errorf("the port is made as %v", resolved)
			}
			continue
		}
		if c.Object == NetworkObject("old") {
			t.Errorf("a call for the network: %+v", c)
		}
	}
}

// Routes and gateways of a Router are those of the network's own router.
func TestRouterOfLentNetworks(t *testing.T) {
	s := stateOf(func(o *intent.Objects) {
		onTheirs(func(*intent.Network) {})(o)
		o.Routers[len(o.Routers)-1].Routes = []intent.Route{{Destination: netip.MustParsePrefix("10.40.0.0/16"), NextHop: addr("10.30.0.5")}}
	})
	set := Compile(s, Options{Loans: Borrow(s, theirs(nil, "10.30.0.0/24"))})
	if _, made := set.Get(RouterRef("old")); made || !hasProblem(set, "Router old", "RouterUnsupported") {
		t.Errorf("made: %v, problems %v", made, set.Problems)
	}
}
