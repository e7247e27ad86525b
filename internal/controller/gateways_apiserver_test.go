// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controller_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/apitest"
)

// outside is a Router with a gateway.
func outside(name, network string) *v1alpha1.Router {
	r := router(name, nil, nil)
	r.Spec.Gateway = &v1alpha1.RouterGateway{Network: network}
	return r
}

// connected makes a node that has physical networks, as its agent says.
func (w *world) connected(number int, physical string) *corev1.Node {
	w.Helper()
	n := w.node(number)
	w.connect(n, physical)
	return n
}

func (w *world) connect(n *corev1.Node, physical string) {
	w.Helper()
	w.change(n, func() { metav1.SetMetaDataAnnotation(&n.ObjectMeta, v1alpha1.AnnotationPhysicalNetworks, physical) })
}

// leads waits until exactly these nodes are gateways of a Router, and the condition has the reason,
// and for nothing to change that. It returns the addresses of each node.
func (w *world) leads(name, reason string, nodes ...string) map[string]string {
	w.Helper()
	r := &v1alpha1.Router{ObjectMeta: metav1.ObjectMeta{Name: name}}
	var has map[string]string
	w.settles(func() string {
		has = w.gateways(name)
		if !w.get(r) {
			return "router " + name + " is not there"
		}
		c := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionGatewayReady)
		if c == nil || c.Reason != reason || c.Message == "" || int(r.Status.GatewayNodes) != len(nodes) ||
			!slices.Equal(slices.Sorted(maps.Keys(has)), nodes) {
			return fmt.Sprintf("router %s, want %s on %v: %v, %+v", name, reason, nodes, has, r.Status)
		}
		return ""
	})
	return has
}

// gateways are the addresses of a Router's gateways, by node. None is of two.
func (w *world) gateways(router string) map[string]string {
	w.Helper()
	list := &v1alpha1.AddressBlockList{}
	if err := w.client.List(w.Context(), list); err != nil {
		w.Fatal(err)
	}
	has, owners := map[string]string{}, map[string]string{}
	for _, b := range list.Items {
		if other, twice := owners[b.Spec.Network+b.Spec.CIDR]; twice {
			w.Errorf("%s is that of %s and %s", b.Spec.CIDR, other, b.Name)
		}
		owners[b.Spec.Network+b.Spec.CIDR] = b.Name
		if node, is := strings.CutPrefix(b.Spec.Gateway, router+"/"); is {
			has[node] = strings.TrimSpace(has[node] + " " + b.Spec.CIDR)
		}
	}
	return has
}

func (w *world) same(before, now map[string]string) {
	w.Helper()
	if !maps.Equal(before, now) {
		w.Errorf("addresses moved: %v, were %v", now, before)
	}
}

// testGateways get addresses for their nodes, keep them over restarts of everything, and give them
// back.
func testGateways(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	stop := w.start(nil)
	first, second := w.connected(1, "lab,office"), w.connected(2, "office")
	w.connected(3, "lab")
	w.namespace("gateways", nil)
	vm := userPort("gateways", "vm", "lan")
	w.create(external("office", "192.0.2.0/24", "2001:db8::/64"), outside("red", "office"), overlay("lan", "red", "10.90.0.0/24"), vm)
	w.leads("red", v1alpha1.ReasonReady)
	w.blockFor("lan", "10.90.0.0/28", "worker1", "")
	one := w.leads("red", v1alpha1.ReasonReady, "worker1")
	w.port("gateways", "vm", isReady)
	w.bind(vm, "worker2")
	both := w.leads("red", v1alpha1.ReasonReady, "worker1", "worker2")
	if one["worker1"] != both["worker1"] || strings.Contains(both["worker1"], ":") {
		t.Errorf("addresses %v, were %v", both, one)
	}
	third := w.blockFor("lan", "10.90.0.16/28", "worker3", "")
	w.same(both, w.leads("red", v1alpha1.ReasonNodesNotConnected, "worker1", "worker2"))
	w.event("Router", "red", v1alpha1.ReasonNodesNotConnected)
	w.delete(third)

	// Agents start again, and others want addresses while no controller is there.
	w.change(first, func() { delete(first.Annotations, v1alpha1.AnnotationPhysicalNetworks) })
	w.same(both, w.leads("red", v1alpha1.ReasonReady, "worker1", "worker2"))
	stop()
	w.create(outside("blue", "office"), overlay("blue-lan", "blue", "10.90.0.0/24", "fd00:90::/64"),
		floatingIP("gateways", "beside", v1alpha1.FloatingIPSpec{Network: "office"}))
	stop = w.start(nil)
	w.same(both, w.leads("red", v1alpha1.ReasonReady, "worker1", "worker2"))
	w.blockFor("blue-lan", "10.90.0.0/28", "worker2", "")
	blue := w.leads("blue", v1alpha1.ReasonReady, "worker2")
	if a, b, two := strings.Cut(blue["worker2"], " "); !two || strings.Contains(a, ":") == strings.Contains(b, ":") {
		t.Errorf("a Router of both families has %v", blue)
	}
	w.floats("gateways", "beside", v1alpha1.ReasonUnassociated, readyIP("", ""))
	w.until(func() string {
		n := w.ready("office")
		return want(n.Status.AddressesUsed == 5 && n.Status.Blocks == 0, fmt.Sprintf("%+v", n.Status))
	})

	// A node is connected no more, and again; one goes, and comes back.
	w.connect(first, "lab")
	w.leads("red", v1alpha1.ReasonNodesNotConnected, "worker2")
	w.connect(first, "lab,office")
	w.leads("red", v1alpha1.ReasonReady, "worker1", "worker2")
	stop()
	w.delete(second)
	w.start(nil)
	w.leads("red", v1alpha1.ReasonReady, "worker1")
	w.leads("blue", v1alpha1.ReasonReady)
	w.connected(2, "office")
	w.bind(vm, "worker2")
	w.leads("red", v1alpha1.ReasonReady, "worker1", "worker2")
	w.get(vm)
	w.status(vm, func() { vm.Status.Node = "" })
	w.leads("red", v1alpha1.ReasonReady, "worker1")

	// The Network waits for the gateways.
	office := &v1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Name: "office"}}
	w.delete(office)
	w.blocked(office, "gateway of router red on node worker1", "floatingip gateways/beside")
	w.leads("red", v1alpha1.ReasonNetworkNotReady, "worker1")
	w.delete(floatingIP("gateways", "beside", v1alpha1.FloatingIPSpec{}))
	red := router("red", nil, nil)
	w.change(red, func() { red.Spec.Gateway = nil })
	w.until(func() string { return want(!w.get(office), "the Network is left") })
	w.until(func() string {
		w.get(red)
		c := meta.FindStatusCondition(red.Status.Conditions, v1alpha1.ConditionGatewayReady)
		return want(c == nil && red.Status.GatewayNodes == 0, fmt.Sprintf("without a gateway: %+v", red.Status))
	})
	w.leads("blue", v1alpha1.ReasonNetworkNotFound)
}

// testDefaultGateway is that of the Router default: all nodes with a podCIDR have something of it.
func testDefaultGateway(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	w.start(nil)
	w.connected(1, "office")
	edge := w.connected(2, "office")
	w.create(external("office", "192.0.2.0/24", "2001:db8::/64"))
	w.ready("office")
	all := router(v1alpha1.DefaultRouter, nil, nil)
	w.until(func() string { return want(w.get(all), "no default Router") })
	w.change(all, func() { all.Spec.Gateway = &v1alpha1.RouterGateway{Network: "office"} })
	before := w.leads(v1alpha1.DefaultRouter, v1alpha1.ReasonReady, "worker1", "worker2")
	w.change(all, func() {
		all.Spec.Gateway.Nodes = &metav1.LabelSelector{MatchLabels: map[string]string{"edge": "true"}}
	})
	w.leads(v1alpha1.DefaultRouter, v1alpha1.ReasonNoConnectedNode)
	w.event("Router", v1alpha1.DefaultRouter, v1alpha1.ReasonNoConnectedNode)
	w.change(edge, func() { edge.Labels = map[string]string{"edge": "true"} })
	after := w.leads(v1alpha1.DefaultRouter, v1alpha1.ReasonReady, "worker2")
	if !strings.Contains(before["worker2"], "2001:db8::") || len(strings.Fields(after["worker2"])) != 2 {
		t.Errorf("of both families: %v, then %v", before, after)
	}
}

// testBadGateways is every way in which one can be wrong: each refused, or a condition and an
// Event.
func testBadGateways(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	w.start(nil)
	w.connected(1, "tiny,office")
	w.connected(2, "tiny,office")
	plain := external("plain", "203.0.113.0/24")
	plain.Spec.External = false
	w.create(plain, external("office", "2001:db8::/64"), external("tiny", "203.0.113.128/30"))
	for destination, hop := range map[string]string{"0.0.0.0/0": "10.90.0.9", "::/0": "fd00::9"} {
		r := outside("refused", "office")
		r.Spec.Routes = []v1alpha1.Route{{Destination: "10.1.0.0/16", NextHop: "10.90.0.9"}, {Destination: destination, NextHop: hop}}
		const message = "a Router with a gateway has no route for 0.0.0.0/0 or ::/0: the gateway is the way there"
		if err := w.client.Create(t.Context(), r); err == nil || !strings.Contains(err.Error(), message) {
			t.Errorf("a route for %s: %v", destination, err)
		}
		r.Spec.Gateway = nil
		if err := w.client.Create(t.Context(), r, client.DryRunAll); err != nil {
			t.Errorf("without a gateway: %v", err)
		}
	}
	for _, c := range []struct {
		name, network, reason, part string
		change                      func(*v1alpha1.RouterGateway)
	}{
		{"nowhere", "nowhere", v1alpha1.ReasonNetworkNotFound, "create it", nil},
		{"inside", "plain", v1alpha1.ReasonNotExternal, "external: true", nil},
		{"default-network", "default", v1alpha1.ReasonNotExternal, "external: true", nil},
		{"family", "office", v1alpha1.ReasonWrongFamily, "no IPv4 subnet", nil},
		{"selector", "tiny", v1alpha1.ReasonInvalid, "spec.gateway.nodes", func(g *v1alpha1.RouterGateway) {
			g.Nodes = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}
		}},
		{"unselected", "tiny", v1alpha1.ReasonNoConnectedNode, "bridgeMappings", func(g *v1alpha1.RouterGateway) {
			g.Nodes = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		}},
	} {
		r := outside(c.name, c.network)
		if c.change != nil {
			c.change(r.Spec.Gateway)
		}
		w.create(r, overlay(c.name+"-lan", c.name, "10.90.0.0/24"))
		w.ready(c.name + "-lan")
		w.blockFor(c.name+"-lan", "10.90.0.0/28", "worker1", "")
		w.leads(c.name, c.reason)
		w.event("Router", c.name, c.reason)
		w.get(r)
		if m := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionGatewayReady); m.Status != metav1.ConditionFalse ||
			!strings.Contains(m.Message, c.part) {
			t.Errorf("%s: %+v", c.name, m)
		}
		if !meta.IsStatusConditionTrue(r.Status.Conditions, v1alpha1.ConditionReady) {
			t.Errorf("%s: the Router is not ready: %+v", c.name, r.Status)
		}
	}

	// Of two nodes of two Routers one gets the only address, and another one when it is left.
	w.create(outside("one", "tiny"), overlay("one-lan", "one", "10.90.0.0/24"), outside("two", "tiny"), overlay("two-lan", "two", "10.90.0.0/24"))
	w.blockFor("one-lan", "10.90.0.0/28", "worker1", "")
	only := w.leads("one", v1alpha1.ReasonReady, "worker1")
	w.blockFor("two-lan", "10.90.0.0/28", "worker2", "")
	w.leads("two", v1alpha1.ReasonExhausted)
	w.event("Router", "two", v1alpha1.ReasonExhausted)
	w.create(floatingIP("default", "late", v1alpha1.FloatingIPSpec{Network: "tiny"}))
	w.refusedIP("default", "late", v1alpha1.ReasonExhausted)
	w.delete(floatingIP("default", "late", v1alpha1.FloatingIPSpec{}))
	one := router("one", nil, nil)
	w.change(one, func() { one.Spec.Gateway.Network = "office" })
	if now := w.leads("two", v1alpha1.ReasonReady, "worker2"); now["worker2"] != only["worker1"] {
		t.Errorf("%v, was %v", now, only)
	}
	w.leads("one", v1alpha1.ReasonWrongFamily)
}
