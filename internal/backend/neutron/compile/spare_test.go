// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/intenttest"
	"coelan.io/coelan/internal/reserved"
)

// podAt is a pod of n1 with the addresses of a slot.
func podAt(name string, slot int) intent.Port {
	p := intenttest.Port("shop", name, "default", "n1", fmt.Sprintf("10.244.1.%d", slot), fmt.Sprintf("fd00:10:244:1::%x", slot))
	p.ObjectUID = "uid of " + name
	return p
}

// spareWorld has n1 with pods, and a policy that closes some of them, by their names.
func spareWorld(closed string, pods ...intent.Port) *intent.State {
	o := intent.Objects{
		Local: intent.Local{PolicyMode: intent.EnforcedPolicies}, Routers: []intent.Router{{Name: "default", ID: 1}},
		Networks: []intent.Network{{Name: "default", ID: intent.DefaultNetwork, Router: "default"}},
		Nodes:    []intent.Node{intenttest.Node("n1", 1)}, Ports: pods,
	}
	for _, p := range pods {
		subject := intent.Subject{Key: p.SubjectKey()}
		if strings.Contains(closed, p.Pod) {
			subject.IngressIsolation = []intent.PolicyRef{{Kind: intent.NetworkPolicy, Namespace: "shop", Name: "closed"}}
		}
		o.Subjects = append(o.Subjects, subject)
	}
	return intenttest.State(o)
}

// neutron is what there is after calls that all succeed.
type neutron struct {
	*testing.T
	have *resource.Inventory
	told map[string]bool // the Ports that were told which port they have, by UID
}

// bring makes what a State wants, and returns the calls for ports.
func (n neutron) bring(s *intent.State) (calls []string) {
	n.Helper()
	want := Compile(s, Options{Spare: 4})
	want.Held = func(r resource.Resource, _ resource.Actual) bool { return n.told[r.Holder] }
	defer func() {
		for _, r := range want.All(resource.Port) {
			n.told[r.Holder] = true
		}
	}()
	for _, c := range resource.Plan(want, n.have) {
		if c.Ref.Kind == resource.Port {
			calls = append(calls, []string{"create", "update", "delete", "join", "leave"}[c.Operation]+" "+c.Ref.Key+" of "+c.Object)
		}
		id := func(r resource.Ref) (string, bool) { return "id of " + r.String(), true }
		attributes := resource.Resolve(c.Attributes, id).(map[string]any)
		a, there := n.have.Get(c.Ref)
		switch c.Operation {
		case resource.Join:
			n.have.SetSubport(a.ID, resource.Subport{Trunk: c.Trunk, VLAN: 2})
			continue
		case resource.Leave:
			n.have.RemoveSubport(c.ID)
			continue
		case resource.Delete:
			n.have.Remove(c.Ref, c.ID)
			continue
		case resource.Create:
			a = resource.Actual{ID: "id of " + c.Ref.String(), Attributes: attributes}
		case resource.Update:
			if !there {
				a = resource.Actual{ID: "id of " + c.Ref.String(), Attributes: resource.Attributes{}}
			}
			for name, value := range attributes {
				a.Attributes[name] = value
			}
		}
		n.have.Set(c.Ref, a)
	}
	slices.Sort(calls)
	return calls
}

// Pods take the ports that are ready, and leave them, without a call, as long as no policy is for
// some of them alone; and there are as many ready ones as are asked for.
func TestSparePorts(t *testing.T) {
	n := neutron{t, resource.NewInventory(), map[string]bool{}}
	slot := func(i int) string { return fmt.Sprintf("Node/n1 10.244.1.%d fd00:10:244:1::%x", i, i) }
	spare := func(operation string, slots ...int) (calls []string) {
		for _, i := range slots {
			calls = append(calls, operation+" "+slot(i)+" of Node n1")
		}
		return calls
	}
	for _, step := range []struct {
		what   string
		closed string
		pods   []intent.Port
		want   []string
	}{
		{"at first", "", nil, append([]string{"create Node/n1 of Node n1"}, spare("create", 2, 3, 4, 5, 6, 7)...)},
		{"a pod", "", []intent.Port{podAt("a", 2)}, nil},
		{"two more", "", []intent.Port{podAt("a", 2), podAt("b", 3), podAt("c", 4)}, spare("create", 8, 9, 10, 11)},
		{"one goes", "", []intent.Port{podAt("a", 2), podAt("b", 3)}, nil},
		{"another comes at its place", "", []intent.Port{podAt("a", 2), podAt("b", 3), podAt("d", 4)}, nil},
		{"a policy for two", "bd", []intent.Port{podAt("a", 2), podAt("b", 3), podAt("d", 4)},
			[]string{"update " + slot(3) + " of Port shop/b", "update " + slot(4) + " of Port shop/d"}},
		{"one of them goes", "b", []intent.Port{podAt("a", 2), podAt("b", 3)}, nil},
		{"one that the policy is for comes", "be", []intent.Port{podAt("a", 2), podAt("b", 3), podAt("e", 4)}, nil},
		{"it is for it no longer", "b", []intent.Port{podAt("a", 2), podAt("b", 3), podAt("e", 4)}, []string{"update " + slot(4) + " of Port shop/e"}},
		{"one that it is for comes at a place of one that it is not for", "bf", []intent.Port{podAt("a", 2), podAt("b", 3), podAt("f", 4)},
			[]string{"create " + slot(4) + " of Port shop/f", "delete " + slot(4) + " of Port shop/f"}},
		{"all go, and the policy", "", nil, append(spare("delete", 3, 4), spare("create", 3, 4)...)},
	} {
		slices.Sort(step.want)
		if diff := cmp.Diff(step.want, n.bring(spareWorld(step.closed, step.pods...))); diff != "" {
			t.Errorf("%s: calls (-want +got):\n%s", step.what, diff)
		}
	}
}

// All pods of a node that go at once and come again take no call, as long as they are not more than
// kubelet lets a node have.
func TestCrowdComesAgain(t *testing.T) {
	n := neutron{t, resource.NewInventory(), map[string]bool{}}
	var crowd []intent.Port
	for i := range reserved.NeutronKept {
		crowd = append(crowd, podAt(fmt.Sprint("web-", i), i+2))
	}
	n.bring(spareWorld("", crowd...))
	for i, pods := range [][]intent.Port{nil, crowd, crowd[60:], crowd[:60], nil, crowd} {
		if calls := n.bring(spareWorld("", pods...)); len(calls) > 0 {
			t.Errorf("step %d: calls %v", i, calls)
		}
	}
}

// A pod with addresses of no slot, or with a MAC of its own, has a port of its own, and none is
// made of what it has.
func TestPodsBesideSparePorts(t *testing.T) {
	apart, other := podAt("apart", 3), podAt("other", 5)
	apart.Addresses[1] = netip.MustParseAddr("fd00:10:244:1::6")
	other.MAC = intent.MAC{2, 0, 0, 0, 0, 5}
	set := Compile(spareWorld("", apart, other), Options{Spare: 4})
	var got []string
	for _, p := range set.All(resource.Port) {
		if !p.Optional {
			got = append(got, p.Key+" of "+p.Object)
		}
	}
	want := []string{
		"Node/n1 of Node n1", "Node/n1 10.244.1.2 fd00:10:244:1::2 of Node n1", "Node/n1 10.244.1.3 fd00:10:244:1::6 of Port shop/apart",
		"Node/n1 10.244.1.4 fd00:10:244:1::4 of Node n1", "Node/n1 10.244.1.7 fd00:10:244:1::7 of Node n1",
		"Node/n1 10.244.1.8 fd00:10:244:1::8 of Node n1", "Node/n1 10.244.1.9 fd00:10:244:1::9 of Node n1",
		"Node/n1 10.244.1.10 fd00:10:244:1::a of Node n1", "Node/n1 10.244.1.11 fd00:10:244:1::b of Node n1",
		"Port/shop/other of Port shop/other",
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
}

// tenants has the Networks red and blue with one subnet of each family, of which nodes have blocks,
// written as network, prefix and node, and these Ports.
func tenants(blocks []string, ports ...intent.Port) intent.Objects {
	o := intent.Objects{
		Routers: []intent.Router{{Name: "default", ID: 1}},
		Nodes:   []intent.Node{intenttest.Node("n1", 1), intenttest.Node("n2", 2)}, Ports: ports,
	}
	for i, name := range []string{"red", "blue"} {
		n := intent.Network{Name: name, ID: intent.NetworkID(10 + i), Router: name}
		for _, text := range []string{"10.9.0.0/24", "fd09::/64"} {
			prefix := netip.MustParsePrefix(text)
			n.Subnets = append(n.Subnets, intent.NetworkSubnet{Prefix: prefix, Gateway: prefix.Addr().Next()})
			n.Pools = append(n.Pools, intent.Pool{Subnet: prefix, BlockBits: prefix.Addr().BitLen() - 4})
		}
		o.Networks = append(o.Networks, n)
		o.Routers = append(o.Routers, intent.Router{Name: name, ID: intent.RouterID(10 + i)})
	}
	for _, text := range blocks {
		f := strings.Fields(text)
		o.Blocks = append(o.Blocks, intent.Block{Network: f[0], Prefix: netip.MustParsePrefix(f[1]), Node: f[2]})
	}
	return o
}

// podOf is a pod of n1 on a Network, with the addresses of a slot.
func podOf(network, name string, v4, v6 string) intent.Port {
	p := intenttest.Port("shop", name, network, "n1", v4, v6)
	p.ObjectUID = "uid of " + name
	return p
}

// A node with blocks of a Network has ports ready there, in each Network by itself. Pods take them
// and leave them without a call, and without blocks they go.
func TestSparePortsOfBlocks(t *testing.T) {
	n := neutron{t, resource.NewInventory(), map[string]bool{}}
	both := []string{"red 10.9.0.16/28 n1", "red fd09::20/124 n1"}
	slot := func(network string, v4, v6 int) string {
		return fmt.Sprintf("Node/n1 in %s 10.9.0.%d fd09::%x", network, v4, v6)
	}
	spare := func(operation, network, of string) (calls []string) {
		for i := 17; i < 20; i++ {
			calls = append(calls, operation+" "+slot(network, i, 16+i)+" of "+of)
		}
		return calls
	}
	n.bring(intenttest.State(tenants(nil)))
	for _, step := range []struct {
		what   string
		blocks []string
		pods   []intent.Port
		want   []string
	}{
		{"a block of one family", both[:1], nil, nil},
		{"of both, with the first pod", both, []intent.Port{podOf("red", "a", "10.9.0.16", "fd09::20")},
			append(spare("create", "red", "Node n1"), "create "+slot("red", 16, 32)+" of Port shop/a")},
		{"one more", both, []intent.Port{podOf("red", "a", "10.9.0.16", "fd09::20"), podOf("red", "b", "10.9.0.17", "fd09::21")}, nil},
		{"all go", both, nil, nil},
		{"the same addresses on another Network", append(both, "blue 10.9.0.16/28 n1", "blue fd09::20/124 n1"),
			[]intent.Port{podOf("blue", "c", "10.9.0.16", "fd09::20")},
			append(spare("create", "blue", "Node n1"), "create "+slot("blue", 16, 32)+" of Port shop/c")},
		{"its blocks go", both, nil, append(spare("delete", "blue", ""), "delete "+slot("blue", 16, 32)+" of ")},
		{"an address that a machine on another node has", both, []intent.Port{func() intent.Port {
			p := podOf("red", "vm", "10.9.0.18", "fd09::a")
			p.Node, p.MAC = "n2", intent.MAC{2, 0, 0, 0, 0, 5}
			return p
		}()}, []string{"create Port/shop/vm of Port shop/vm", "delete " + slot("red", 18, 34) + " of "}},
	} {
		calls := n.bring(intenttest.State(tenants(step.blocks, step.pods...)))
		slices.Sort(step.want)
		if diff := cmp.Diff(step.want, calls); diff != "" {
			t.Errorf("%s: calls (-want +got):\n%s", step.what, diff)
		}
	}
}

// A machine has one port, on whichever node it is plugged, and before it is: its interface names
// it.
func TestPortOfMachine(t *testing.T) {
	n := neutron{t, resource.NewInventory(), map[string]bool{}}
	blocks := []string{"red 10.9.0.16/28 n1", "red fd09::20/124 n1"}
	at := func(node string) *intent.State {
		p := podOf("red", "vm", "10.9.0.200", "fd09::c8") // with the MAC that a pod would have
		p.Node, p.Interface, p.UID = node, "", ""
		return intenttest.State(tenants(blocks, p))
	}
	ref := PortRef("shop/vm")
	n.bring(at(""))
	made, _ := n.have.Get(ref)
	for _, node := range []string{"", "n1", "n2", ""} {
		want := []string{"update " + ref.Key + " of Port shop/vm"}
		if now, _ := n.have.Get(ref); now.Attributes["binding:host_id"] == node {
			want = nil
		}
		if diff := cmp.Diff(want, n.bring(at(node))); diff != "" {
			t.Errorf("at %q: calls (-want +got):\n%s", node, diff)
		}
		now, there := n.have.Get(ref)
		if !there || now.ID != made.ID || now.Attributes["binding:host_id"] != node || now.Attributes["device_id"] != "" {
			t.Errorf("at %q the port is %+v", node, now)
		}
	}
}

// Where the controller gives addresses away, no port is ready, nor where Kuryr has ports.
func TestNoSparePorts(t *testing.T) {
	blocks := []string{"red 10.9.0.16/28 n1", "red fd09::20/124 n1"}
	ready := map[string]int{"positive control": 2, "of OpenStack": 2}
	for name, change := range map[string]func(n *intent.Network){
		"positive control":     func(*intent.Network) {},
		"of OpenStack":         func(n *intent.Network) { n.NeutronNetwork = "office" },
		"external":             func(n *intent.Network) { n.External, n.Physical = true, "office" },
		"from Kuryr":           func(n *intent.Network) { n.Kuryr = "shop" },
		"not decided where":    func(n *intent.Network) { n.Undecided = true },
		"leased":               func(n *intent.Network) { n.Leased, n.Physical = true, "office" },
		"without its Router":   func(n *intent.Network) { n.Router = "gone" },
		"without a used block": func(n *intent.Network) { n.Name = "green" },
	} {
		t.Run(name, func(t *testing.T) {
			o := tenants(blocks)
			change(&o.Networks[0])
			got := 0
			for _, r := range Compile(intenttest.State(o), Options{Spare: 4}).All(resource.Port) {
				if r.Spare && !r.Optional {
					got++
				}
			}
			if got != ready[name] {
				t.Errorf("%d ports are ready, want %d", got, ready[name])
			}
		})
	}
}
