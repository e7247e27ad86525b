// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/controller/reconcile/reconciletest"
)

func testRouter(network string) *v1alpha1.Router {
	r := &v1alpha1.Router{ObjectMeta: metav1.ObjectMeta{Name: "red", UID: "red"}}
	if network != "" {
		r.Spec.Gateway = &v1alpha1.RouterGateway{Network: network}
	}
	return r
}

// connectedNode says which physical networks it is connected to.
func connectedNode(name, physical string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Annotations: map[string]string{v1alpha1.AnnotationPhysicalNetworks: physical},
	}}
}

// gatewayOf is the block of an address that the controller has made for a gateway.
func gatewayOf(address, gateway string, age time.Duration) *v1alpha1.AddressBlock {
	b := testBlock("lan-"+strings.ReplaceAll(address, ".", "-")+"-32", address+"/32", "", "", age)
	b.Spec.Gateway = gateway
	return b
}

// inRouter is a Network of the Router red, and what nodes have of it.
func inRouter(nodes ...string) []client.Object {
	n := testNetwork(time.Hour)
	n.Name, n.Spec.Router, n.Spec.Subnets[0].CIDR = "inside", "red", "10.9.0.0/24"
	objects := []client.Object{n}
	for i, node := range nodes {
		b := testBlock("inside-"+node, fmt.Sprintf("10.9.0.%d/28", i*16), node, "", time.Hour)
		b.Spec.Network = "inside"
		objects = append(objects, b)
	}
	return objects
}

// led is the Router after its reconciliation, with the blocks of single addresses that are there
// then.
func led(t *testing.T, a *reconcile.Access) string {
	t.Helper()
	r, o := &gateways{Access: a, claims: claims{a}}, testRouter("")
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(o)}); err != nil {
		t.Fatal(err)
	}
	if err := a.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		t.Fatal(err)
	}
	left := singles(t, a)
	text := fmt.Sprintf("%d %v", o.Status.GatewayNodes, left)
	if len(o.Status.GatewayAddresses) > 0 {
		text += fmt.Sprintf(" as %v", o.Status.GatewayAddresses)
	}
	if c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionGatewayReady); c != nil {
		text = fmt.Sprintf("%s %s ", c.Status, c.Reason) + text
	}
	return text
}

// singles are the blocks of single addresses, each with what it is for.
func singles(t *testing.T, a *reconcile.Access) (list []string) {
	t.Helper()
	blocks := &v1alpha1.AddressBlockList{}
	if err := a.List(t.Context(), blocks); err != nil {
		t.Fatal(err)
	}
	for _, b := range blocks.Items {
		if _, single := address(&b); single {
			list = append(list, strings.TrimSuffix(b.Spec.CIDR, "/32")+"="+b.Spec.FloatingIP+b.Spec.Port+b.Spec.Gateway+b.Spec.Egress)
		}
	}
	slices.Sort(list)
	return list
}

// What a gateway has, it keeps; what it may not have, it gives back, and no one else's.
func TestGateways(t *testing.T) {
	own := testBlock("lan-10-0-0-240-28", "10.0.0.240/28", "", "", time.Hour)
	good := append(inRouter("w1"), connectedNode("w1", "office"))
	with := func(more ...client.Object) []client.Object { return append(slices.Clone(good), more...) }
	has := gatewayOf("10.0.0.245", "red/w1", time.Minute)
	silent := connectedNode("w1", "")
	silent.Annotations = nil
	notReady, inner, other := externalNetwork(), externalNetwork(), externalNetwork()
	notReady.Status.ID, inner.Spec.External, other.Name = 0, false, "another"
	conflict := testRouter("lan")
	conflict.Spec.Routes = []v1alpha1.Route{{Destination: "0.0.0.0/0", NextHop: "10.9.0.9"}}
	selecting := testRouter("lan")
	selecting.Spec.Gateway.Nodes = &metav1.LabelSelector{MatchLabels: map[string]string{"edge": ""}}
	bad := testRouter("lan")
	bad.Spec.Gateway.Nodes = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}
	port := &v1alpha1.Port{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "vm"}, Spec: v1alpha1.PortSpec{Network: "inside"},
		Status: v1alpha1.PortStatus{Node: "w2"},
	}
	for _, c := range []struct {
		name    string
		router  *v1alpha1.Router
		network *v1alpha1.Network // nil: a good one
		others  []client.Object
		want    string
	}{
		{"of a Network that is not there", testRouter("nowhere"), nil, with(own, has), "False NetworkNotFound 0 [10.0.0.245=red/w1]"},
		{"of a Network that does not lead outside", testRouter("lan"), inner, with(own, has, claimed("10.0.0.246", "f")),
			"False NetworkNotExternal 0 [10.0.0.246=a/f]"},
		{"of a Network that is not ready", testRouter("lan"), notReady, with(own, has), "False NetworkNotReady 1 [10.0.0.245=red/w1]"},
		{"beside a default route", conflict, nil, with(own, has), "False RouteConflict 0 []"},
		{"with a bad selector", bad, nil, with(own, has), "False Invalid 1 [10.0.0.245=red/w1]"},
		{"with a bad selector, new", bad, nil, good, "False Invalid 0 []"},
		{"that selects no connected node", selecting, nil, with(own, has), "False NoConnectedNode 0 []"},
		{"of a node that is not connected", testRouter("lan"), nil, append(inRouter("w1"), connectedNode("w1", "other"), own, has),
			"False NoConnectedNode 0 []"},
		{"of a node that says nothing", testRouter("lan"), nil, append(inRouter("w1"), silent), "False NoConnectedNode 0 []"},
		{"none any more", testRouter(""), nil, with(own, has, gatewayOf("10.0.0.246", "blue/w1", 0)), "0 [10.0.0.246=blue/w1]"},

		{"new", testRouter("lan"), nil, good, "True Ready 1 [10.0.0.240=red/w1]"},
		{"beside others", testRouter("lan"), nil, with(own, claimed("10.0.0.240", "f"), gatewayOf("10.0.0.241", "blue/w1", 0),
			testBlock("lan-10-0-0-242-32", "10.0.0.242/32", "", "a/vm", 0)),
			"True Ready 1 [10.0.0.240=a/f 10.0.0.241=blue/w1 10.0.0.242=a/vm 10.0.0.243=red/w1]"},
		{"with its claim", testRouter("lan"), nil, with(own, has), "True Ready 1 [10.0.0.245=red/w1]"},
		{"with its claim, while its node says nothing", testRouter("lan"), nil, append(inRouter("w1"), silent, own, has),
			"True Ready 1 [10.0.0.245=red/w1]"},
		{"with its claim, while its node is not known", testRouter("lan"), nil,
			append(inRouter("w1", "w2"), connectedNode("w2", "office"), own, has), "True Ready 1 [10.0.0.240=red/w2 10.0.0.245=red/w1]"},
		{"with a later claim, of a new leader", testRouter("lan"), nil, with(own, has, gatewayOf("10.0.0.240", "red/w1", time.Second)),
			"True Ready 1 [10.0.0.245=red/w1]"},
		{"that led to another Network", testRouter("another"), other, with(own, has, inner), "True Ready 1 [10.0.0.240=red/w1]"},
		{"of two nodes, one with a Port alone", testRouter("lan"), nil, with(connectedNode("w2", "a,office,z"), connectedNode("w3", "office"), port),
			"True Ready 2 [10.0.0.240=red/w1 10.0.0.241=red/w2]"},
		{"of two nodes, one not connected", testRouter("lan"), nil, with(connectedNode("w2", "z"), port),
			"True NodesNotConnected 1 [10.0.0.240=red/w1]"},
		{"of a node that has nothing any more", testRouter("lan"), nil, append(inRouter(), connectedNode("w1", "office"), own, has),
			"True Ready 0 []"},
	} {
		network := c.network
		if network == nil {
			network = externalNetwork()
		}
		network = network.DeepCopy()
		network.Spec.PhysicalNetwork = "office"
		objects := []client.Object{c.router.DeepCopy(), network}
		for _, o := range c.others {
			objects = append(objects, o.DeepCopyObject().(client.Object))
		}
		a := reconciletest.Access(objects...)
		got := led(t, a)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
		if again := led(t, a); again != got {
			t.Errorf("%s, once more: %s, was %s", c.name, again, got)
		}
	}
}

// A leader that does not know yet what the leader before it has acted upon gives nothing back.
func TestOldRouterReleasesNothing(t *testing.T) {
	now := testRouter("lan")
	now.Generation = 2
	has := gatewayOf("10.0.0.245", "red/w1", time.Minute)
	a := reconciletest.Access(testRouter(""), has)
	a.Live = reconciletest.Access(now).Client
	r := &gateways{Access: a, claims: claims{a}}
	result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(now)})
	if err != nil || result.RequeueAfter == 0 {
		t.Errorf("%+v, %v", result, err)
	}
	if err := a.Get(t.Context(), client.ObjectKeyFromObject(has), has); err != nil {
		t.Error(err)
	}
}

// What has no owner any more is removed, and nothing else.
func TestGatewayBlocksWithoutOwner(t *testing.T) {
	for _, c := range []struct {
		name, gateway string
		left          bool
	}{
		{"both are there", "red/w1", true},
		{"the Router is gone", "blue/w1", false},
		{"the node is gone", "red/w2", false},
		{"no node is named", "blue", false},
		{"any node", "red/*", true},
		{"any node, and the Router is gone", "blue/*", false},
	} {
		b := gatewayOf("10.0.0.245", c.gateway, time.Second)
		a := reconciletest.Access(testRouter("lan"), externalNetwork(), connectedNode("w1", "office"), b)
		r := &blocks{Access: a, claims: claims{a}}
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(b)}); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if left := a.Get(t.Context(), client.ObjectKeyFromObject(b), b) == nil; left != c.left {
			t.Errorf("%s: left %t", c.name, left)
		}
	}
}

// Whatever a gateway is judged by asks for its Router, and what is not asks for none.
func TestGatewayWatches(t *testing.T) {
	without := testRouter("")
	without.Name = "blue"
	a := reconciletest.Access(append(inRouter("w1"), testRouter("lan"), without, externalNetwork())...)
	w, inside := watches{a}, testNetwork(0)
	inside.Name, inside.Spec.Router = "inside", "red"
	elsewhere := testNetwork(0)
	elsewhere.Name = "blue"
	port := func(network string) *v1alpha1.Port {
		return &v1alpha1.Port{Spec: v1alpha1.PortSpec{Network: network}}
	}
	block := func(network, node, gateway string) *v1alpha1.AddressBlock {
		return &v1alpha1.AddressBlock{Spec: v1alpha1.AddressBlockSpec{Network: network, Node: node, Gateway: gateway}}
	}
	for name, c := range map[string]struct {
		requests []ctrl.Request
		want     string
	}{
		"a Network of it":            {w.gatewaysOfNetwork(t.Context(), inside), "[/red]"},
		"the external Network":       {w.gatewaysOfNetwork(t.Context(), externalNetwork()), "[/red]"},
		"another Network":            {w.gatewaysOfNetwork(t.Context(), elsewhere), "[]"},
		"a node":                     {w.allGateways(t.Context(), connectedNode("w1", "")), "[/red]"},
		"a Port":                     {w.gatewaysOfPort(t.Context(), port("inside")), "[/red]"},
		"a Port of no Network":       {w.gatewaysOfPort(t.Context(), port("nowhere")), "[]"},
		"a Port of another":          {w.gatewaysOfPort(t.Context(), port("lan")), "[]"},
		"a node's block":             {w.gatewaysOfBlock(t.Context(), block("inside", "w1", "")), "[/red]"},
		"a block of the controller":  {w.gatewaysOfBlock(t.Context(), block("inside", "", "")), "[]"},
		"an address of a gateway":    {w.gatewaysOfBlock(t.Context(), block("lan", "", "gone/w1")), "[/gone]"},
		"an address, nothing lacked": {w.gatewaysWithout(t.Context(), block("lan", "", "")), "[]"},
	} {
		if got := fmt.Sprint(c.requests); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// Without addresses a Router waits, says which nodes lack one, and gets what others leave.
func TestGatewaysExhausted(t *testing.T) {
	network := externalNetwork()
	network.Spec.PhysicalNetwork, network.Spec.Subnets = "office", []v1alpha1.Subnet{{CIDR: "192.0.2.0/30"}}
	objects := append(inRouter("w1", "w2"), testRouter("lan"), network, connectedNode("w1", "office"), connectedNode("w2", "office"))
	a := reconciletest.Access(objects...)
	if got := led(t, a); got != "False AddressesExhausted 1 [192.0.2.2=red/w1]" {
		t.Error(got)
	}
	o := testRouter("")
	if err := a.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		t.Fatal(err)
	}
	const want = "no address for node w2: all addresses of 192.0.2.0/30 are taken or in blocks of nodes: add a subnet to the Network, or select fewer nodes in spec.gateway.nodes"
	if c := o.Status.Conditions[0]; c.Message != want {
		t.Errorf("%q", c.Message)
	}
	left := &v1alpha1.AddressBlock{Spec: v1alpha1.AddressBlockSpec{Network: "lan"}}
	if requests := (watches{a}).gatewaysWithout(t.Context(), left); len(requests) != 1 {
		t.Errorf("a block that is gone asks for %v", requests)
	}
}
