// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/controller/reconcile/reconciletest"
)

// centralizedRouter asks for addresses of the Network lan, and has some by its status.
func centralizedRouter(asks, has string) *v1alpha1.Router {
	r := testRouter("lan")
	r.Spec.Gateway.SNAT = v1alpha1.CentralizedSNAT
	r.Spec.Gateway.Addresses, r.Status.GatewayAddresses = strings.Fields(asks), strings.Fields(has)
	return r
}

// shared is the block of an address that the controller has made for the gateway of Router red.
func shared(address string, age time.Duration) *v1alpha1.AddressBlock {
	return gatewayOf(address, "red/*", age)
}

// What a Router has it keeps; new addresses come before the old ones go; and what is another's, it
// does not get.
func TestCentralizedGateways(t *testing.T) {
	own := testBlock("lan-10-0-0-240-28", "10.0.0.240/28", "", "", time.Hour)
	nodes := testBlock("lan-10-0-0-0-28", "10.0.0.0/28", "w1", "", time.Hour)
	good := []client.Object{inRouter()[0], connectedNode("w1", "office"), connectedNode("w2", "office"), own}
	with := func(more ...client.Object) []client.Object { return append(slices.Clone(good), more...) }
	notReady, other := externalNetwork(), externalNetwork()
	notReady.Status.ID, other.Name = 0, "another"
	none, selecting := centralizedRouter("10.0.0.245", "10.0.0.245"), centralizedRouter("", "10.0.0.245")
	none.Spec.Gateway.Network = "nowhere"
	selecting.Spec.Gateway.Nodes = &metav1.LabelSelector{MatchLabels: map[string]string{"edge": ""}}
	bad := centralizedRouter("10.0.0.246", "10.0.0.245")
	bad.Spec.Gateway.Nodes = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}
	moved := centralizedRouter("", "10.0.0.245")
	moved.Spec.Gateway.Network = "another"
	ofNodes := testRouter("lan")
	ofNodes.Status.GatewayAddresses = []string{"10.0.0.245"}
	gone := testRouter("")
	gone.Status.GatewayAddresses = []string{"10.0.0.245"}
	atNode := connectedNode("w1", "office")
	atNode.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.246"}}
	granted := func(b *v1alpha1.AddressBlock, status metav1.ConditionStatus, message string) *v1alpha1.AddressBlock {
		b.Spec.Grantor = "w1"
		return grantedBy(b, status, message)
	}
	for _, c := range []struct {
		name    string
		router  *v1alpha1.Router
		network *v1alpha1.Network // nil: a good one
		others  []client.Object
		want    string
	}{
		{"of a Network that is not there", none, nil, with(shared("10.0.0.245", 0)), "False NetworkNotFound 0 [10.0.0.245=red/*]"},
		{"of a Network that is not ready", centralizedRouter("10.0.0.246", "10.0.0.245"), notReady, with(shared("10.0.0.245", 0)),
			"False NetworkNotReady 0 [10.0.0.245=red/*] as [10.0.0.245]"},
		{"with a bad selector", bad, nil, with(shared("10.0.0.245", 0)), "False Invalid 0 [10.0.0.245=red/*] as [10.0.0.245]"},
		{"of no connected node", selecting, nil, with(shared("10.0.0.245", 0)), "False NoConnectedNode 0 [10.0.0.245=red/*] as [10.0.0.245]"},
		{"of no connected node, new", centralizedRouter("", ""), nil, []client.Object{inRouter()[0], connectedNode("w1", "other"), own},
			"False NoConnectedNode 0 [10.0.0.240=red/*] as [10.0.0.240]"},
		{"outside", centralizedRouter("10.0.1.5", ""), nil, good, "False AddressOutside 2 []"},
		{"outside of the ranges", centralizedRouter("10.0.0.100 10.0.0.246", ""), nil, good,
			"False AddressOutside 2 [10.0.0.246=red/*] as [10.0.0.246]"},
		{"of a node", centralizedRouter("10.0.0.246", ""), nil, []client.Object{inRouter()[0], atNode, own}, "False AddressTaken 1 []"},
		{"of a FloatingIP", centralizedRouter("10.0.0.246", ""), nil, with(claimed("10.0.0.246", "f")), "False AddressTaken 2 [10.0.0.246=a/f]"},
		{"of another Router", centralizedRouter("10.0.0.246", ""), nil, with(gatewayOf("10.0.0.246", "blue/*", 0)),
			"False AddressTaken 2 [10.0.0.246=blue/*]"},
		{"of another family", centralizedRouter("2001:db8::5", ""), nil, good, "False AddressOutside 2 []"},

		{"new", centralizedRouter("", ""), nil, good, "True Ready 2 [10.0.0.240=red/*] as [10.0.0.240]"},
		{"new, as asked for", centralizedRouter("10.0.0.246 10.0.0.242", ""), nil, good,
			"True Ready 2 [10.0.0.242=red/* 10.0.0.246=red/*] as [10.0.0.242 10.0.0.246]"},
		{"with what it has", centralizedRouter("", "10.0.0.245"), nil, with(shared("10.0.0.245", 0)), "True Ready 2 [10.0.0.245=red/*] as [10.0.0.245]"},
		{"with its claim, of which the status does not know", centralizedRouter("", ""), nil, with(shared("10.0.0.245", 0)),
			"True Ready 2 [10.0.0.245=red/*] as [10.0.0.245]"},
		{"with its status, and the claim is lost", centralizedRouter("", "10.0.0.245"), nil, good, "True Ready 2 [10.0.0.245=red/*] as [10.0.0.245]"},
		{"with its status, and the claim is another's", centralizedRouter("", "10.0.0.245"), nil, with(claimed("10.0.0.245", "f")),
			"True Ready 2 [10.0.0.240=red/* 10.0.0.245=a/f] as [10.0.0.240]"},
		{"with a later claim, of a new leader", centralizedRouter("", "10.0.0.245"), nil,
			with(shared("10.0.0.245", time.Second), shared("10.0.0.240", time.Hour)), "True Ready 2 [10.0.0.245=red/*] as [10.0.0.245]"},
		{"with other addresses", centralizedRouter("10.0.0.246", "10.0.0.245"), nil, with(shared("10.0.0.245", 0)),
			"True Ready 2 [10.0.0.246=red/*] as [10.0.0.246]"},
		{"with more addresses", centralizedRouter("10.0.0.246 10.0.0.245", "10.0.0.245"), nil, with(shared("10.0.0.245", 0)),
			"True Ready 2 [10.0.0.245=red/* 10.0.0.246=red/*] as [10.0.0.245 10.0.0.246]"},
		{"with another address that is taken", centralizedRouter("10.0.0.246", "10.0.0.245"), nil,
			with(shared("10.0.0.245", 0), claimed("10.0.0.246", "f")), "False AddressTaken 2 [10.0.0.245=red/* 10.0.0.246=a/f] as [10.0.0.245]"},
		{"with two others, one of which is taken", centralizedRouter("10.0.0.246 10.0.0.247", "10.0.0.245"), nil,
			with(shared("10.0.0.245", 0), claimed("10.0.0.246", "f")), "False AddressTaken 2 [10.0.0.246=a/f 10.0.0.247=red/*] as [10.0.0.247]"},
		{"without asking any more", centralizedRouter("", "10.0.0.245 10.0.0.246"), nil,
			with(shared("10.0.0.245", 0), shared("10.0.0.246", 0)), "True Ready 2 [10.0.0.245=red/*] as [10.0.0.245]"},
		{"that led to another Network", moved, other, with(externalNetwork(), shared("10.0.0.245", 0)), "True Ready 2 [10.0.0.245=red/*] as [10.0.0.245]"},
		{"that was of its nodes", centralizedRouter("", ""), nil, with(gatewayOf("10.0.0.245", "red/w1", 0)),
			"True Ready 2 [10.0.0.240=red/*] as [10.0.0.240]"},
		{"that is of its nodes now", ofNodes, nil, append(inRouter("w1"), connectedNode("w1", "office"), own, shared("10.0.0.245", 0)),
			"True Ready 1 [10.0.0.240=red/w1]"},
		{"none any more", gone, nil, with(shared("10.0.0.245", 0), gatewayOf("10.0.0.246", "blue/*", 0)), "0 [10.0.0.246=blue/*]"},

		{"in a node's block", centralizedRouter("10.0.0.5", ""), nil, with(nodes), "False WaitingForNode 2 [10.0.0.5=red/*]"},
		{"in a node's block, granted", centralizedRouter("10.0.0.5", ""), nil,
			with(nodes, granted(shared("10.0.0.5", 0), metav1.ConditionTrue, "node w1, which has the block, does not hand it out")),
			"True Ready 2 [10.0.0.5=red/*] as [10.0.0.5]"},
		{"in a node's block, refused", centralizedRouter("10.0.0.5", ""), nil,
			with(nodes, granted(shared("10.0.0.5", 0), metav1.ConditionFalse, "node w1, which has the block: a pod has it")),
			"False AddressTaken 2 [10.0.0.5=red/*]"},
		{"in a node's block, while another one is in effect", centralizedRouter("10.0.0.5", "10.0.0.245"), nil, with(nodes, shared("10.0.0.245", 0)),
			"False WaitingForNode 2 [10.0.0.245=red/* 10.0.0.5=red/*] as [10.0.0.245]"},
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
