// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/intenttest"
)

// onMachine has n1 be a machine of OpenStack that is plugged by a port.
func onMachine(port string, s *intent.State) *intent.State {
	o := intent.Objects{Local: s.Local()}
	for n := range s.Nodes().All() {
		n.TrunkPort = port
		o.Nodes = append(o.Nodes, n)
	}
	o.Routers, o.Networks = slices.Collect(s.Routers().All()), slices.Collect(s.Networks().All())
	o.Ports, o.Subjects = slices.Collect(s.Ports().All()), slices.Collect(s.Subjects().All())
	return intenttest.State(o)
}

// Ports of a node that is a machine of OpenStack, its own and those that are ready too, are on its
// trunk, take no call when a pod comes or goes, and leave the trunk before they are deleted, or
// become those of a node that is none.
func TestTrunk(t *testing.T) {
	n := neutron{t, resource.NewInventory(), map[string]bool{}}
	n.have.SetTrunk("n1", resource.Trunk{ID: "t"})
	slot := func(operation string, slots ...string) (calls []string) {
		for _, s := range slots {
			calls = append(calls, operation+" Node/n1 10.244.1."+s+" fd00:10:244:1::"+s+" of Node n1")
		}
		return calls
	}
	ready := []string{"2", "3", "4", "5", "6", "7"}
	own := func(operation string) string { return operation + " Node/n1 of Node n1" }
	for _, step := range []struct {
		what, port, closed string
		pods               []intent.Port
		want               []string
	}{
		{"at first", "u1", "", nil,
			slices.Concat([]string{own("create"), own("join")}, slot("create", ready...), slot("join", ready...))},
		{"a pod", "u1", "", []intent.Port{podAt("a", 2)}, nil},
		{"it goes", "u1", "", nil, nil},
		{"one under a policy", "u1", "b", []intent.Port{podAt("b", 2)}, []string{
			"leave Node/n1 10.244.1.2 fd00:10:244:1::2 of ", "delete Node/n1 10.244.1.2 fd00:10:244:1::2 of Port shop/b",
			"create Node/n1 10.244.1.2 fd00:10:244:1::2 of Port shop/b", "join Node/n1 10.244.1.2 fd00:10:244:1::2 of Port shop/b",
		}},
		{"no machine any more", "", "b", []intent.Port{podAt("b", 2)}, slices.Concat(
			[]string{"leave Node/n1 of ", own("update"), "update Node/n1 10.244.1.2 fd00:10:244:1::2 of Port shop/b"},
			cut(slot("leave", ready...)), slot("update", ready[1:]...))},
	} {
		got := n.bring(onMachine(step.port, spareWorld(step.closed, step.pods...)))
		slices.Sort(step.want)
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%s: %s", step.what, diff)
		}
	}
}

// cut are calls without their objects.
func cut(calls []string) []string {
	for i, c := range calls {
		calls[i] = strings.TrimSuffix(c, "Node n1")
	}
	return calls
}

// Neutron puts no port on a trunk that is of a device, and says itself where it is bound.
func TestTrunkAttributes(t *testing.T) {
	set := Compile(onMachine("u1", spareWorld("", podAt("a", 2))), Options{
		Spare: 4, Trunks: map[string]resource.Trunk{"n1": {Reason: "TrunkNotFound", Why: "there is none"}},
	})
	ports := set.All(resource.Port)
	if len(ports) < 4 {
		t.Errorf("%d ports are wanted without a trunk", len(ports))
	}
	for _, p := range ports {
		_, bound := p.Mutable["binding:host_id"]
		_, owned := p.Mutable["device_owner"]
		if p.Trunk != "n1" || p.Mutable["device_id"] != "" || bound || owned || p.Initial["device_owner"] != resource.DeviceOwner {
			t.Errorf("port %+v", p)
		}
	}
	want := resource.Problem{Object: "Node n1", Reason: "TrunkNotFound", Message: "there is none"}
	if !slices.Contains(set.Problems, want) {
		t.Errorf("problems %+v", set.Problems)
	}
	if joins := resource.Plan(set, resource.NewInventory()); slices.ContainsFunc(joins, func(c resource.Call) bool {
		return c.Operation == resource.Join
	}) {
		t.Error("ports are put on a trunk that there is none of")
	}
}

// A port that a container runtime names is on the trunk as well. When it is to be of no device, the
// plan says.
func TestNamedPortOnTrunk(t *testing.T) {
	named := podAt("named", 3)
	named.NeutronPort = "u2"
	set := Compile(onMachine("u1", spareWorld("", named)), Options{Spare: 4})
	p, wanted := set.Get(BorrowedRef("shop/named", "u2"))
	_, bound := p.Mutable["binding:host_id"]
	_, owned := p.Mutable["device_owner"]
	_, device := p.Mutable["device_id"]
	if !wanted || p.Trunk != "n1" || !p.Optional || bound || owned || device || len(set.Problems) > 0 {
		t.Errorf("wanted: %v, %+v, problems %v", wanted, p, set.Problems)
	}
}
