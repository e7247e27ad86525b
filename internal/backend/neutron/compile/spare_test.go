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
			calls = append(calls, []string{"create", "update", "delete"}[c.Operation]+" "+c.Ref.Key+" of "+c.Object)
		}
		id := func(r resource.Ref) (string, bool) { return "id of " + r.String(), true }
		attributes := resource.Resolve(c.Attributes, id).(map[string]any)
		a, there := n.have.Get(c.Ref)
		switch c.Operation {
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
		{"all go, and the policy", "", nil, spare("update", 3, 4)},
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
