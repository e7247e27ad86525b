// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/names"
	"coelan.io/coelan/internal/reserved"
)

var everywhere = NetworkView{Everywhere: true, Connected: func(string) bool { return true }}

// wholePorts are all Ports in effect of the objects, translated together.
func (o networkObjects) wholePorts() (map[string]intent.Port, []Problem) {
	specs, claims := inOrder(o.networks), inOrder(o.blocks)
	_, networks, _ := Networks(inOrder(o.routers), specs)
	blocks, _ := Blocks(claims, networks, specs)
	ports, problems := FixedPorts(inOrder(o.ports), claims, networks, blocks, "")
	table := map[string]intent.Port{}
	for _, p := range ports {
		table[p.ID] = p
	}
	return table, problems
}

// A Port has effect by the same judgement as in a translation of all objects, whatever changes
// come and in whatever order.
func TestPortSetEqualsFixedPorts(t *testing.T) {
	seen := map[string]bool{}
	rapid.Check(t, func(t *rapid.T) {
		o := networkObjects{
			map[string]*v1alpha1.Router{}, map[string]*v1alpha1.Network{}, map[string]*v1alpha1.AddressBlock{}, map[string]*v1alpha1.Port{},
		}
		networks, s := NewNetworkSet(everywhere), NewPortSet(nil, false)
		o.working(networks)
		got := map[string]intent.Port{}
		var problems []Problem
		for range draw(t, rapid.IntRange(1, 30), "steps") {
			for range draw(t, rapid.IntRange(0, 3), "changes") {
				o.change(t, networks)
			}
			for name := range s.ports {
				if o.ports[name] == nil {
					s.SetPort(name, nil)
				}
			}
			for name, p := range o.ports {
				if e := s.ports[name]; e == nil || e.object != p {
					s.SetPort(name, p)
				}
			}
			for _, known := range [][]string{slices.Collect(maps.Keys(s.singles)), slices.Collect(maps.Keys(s.blocks)), slices.Collect(maps.Keys(o.blocks))} {
				for _, name := range known {
					s.SetBlock(name, o.blocks[name])
				}
			}
			s.Follow(networks.Changes())
			c, changed := s.Changes()
			follow(got, c, func(p intent.Port) string { return p.ID })
			want, wanted := o.wholePorts()
			if diff := cmp.Diff(want, got, tableOptions); diff != "" {
				t.Fatalf("Ports (-all together +one by one):\n%s", diff)
			}
			now := s.Problems()
			if diff := cmp.Diff(wanted, now, tableOptions); diff != "" && !unlike(wanted, now) {
				t.Fatalf("problems (-all together +one by one):\n%s", diff)
			}
			if !changed && !slices.Equal(problems, now) {
				t.Fatalf("other problems are not reported: %v, %v", problems, now)
			}
			problems = now
			seen["a Port"] = seen["a Port"] || len(got) > 0
			seen["a problem"] = seen["a problem"] || len(now) > 0
		}
		for name := range maps.Clone(o.ports) {
			s.SetPort(name, nil)
		}
		for name := range maps.Clone(o.blocks) {
			s.SetBlock(name, nil)
		}
		for name := range o.networks {
			networks.SetNetwork(name, nil)
		}
		for name := range o.blocks {
			networks.SetBlock(name, nil)
		}
		s.Follow(networks.Changes())
		s.Changes()
		for what, n := range map[string]int{
			"networks": len(s.networks) - 1, "singles": len(s.singles), "blocks": len(s.blocks), "ports": len(s.ports), "nodes": len(s.onNode),
			"claiming": len(s.claiming), "MACs": len(s.sameMAC), "troubled": len(s.troubled),
		} {
			if n != 0 {
				t.Fatalf("%s: %d left of objects that are gone", what, n)
			}
		}
	})
	if !seen["a Port"] || !seen["a problem"] {
		t.Errorf("cases came to %v only", seen)
	}
}

// unlike says that the lists differ only in Ports on the default Network, which has no addresses
// for FixedPorts.
func unlike(a, b []Problem) bool {
	only := func(list []Problem) []Problem {
		return slices.DeleteFunc(slices.Clone(list), func(p Problem) bool { return p.Reason == NotOwned && p.Field != "status.mac" })
	}
	return slices.Equal(only(a), only(b)) && len(a) == len(b)
}

// portOfPod is the Port of a pod on a node with an address of its podCIDR.
func portOfPod(name, node, address string) *v1alpha1.Port {
	p := &v1alpha1.Port{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	p.Spec = v1alpha1.PortSpec{Network: "default", Node: node, Pod: &v1alpha1.PortPod{Name: name, UID: "uid-" + name, Interface: "eth0"}}
	p.Status = v1alpha1.PortStatus{Node: node, Addresses: []string{address}, MAC: reserved.PodMAC(netip.MustParseAddr(address)).String()}
	return p
}

// An agent may give the pods of its node addresses of the node's podCIDRs, and no others.
func TestPortSetJudgesAddressesOfNodes(t *testing.T) {
	last := func(p netip.Prefix) (netip.Addr, bool) {
		return netip.MustParseAddr("10.244.1.254"), p.Contains(netip.MustParseAddr("10.244.1.254"))
	}
	for _, tc := range []struct {
		what   string
		change func(*v1alpha1.Port)
		want   string // field that is refused
	}{
		{"its own", func(*v1alpha1.Port) {}, ""},
		{"another node's", func(p *v1alpha1.Port) { p.Status.Addresses[0] = "10.244.2.5" }, "status.addresses[0]"},
		{"the gateway's", func(p *v1alpha1.Port) { p.Status.Addresses[0] = "10.244.1.1" }, "status.addresses[0]"},
		{"the node's own", func(p *v1alpha1.Port) { p.Status.Addresses[0] = "10.244.1.254" }, "status.addresses[0]"},
		{"the broadcast address", func(p *v1alpha1.Port) { p.Status.Addresses[0] = "10.244.1.255" }, "status.addresses[0]"},
		{"a second one, of another node", func(p *v1alpha1.Port) { p.Status.Addresses = append(p.Status.Addresses, "10.244.2.5") }, "status.addresses[1]"},
		{"a Port for another node", func(p *v1alpha1.Port) { p.Spec.Node = "n2" }, "status.addresses[0]"},
		{"a user's Port", func(p *v1alpha1.Port) { p.Spec.Pod = nil }, "status.addresses[0]"},
		{"a MAC of another address", func(p *v1alpha1.Port) { p.Status.MAC = reserved.PodMAC(netip.MustParseAddr("10.244.1.9")).String() }, "status.mac"},
		{"no MAC", func(p *v1alpha1.Port) { p.Status.MAC = "x" }, "status.mac"},
		{"an address on its node", func(p *v1alpha1.Port) { p.Status.NodeAddresses = []string{"10.244.1.6"} }, ""},
		{"an address on another node", func(p *v1alpha1.Port) { p.Status.NodeAddresses = []string{"10.244.2.6"} }, "status.nodeAddresses[0]"},
		{"no address on its node", func(p *v1alpha1.Port) { p.Status.NodeAddresses = []string{"x"} }, "status.nodeAddresses[0]"},
	} {
		t.Run(tc.what, func(t *testing.T) {
			s := NewPortSet(last, false)
			s.Follow(NewNetworkSet(everywhere).Changes())
			s.FollowNodes(Change[intent.Node]{Set: []intent.Node{nodeWith("n1", "10.244.1.0/24"), nodeWith("n2", "10.244.2.0/24")}})
			p := portOfPod("web", "n1", "10.244.1.5")
			tc.change(p)
			s.SetPort("shop/web", p)
			c, _ := s.Changes()
			field := ""
			if list := s.Problems(); len(list) > 0 {
				field = list[0].Field
			}
			if field != tc.want || (len(c.Set) == 1) != (tc.want == "") {
				t.Errorf("Ports %+v and problems %v", c.Set, s.Problems())
			}
		})
	}
}

func nodeWith(name, cidr string) intent.Node {
	p := netip.MustParsePrefix(cidr)
	return intent.Node{Name: name, Subnets: []intent.Subnet{{Network: "default", Prefix: p, Gateway: p.Addr().Next()}}}
}

// What a change touches is judged anew, and nothing else: with many Ports, one costs one.
func TestPortSetTouches(t *testing.T) {
	s := NewPortSet(nil, false)
	networks := NewNetworkSet(everywhere)
	lan := &v1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Name: "lan"}}
	lan.Spec.Router, lan.Spec.Subnets, lan.Status.ID = "default", []v1alpha1.Subnet{{CIDR: "10.1.0.0/16"}}, 2
	networks.SetNetwork("lan", lan)
	s.Follow(networks.Changes())
	n1, n2 := nodeWith("n1", "10.244.1.0/24"), nodeWith("n2", "10.244.2.0/24")
	s.FollowNodes(Change[intent.Node]{Set: []intent.Node{n1, n2}})
	for i := range 200 {
		name := fmt.Sprint("web-", i)
		node, address := "n1", fmt.Sprint("10.244.1.", i+5)
		if i >= 100 {
			node, address = "n2", fmt.Sprint("10.244.2.", i-95)
		}
		s.SetPort("shop/"+name, portOfPod(name, node, address))
	}
	vm := &v1alpha1.Port{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "vm"}, Spec: v1alpha1.PortSpec{Network: "lan"}}
	vm.Status = v1alpha1.PortStatus{Node: "n1", Addresses: []string{"10.1.0.9"}, MAC: "02:00:00:00:00:09"}
	s.SetPort("shop/vm", vm)
	claim := &v1alpha1.AddressBlock{ObjectMeta: metav1.ObjectMeta{Name: names.BlockName("lan", netip.MustParsePrefix("10.1.0.9/32"))}}
	claim.Spec.Network, claim.Spec.CIDR, claim.Spec.Port = "lan", "10.1.0.9/32", "shop/vm"
	if c, _ := s.Changes(); len(c.Set) != 200 {
		t.Fatalf("at first %d Ports", len(c.Set))
	}
	for _, tc := range []struct {
		what    string
		change  func()
		touched int
		changed int
	}{
		{"nothing", func() {}, 0, 0},
		{"a pod", func() { s.SetPort("shop/new", portOfPod("new", "n1", "10.244.1.250")) }, 1, 1},
		{"a claim", func() { s.SetBlock(claim.Name, claim) }, 1, 1},
		{"a claim that goes", func() { s.SetBlock(claim.Name, nil) }, 1, 1},
		{"a node as it was", func() { s.FollowNodes(Change[intent.Node]{Set: []intent.Node{n2}}) }, 0, 0},
		{"a node's podCIDR", func() { s.FollowNodes(Change[intent.Node]{Set: []intent.Node{nodeWith("n2", "10.244.9.0/24")}}) }, 100, 100},
	} {
		tc.change()
		touched := len(s.touched)
		c, _ := s.Changes()
		if changed := len(c.Set) + len(c.Gone); touched != tc.touched || changed != tc.changed {
			t.Errorf("%s: %d Ports are touched and %d changed, want %d and %d", tc.what, touched, changed, tc.touched, tc.changed)
		}
	}
}

// A user's Port that no node has bound is in effect only where that is asked for, and only as far
// as it is the user's: what agents make waits for its node, and a port of OpenStack's for its pod.
func TestPortSetOfUnboundPorts(t *testing.T) {
	for _, tc := range []struct {
		what    string
		unbound bool
		change  func(*v1alpha1.Port)
		want    bool
	}{
		{"asked for", true, func(*v1alpha1.Port) {}, true},
		{"not asked for", false, func(*v1alpha1.Port) {}, false},
		{"without addresses yet", true, func(p *v1alpha1.Port) { p.Status.Addresses = nil }, false},
		{"with an address that is not its", true, func(p *v1alpha1.Port) { p.Status.Addresses[0] = "10.1.0.10" }, false},
		{"an agent's", true, func(p *v1alpha1.Port) { p.Spec.Dynamic = true }, false},
		{"for a port of OpenStack's", true, func(p *v1alpha1.Port) { p.Spec.NeutronPort = "11111111-0000-4000-8000-000000000001" }, false},
	} {
		networks, s := NewNetworkSet(everywhere), NewPortSet(nil, tc.unbound)
		lan := &v1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Name: "lan"}}
		lan.Spec.Router, lan.Spec.Subnets, lan.Status.ID = "default", []v1alpha1.Subnet{{CIDR: "10.1.0.0/16"}}, 2
		networks.SetNetwork("lan", lan)
		s.Follow(networks.Changes())
		for _, address := range []string{"10.1.0.9/32", "10.1.0.10/32"} {
			claim := &v1alpha1.AddressBlock{ObjectMeta: metav1.ObjectMeta{Name: names.BlockName("lan", netip.MustParsePrefix(address))}}
			claim.Spec.Network, claim.Spec.CIDR, claim.Spec.Port = "lan", address, map[bool]string{true: "shop/vm", false: "shop/other"}[address == "10.1.0.9/32"]
			s.SetBlock(claim.Name, claim)
		}
		vm := &v1alpha1.Port{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "vm"}, Spec: v1alpha1.PortSpec{Network: "lan"}}
		vm.Status = v1alpha1.PortStatus{Addresses: []string{"10.1.0.9"}, MAC: "02:00:00:00:00:09"}
		tc.change(vm)
		s.SetPort("shop/vm", vm)
		if c, _ := s.Changes(); (len(c.Set) == 1) != tc.want {
			t.Errorf("%s: %+v, problems %v", tc.what, c.Set, s.Problems())
		}
		bound := vm.DeepCopy()
		bound.Status.Node = "n1"
		s.SetPort("shop/vm", bound)
		s.Changes()
		s.SetPort("shop/vm", nil)
		if c, _ := s.Changes(); len(c.Set) != 0 || len(s.onNode) != 0 || len(s.claiming) != 0 {
			t.Errorf("%s: once it is gone there are %+v, and %d and %d are indexed", tc.what, c.Set, len(s.onNode), len(s.claiming))
		}
	}
}
