// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controller_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/apitest"
	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/translate"
)

func pool(name string, addresses ...string) *v1alpha1.LoadBalancerPool {
	return &v1alpha1.LoadBalancerPool{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.LoadBalancerPoolSpec{Addresses: addresses},
	}
}

// balancer is a Service of type LoadBalancer; it needs no node ports, which are few.
func balancer(name string, families ...corev1.IPFamily) *corev1.Service {
	no := false
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Annotations: map[string]string{}},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}, AllocateLoadBalancerNodePorts: &no,
		},
	}
	if len(families) == 2 {
		policy := corev1.IPFamilyPolicyRequireDualStack
		svc.Spec.IPFamilyPolicy, svc.Spec.IPFamilies = &policy, families
	}
	return svc
}

func wanting(svc *corev1.Service, annotation, value string) *corev1.Service {
	svc.Annotations[annotation] = value
	return svc
}

// has waits until a Service has exactly these addresses, and goes on to.
func (w *world) has(name string, addresses ...string) *corev1.Service {
	w.Helper()
	var svc *corev1.Service
	w.settles(func() string {
		if svc = balancer(name); !w.get(svc) {
			return "service " + name + " is not there"
		}
		var got []string
		for _, i := range svc.Status.LoadBalancer.Ingress {
			got = append(got, i.IP)
			if i.IPMode == nil || *i.IPMode != corev1.LoadBalancerIPModeVIP {
				return fmt.Sprintf("service %s: %+v", name, i)
			}
		}
		return want(slices.Equal(got, addresses), fmt.Sprintf("service %s has %v, want %v", name, got, addresses))
	})
	return svc
}

// pool waits until a LoadBalancerPool is as check wants it.
func (w *world) pool(name string, check func(*v1alpha1.LoadBalancerPool) bool) *v1alpha1.LoadBalancerPool {
	w.Helper()
	var p *v1alpha1.LoadBalancerPool
	w.until(func() string {
		p = pool(name)
		return want(w.get(p) && check(p), fmt.Sprintf("pool %s: %+v", name, p.Status))
	})
	return p
}

// uses is a check for how many addresses there are and how many are in use.
func uses(assigned, addresses int64, ranges ...string) func(*v1alpha1.LoadBalancerPool) bool {
	return func(p *v1alpha1.LoadBalancerPool) bool {
		return p.Status.Assigned == assigned && p.Status.Addresses == addresses && slices.Equal(p.Status.Ranges, ranges)
	}
}

// poolBlocked waits until a LoadBalancerPool that is being deleted names its users.
func (w *world) poolBlocked(name, users string) {
	w.Helper()
	w.pool(name, func(p *v1alpha1.LoadBalancerPool) bool {
		c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionDeletionBlocked)
		return c != nil && c.Reason == v1alpha1.ReasonInUse && strings.Contains(c.Message, "used by "+users+", and goes when they are gone")
	})
	w.event("LoadBalancerPool", name, v1alpha1.ReasonInUse)
}

// change patches an object that may have been changed since it was read.
func (w *world) change(o client.Object, set func()) {
	w.Helper()
	w.get(o)
	before := o.DeepCopyObject().(client.Object)
	set()
	if err := w.client.Patch(w.Context(), o, client.MergeFrom(before)); err != nil {
		w.Fatalf("change %s: %v", o.GetName(), err)
	}
}

// told counts the Warnings about a Service with a reason and a text, and their repetitions.
func (w *world) toldOf(name, reason, text string) (events, times int) {
	w.Helper()
	list := &corev1.EventList{}
	if err := w.client.List(w.Context(), list); err != nil {
		w.Fatal(err)
	}
	for _, e := range list.Items {
		if e.InvolvedObject.Kind == "Service" && e.InvolvedObject.Name == name && e.Reason == reason &&
			e.Type == corev1.EventTypeWarning && strings.Contains(e.Message, text) {
			events++
			times += int(max(e.Count, 1))
		}
	}
	return events, times
}

// testLoadBalancers is the life of addresses.
func testLoadBalancers(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	w.start(nil)
	w.create(balancer("before"))
	w.has("before")

	w.create(pool("outside", "192.0.2.8/30", "2001:db8::8-2001:db8::9"))
	w.has("before", "192.0.2.8")
	w.create(balancer("dual", corev1.IPv6Protocol, corev1.IPv4Protocol))
	dual := w.has("dual", "2001:db8::8", "192.0.2.9")
	p := w.pool("outside", uses(3, 6, "192.0.2.8/30", "2001:db8::8-2001:db8::9"))
	if !slices.Equal(p.Finalizers, []string{v1alpha1.FinalizerInUse}) || !meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionReady) {
		t.Errorf("pool: %+v", p)
	}
	w.create(wanting(balancer("asks"), v1alpha1.AnnotationLoadBalancerIPs, "192.0.2.11"))
	asks := w.has("asks", "192.0.2.11")
	field := balancer("field")
	field.Spec.LoadBalancerIP = "192.0.2.10"
	w.create(field)
	w.has("field", "192.0.2.10")

	// None is left: the next one waits, and gets what is given back.
	w.create(balancer("waits"))
	w.event("Service", "waits", v1alpha1.ReasonExhausted)
	w.has("waits")
	w.change(dual, func() {
		single := corev1.IPFamilyPolicySingleStack
		dual.Spec.IPFamilyPolicy = &single
		dual.Spec.IPFamilies, dual.Spec.ClusterIPs = dual.Spec.IPFamilies[:1], dual.Spec.ClusterIPs[:1]
	})
	w.has("dual", "2001:db8::8")
	w.has("waits", "192.0.2.9")
	w.delete(field)
	w.change(asks, func() { asks.Annotations[v1alpha1.AnnotationLoadBalancerIPs] = "192.0.2.10" })
	w.has("asks", "192.0.2.10")

	// Another type has none.
	w.change(asks, func() { asks.Spec.Type, asks.Spec.AllocateLoadBalancerNodePorts = corev1.ServiceTypeClusterIP, nil })
	w.has("asks")
	w.pool("outside", uses(3, 6, "192.0.2.8/30", "2001:db8::8-2001:db8::9"))
	w.change(asks, func() {
		no := false
		asks.Spec.Type, asks.Spec.AllocateLoadBalancerNodePorts = corev1.ServiceTypeLoadBalancer, &no
	})
	w.has("asks", "192.0.2.10")

	// What is taken out of the pool stays as long as it is used, and so does the pool.
	w.change(p, func() { p.Spec.Addresses = []string{"192.0.2.8/31"} })
	w.pool("outside", uses(4, 4, "192.0.2.8/31", "192.0.2.10", "2001:db8::8"))
	w.has("asks", "192.0.2.10")
	w.delete(p)
	w.poolBlocked("outside", "service default/asks, service default/before, service default/dual, service default/waits")
	w.pool("outside", uses(4, 4, "192.0.2.8", "192.0.2.9", "192.0.2.10", "2001:db8::8"))
	for _, name := range []string{"asks", "before", "dual"} {
		w.delete(balancer(name))
	}
	w.pool("outside", uses(1, 1, "192.0.2.9"))
	w.delete(balancer("waits"))
	w.until(func() string { return want(!w.get(pool("outside")), "the pool is still there") })
}

// testOthersLoadBalancers leaves alone what is not Coelan's.
func testOthersLoadBalancers(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	w.start(nil)
	cloud := balancer("cloud")
	w.create(cloud)
	vip := corev1.LoadBalancerIPModeVIP
	w.status(cloud, func() {
		cloud.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.7", IPMode: &vip}}
	})
	w.has("cloud", "203.0.113.7")
	class, others := v1alpha1.LoadBalancerClass, "example.org/lb"
	ours := balancer("ours")
	ours.Spec.LoadBalancerClass = &class
	w.create(ours)
	w.event("Service", "ours", v1alpha1.ReasonPoolNotFound)
	w.younger(ours)

	waits := pool("waits", "192.0.2.0/30")
	no := false
	waits.Spec.AutoAssign = &no
	w.create(waits, balancer("any"))
	w.create(wanting(balancer("names"), v1alpha1.AnnotationLoadBalancerPool, "waits"))
	w.has("names", "192.0.2.0")
	w.has("any")
	if events, _ := w.toldOf("cloud", v1alpha1.ReasonAddressOutside, ""); events > 0 {
		t.Error("a Service that nobody has asked about got an Event")
	}

	other := balancer("other")
	other.Spec.LoadBalancerClass = &others
	w.create(other, pool("auto", "192.0.2.4/30"))
	w.has("ours", "192.0.2.4")
	w.has("any", "192.0.2.5")
	w.has("other")
	w.has("cloud", "203.0.113.7")
	w.event("Service", "cloud", v1alpha1.ReasonAddressOutside)
	// It is removed from the status.
	w.get(cloud)
	w.status(cloud, func() { cloud.Status.LoadBalancer.Ingress = nil })
	w.has("cloud", "192.0.2.6")
}

// testPoolNamespaces has a pool that is for one namespace, and then for another.
func testPoolNamespaces(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	w.start(nil)
	edge := pool("edge", "192.0.2.0/30")
	edge.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"edge": "yes"}}
	w.create(edge, balancer("any"), wanting(balancer("names"), v1alpha1.AnnotationLoadBalancerPool, "edge"))
	w.create(wanting(balancer("address"), v1alpha1.AnnotationLoadBalancerIPs, "192.0.2.2"))
	for _, name := range []string{"any", "names", "address"} {
		w.event("Service", name, v1alpha1.ReasonNotAllowed)
		w.has(name)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	w.change(namespace, func() { metav1.SetMetaDataLabel(&namespace.ObjectMeta, "edge", "yes") })
	w.has("address", "192.0.2.2")
	w.pool("edge", uses(3, 4, "192.0.2.0/30"))

	w.change(namespace, func() { delete(namespace.Labels, "edge") })
	for _, name := range []string{"any", "names", "address"} {
		w.has(name)
	}
	w.until(func() string {
		events, _ := w.toldOf("address", v1alpha1.ReasonNotAllowed, "is withdrawn")
		return want(events == 1, fmt.Sprintf("%d Events say that the address is withdrawn", events))
	})
	w.pool("edge", uses(0, 4, "192.0.2.0/30"))
	w.change(edge, func() { edge.Spec.NamespaceSelector = nil })
	w.has("address", "192.0.2.2")
}

// younger waits until what is made is younger than an object: age is known to the second.
func (w *world) younger(o client.Object) {
	w.Helper()
	w.until(func() string {
		return want(time.Now().Unix() > o.GetCreationTimestamp().Unix(), "the clock stands still")
	})
}

// testBadPools are pools and Services that are refused, each with an Event.
func testBadPools(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	w.start(nil)
	w.node(1) // 192.168.33.11, 10.244.1.0/24
	for _, addresses := range []string{"192.0.2.1", "127.0.0.0/24", "169.254.1.1-169.254.1.9", "224.0.0.0/24", "10.0.0.0/8", "192.0.2.9-192.0.2.1"} {
		if err := w.client.Create(t.Context(), pool("bad", addresses)); err == nil || !strings.Contains(err.Error(), "spec.addresses[0]") {
			t.Errorf("pool of %s: %v", addresses, err)
		}
	}
	w.create(pool("good", "192.0.2.0/28", "192.168.33.0/28", "198.51.100.0/28"))
	w.pool("good", uses(0, 48, "192.0.2.0/28", "192.168.33.0/28", "198.51.100.0/28"))
	selector := pool("selector", "203.0.113.8/32")
	selector.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a b": "c"}}
	w.create(pool("overlaps", "192.0.2.15-192.0.2.16"), pool("backwards", "2001:db8::9-2001:db8::1"), pool("pods", "10.244.1.8/29"), selector)
	for name, reason := range map[string]string{
		"overlaps": v1alpha1.ReasonAddressesOverlap, "backwards": v1alpha1.ReasonInvalid, "pods": v1alpha1.ReasonAddressesOverlap,
		"selector": v1alpha1.ReasonInvalid,
	} {
		w.pool(name, func(p *v1alpha1.LoadBalancerPool) bool {
			c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady)
			return c != nil && c.Status == metav1.ConditionFalse && c.Reason == reason && c.Message != "" && uses(0, 0)(p)
		})
		w.event("LoadBalancerPool", name, reason)
	}

	external := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "external"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}, ExternalIPs: []string{"192.0.2.0", "192.0.2.1"}},
	}
	w.create(external)
	w.event("Service", "external", string(translate.NotAllowed))
	w.create(wanting(balancer("first"), v1alpha1.AnnotationLoadBalancerIPs, "192.0.2.5"))
	w.has("first", "192.0.2.5")
	for _, c := range []struct{ name, annotation, value, reason string }{
		{"no-address", v1alpha1.AnnotationLoadBalancerIPs, "web", v1alpha1.ReasonInvalidAnnotation},
		{"two", v1alpha1.AnnotationLoadBalancerIPs, "192.0.2.6,192.0.2.7", v1alpha1.ReasonInvalidAnnotation},
		{"family", v1alpha1.AnnotationLoadBalancerIPs, "2001:db8::1", v1alpha1.ReasonWrongFamily},
		{"outside", v1alpha1.AnnotationLoadBalancerIPs, "192.0.2.99", v1alpha1.ReasonAddressOutside},
		{"refused", v1alpha1.AnnotationLoadBalancerIPs, "192.0.2.16", v1alpha1.ReasonAddressOutside},
		{"taken", v1alpha1.AnnotationLoadBalancerIPs, "192.0.2.5", v1alpha1.ReasonAddressTaken},
		{"node-ip", v1alpha1.AnnotationLoadBalancerIPs, "192.168.33.11", v1alpha1.ReasonAddressTaken},
		{"no-pool", v1alpha1.AnnotationLoadBalancerPool, "nothing", v1alpha1.ReasonPoolNotFound},
		{"empty-pool", v1alpha1.AnnotationLoadBalancerPool, "", v1alpha1.ReasonInvalidAnnotation},
		{"refused-pool", v1alpha1.AnnotationLoadBalancerPool, "overlaps", v1alpha1.ReasonPoolNotReady},
	} {
		w.create(wanting(balancer(c.name), c.annotation, c.value))
		w.event("Service", c.name, c.reason)
		w.has(c.name)
	}
	w.create(balancer("any"))
	w.has("any", "192.0.2.0") // another Service's external IP does not reserve it

	// What was in the way is gone.
	w.delete(balancer("first"))
	w.has("taken", "192.0.2.5")
	w.delete(pool("good"))
	w.poolBlocked("good", "service default/any, service default/taken")
	w.has("refused", "192.0.2.16")
	w.has("refused-pool", "192.0.2.15")
}

// testToldOnce has leaders that change: no problem is reported twice, unless
// it was solved meanwhile.
func testToldOnce(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	stop := w.start(nil)
	external := func(name string, addresses ...string) *corev1.Service {
		svc := balancer(name)
		svc.Spec.Type, svc.Spec.AllocateLoadBalancerNodePorts, svc.Spec.ExternalIPs = corev1.ServiceTypeClusterIP, nil, addresses
		return svc
	}
	once := func(name, reason, text string, count int) {
		t.Helper()
		w.settles(func() string {
			_, times := w.toldOf(name, reason, text)
			return want(times == count, fmt.Sprintf("%s %q was told of service %s %d times, want %d", reason, text, name, times, count))
		})
	}
	old := external("old", "198.51.100.1")
	w.create(pool("outside", "192.0.2.0/31"), old)
	w.younger(old)
	w.create(external("young", "198.51.100.1"), external("wrong", "2001:db8::1"))
	bad := wanting(balancer("bad"), v1alpha1.AnnotationLoadBalancerIPs, "web")
	w.create(bad)
	check := func() {
		t.Helper()
		once("old", string(translate.Overlap), "", 0)
		once("young", string(translate.Overlap), "198.51.100.1", 1)
		once("wrong", string(translate.Malformed), "2001:db8::1", 1)
		once("bad", v1alpha1.ReasonInvalidAnnotation, "web", 1)
	}
	check()
	w.change(bad, func() { bad.Annotations["example.org/other"] = "1" })
	check()
	for i := range 2 {
		stop()
		stop = w.start(nil)
		mark := fmt.Sprintf("mark-%d", i)
		w.create(wanting(balancer(mark), v1alpha1.AnnotationLoadBalancerPool, mark))
		w.event("Service", mark, v1alpha1.ReasonPoolNotFound)
		check()
	}
	// Solved, and there again.
	w.change(bad, func() { bad.Annotations[v1alpha1.AnnotationLoadBalancerIPs] = "192.0.2.1" })
	w.has("bad", "192.0.2.1")
	w.change(bad, func() { bad.Annotations[v1alpha1.AnnotationLoadBalancerIPs] = "web" })
	once("bad", v1alpha1.ReasonInvalidAnnotation, "web", 2)
	w.has("bad", "192.0.2.1")
	w.delete(external("old"))
	w.create(external("old", "198.51.100.1"))
	once("old", string(translate.Overlap), "198.51.100.1", 1)
}

// testBalancerLeader kills the leader while addresses are handed out: the next one goes on, and no
// address is given twice.
func testBalancerLeader(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	first := w.spawn(api)
	holder := w.holder("")
	w.spawn(api)
	w.create(pool("outside", "10.99.0.0/22"))
	w.pool("outside", uses(0, 1024, "10.99.0.0/22"))
	const many = 600
	start := time.Now()
	w.many(many)
	first(syscall.SIGKILL)
	w.holder(holder)
	w.distinct(many, 30*time.Second)
	t.Logf("%d Services have addresses %v after the first was made, over a leader that was killed", many, time.Since(start).Round(time.Millisecond))
	w.pool("outside", uses(many, 1024, "10.99.0.0/22"))
}

// many makes Services, some at a time.
func (w *world) many(count int) {
	w.Helper()
	numbers := make([]int, count)
	for i := range numbers {
		numbers[i] = i
	}
	err := reconcile.Each(w.Context(), numbers, func(ctx context.Context, i int) error {
		return w.client.Create(ctx, balancer(fmt.Sprintf("many-%03d", i)))
	})
	if err != nil {
		w.Fatal(err)
	}
}

// distinct waits until so many Services have an address each, and no two the same.
func (w *world) distinct(count int, bound time.Duration) {
	w.Helper()
	w.within(bound, func() string {
		list := &corev1.ServiceList{}
		if err := w.client.List(w.Context(), list, client.InNamespace("default")); err != nil {
			w.Fatal(err)
		}
		owner := map[string]string{}
		for _, svc := range list.Items {
			for _, i := range svc.Status.LoadBalancer.Ingress {
				if owner[i.IP] != "" {
					w.Fatalf("%s and %s have %s", owner[i.IP], svc.Name, i.IP)
				}
				owner[i.IP] = svc.Name
			}
		}
		return want(len(owner) == count, fmt.Sprintf("%d of %d Services have an address", len(owner), count))
	})
}
