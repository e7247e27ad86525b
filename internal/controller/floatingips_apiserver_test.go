// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controller_test

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/apitest"
)

// external is a Network that FloatingIPs have addresses of.
func external(name string, cidrs ...string) *v1alpha1.Network {
	n := overlay(name, "", cidrs...)
	n.Spec.Type, n.Spec.PhysicalNetwork, n.Spec.External = v1alpha1.Flat, name, true
	return n
}

func floatingIP(namespace, name string, spec v1alpha1.FloatingIPSpec) *v1alpha1.FloatingIP {
	return &v1alpha1.FloatingIP{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: spec}
}

// floats waits until a FloatingIP has the reason, and is ready unless it is a refusal.
func (w *world) floats(namespace, name, reason string, check func(v1alpha1.FloatingIPStatus) bool) *v1alpha1.FloatingIP {
	w.Helper()
	f := &v1alpha1.FloatingIP{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	w.until(func() string {
		if w.get(f) {
			c := meta.FindStatusCondition(f.Status.Conditions, v1alpha1.ConditionReady)
			if c != nil && c.Reason == reason && c.Message != "" && check(f.Status) {
				return ""
			}
		}
		return fmt.Sprintf("floatingip %s/%s, want %s: %+v", namespace, name, reason, f.Status)
	})
	return f
}

// refusedIP waits until a FloatingIP has no address for a reason, and the Event that says so.
func (w *world) refusedIP(namespace, name, reason string, parts ...string) {
	w.Helper()
	f := w.floats(namespace, name, reason, func(s v1alpha1.FloatingIPStatus) bool {
		return s.Address == "" && s.Node == "" && meta.IsStatusConditionFalse(s.Conditions, v1alpha1.ConditionReady)
	})
	for _, part := range parts {
		if message := f.Status.Conditions[0].Message; !strings.Contains(message, part) {
			w.Errorf("%s: %q does not say %q", name, message, part)
		}
	}
	w.event("FloatingIP", name, reason)
}

// readyIP reports whether a FloatingIP takes effect with an address, on the node that is named.
func readyIP(address, node string) func(v1alpha1.FloatingIPStatus) bool {
	return func(s v1alpha1.FloatingIPStatus) bool {
		return (s.Address == address || address == "" && s.Address != "") && s.Node == node &&
			meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionReady)
	}
}

func (w *world) associate(f *v1alpha1.FloatingIP, port string) {
	w.Helper()
	before := f.DeepCopy()
	f.Spec.Port = port
	if err := w.client.Patch(w.Context(), f, client.MergeFrom(before)); err != nil {
		w.Fatal(err)
	}
}

// bind has a user's Port on a node, as its agent does.
func (w *world) bind(p *v1alpha1.Port, node string) {
	w.Helper()
	now := metav1.Now()
	w.get(p)
	w.status(p, func() { p.Status.Node, p.Status.Phase, p.Status.BoundTime = node, v1alpha1.PortBound, &now })
}

// testFloatingIPs get addresses, follow their Ports, keep what they have over restarts, and give it
// back.
func testFloatingIPs(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	stop := w.start(nil)
	w.node(1)
	w.node(2)
	w.namespace("fips", nil)
	vm := userPort("fips", "vm", "lan")
	w.create(external("office", "192.0.2.0/24", "2001:db8::/64"), overlay("lan", "", "10.90.0.0/24", "fd00:90::/64"), vm)
	w.create(
		floatingIP("fips", "kept", v1alpha1.FloatingIPSpec{Network: "office"}),
		floatingIP("fips", "asked", v1alpha1.FloatingIPSpec{Network: "office", Address: "192.0.2.77", Port: "soon"}),
		floatingIP("fips", "vm4", v1alpha1.FloatingIPSpec{Network: "office", Port: "vm"}),
		floatingIP("fips", "vm6", v1alpha1.FloatingIPSpec{Network: "office", IPFamily: v1alpha1.IPv6, Port: "vm"}),
		floatingIP("fips", "pod", v1alpha1.FloatingIPSpec{Network: "office", Port: "web-0.eth0"}),
	)
	kept := w.floats("fips", "kept", v1alpha1.ReasonUnassociated, readyIP("", ""))
	w.floats("fips", "asked", v1alpha1.ReasonNotBound, readyIP("192.0.2.77", ""))
	vm4 := w.floats("fips", "vm4", v1alpha1.ReasonNotBound, readyIP("", ""))
	vm6 := w.floats("fips", "vm6", v1alpha1.ReasonNotBound, readyIP("", ""))
	pod := w.floats("fips", "pod", v1alpha1.ReasonNotBound, readyIP("", ""))
	addresses := map[string]bool{}
	for _, f := range []*v1alpha1.FloatingIP{kept, vm4, vm6, pod} {
		a := netip.MustParseAddr(f.Status.Address)
		if addresses[f.Status.Address] || a.Is4() == (f == vm6) || a.Is4() && !netip.MustParsePrefix("192.0.2.0/24").Contains(a) {
			t.Errorf("%s has %s", f.Name, a)
		}
		addresses[f.Status.Address] = true
		b, there := w.block("office", netip.PrefixFrom(a, a.BitLen()).String())
		if !there || b.Spec.FloatingIP != "fips/"+f.Name || b.Spec.Node != "" || b.Spec.Port != "" {
			t.Errorf("the block of %s: %+v", a, b.Spec)
		}
	}
	w.until(func() string {
		n := w.ready("office")
		return want(n.Status.AddressesUsed == 5 && n.Status.Blocks == 0, fmt.Sprintf("%+v", n.Status))
	})

	// A Port is bound, and moves; a pod on the Network default comes and goes.
	w.port("fips", "vm", isReady)
	w.bind(vm, "worker1")
	w.floats("fips", "vm4", v1alpha1.ReasonBound, readyIP(vm4.Status.Address, "worker1"))
	w.floats("fips", "vm6", v1alpha1.ReasonBound, readyIP(vm6.Status.Address, "worker1"))
	w.bind(vm, "worker2")
	w.floats("fips", "vm4", v1alpha1.ReasonBound, readyIP(vm4.Status.Address, "worker2"))
	web := w.pod("fips", "web-0", "worker1")
	w.status(web, func() { web.Status.PodIPs = []corev1.PodIP{{IP: "10.244.1.5"}} })
	w.floats("fips", "pod", v1alpha1.ReasonBound, readyIP(pod.Status.Address, "worker1"))
	w.delete(web)
	w.floats("fips", "pod", v1alpha1.ReasonNotBound, readyIP(pod.Status.Address, ""))
	w.associate(kept, "vm-of-later")
	w.floats("fips", "kept", v1alpha1.ReasonNotBound, readyIP(kept.Status.Address, ""))

	// The Port goes while no controller is there, and another FloatingIP comes.
	stop()
	w.delete(vm)
	w.create(floatingIP("fips", "later", v1alpha1.FloatingIPSpec{Network: "office"}))
	stop = w.start(nil)
	w.floats("fips", "vm4", v1alpha1.ReasonNotBound, readyIP(vm4.Status.Address, ""))
	w.floats("fips", "vm6", v1alpha1.ReasonNotBound, readyIP(vm6.Status.Address, ""))
	later := w.floats("fips", "later", v1alpha1.ReasonUnassociated, readyIP("", ""))
	if addresses[later.Status.Address] || later.Status.Address == "192.0.2.77" {
		t.Errorf("%s was handed out twice", later.Status.Address)
	}

	// The Network waits for the last of them, and says so.
	w.delete(w.ready("office"))
	w.blocked(&v1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Name: "office"}}, "floatingip fips/asked", "floatingip fips/kept")
	w.create(floatingIP("fips", "late", v1alpha1.FloatingIPSpec{Network: "office"}))
	w.refusedIP("fips", "late", v1alpha1.ReasonNetworkNotReady, "is being deleted")
	stop()
	for _, name := range []string{"kept", "asked", "vm4", "vm6"} {
		w.delete(floatingIP("fips", name, v1alpha1.FloatingIPSpec{}))
	}
	w.start(nil)
	w.floats("fips", "pod", v1alpha1.ReasonNotBound, readyIP(pod.Status.Address, ""))
	w.until(func() string {
		_, there := w.block("office", "192.0.2.77/32")
		return want(!there, "the address of what is gone is not given back")
	})
	w.blocked(&v1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Name: "office"}}, "floatingip fips/later", "floatingip fips/pod")
	w.delete(pod)
	w.delete(later)
	w.until(func() string {
		return want(!w.get(&v1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Name: "office"}}), "the Network is left")
	})
	w.refusedIP("fips", "late", v1alpha1.ReasonNetworkNotFound, "create it")
	w.create(external("office", "192.0.2.0/24"))
	w.floats("fips", "late", v1alpha1.ReasonUnassociated, readyIP("", ""))
}

// testRivalFloatingIPs want the same address, or the same Port.
func testRivalFloatingIPs(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	stop := w.start(nil)
	w.node(1)
	w.namespace("rivals", nil)
	w.namespace("rivals-2", nil)
	w.create(external("office", "192.0.2.0/24", "2001:db8::/64"), overlay("lan", "", "10.91.0.0/24"))
	w.ready("office")
	w.ready("lan")

	// Of many that want one address at once, one gets it, and the next one when that goes.
	const many = 10
	var group sync.WaitGroup
	for i := range many {
		group.Go(func() {
			f := floatingIP([]string{"rivals", "rivals-2"}[i%2], fmt.Sprintf("race-%d", i),
				v1alpha1.FloatingIPSpec{Network: "office", Address: "192.0.2.50"})
			if err := w.client.Create(t.Context(), f); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	for left := many; left > 0; left-- {
		var winner *v1alpha1.FloatingIP
		w.settles(func() string {
			list := &v1alpha1.FloatingIPList{}
			if err := w.client.List(t.Context(), list); err != nil {
				t.Fatal(err)
			}
			won, lost := 0, 0
			for _, f := range list.Items {
				c := meta.FindStatusCondition(f.Status.Conditions, v1alpha1.ConditionReady)
				switch {
				case f.Status.Address == "192.0.2.50" && c.Status == metav1.ConditionTrue:
					won, winner = won+1, &f
				case c != nil && c.Reason == v1alpha1.ReasonAddressTaken && strings.Contains(c.Message, "floatingip rivals"):
					lost++
				}
			}
			return want(won == 1 && lost == left-1 && len(list.Items) == left, fmt.Sprintf("%d have it, %d of %d do not", won, lost, left))
		})
		w.delete(winner)
	}

	// Of two of one Port and family, the older has it, also if a controller starts; then the other.
	port := userPort("rivals", "db", "lan")
	w.create(port)
	w.port("rivals", "db", isReady)
	w.bind(port, "worker1")
	w.create(floatingIP("rivals", "a-older", v1alpha1.FloatingIPSpec{Network: "office", Port: "db"}))
	older := w.floats("rivals", "a-older", v1alpha1.ReasonBound, readyIP("", "worker1"))
	w.create(floatingIP("rivals", "b-younger", v1alpha1.FloatingIPSpec{Network: "office", Port: "db"}))
	waits := func(s v1alpha1.FloatingIPStatus) bool {
		message := s.Conditions[0].Message
		return s.Address != "" && s.Node == "" && meta.IsStatusConditionFalse(s.Conditions, v1alpha1.ConditionReady) &&
			strings.Contains(message, "rivals/a-older") && strings.Contains(message, "rivals/b-younger")
	}
	younger := w.floats("rivals", "b-younger", v1alpha1.ReasonPortTaken, waits)
	w.event("FloatingIP", "b-younger", v1alpha1.ReasonPortTaken)
	stop()
	w.start(nil)
	w.floats("rivals", "b-younger", v1alpha1.ReasonPortTaken, waits)
	w.associate(older, "another")
	w.floats("rivals", "b-younger", v1alpha1.ReasonBound, readyIP(younger.Status.Address, "worker1"))
	w.floats("rivals", "a-older", v1alpha1.ReasonNotBound, readyIP(older.Status.Address, ""))
	w.associate(older, "db")
	w.floats("rivals", "b-younger", v1alpha1.ReasonPortTaken, waits)
	w.floats("rivals", "a-older", v1alpha1.ReasonBound, readyIP(older.Status.Address, "worker1"))
	w.delete(older)
	w.floats("rivals", "b-younger", v1alpha1.ReasonBound, readyIP(younger.Status.Address, "worker1"))
	// The Port has no address of the other family.
	w.create(floatingIP("rivals", "six", v1alpha1.FloatingIPSpec{Network: "office", IPFamily: v1alpha1.IPv6, Port: "db"}))
	w.floats("rivals", "six", v1alpha1.ReasonWrongFamily, func(s v1alpha1.FloatingIPStatus) bool { return s.Address != "" && s.Node == "" })
}

// testBadFloatingIPs is every way in which one can be wrong: each a condition and an Event, and
// others are not touched.
func testBadFloatingIPs(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	w.start(nil)
	node := w.node(1)
	w.status(node, func() {
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "192.0.2.11"})
	})
	ns := w.namespace("bad-fips", nil)
	w.namespace("good-fips", map[string]string{"may": "float"})
	closed := external("closed", "198.51.100.0/24")
	closed.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"may": "float"}}
	office := external("office", "192.0.2.0/24")
	office.Spec.Subnets[0].Exclusions = []string{"192.0.2.200-192.0.2.210"}
	plain := external("plain", "203.0.113.0/24")
	plain.Spec.External = false
	w.create(office, closed, plain, external("tiny", "203.0.113.128/30"), overlay("lan", "", "10.92.0.0/24"))
	for _, name := range []string{"office", "closed", "plain", "tiny"} {
		w.ready(name)
	}
	w.create(userPort("bad-fips", "on-office", "office", "192.0.2.60"), &v1alpha1.LoadBalancerPool{
		ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: v1alpha1.LoadBalancerPoolSpec{Addresses: []string{"192.0.2.200-192.0.2.205"}},
	})
	w.port("bad-fips", "on-office", isReady)
	spec := func(network, address string) v1alpha1.FloatingIPSpec {
		return v1alpha1.FloatingIPSpec{Network: network, Address: address}
	}
	w.create(floatingIP("good-fips", "first", spec("office", "192.0.2.50")), floatingIP("good-fips", "only", spec("tiny", "")),
		floatingIP("good-fips", "selected", spec("closed", "")))
	first := w.floats("good-fips", "first", v1alpha1.ReasonUnassociated, readyIP("192.0.2.50", ""))
	w.floats("good-fips", "only", v1alpha1.ReasonUnassociated, readyIP("203.0.113.130", ""))
	w.floats("good-fips", "selected", v1alpha1.ReasonUnassociated, readyIP("", ""))
	for _, c := range []struct {
		name         string
		spec         v1alpha1.FloatingIPSpec
		reason, part string
	}{
		{"nowhere", spec("nowhere", ""), v1alpha1.ReasonNetworkNotFound, "create it"},
		{"not-external", spec("plain", ""), v1alpha1.ReasonNotExternal, "external: true"},
		{"on-overlay", spec("lan", ""), v1alpha1.ReasonNotExternal, "external: true"},
		{"on-default", spec("default", ""), v1alpha1.ReasonNotExternal, "external: true"},
		{"not-allowed", spec("closed", ""), v1alpha1.ReasonNotAllowed, "namespaceSelector"},
		{"outside", spec("office", "192.0.3.5"), v1alpha1.ReasonAddressOutside, "in no subnet"},
		{"gateway", spec("office", "192.0.2.1"), v1alpha1.ReasonAddressOutside, "gateway"},
		{"broadcast", spec("office", "192.0.2.255"), v1alpha1.ReasonAddressOutside, "192.0.2.0/24"},
		{"excluded", spec("office", "192.0.2.209"), v1alpha1.ReasonAddressOutside, "hands out"},
		{"of-first", spec("office", "192.0.2.50"), v1alpha1.ReasonAddressTaken, "floatingip good-fips/first"},
		{"of-port", spec("office", "192.0.2.60"), v1alpha1.ReasonAddressTaken, "port bad-fips/on-office"},
		{"of-node", spec("office", "192.0.2.11"), v1alpha1.ReasonAddressTaken, "node worker1"},
		{"exhausted", spec("tiny", ""), v1alpha1.ReasonExhausted, "203.0.113.128/30"},
		{"other-family", v1alpha1.FloatingIPSpec{Network: "office", IPFamily: v1alpha1.IPv6}, v1alpha1.ReasonWrongFamily, "IPv6"},
	} {
		w.create(floatingIP("bad-fips", c.name, c.spec))
		w.refusedIP("bad-fips", c.name, c.reason, c.part)
	}
	w.create(floatingIP("bad-fips", "physical", v1alpha1.FloatingIPSpec{Network: "office", Port: "on-office"}))
	w.floats("bad-fips", "physical", v1alpha1.ReasonPortOnPhysical, func(s v1alpha1.FloatingIPStatus) bool { return s.Node == "" })
	w.event("FloatingIP", "physical", v1alpha1.ReasonPortOnPhysical)
	if now := w.floats("good-fips", "first", v1alpha1.ReasonUnassociated, readyIP("192.0.2.50", "")); now.ResourceVersion != first.ResourceVersion {
		t.Errorf("another FloatingIP was touched: %+v, was %+v", now.Status, first.Status)
	}
	// A Port cannot have what a FloatingIP has.
	w.create(userPort("bad-fips", "rival", "office", "192.0.2.50"))
	w.failed("bad-fips", "rival", v1alpha1.ReasonAddressTaken)

	// What was in the way goes, what was missing comes.
	w.delete(first)
	w.until(func() string {
		f := floatingIP("bad-fips", "of-first", v1alpha1.FloatingIPSpec{})
		w.get(f)
		port := userPort("bad-fips", "rival", "")
		w.get(port)
		return want((f.Status.Address == "192.0.2.50") != isReady(port), fmt.Sprintf("%+v, %+v", f.Status, port.Status))
	})
	w.delete(userPort("bad-fips", "on-office", ""))
	w.floats("bad-fips", "of-port", v1alpha1.ReasonUnassociated, readyIP("192.0.2.60", ""))
	w.floats("bad-fips", "physical", v1alpha1.ReasonNotBound, readyIP("", ""))
	w.delete(floatingIP("good-fips", "only", v1alpha1.FloatingIPSpec{}))
	w.floats("bad-fips", "exhausted", v1alpha1.ReasonUnassociated, readyIP("203.0.113.130", ""))
	w.status(node, func() { node.Status.Addresses = node.Status.Addresses[:1] })
	w.floats("bad-fips", "of-node", v1alpha1.ReasonUnassociated, readyIP("192.0.2.11", ""))
	w.create(external("nowhere", "203.0.113.64/28"))
	w.floats("bad-fips", "nowhere", v1alpha1.ReasonUnassociated, readyIP("", ""))

	// A pool that comes later has nothing that FloatingIPs may have.
	late := &v1alpha1.LoadBalancerPool{
		ObjectMeta: metav1.ObjectMeta{Name: "late"}, Spec: v1alpha1.LoadBalancerPoolSpec{Addresses: []string{"192.0.2.220/32"}},
	}
	w.create(late)
	w.until(func() string {
		w.get(late)
		c := meta.FindStatusCondition(late.Status.Conditions, v1alpha1.ConditionReady)
		return want(c != nil && c.Reason == v1alpha1.ReasonAddressesOverlap && len(late.Status.Ranges) == 0, fmt.Sprintf("%+v", late.Status))
	})
	now := w.ready("office")
	now.Spec.Subnets[0].Exclusions = append(now.Spec.Subnets[0].Exclusions, "192.0.2.220")
	if err := w.client.Update(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	w.until(func() string {
		w.get(late)
		return want(len(late.Status.Ranges) == 1, fmt.Sprintf("%+v", late.Status))
	})

	// Labels come, and go again with the address.
	relabel := func(labels map[string]string) {
		ns.Labels = labels
		if err := w.client.Update(t.Context(), ns); err != nil {
			t.Fatal(err)
		}
	}
	relabel(map[string]string{"may": "float"})
	allowed := w.floats("bad-fips", "not-allowed", v1alpha1.ReasonUnassociated, readyIP("", ""))
	relabel(nil)
	w.refusedIP("bad-fips", "not-allowed", v1alpha1.ReasonNotAllowed)
	w.until(func() string {
		_, there := w.block("closed", allowed.Status.Address+"/32")
		return want(!there, "the address is kept from others")
	})

	// A node hands out the block around an address.
	w.blockFor("office", "192.0.2.128/28", "worker1", "")
	w.create(floatingIP("good-fips", "granted", spec("office", "192.0.2.130")), floatingIP("good-fips", "denied", spec("office", "192.0.2.131")))
	w.floats("good-fips", "granted", "WaitingForNode", func(s v1alpha1.FloatingIPStatus) bool { return s.Address == "" })
	w.answer("office", "192.0.2.130/32", true)
	w.floats("good-fips", "granted", v1alpha1.ReasonUnassociated, readyIP("192.0.2.130", ""))
	w.answer("office", "192.0.2.131/32", false)
	w.refusedIP("good-fips", "denied", v1alpha1.ReasonAddressTaken, "node worker1")
}

// testFloatingIPQuota is what a namespace may have of them, by Kubernetes' own quota. The
// controller that counts is not here: the API server counts on what its status says.
func testFloatingIPQuota(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	w.namespace("few", nil)
	hard := corev1.ResourceList{"count/floatingips.coelan.io": resource.MustParse("1")}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "few", Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}
	w.create(quota)
	w.status(quota, func() {
		quota.Status = corev1.ResourceQuotaStatus{Hard: hard, Used: corev1.ResourceList{"count/floatingips.coelan.io": resource.MustParse("1")}}
	})
	w.until(func() string {
		f := floatingIP("few", "one", v1alpha1.FloatingIPSpec{Network: "office"})
		err := w.client.Create(t.Context(), f)
		if err == nil {
			w.delete(f)
		}
		return want(apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota"), fmt.Sprint(err))
	})
}

// testFloatingIPsOfServices stand for a Service of their namespace in place of a Port.
func testFloatingIPsOfServices(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	w.start(nil)
	w.node(1)
	w.namespace("floating-services", nil)
	w.create(external("office", "192.0.2.0/24", "2001:db8::/64"))
	w.ready("office")
	both := floatingIP("floating-services", "both", v1alpha1.FloatingIPSpec{Network: "office", Port: "vm", Service: "web"})
	if err := w.client.Create(t.Context(), both); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "beside port") {
		t.Errorf("a Port and a Service: %v", err)
	}
	for _, name := range []string{"a-older", "b-younger"} {
		w.create(floatingIP("floating-services", name, v1alpha1.FloatingIPSpec{Network: "office", Service: "web"}))
		reason, ready := v1alpha1.ReasonNotBound, metav1.ConditionTrue
		if name == "b-younger" {
			reason, ready = v1alpha1.ReasonServiceTaken, metav1.ConditionFalse
		}
		w.floats("floating-services", name, reason, func(s v1alpha1.FloatingIPStatus) bool {
			return s.Address != "" && meta.IsStatusConditionPresentAndEqual(s.Conditions, v1alpha1.ConditionReady, ready)
		})
	}
	w.create(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "floating-services", Name: "web"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	})
	older := w.floats("floating-services", "a-older", v1alpha1.ReasonBound, readyIP("", ""))
	before := older.DeepCopy()
	older.Spec.Service, older.Spec.Port = "", "vm"
	if err := w.client.Patch(w.Context(), older, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	w.floats("floating-services", "a-older", v1alpha1.ReasonNotBound, readyIP(before.Status.Address, ""))
	w.floats("floating-services", "b-younger", v1alpha1.ReasonBound, readyIP("", ""))
	w.create(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "floating-services", Name: "named"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "shop.example"},
	})
	w.create(floatingIP("floating-services", "named", v1alpha1.FloatingIPSpec{Network: "office", Service: "named"}))
	w.floats("floating-services", "named", v1alpha1.ReasonNoClusterIP, func(s v1alpha1.FloatingIPStatus) bool { return s.Address != "" })
	w.event("FloatingIP", "named", v1alpha1.ReasonNoClusterIP)
}
