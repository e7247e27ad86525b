// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/names"
	"coelan.io/coelan/internal/reserved"
)

// networkObjects are the objects of coelan.io that an API holds, by the names that a NetworkSet
// gets.
type networkObjects struct {
	routers  map[string]*v1alpha1.Router
	networks map[string]*v1alpha1.Network
	blocks   map[string]*v1alpha1.AddressBlock
	ports    map[string]*v1alpha1.Port
}

// networkTable is the intent that they come to, by key.
type networkTable struct {
	Routers  map[string]intent.Router
	Networks map[string]intent.Network
	Blocks   map[string]intent.Block
	Ports    map[string]intent.Port
	Problems []Problem
}

var testView = NetworkView{
	Node: "n1", Connected: func(physical string) bool { return physical == "phys" },
	SNAT: intent.SNAT{Enabled: true, Direct: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}},
}

// full translates all objects together.
func (o networkObjects) full(withPorts bool) networkTable {
	specs := slices.DeleteFunc(inOrder(o.networks), func(n *v1alpha1.Network) bool { return !onNode(n, testView.Node) })
	routers, networks, problems := Networks(inOrder(o.routers), specs)
	networks = slices.DeleteFunc(networks, func(n intent.Network) bool {
		return n.Physical != "" && !testView.Connected(n.Physical)
	})
	claims := inOrder(o.blocks)
	blocks, more := Blocks(claims, networks, specs)
	ports, ofPorts := FixedPorts(inOrder(o.ports), claims, networks, blocks, testView.Node)
	t := newNetworkTable()
	t.apply(NetworkChanges{
		Routers: Change[intent.Router]{Set: routers}, Networks: Change[intent.Network]{Set: networks},
		Blocks: Change[intent.Block]{Set: blocks}, Ports: Change[intent.Port]{Set: ports},
	})
	r := t.Routers[intent.DefaultRouterName]
	r.SNAT = testView.SNAT
	t.Routers[r.Name] = r
	if t.Problems = slices.Concat(problems, more); withPorts {
		t.Problems = append(t.Problems, ofPorts...)
	}
	return t
}

func newNetworkTable() networkTable {
	return networkTable{
		Routers: map[string]intent.Router{}, Networks: map[string]intent.Network{},
		Blocks: map[string]intent.Block{}, Ports: map[string]intent.Port{},
	}
}

// apply follows changes, as intent does.
func (t *networkTable) apply(c NetworkChanges) {
	follow(t.Routers, c.Routers, func(r intent.Router) string { return r.Name })
	follow(t.Networks, c.Networks, func(n intent.Network) string { return n.Name })
	follow(t.Blocks, c.Blocks, func(b intent.Block) string { return b.Network + " " + b.Prefix.String() })
	follow(t.Ports, c.Ports, func(p intent.Port) string { return p.ID })
}

func follow[T any](table map[string]T, c Change[T], key func(T) string) {
	for _, o := range c.Gone {
		delete(table, key(o))
	}
	for _, o := range c.Set {
		table[key(o)] = o
	}
}

// anyTime makes objects older or younger than each other, or as old.
func anyTime(t *rapid.T) metav1.Time {
	return metav1.NewTime(time.Unix(int64(1000+draw(t, rapid.IntRange(0, 3), "age")), 0))
}

var (
	routerNames  = rapid.SampledFrom([]string{"default", "lan", "red", "blue"})
	networkNames = rapid.SampledFrom([]string{"default", "lan", "red", "wire"})
	cidrs        = often([]string{"10.1.0.0/24", "10.1.0.0/28", "10.1.0.4/32", "fd00:1::/120"}, "10.1.0.16/28", "10.2.0.0/24", "10.1.0.5/32", "x")
	targets      = rapid.SampledFrom([]string{v1alpha1.DefaultRouteTarget, "64512:1", "64512:2"})
	holdingNodes = often([]string{"n1", "n2", "n3"}, "")
)

func anyStatus(t *rapid.T) (id int32, conditions []metav1.Condition) {
	if draw(t, often([]bool{true}, false), "admitted") {
		return int32(draw(t, rapid.IntRange(2, 4), "id")), nil
	}
	return int32(draw(t, rapid.IntRange(0, 2), "id")), []metav1.Condition{
		{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse},
	}
}

func (o networkObjects) changeRouter(t *rapid.T) (string, *v1alpha1.Router) {
	r := &v1alpha1.Router{ObjectMeta: metav1.ObjectMeta{Name: draw(t, routerNames, "router"), CreationTimestamp: anyTime(t)}}
	r.Status.ID, r.Status.Conditions = anyStatus(t)
	r.Spec.ImportRouteTargets, r.Spec.ExportRouteTargets = list(t, targets, 3, "imports"), list(t, targets, 3, "exports")
	if draw(t, rapid.Bool(), "routes") {
		r.Spec.Routes = []v1alpha1.Route{{Destination: draw(t, cidrs, "destination"), NextHop: "10.1.0.9"}}
	}
	return r.Name, r
}

func (o networkObjects) changeNetwork(t *rapid.T) (string, *v1alpha1.Network) {
	n := &v1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Name: draw(t, networkNames, "network"), CreationTimestamp: anyTime(t)}}
	n.Status.ID, n.Status.Conditions = anyStatus(t)
	n.Spec.Router, n.Spec.Node = draw(t, often([]string{""}, "red", "blue", "default"), "router"), draw(t, often([]string{""}, "n1", "n2"), "node")
	n.Status.Router = draw(t, often([]string{""}, "blue"), "assigned")
	if draw(t, often([]bool{false}, true), "physical") {
		n.Spec.Type, n.Spec.PhysicalNetwork = v1alpha1.Flat, draw(t, rapid.SampledFrom([]string{"phys", "other", ""}), "physical network")
	}
	if draw(t, often([]bool{false}, true), "podCIDR") {
		n.Spec.IPAM = v1alpha1.PodCIDR
	}
	for _, cidr := range [][]string{{"10.1.0.0/24", "fd00:1::/120"}, {"10.1.0.0/24", "x"}, {"10.1.0.0/16"}}[draw(t, rapid.IntRange(0, 2), "subnets")] {
		n.Spec.Subnets = append(n.Spec.Subnets, v1alpha1.Subnet{CIDR: cidr})
	}
	return n.Name, n
}

func (o networkObjects) changeBlock(t *rapid.T) (string, *v1alpha1.AddressBlock) {
	network, cidr := draw(t, networkNames, "network"), draw(t, cidrs, "cidr")
	b := &v1alpha1.AddressBlock{ObjectMeta: metav1.ObjectMeta{Name: network + "-made-by-hand", CreationTimestamp: anyTime(t)}}
	b.Spec.Network, b.Spec.CIDR, b.Spec.Node = network, cidr, draw(t, holdingNodes, "node")
	if p, err := netip.ParsePrefix(cidr); err == nil && draw(t, often([]bool{true}, false), "by its name") {
		b.Name = names.BlockName(network, p)
		if p.IsSingleIP() {
			b.Spec.Port = draw(t, rapid.SampledFrom([]string{"shop/a", "shop/b"}), "of")
		}
	}
	if draw(t, often([]bool{false}, true), "of another network") {
		b.Spec.Network = draw(t, networkNames, "other network")
	}
	return b.Name, b
}

func (o networkObjects) changePort(t *rapid.T) (string, *v1alpha1.Port) {
	p := &v1alpha1.Port{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: draw(t, rapid.SampledFrom([]string{"a", "b", "c"}), "port"), CreationTimestamp: anyTime(t),
	}}
	p.Spec.Network, p.Status.Node = draw(t, networkNames, "network"), draw(t, holdingNodes, "node")
	address := draw(t, often([]string{"10.1.0.4", "10.1.0.5"}, "10.1.0.1", "10.2.0.4", "x"), "address")
	p.Status.Addresses, p.Status.MAC = []string{address}, draw(t, often([]string{"02:00:00:00:00:01"}, "02:00:00:00:00:02", "x"), "mac")
	if a, err := netip.ParseAddr(address); err == nil && draw(t, rapid.Bool(), "MAC of the address") {
		p.Status.MAC = reserved.PodMAC(a).String()
	}
	if draw(t, rapid.Bool(), "pod") {
		p.Spec.Pod = &v1alpha1.PortPod{Name: p.Name, Interface: "net1", UID: "uid-" + p.Name}
		p.Spec.MAC = draw(t, rapid.SampledFrom([]string{"", p.Status.MAC}), "asked")
	}
	return p.Namespace + "/" + p.Name, p
}

// working adds a Network with a block of another node, and a Port that has an address of it.
func (o networkObjects) working(s *NetworkSet) {
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name, Namespace: "shop"} }
	r := &v1alpha1.Router{ObjectMeta: meta("lan"), Status: v1alpha1.RouterStatus{ID: 2}}
	n := &v1alpha1.Network{ObjectMeta: meta("lan"), Status: v1alpha1.NetworkStatus{ID: 2}}
	n.Spec.Subnets = []v1alpha1.Subnet{{CIDR: "10.1.0.0/24"}}
	b := &v1alpha1.AddressBlock{ObjectMeta: meta("lan-10-1-0-0-28")}
	b.Spec.Network, b.Spec.CIDR, b.Spec.Node = "lan", "10.1.0.0/28", "n2"
	p := &v1alpha1.Port{ObjectMeta: meta("a"), Spec: v1alpha1.PortSpec{Network: "lan", Pod: &v1alpha1.PortPod{Name: "a"}}}
	p.Status.Node, p.Status.Addresses = "n2", []string{"10.1.0.4"}
	p.Status.MAC = reserved.PodMAC(netip.MustParseAddr("10.1.0.4")).String()
	put(o.routers, "lan", r, false, s.SetRouter)
	put(o.networks, "lan", n, false, s.SetNetwork)
	put(o.blocks, b.Name, b, false, s.SetBlock)
	put(o.ports, "shop/a", p, false, s.SetPort)
}

// change draws one change, and brings it to the objects and to the set.
func (o networkObjects) change(t *rapid.T, s *NetworkSet) {
	gone := draw(t, often([]bool{false}, true), "gone")
	switch draw(t, rapid.IntRange(0, 3), "kind") {
	case 0:
		name, r := o.changeRouter(t)
		put(o.routers, name, r, gone, s.SetRouter)
	case 1:
		name, n := o.changeNetwork(t)
		put(o.networks, name, n, gone, s.SetNetwork)
	case 2:
		name, b := o.changeBlock(t)
		put(o.blocks, name, b, gone, s.SetBlock)
	default:
		name, p := o.changePort(t)
		put(o.ports, name, p, gone, s.SetPort)
	}
}

func put[T any](objects map[string]*T, name string, o *T, gone bool, set func(string, *T)) {
	if gone {
		delete(objects, name)
		set(name, nil)
		return
	}
	objects[name] = o
	set(name, o)
}

var tableOptions = cmp.Options{
	cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.EquateEmpty(),
}

// Whatever changes come, and in whatever order, what follows them is what a translation of all
// objects makes.
func TestNetworkSetEqualsFullTranslation(t *testing.T) {
	seen := map[string]bool{}
	rapid.Check(t, func(t *rapid.T) {
		o := networkObjects{
			map[string]*v1alpha1.Router{}, map[string]*v1alpha1.Network{}, map[string]*v1alpha1.AddressBlock{}, map[string]*v1alpha1.Port{},
		}
		s, got := NewNetworkSet(testView), newNetworkTable()
		if rapid.Bool().Draw(t, "with a Network that works") {
			o.working(s)
		}
		problems := s.Problems(true)
		for range draw(t, rapid.IntRange(1, 30), "steps") {
			for range draw(t, rapid.IntRange(0, 3), "changes") {
				o.change(t, s)
			}
			c := s.Changes()
			got.apply(c)
			withPorts := rapid.Bool().Draw(t, "with Ports")
			got.Problems = s.Problems(withPorts)
			if diff := cmp.Diff(o.full(withPorts), got, tableOptions); diff != "" {
				t.Fatalf("(-all together +one by one):\n%s", diff)
			}
			if now := s.Problems(true); !c.Problems && !slices.Equal(problems, now) {
				t.Fatalf("other problems are not reported: %v, %v", problems, now)
			}
			problems = s.Problems(true)
		}
		for kind, n := range map[string]int{
			"a route target": len(slices.Concat(slices.Collect(func(yield func([]string) bool) {
				for _, r := range got.Routers {
					if !yield(r.Imports) {
						return
					}
				}
			})...)),
			"a Network": len(got.Networks) - 1, "a block": len(got.Blocks), "a Port": len(got.Ports), "a problem": len(problems),
		} {
			seen[kind] = seen[kind] || n > 0
		}
		// Another order, with all changes at once.
		again, other := NewNetworkSet(testView), newNetworkTable()
		var sets []func()
		collect(&sets, o.routers, again.SetRouter)
		collect(&sets, o.networks, again.SetNetwork)
		collect(&sets, o.blocks, again.SetBlock)
		collect(&sets, o.ports, again.SetPort)
		for _, set := range rapid.Permutation(sets).Draw(t, "order") {
			set()
		}
		other.apply(again.Changes())
		other.Problems, got.Problems = again.Problems(true), problems
		if diff := cmp.Diff(got, other, tableOptions); diff != "" {
			t.Fatalf("(-one by one +in another order):\n%s", diff)
		}
		// A set keeps nothing of objects that are gone.
		for name := range maps.Clone(o.routers) {
			s.SetRouter(name, nil)
		}
		for name := range maps.Clone(o.networks) {
			s.SetNetwork(name, nil)
		}
		for name := range maps.Clone(o.blocks) {
			s.SetBlock(name, nil)
		}
		for name := range maps.Clone(o.ports) {
			s.SetPort(name, nil)
		}
		s.Changes()
		for what, n := range map[string]int{
			"routers": len(s.routers) - 1, "networks": len(s.networks) - 1, "blocks": len(s.blocks), "ports": len(s.ports), "having": len(s.having),
			"results": len(s.results) - 1, "shared": len(s.shared), "exports": len(s.exports), "importers": len(s.importers),
			"attached": len(s.attached), "troubled": len(s.troubled) + len(s.troubledRouters),
		} {
			if n != 0 {
				t.Fatalf("%s: %d left of objects that are gone", what, n)
			}
		}
	})
	for _, kind := range []string{"a route target", "a Network", "a block", "a Port", "a problem"} {
		if !seen[kind] {
			t.Errorf("no case came to %s", kind)
		}
	}
}

func collect[T any](sets *[]func(), objects map[string]*T, set func(string, *T)) {
	for _, name := range slices.Sorted(maps.Keys(objects)) {
		*sets = append(*sets, func() { set(name, objects[name]) })
	}
}

// A change of one object among many leaves the others alone.
func TestNetworkSetTouches(t *testing.T) {
	s := NewNetworkSet(testView)
	ready := func(i int) *v1alpha1.Network {
		n := &v1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("net-", i)}}
		n.Spec.Router, n.Spec.Subnets = fmt.Sprint("router-", i/10), []v1alpha1.Subnet{{CIDR: "10.1.0.0/24"}}
		n.Status.ID = int32(i + 2)
		return n
	}
	router := func(i int, exports string) *v1alpha1.Router {
		r := &v1alpha1.Router{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("router-", i)}}
		r.Status.ID = int32(i + 2)
		// All are shared, and each imports what the one before it exports.
		r.Spec.ImportRouteTargets = []string{v1alpha1.DefaultRouteTarget, fmt.Sprint("64512:", i-1)}
		r.Spec.ExportRouteTargets = []string{v1alpha1.DefaultRouteTarget, exports}
		return r
	}
	block := func(i int, node string) *v1alpha1.AddressBlock {
		b := &v1alpha1.AddressBlock{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("block-", i)}}
		b.Spec.Network, b.Spec.CIDR, b.Spec.Node = fmt.Sprint("net-", i), "10.1.0.16/28", node
		return b
	}
	floating := &v1alpha1.AddressBlock{}
	floating.Spec.Network, floating.Spec.CIDR, floating.Spec.FloatingIP = "net-50", "10.1.0.99/32", "default/f"
	floating.Name = names.BlockName("net-50", netip.MustParsePrefix("10.1.0.99/32"))
	vm := &v1alpha1.Port{}
	vm.Spec.Network, vm.Status.Addresses = "net-50", []string{"10.1.0.99"}
	for i := range 100 {
		s.SetNetwork(fmt.Sprint("net-", i), ready(i))
		s.SetBlock(fmt.Sprint("block-", i), block(i, "n2"))
	}
	for i := range 10 {
		s.SetRouter(fmt.Sprint("router-", i), router(i, fmt.Sprint("64512:", i)))
	}
	if c := s.Changes(); len(c.Networks.Set) != 101 || len(c.Routers.Set) != 11 || len(c.Blocks.Set) != 100 {
		t.Fatalf("at first: %d Networks, %d Routers, %d blocks", len(c.Networks.Set), len(c.Routers.Set), len(c.Blocks.Set))
	}
	for _, tc := range []struct {
		what                      string
		change                    func()
		routers, networks, blocks int
	}{
		{"nothing", func() {}, 0, 0, 0},
		{"a Network", func() { s.SetNetwork("net-50", ready(50)) }, 0, 1, 1},
		{"a block", func() { s.SetBlock("block-50", block(50, "n3")) }, 0, 1, 1},
		{"a floating IP's block", func() { s.SetBlock(floating.Name, floating) }, 0, 0, 0},
		{"it goes", func() { s.SetBlock(floating.Name, nil) }, 0, 0, 0},
		{"a Port that says it has the floating IP", func() { s.SetPort("default/vm", vm) }, 0, 1, 1},
		{"the block, which counts now", func() { s.SetBlock(floating.Name, floating) }, 0, 1, 1},
		{"a Router, and the one that imports its routes", func() { s.SetRouter("router-5", router(5, "64512:5")) }, 2, 0, 0},
		{"a Router that goes, with its Networks", func() { s.SetRouter("router-5", nil) }, 2, 10, 10},
	} {
		tc.change()
		c := s.Changes()
		got := []int{
			len(c.Routers.Set) + len(c.Routers.Gone), len(c.Networks.Set) + len(c.Networks.Gone),
			len(c.Blocks.Set) + len(c.Blocks.Gone),
		}
		if want := []int{tc.routers, tc.networks, tc.blocks}; !slices.Equal(got, want) {
			t.Errorf("%s: %v Routers, Networks and blocks are touched, want %v", tc.what, got, want)
		}
	}
}
