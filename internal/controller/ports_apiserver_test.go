// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controller_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/apitest"
	"coelan.io/coelan/internal/names"
	"coelan.io/coelan/internal/reserved"
	"coelan.io/coelan/internal/translate"
)

// blockFor makes the block of a node, as its agent does.
func (w *world) blockFor(network, cidr, node, port string) *v1alpha1.AddressBlock {
	w.Helper()
	b := &v1alpha1.AddressBlock{
		ObjectMeta: metav1.ObjectMeta{Name: names.BlockName(network, netip.MustParsePrefix(cidr))},
		Spec:       v1alpha1.AddressBlockSpec{Network: network, CIDR: cidr, Node: node, Port: port},
	}
	w.create(b)
	return b
}

func (w *world) block(network, cidr string) (*v1alpha1.AddressBlock, bool) {
	w.Helper()
	b := &v1alpha1.AddressBlock{ObjectMeta: metav1.ObjectMeta{Name: names.BlockName(network, netip.MustParsePrefix(cidr))}}
	return b, w.get(b)
}

// answer is what node worker1 says of a single address in its block.
func (w *world) answer(network, cidr string, granted bool) {
	w.Helper()
	var b *v1alpha1.AddressBlock
	w.until(func() string {
		var there bool
		b, there = w.block(network, cidr)
		return want(there, cidr+" is not claimed")
	})
	c := metav1.Condition{
		Type: v1alpha1.ConditionGranted, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonGranted,
		Message: translate.GrantMessage("worker1"),
	}
	if !granted {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonAddressTaken, "a pod has it"
	}
	w.status(b, func() { meta.SetStatusCondition(&b.Status.Conditions, c) })
}

// testUserPorts get addresses and MACs, keep them over restarts, and give them back.
func testUserPorts(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	stop := w.start(nil)
	node := w.node(1)
	w.namespace("vms", nil)
	n := overlay("dual", "", "10.80.0.0/24", "fd00:80::/64", "10.81.0.0/24")
	w.create(n, userPort("vms", "a", "dual"), userPort("vms", "b", "dual"))
	a, b := w.port("vms", "a", isReady), w.port("vms", "b", isReady)
	for _, p := range []*v1alpha1.Port{a, b} {
		if len(p.Status.Addresses) != 2 || !netip.MustParsePrefix("10.80.0.0/24").Contains(netip.MustParseAddr(p.Status.Addresses[0])) ||
			!netip.MustParsePrefix("fd00:80::/64").Contains(netip.MustParseAddr(p.Status.Addresses[1])) {
			t.Errorf("port %s has %v, want one of each family's first subnet", p.Name, p.Status.Addresses)
		}
		if want := reserved.PodMAC(netip.MustParseAddr(p.Status.Addresses[0])).String(); p.Status.MAC != want {
			t.Errorf("port %s has MAC %s, want %s", p.Name, p.Status.MAC, want)
		}
		if c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady); c.Reason != v1alpha1.ReasonNotBound || c.Status != metav1.ConditionTrue {
			t.Errorf("port %s: %+v", p.Name, c)
		}
	}
	if a.Status.Addresses[0] == b.Status.Addresses[0] || a.Status.Addresses[1] == b.Status.Addresses[1] {
		t.Errorf("both have %v", a.Status.Addresses)
	}
	stop()
	stop = w.start(nil)
	w.create(userPort("vms", "c", "dual"))
	c := w.port("vms", "c", isReady)
	for _, before := range []*v1alpha1.Port{a, b} {
		now := w.port("vms", before.Name, isReady)
		if !slices.Equal(now.Status.Addresses, before.Status.Addresses) || slices.Contains(c.Status.Addresses, before.Status.Addresses[0]) {
			t.Errorf("%s had %v and has %v; c has %v", now.Name, before.Status.Addresses, now.Status.Addresses, c.Status.Addresses)
		}
	}
	w.until(func() string {
		n := w.ready("dual")
		return want(n.Status.AddressesUsed == 6 && n.Status.Blocks == 0 && n.Status.AddressesFree == 1<<53-6, fmt.Sprintf("%+v", n.Status))
	})

	// Bound by an agent, until its node is gone.
	now := metav1.Now()
	w.status(a, func() { a.Status.Node, a.Status.Phase, a.Status.BoundTime = "worker1", v1alpha1.PortBound, &now })
	w.port("vms", "a", func(p *v1alpha1.Port) bool {
		return p.Status.Phase == v1alpha1.PortBound && meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady).Reason == v1alpha1.ReasonBound
	})
	stop()
	w.start(nil)
	w.port("vms", "a", func(p *v1alpha1.Port) bool { return p.Status.Phase == v1alpha1.PortBound })
	w.delete(node)
	w.port("vms", "a", func(p *v1alpha1.Port) bool {
		return isReady(p) && p.Status.Node == "" && p.Status.BoundTime == nil && slices.Equal(p.Status.Addresses, a.Status.Addresses)
	})

	for _, p := range []*v1alpha1.Port{a, b, c} {
		w.delete(p)
	}
	w.until(func() string {
		left := w.names(&v1alpha1.AddressBlockList{})
		return want(!strings.Contains(left, "-32") && !strings.Contains(left, "-128"), "claims are left: "+left)
	})
}

// testFixedPorts is addresses that were asked for, in blocks of nodes and outside of them.
func testFixedPorts(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	w.start(nil)
	w.node(1)
	w.namespace("fixed", nil)
	n := overlay("lan", "", "10.82.0.0/24")
	n.Spec.Subnets[0].Exclusions = []string{"10.82.0.200-10.82.0.210"}
	w.create(n)
	w.ready("lan")
	w.blockFor("lan", "10.82.0.16/28", "worker1", "")

	several := userPort("fixed", "several", "lan", "10.82.0.5", "10.82.0.205", "10.82.0.6")
	several.Spec.MAC = "02:00:00:00:00:05"
	w.create(several)
	p := w.port("fixed", "several", isReady)
	if !slices.Equal(p.Status.Addresses, several.Spec.Addresses) || p.Status.MAC != "02:00:00:00:00:05" {
		t.Errorf("port: %+v", p.Status)
	}

	w.create(userPort("fixed", "asks", "lan", "10.82.0.20"))
	w.port("fixed", "asks", func(p *v1alpha1.Port) bool {
		return p.Status.Phase == v1alpha1.PortPending && strings.Contains(p.Status.LastError, "node worker1") && len(p.Status.Addresses) == 0
	})
	w.answer("lan", "10.82.0.20/32", true)
	w.port("fixed", "asks", isReady)

	// A node that takes the block around an address later has no say any more.
	w.blockFor("lan", "10.82.0.0/28", "worker1", "")
	w.port("fixed", "several", isReady)
	if b, _ := w.block("lan", "10.82.0.5/32"); !meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.ConditionGranted) {
		t.Errorf("the claim: %+v", b.Status)
	}

	w.create(userPort("fixed", "refused", "lan", "10.82.0.21"))
	w.answer("lan", "10.82.0.21/32", false)
	w.failed("fixed", "refused", v1alpha1.ReasonAddressTaken)
	// With its block, the node's word is gone.
	if b, _ := w.block("lan", "10.82.0.16/28"); b != nil {
		w.delete(b)
	}
	w.port("fixed", "refused", isReady)
}

// testBadPorts is every way in which a Port can be wrong: each a condition and an Event, and others
// are not touched.
func testBadPorts(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	w.start(nil)
	ns := w.namespace("bad", nil)
	w.namespace("good", map[string]string{"may": "attach"})
	closed := overlay("closed", "", "10.84.0.0/24")
	closed.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"may": "attach"}}
	w.create(overlay("open", "", "10.83.0.0/24"), closed, overlay("tiny", "", "10.85.0.0/30"), overlay("stuck", "missing", "10.86.0.0/24"))
	w.ready("open")
	w.ready("closed")
	w.ready("tiny")
	first := userPort("bad", "first", "open", "10.83.0.5")
	first.Spec.MAC = "02:00:00:00:00:01"
	w.create(first, userPort("good", "allowed", "closed"), userPort("bad", "only", "tiny"))
	before := w.port("bad", "first", isReady)
	w.port("good", "allowed", isReady)
	w.port("bad", "only", isReady)

	mac := userPort("bad", "same-mac", "open")
	mac.Spec.MAC = "02:00:00:00:00:01"
	for _, c := range []struct {
		port   *v1alpha1.Port
		reason string
	}{
		{userPort("bad", "outside", "open", "10.83.1.5"), v1alpha1.ReasonAddressOutside},
		{userPort("bad", "broadcast", "open", "10.83.0.255"), v1alpha1.ReasonAddressOutside},
		{userPort("bad", "gateway", "open", "10.83.0.1"), v1alpha1.ReasonAddressTaken},
		{userPort("bad", "same-address", "open", "10.83.0.5"), v1alpha1.ReasonAddressTaken},
		{mac, v1alpha1.ReasonMACTaken},
		{userPort("bad", "not-allowed", "closed"), v1alpha1.ReasonNotAllowed},
		{userPort("bad", "exhausted", "tiny"), v1alpha1.ReasonExhausted},
		{userPort("bad", "on-default", "default"), v1alpha1.ReasonInvalid},
	} {
		w.create(c.port)
		w.failed("bad", c.port.Name, c.reason)
	}
	for name, network := range map[string]string{"unknown": "nowhere", "early": "stuck"} {
		w.create(userPort("bad", name, network))
		w.port("bad", name, func(p *v1alpha1.Port) bool {
			return p.Status.Phase == v1alpha1.PortPending && p.Status.LastError != ""
		})
	}
	w.event("Port", "unknown", v1alpha1.ReasonNetworkNotFound)
	w.event("Port", "early", v1alpha1.ReasonNetworkNotReady)
	if now := w.port("bad", "first", isReady); now.ResourceVersion != before.ResourceVersion {
		t.Errorf("another Port was touched: %+v, was %+v", now.Status, before.Status)
	}

	// What was in the way goes, what was missing comes.
	w.delete(first)
	w.port("bad", "same-address", isReady)
	w.port("bad", "same-mac", isReady)
	w.delete(userPort("bad", "only", "tiny"))
	w.port("bad", "exhausted", isReady)
	w.create(overlay("nowhere", "", "10.87.0.0/24"), router("missing", nil, nil))
	w.port("bad", "unknown", isReady)
	w.port("bad", "early", isReady)
	ns.Labels = map[string]string{"may": "attach"}
	if err := w.client.Update(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	w.port("bad", "not-allowed", isReady)
}

// testGarbage is what a node leaves when it is gone: its blocks, and the Ports of its pods.
func testGarbage(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	w.start(nil)
	node := w.node(1)
	w.node(2)
	w.namespace("lost", nil)
	w.create(overlay("lan", "", "10.88.0.0/24"))
	w.ready("lan")
	pod, other := w.pod("lost", "p", "worker1"), w.pod("lost", "q", "worker2")
	w.podPort(pod, "lan", "10.88.0.5")
	w.podPort(other, "lan", "10.88.0.20")
	w.blockFor("lan", "10.88.0.0/28", "worker1", "")
	w.blockFor("lan", "10.88.0.16/28", "worker2", "")
	w.blockFor("lan", "10.88.0.99/32", "worker1", "lost/p.net1")
	w.blockFor("lan", "10.88.0.98/32", "worker2", "lost/soon.net1")
	w.delete(node)
	w.settles(func() string {
		ports, blocks := w.names(&v1alpha1.PortList{}), w.names(&v1alpha1.AddressBlockList{})
		if ports != "q.eth0" || blocks != "lan-10-88-0-16-28 lan-10-88-0-98-32" {
			return fmt.Sprintf("Ports %q, blocks %q", ports, blocks)
		}
		return ""
	})
	// A pod that was replaced by one of the same name.
	w.delete(other)
	w.pod("lost", "q", "worker2")
	w.until(func() string {
		return want(w.names(&v1alpha1.PortList{}) == "", "the Port of a pod that was replaced is left")
	})

	w.until(func() string {
		n := w.ready("lan")
		return want(n.Status.Blocks == 1 && n.Status.AddressesUsed == 0 && n.Status.AddressesFree == 253, fmt.Sprintf("%+v", n.Status))
	})
}

// testGrants is a node that wants an address of the controller's own block.
func testGrants(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	w.start(nil)
	w.node(1)
	w.namespace("g", nil)
	w.create(overlay("lan", "", "10.89.0.0/24"), userPort("g", "vm", "lan"))
	vm := w.port("g", "vm", isReady)
	used := netip.MustParseAddr(vm.Status.Addresses[0])
	claim := w.blockFor("lan", netip.PrefixFrom(used.Next(), 32).String(), "worker1", "g/pod.net1")
	w.until(func() string {
		w.get(claim)
		return want(meta.IsStatusConditionTrue(claim.Status.Conditions, v1alpha1.ConditionGranted), "not granted")
	})
	w.create(userPort("g", "next", "lan"))
	next := w.port("g", "next", isReady)
	if next.Status.Addresses[0] == used.Next().String() {
		t.Errorf("an address that a node has was given away: %v", next.Status.Addresses)
	}
}
