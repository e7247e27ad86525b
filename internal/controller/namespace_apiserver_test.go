// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controller_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/allocate"
	"coelan.io/coelan/internal/apitest"
	"coelan.io/coelan/internal/controller"
)

// testTC1AndTC4 are the test cases 1, create a pod in a namespace on a node, and 4, delete it, of
// the COE integration: what exists after each step.
func testTC1AndTC4(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	w.start(byNamespaceMapping)
	w.node(1)
	w.node(2)
	w.namespace("shop", nil)
	w.objects("", "")

	first := w.pod("shop", "web-0", "")
	w.objects("", "") // no node yet
	if err := w.client.SubResource("binding").Create(t.Context(), first, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "worker1"}}); err != nil {
		t.Fatal(err)
	}
	w.objects("ns-shop", "ns-shop-worker1")
	network := w.ready("ns-shop-worker1")
	if got := network.Annotations; got[v1alpha1.AnnotationELAN] != "192.168.33.11:shop" || got[v1alpha1.AnnotationVPN] != "shop" {
		t.Errorf("elan-instance and vpn-instance: %v", got)
	}
	if network.Status.Router != "ns-shop" || network.Spec.Node != "worker1" || network.Status.VNI < 70000 {
		t.Errorf("network: %+v %+v", network.Spec, network.Status)
	}
	w.get(first)
	w.podPort(first, "ns-shop-worker1", "10.244.1.2")

	second := w.pod("shop", "web-1", "worker1")
	w.objects("ns-shop", "ns-shop-worker1")
	third := w.pod("shop", "web-2", "worker2")
	w.objects("ns-shop", "ns-shop-worker1 ns-shop-worker2")
	if again := w.ready("ns-shop-worker1"); again.Status.ID != network.Status.ID || again.Status.VNI != network.Status.VNI {
		t.Errorf("numbers changed: %+v, were %+v", again.Status, network.Status)
	}
	w.ready("ns-shop-worker2")
	r := &v1alpha1.Router{ObjectMeta: metav1.ObjectMeta{Name: "ns-shop"}}
	w.until(func() string {
		if w.get(r); !slices.Equal(r.Status.Networks, []string{"ns-shop-worker1", "ns-shop-worker2"}) || r.Status.ID == 0 {
			return fmt.Sprintf("router: %+v", r.Status)
		}
		return ""
	})

	w.delete(third)
	w.objects("ns-shop", "ns-shop-worker1")
	w.delete(second)
	w.objects("ns-shop", "ns-shop-worker1")
	w.delete(first) // by force: its agent is away, so its Port is left
	w.objects("", "")
	if left := w.names(&v1alpha1.PortList{}); left != "" {
		t.Errorf("Ports left: %s", left)
	}
}

// testLastPod ends the last pod of a namespace on every way there is.
func testLastPod(t *testing.T, api *apitest.API) {
	for i, way := range []struct {
		name string
		end  func(*world, *corev1.Node, *corev1.Pod)
	}{
		{"it has succeeded", func(w *world, _ *corev1.Node, p *corev1.Pod) {
			w.status(p, func() { p.Status.Phase = corev1.PodSucceeded })
		}},
		{"it has failed", func(w *world, _ *corev1.Node, p *corev1.Pod) {
			w.status(p, func() { p.Status.Phase = corev1.PodFailed })
		}},
		{"its node is gone", func(w *world, n *corev1.Node, _ *corev1.Pod) { w.delete(n) }},
		{"it was deleted", func(w *world, _ *corev1.Node, p *corev1.Pod) { w.delete(p) }},
	} {
		t.Run(way.name, func(t *testing.T) {
			w := newWorld(t, api)
			w.start(byNamespaceMapping)
			name := fmt.Sprintf("last-%d", i)
			w.namespace(name, nil)
			node := w.node(1)
			pod := w.pod(name, "p", "worker1")
			w.until(func() string { return want(w.names(&v1alpha1.NetworkList{}) != "", "no Network yet") })
			network := w.names(&v1alpha1.NetworkList{})
			w.podPort(pod, network, "10.244.1.2")
			w.ready(network)
			way.end(w, node, pod)
			w.objects("", "")
		})
	}
}

func want(ok bool, text string) string {
	if ok {
		return ""
	}
	return text
}

// testLeftovers are of pods that went while no controller ran, and of another mapping.
func testLeftovers(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	stop := w.start(byNamespaceMapping)
	w.node(1)
	w.node(2)
	w.namespace("away", nil)
	w.namespace("stays", nil)
	gone := w.pod("away", "p", "worker1")
	w.pod("stays", "p", "worker2")
	w.objects("ns-away ns-stays", "ns-away-worker1 ns-stays-worker2")
	before := w.ready("ns-stays-worker2")
	w.podPort(gone, "ns-away-worker1", "10.244.1.2")
	stop()
	w.delete(gone)

	stop = w.start(byNamespaceMapping)
	w.objects("ns-stays", "ns-stays-worker2")
	if now := w.ready("ns-stays-worker2"); now.Status.ID != before.Status.ID || now.UID != before.UID {
		t.Errorf("the Network that is used was changed: %+v, was %+v", now, before)
	}
	stop()

	w.start(nil)
	w.objects("", "")
}

// testComeAndGo is a pod that goes and one that comes, again and again: with any Ports left, the
// next one has its Network, which is not one that is being deleted.
func testComeAndGo(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	w.start(byNamespaceMapping)
	w.node(1)
	w.node(2)
	w.namespace("busy", nil)
	pod := w.pod("busy", "p0", "worker1")
	w.ready("ns-busy-worker1")
	for i := range 10 {
		w.podPort(pod, "ns-busy-worker1", "10.244.1.2")
		w.delete(pod)
		time.Sleep(time.Duration(i) * 4 * time.Millisecond) // somewhere in what the controller does
		pod = w.pod("busy", fmt.Sprintf("p%d", i+1), "worker1")
		w.settles(func() string {
			n := &v1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Name: "ns-busy-worker1"}}
			r := &v1alpha1.Router{ObjectMeta: metav1.ObjectMeta{Name: "ns-busy"}}
			there := w.get(n) && w.get(r)
			return want(there && n.Status.ID != 0 && n.DeletionTimestamp == nil && r.DeletionTimestamp == nil, fmt.Sprintf("%+v %+v", n, r))
		})
	}
	elsewhere := w.pod("busy", "elsewhere", "worker2")
	w.ready("ns-busy-worker2")
	w.delete(elsewhere)

	// A user's Network in the Router of a namespace keeps it.
	guest := overlay("guest", "ns-busy", "10.61.0.0/16")
	w.create(guest)
	w.ready("guest")
	w.delete(pod)
	w.objects("ns-busy", "guest")
	w.ready("guest")
	w.pod("busy", "again", "worker1")
	w.ready("ns-busy-worker1")
	w.delete(guest)
	w.objects("ns-busy", "ns-busy-worker1")
}

// testMadeAgain is a Network that is deleted and made again at once, with the Router that
// it has for itself.
func testMadeAgain(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	w.start(nil)
	for range 10 {
		n := overlay("again", "", "10.62.0.0/16")
		w.create(n)
		w.delete(w.ready("again"))
		w.until(func() string { return want(!w.get(n), "still there") })
	}
	w.create(overlay("again", "", "10.62.0.0/16"))
	w.ready("again")
	w.objects("again", "again")
}

// testIsolated is the label of a namespace, set and taken away.
func testIsolated(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	w.start(byNamespaceMapping)
	w.node(1)
	ns := w.namespace("tenant", map[string]string{v1alpha1.LabelIsolated: "true"})
	w.pod("tenant", "p", "worker1")
	w.objects("ns-tenant", "ns-tenant-worker1")
	r := &v1alpha1.Router{ObjectMeta: metav1.ObjectMeta{Name: "ns-tenant"}}
	shared := func() bool {
		w.get(r)
		return slices.Contains(r.Spec.ImportRouteTargets, v1alpha1.DefaultRouteTarget) && slices.Contains(r.Spec.ExportRouteTargets, v1alpha1.DefaultRouteTarget)
	}
	if shared() || len(r.Spec.ExportRouteTargets) != 1 {
		t.Errorf("an isolated namespace's router: %+v", r.Spec)
	}
	delete(ns.Labels, v1alpha1.LabelIsolated)
	if err := w.client.Update(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	w.until(func() string { return want(shared(), "not shared") })
	w.ready("ns-tenant-worker1")
}

// testSelected is a namespace with pods on a primary Network, and one for which the
// Network's name is taken.
func testSelected(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	w.start(byNamespaceMapping)
	w.node(1)
	w.namespace("blue", map[string]string{"tenant": "blue"})
	w.namespace("squat", nil)
	n := overlay("blue", "", "10.50.0.0/16")
	n.Spec.Role, n.Spec.NamespaceSelector = v1alpha1.Primary, &metav1.LabelSelector{MatchLabels: map[string]string{"tenant": "blue"}}
	w.create(n, overlay("ns-squat-worker1", "", "10.51.0.0/16"))
	w.ready("blue")
	w.pod("blue", "p", "worker1")
	w.pod("squat", "p", "worker1")
	w.event("Namespace", "squat", "NameTaken")
	w.objects("blue ns-squat ns-squat-worker1", "blue ns-squat-worker1")

	w.delete(n)
	w.objects("ns-blue ns-squat ns-squat-worker1", "ns-blue-worker1 ns-squat-worker1")
}

// testNamespaceDeletion is with Kubernetes' own controllers for that.
func testNamespaceDeletion(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	w.start(byNamespaceMapping)
	err := api.Run("kube-controller-manager", "--kubeconfig="+api.Kubeconfig, "--leader-elect=false", "--secure-port=0",
		"--controllers=namespace-controller,garbage-collector-controller")
	if err != nil {
		t.Fatal(err)
	}
	w.node(1)
	ns := w.namespace("doomed", nil)
	network := overlay("vms", "", "10.60.0.0/16")
	w.create(network)
	w.ready("vms")
	pod := w.pod("doomed", "p", "worker1")
	w.objects("ns-doomed vms", "ns-doomed-worker1 vms")
	w.podPort(pod, "ns-doomed-worker1", "10.244.1.2")
	w.create(userPort("doomed", "vm", "vms"))
	w.port("doomed", "vm", isReady)
	w.delete(network)
	w.until(func() string {
		w.get(network)
		return want(meta.IsStatusConditionTrue(network.Status.Conditions, v1alpha1.ConditionDeletionBlocked), "not blocked")
	})

	w.delete(ns)
	// Pods without a kubelet end by force.
	w.delete(pod)
	w.objects("", "")
	w.until(func() string { return want(!w.get(ns), "the namespace is still there") })
}

func pools(texts ...string) func(*controller.Options) {
	return func(o *controller.Options) {
		byNamespaceMapping(o)
		for _, text := range texts {
			pools, _ := allocate.ParseSubnetPools(text)
			o.NamespaceSubnets = append(o.NamespaceSubnets, pools...)
		}
	}
}

// subnetsOf are those of a Network that is ready.
func (w *world) subnetsOf(network string) string {
	w.Helper()
	return strings.Join(w.ready(network).Status.Subnets, " ")
}

// testNamespaceSubnets are Networks of namespaces with subnets of pools: the first pod makes one
// for all nodes, and the last takes it away; a restart changes nothing; and what has just been
// freed is given last.
func testNamespaceSubnets(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	stop := w.start(pools("10.128.0.0/22/24", "fd00:128::/48/64"))
	w.node(1)
	w.node(2)
	for _, name := range []string{"pool-a", "pool-b", "pool-c"} {
		w.namespace(name, nil)
	}
	w.create(overlay("taken", "", "10.128.1.0/25")) // a user's, in the pool
	w.ready("taken")
	first := w.pod("pool-a", "p", "worker1")
	if got := w.subnetsOf("ns-pool-a"); got != "10.128.0.0/24 fd00:128::/64" {
		t.Errorf("subnets %s", got)
	}
	second := w.pod("pool-a", "q", "worker2")
	other := w.pod("pool-b", "p", "worker2")
	if got := w.subnetsOf("ns-pool-b"); got != "10.128.2.0/24 fd00:128:0:1::/64" {
		t.Errorf("subnets %s", got)
	}
	w.objects("ns-pool-a ns-pool-b taken", "ns-pool-a ns-pool-b taken")
	n := w.ready("ns-pool-a")
	if n.Spec.Node != "" || n.Spec.Role != v1alpha1.Primary || n.Status.Router != "ns-pool-a" {
		t.Errorf("network %+v %+v", n.Spec, n.Status)
	}
	w.delete(first)
	stop()

	w.start(pools("10.128.0.0/22/24", "fd00:128::/48/64"))
	if now := w.ready("ns-pool-a"); now.UID != n.UID {
		t.Errorf("the Network was made anew: %+v, was %+v", now, n)
	}
	w.delete(other)
	w.objects("ns-pool-a taken", "ns-pool-a taken")
	third := w.pod("pool-c", "p", "worker1")
	// It is the first after a start.
	if got := w.subnetsOf("ns-pool-c"); got != "10.128.2.0/24 fd00:128:0:1::/64" {
		t.Errorf("subnets %s", got)
	}
	w.delete(third)
	w.objects("ns-pool-a taken", "ns-pool-a taken")
	w.pod("pool-b", "p", "worker1")
	if got := w.subnetsOf("ns-pool-b"); got != "10.128.3.0/24 fd00:128:0:2::/64" {
		t.Errorf("subnets %s", got)
	}
	w.delete(second)
	w.objects("ns-pool-b taken", "ns-pool-b taken")
}

// testNamespaceSubnetsUsedUp are more namespaces than subnets: one waits, and says why, until
// another one goes. A pool of a family that no node has is of no use.
func testNamespaceSubnetsUsedUp(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	stop := w.start(pools("10.128.0.0/23/24"))
	node := w.node(1)
	var all []*corev1.Pod
	for _, name := range []string{"many-a", "many-b", "many-c"} {
		w.namespace(name, nil)
		all = append(all, w.pod(name, "p", "worker1"))
		if name != "many-c" {
			w.ready("ns-" + name)
		}
	}
	w.event("Namespace", "many-c", "SubnetPoolUsedUp")
	w.objects("ns-many-a ns-many-b ns-many-c", "ns-many-a ns-many-b")
	w.delete(all[0])
	if got := w.subnetsOf("ns-many-c"); got != "10.128.0.0/24" {
		t.Errorf("subnets %s", got)
	}
	w.objects("ns-many-b ns-many-c", "ns-many-b ns-many-c")
	stop()

	for _, p := range all[1:] {
		w.delete(p)
	}
	w.delete(node)
	w.create(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "worker4"}, Spec: corev1.NodeSpec{PodCIDR: "10.244.4.0/24", PodCIDRs: []string{"10.244.4.0/24"}},
	})
	w.start(pools("10.128.0.0/23/24,fd00:128::/48/64"))
	w.namespace("many-d", nil)
	w.pod("many-d", "p", "worker4")
	w.event("Namespace", "many-d", "SubnetPoolUnsuitable")
	w.objects("ns-many-d", "")
}

// testNamespaceSubnetsOnAndOff is the setting in a cluster that runs: pods stay where they are, and
// the Networks that they are on stay with them.
func testNamespaceSubnetsOnAndOff(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	stop := w.start(byNamespaceMapping)
	w.node(1)
	w.namespace("turns", nil)
	old := w.pod("turns", "old", "worker1")
	w.podPort(old, w.ready("ns-turns-worker1").Name, "10.244.1.2")
	stop()

	stop = w.start(pools("10.128.0.0/14/24"))
	w.ready("ns-turns")
	former := &v1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Name: "ns-turns-worker1"}}
	w.until(func() string {
		return want(w.get(former) && former.DeletionTimestamp != nil, "it is not being deleted")
	})
	now := w.pod("turns", "new", "worker1")
	w.podPort(now, "ns-turns", "10.128.0.2")
	w.delete(old)
	w.objects("ns-turns", "ns-turns")

	// One that a user deletes stays with its pods, and the next ones have another.
	w.delete(w.ready("ns-turns"))
	w.until(func() string {
		list := &v1alpha1.NetworkList{}
		if err := w.client.List(t.Context(), list); err != nil {
			return err.Error()
		}
		return want(len(list.Items) == 2, "no second Network")
	})
	w.delete(now)
	w.objects("", "")
	w.pod("turns", "newer", "worker1")
	newer := w.ready("ns-turns")
	stop()

	w.start(byNamespaceMapping)
	w.ready("ns-turns-worker1")
	w.until(func() string { return want(!w.get(newer), "it is still there") })
	w.objects("ns-turns", "ns-turns-worker1")
}
