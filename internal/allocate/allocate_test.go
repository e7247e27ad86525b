// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/translate"
	"coelan.io/coelan/internal/translate/translatetest"
	"coelan.io/coelan/internal/vrf"
)

func allocate(w *world) Allocation {
	return Allocate(Cluster{Networks: w.networks, Routers: w.routers, Nodes: w.nodes}, Numbers{VNIs: DefaultVNIs})
}

func TestAllocateGolden(t *testing.T) {
	translatetest.Golden(t, "testdata/allocate/*.txtar", "objects.yaml", "result", parseWorld, func(w *world) string {
		shown := showAllocation(allocate(w))
		w.copy().settle(t)
		return shown
	})
}

func showAllocation(a Allocation) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ROUTER\tID\tVNI\tREASON\tRD\tNETWORKS")
	for _, name := range slices.Sorted(maps.Keys(a.Routers)) {
		v := a.Routers[name]
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\t%s\n", name, v.ID, v.VNI, v.Reason, dash(v.RouteDistinguisher), dash(strings.Join(v.Networks, " ")))
	}
	fmt.Fprintln(w, "NETWORK\tID\tVNI\tREASON\tROUTER\tSUBNETS")
	for _, name := range slices.Sorted(maps.Keys(a.Networks)) {
		v := a.Networks[name]
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\t%s\n", name, v.ID, v.VNI, v.Reason, dash(v.Router), dash(strings.Join(v.Subnets, " ")))
	}
	w.Flush()
	for _, name := range slices.Sorted(maps.Keys(a.Routers)) {
		if v := a.Routers[name]; v.Message != "" {
			fmt.Fprintf(&b, "router %s: %s\n", name, v.Message)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(a.Networks)) {
		if v := a.Networks[name]; v.Message != "" {
			fmt.Fprintf(&b, "network %s: %s\n", name, v.Message)
		}
	}
	return b.String()
}

func dash(s string) string { return cmp.Or(s, "-") }

// copy has Networks and Routers of its own.
func (w *world) copy() *world {
	c := &world{nodes: w.nodes}
	for _, n := range w.networks {
		c.networks = append(c.networks, n.DeepCopy())
	}
	for _, r := range w.routers {
		c.routers = append(c.routers, r.DeepCopy())
	}
	return c
}

// apply writes an allocation into the objects, as the controller does.
func (w *world) apply(a Allocation) {
	for _, n := range w.networks {
		if v, ok := a.Networks[n.Name]; ok {
			n.Status.ID, n.Status.VNI, n.Status.Router = v.ID, v.VNI, v.Router
		}
	}
	for _, r := range w.routers {
		if v, ok := a.Routers[r.Name]; ok {
			r.Status.ID, r.Status.VNI = v.ID, v.VNI
		}
	}
}

// settle writes what comes out and asks again until nothing changes any more: what one object loses
// is free for others from the next time on, and what those get may be a reason for another one.
func (w *world) settle(t rapid.TB) {
	t.Helper()
	const rounds = 10
	before := ""
	for range rounds {
		a := allocate(w)
		if now := showAllocation(a); now == before {
			return
		}
		before = showAllocation(a)
		w.apply(a)
	}
	t.Fatalf("does not settle; the last:\n%s", before)
}

// arbitrary makes a cluster in which everything is likely to collide.
func arbitrary(t *rapid.T) *world {
	w := &world{}
	age := rapid.IntRange(0, 3)
	number := rapid.SampledFrom([]int32{0, 0, 0, 1, 2, 3, 70000, 70001})
	target := rapid.SliceOfN(rapid.SampledFrom([]string{"64512:1", "64512:2", "64512:3", "64512:4"}), 0, 3)
	cidr := rapid.SampledFrom([]string{"10.0.0.0/8", "10.1.0.0/16", "10.1.1.0/24", "10.2.0.0/16", "192.168.0.0/16", "fd00::/48", "fd00:0:0:1::/64"})
	meta := func(name string) metav1.ObjectMeta {
		at := time.Unix(int64(age.Draw(t, "age")), 0)
		return metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(at)}
	}
	for i := range rapid.IntRange(0, 5).Draw(t, "routers") {
		w.routers = append(w.routers, &v1alpha1.Router{
			ObjectMeta: meta(fmt.Sprintf("r%d", i)),
			Spec:       v1alpha1.RouterSpec{ImportRouteTargets: target.Draw(t, "imports"), ExportRouteTargets: target.Draw(t, "exports")},
			Status:     v1alpha1.RouterStatus{ID: number.Draw(t, "id"), VNI: number.Draw(t, "vni")},
		})
	}
	for i := range rapid.IntRange(0, 8).Draw(t, "networks") {
		n := &v1alpha1.Network{
			ObjectMeta: meta(fmt.Sprintf("n%d", i)),
			Spec: v1alpha1.NetworkSpec{
				Type: v1alpha1.Overlay, Router: fmt.Sprintf("r%d", rapid.IntRange(0, 5).Draw(t, "router")),
				Subnets: []v1alpha1.Subnet{{CIDR: cidr.Draw(t, "subnet")}},
			},
			Status: v1alpha1.NetworkStatus{ID: number.Draw(t, "id"), VNI: number.Draw(t, "vni")},
		}
		if vni := number.Draw(t, "asked"); vni > 1 {
			n.Spec.VNI = &vni
		}
		w.networks = append(w.networks, n)
	}
	for i := range rapid.IntRange(0, 2).Draw(t, "nodes") {
		w.nodes = append(w.nodes, &corev1.Node{
			ObjectMeta: meta(fmt.Sprintf("node%d", i)),
			Spec:       corev1.NodeSpec{PodCIDRs: []string{cidr.Draw(t, "podCIDR")}},
		})
	}
	return w
}

// Whatever there is: numbers are unique, no two subnets meet, what has effect keeps its number, the
// order of the objects does not matter, and it settles.
func TestAllocateInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := arbitrary(t)
		first := allocate(w)
		w.Shuffle()
		if a, b := showAllocation(first), showAllocation(allocate(w)); a != b {
			t.Fatalf("one order:\n%s\nanother:\n%s", a, b)
		}
		checkUnique(t, first)
		checkDisjoint(t, w, first)
		w.apply(first)
		second := allocate(w)
		for name, v := range first.Networks {
			if now := second.Networks[name]; v.ID != 0 && (now.ID != v.ID || now.VNI != v.VNI) {
				t.Fatalf("network %s had %d/%d and has %d/%d", name, v.ID, v.VNI, now.ID, now.VNI)
			}
		}
		w.settle(t)
	})
}

func checkUnique(t *rapid.T, a Allocation) {
	ids, routers, vnis := map[int32]string{}, map[int32]string{}, map[int32]string{1: "default"}
	enterOnce := func(book map[int32]string, number int32, who string) {
		if other, taken := book[number]; taken && number != 0 {
			t.Fatalf("%s and %s both have %d", other, who, number)
		}
		book[number] = who
	}
	for name, v := range a.Networks {
		enterOnce(ids, v.ID, "network "+name)
		enterOnce(vnis, v.VNI, "network "+name)
		if v.Ready() != (v.ID != 0) || v.Ready() != (v.VNI != 0) {
			t.Fatalf("network %s: %+v", name, v)
		}
	}
	for name, v := range a.Routers {
		enterOnce(routers, v.ID, "router "+name)
		enterOnce(vnis, v.VNI, "router "+name)
	}
}

// checkDisjoint is the rule in its plainest form: in no Router's routes are there two that overlap.
func checkDisjoint(t *rapid.T, w *world, a Allocation) {
	shared := func(r *v1alpha1.Router) bool { return vrf.Shares(r) }
	sees := func(r, o *v1alpha1.Router) bool {
		if r == o || shared(r) && shared(o) {
			return true
		}
		for _, target := range r.Spec.ImportRouteTargets {
			if target != v1alpha1.DefaultRouteTarget && slices.Contains(o.Spec.ExportRouteTargets, target) {
				return true
			}
		}
		return false
	}
	for _, r := range w.routers {
		var routes []*v1alpha1.Network
		for _, o := range w.routers {
			for _, n := range w.networks {
				if sees(r, o) && n.Spec.Router == o.Name && a.Networks[n.Name].Ready() {
					routes = append(routes, n)
				}
			}
		}
		for i, n := range routes {
			for _, o := range routes[i+1:] {
				p, _ := translate.Pools(n)
				q, _ := translate.Pools(o)
				if p[0].Prefix.Overlaps(q[0].Prefix) {
					t.Fatalf("router %s has routes to %s of %s and %s of %s", r.Name, p[0].Prefix, n.Name, q[0].Prefix, o.Name)
				}
			}
		}
	}
}

// A number that was given back is not the next to be given out.
func TestNumbersRest(t *testing.T) {
	network := func(name string) *v1alpha1.Network {
		return &v1alpha1.Network{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       v1alpha1.NetworkSpec{Type: v1alpha1.VLAN, PhysicalNetwork: "p", VLAN: vlan(name)},
		}
	}
	first := Allocate(Cluster{Networks: []*v1alpha1.Network{network("1"), network("2")}}, Numbers{VNIs: DefaultVNIs})
	second := Allocate(Cluster{Networks: []*v1alpha1.Network{network("3")}}, first.Next)
	if got := second.Networks["3"].ID; got != 4 {
		t.Errorf("after 2 and 3 were given out and given back, the next is %d, want 4", got)
	}
}

func vlan(name string) *int32 {
	v := int32(name[0])
	return &v
}

func TestFreeGoesRound(t *testing.T) {
	taken := map[int32]bool{5: true, 2: true}
	has := func(n int32) bool { return taken[n] }
	for _, c := range []struct{ after, want int32 }{{0, 3}, {1, 3}, {2, 3}, {3, 4}, {4, 3}, {5, 3}, {100, 3}} {
		if got, ok := free(c.after, Range{2, 5}, has); !ok || got != c.want {
			t.Errorf("free(%d) = %d, %v, want %d", c.after, got, ok, c.want)
		}
	}
	taken[3], taken[4] = true, true
	if got, ok := free(3, Range{2, 5}, has); ok {
		t.Errorf("free of all taken = %d", got)
	}
}
