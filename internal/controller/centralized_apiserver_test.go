// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controller_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/apitest"
)

// seenAs is a Router with a centralized gateway that asks for addresses.
func seenAs(name, network string, addresses ...string) *v1alpha1.Router {
	r := outside(name, network)
	r.Spec.Gateway.SNAT, r.Spec.Gateway.Addresses = v1alpha1.CentralizedSNAT, addresses
	return r
}

// appears waits until a Router has these addresses of its own and so many nodes for them, and the
// condition has the reason, and for nothing to change that. A number in place of addresses is how
// many.
func (w *world) appears(name, reason string, nodes int, addresses ...string) []string {
	w.Helper()
	r := &v1alpha1.Router{ObjectMeta: metav1.ObjectMeta{Name: name}}
	w.settles(func() string {
		if !w.get(r) {
			return "router " + name + " is not there"
		}
		blocks := strings.Fields(w.gateways(name)[v1alpha1.AnyNode])
		c := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionGatewayReady)
		if c == nil || c.Reason != reason || c.Message == "" || int(r.Status.GatewayNodes) != nodes ||
			!slices.Equal(r.Status.GatewayAddresses, addresses) && fmt.Sprint(addresses) != fmt.Sprintf("[%d]", len(r.Status.GatewayAddresses)) ||
			len(blocks) != len(r.Status.GatewayAddresses) {
			return fmt.Sprintf("router %s, want %s on %d nodes with %v: %v, %+v", name, reason, nodes, addresses, blocks, r.Status)
		}
		return ""
	})
	return r.Status.GatewayAddresses
}

// testCentralizedGateways keep their addresses over restarts of everything, and change them without
// being without any.
func testCentralizedGateways(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	stop := w.start(nil)
	first := w.connected(1, "office")
	second := w.connected(2, "lab,office")
	w.connected(3, "lab")
	w.create(external("office", "192.0.2.0/24", "2001:db8::/64"), seenAs("red", "office"), overlay("red-lan", "red", "10.90.0.0/24"))
	// Nodes need nothing of the Router.
	one := w.appears("red", v1alpha1.ReasonReady, 2, "1")
	if strings.Contains(one[0], ":") {
		t.Errorf("a Router of IPv4 alone has %v", one)
	}
	red := router("red", nil, nil)
	w.get(red)
	if red.Spec.Gateway.SNAT != v1alpha1.CentralizedSNAT {
		t.Errorf("%+v", red.Spec.Gateway)
	}
	block := &v1alpha1.AddressBlock{ObjectMeta: metav1.ObjectMeta{Name: "office-" + strings.ReplaceAll(one[0], ".", "-") + "-32"}}
	w.get(block)
	w.status(block, func() { block.Status.ActiveNode = "worker2" })

	// Nodes are connected no more, and the addresses stay, also without a controller.
	w.connect(first, "lab")
	w.appears("red", v1alpha1.ReasonReady, 1, one...)
	w.connect(second, "lab")
	w.appears("red", v1alpha1.ReasonNoConnectedNode, 0, one...)
	w.event("Router", "red", v1alpha1.ReasonNoConnectedNode)
	stop()
	w.connect(second, "office")
	w.create(seenAs("blue", "office"), overlay("blue-lan", "blue", "10.90.0.0/24", "fd00:90::/64"),
		floatingIP("default", "beside", v1alpha1.FloatingIPSpec{Network: "office"}))
	stop = w.start(nil)
	w.appears("red", v1alpha1.ReasonReady, 1, one...)
	blue := w.appears("blue", v1alpha1.ReasonReady, 1, "2")
	w.floats("default", "beside", v1alpha1.ReasonUnassociated, readyIP("", ""))
	if w.get(block); block.Status.ActiveNode != "worker2" {
		t.Errorf("the active node is lost: %+v", block.Status)
	}

	// Other addresses; one that is another's; and then that one, when the other gives it back.
	w.change(red, func() { red.Spec.Gateway.Addresses = []string{"192.0.2.40", "192.0.2.41"} })
	w.appears("red", v1alpha1.ReasonReady, 1, "192.0.2.40", "192.0.2.41")
	w.change(red, func() { red.Spec.Gateway.Addresses = []string{blue[0]} })
	w.appears("red", v1alpha1.ReasonAddressTaken, 1, "192.0.2.40", "192.0.2.41")
	w.event("Router", "red", v1alpha1.ReasonAddressTaken)
	w.get(red)
	if c := meta.FindStatusCondition(red.Status.Conditions, v1alpha1.ConditionGatewayReady); !strings.Contains(c.Message, "gateway of router blue") {
		t.Errorf("not said by what it is taken: %s", c.Message)
	}
	w.delete(overlay("blue-lan", "blue", "10.90.0.0/24"))
	w.delete(router("blue", nil, nil))
	w.appears("red", v1alpha1.ReasonReady, 1, blue[0])

	// Each node its own, and back; the Network waits for the Router.
	w.change(red, func() { red.Spec.Gateway.SNAT, red.Spec.Gateway.Addresses = v1alpha1.DistributedSNAT, nil })
	w.blockFor("red-lan", "10.90.0.0/28", "worker2", "")
	w.leads("red", v1alpha1.ReasonReady, "worker2")
	w.get(red)
	if len(red.Status.GatewayAddresses) > 0 {
		t.Errorf("addresses of the Router are left: %+v", red.Status)
	}
	w.change(red, func() { red.Spec.Gateway.SNAT = v1alpha1.NoSNAT })
	w.leads("red", v1alpha1.ReasonReady, "worker2")
	w.change(red, func() {
		red.Spec.Gateway.SNAT, red.Spec.Gateway.Addresses = v1alpha1.CentralizedSNAT, []string{"192.0.2.40", "2001:db8::40"}
	})
	w.appears("red", v1alpha1.ReasonWrongFamily, 1, "192.0.2.40")
	w.event("Router", "red", v1alpha1.ReasonWrongFamily)
	office := &v1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Name: "office"}}
	w.delete(office)
	w.blocked(office, "gateway of router red", "floatingip default/beside")
	w.appears("red", v1alpha1.ReasonNetworkNotReady, 0, "192.0.2.40")
	w.delete(floatingIP("default", "beside", v1alpha1.FloatingIPSpec{}))
	w.change(red, func() { red.Spec.Gateway = nil })
	w.until(func() string { return want(!w.get(office), "the Network is left") })
	stop()
}

// testBadCentralizedGateways is every way in which addresses of one can be wrong.
func testBadCentralizedGateways(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	w.start(nil)
	w.connected(1, "tiny,office")
	at := w.connected(2, "tiny,office")
	w.status(at, func() {
		at.Status.Addresses = append(at.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "192.0.2.77"})
	})
	w.create(external("office", "192.0.2.0/24"), external("tiny", "203.0.113.128/30"),
		floatingIP("default", "mine", v1alpha1.FloatingIPSpec{Network: "office", Address: "192.0.2.66"}))
	w.floats("default", "mine", v1alpha1.ReasonUnassociated, readyIP("192.0.2.66", ""))
	for i, c := range []struct {
		network, address, reason, part string
	}{
		{"nowhere", "192.0.2.50", v1alpha1.ReasonNetworkNotFound, "create it"},
		{"default", "192.0.2.50", v1alpha1.ReasonNotExternal, "external: true"},
		{"office", "203.0.113.9", v1alpha1.ReasonAddressOutside, "spec.gateway.addresses[0]: 203.0.113.9 is in no subnet of the Network: ask for another one"},
		{"office", "192.0.2.1", v1alpha1.ReasonAddressOutside, "is the gateway of 192.0.2.0/24"},
		{"office", "192.0.2.255", v1alpha1.ReasonAddressOutside, "is not an address of an interface"},
		{"office", "192.0.2.77", v1alpha1.ReasonAddressTaken, "192.0.2.77 is that of node worker2: ask for another one"},
		{"office", "192.0.2.66", v1alpha1.ReasonAddressTaken, "192.0.2.66 is that of floatingip default/mine: ask for another one"},
	} {
		name := fmt.Sprintf("bad-%d", i)
		nodes := 2
		if c.network != "office" {
			nodes = 0
		}
		r := seenAs(name, c.network, c.address)
		w.create(r, overlay(name+"-lan", name, "10.90.0.0/24"))
		w.appears(name, c.reason, nodes)
		w.event("Router", name, c.reason)
		w.get(r)
		if m := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionGatewayReady); m.Status != metav1.ConditionFalse ||
			!strings.Contains(m.Message, c.part) {
			t.Errorf("%s: %+v", name, m)
		}
	}
	w.create(seenAs("one", "tiny"), overlay("one-lan", "one", "10.90.0.0/24"))
	only := w.appears("one", v1alpha1.ReasonReady, 2, "1")
	w.create(seenAs("two", "tiny"), overlay("two-lan", "two", "10.90.0.0/24"))
	w.appears("two", v1alpha1.ReasonExhausted, 2)
	w.event("Router", "two", v1alpha1.ReasonExhausted)
	one := router("one", nil, nil)
	w.change(one, func() { one.Spec.Gateway = nil })
	w.appears("two", v1alpha1.ReasonReady, 2, only...)
}
