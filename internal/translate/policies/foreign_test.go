// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/translate"
	"coelan.io/coelan/internal/translate/translatetest"
)

// What a node says of its pods' addresses counts as far as the addresses are the node's: of its
// podCIDRs, of its blocks, or claimed for a Port of the pod.
func TestAddressesThatANodeMayGive(t *testing.T) {
	answered := func(b *v1alpha1.AddressBlock, status metav1.ConditionStatus, message string) *v1alpha1.AddressBlock {
		b.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionGranted, Status: status, Message: message}}
		return b
	}
	granted := func(b *v1alpha1.AddressBlock, by string) *v1alpha1.AddressBlock {
		return answered(b, metav1.ConditionTrue, translate.GrantMessage(by))
	}
	made := func(b *v1alpha1.AddressBlock, second int64) *v1alpha1.AddressBlock {
		b.CreationTimestamp = metav1.Unix(second, 0)
		return b
	}
	claim := func() *v1alpha1.AddressBlock { return endpointBlock("green-net", "10.8.0.9/32", "n1", "a/p.net1") }
	around := func() *v1alpha1.AddressBlock { return endpointBlock("green-net", "10.8.0.0/28", "n2", "") }
	const bad = "port p.net1: status.addresses 10.8.0.9"
	renamed := func(b *v1alpha1.AddressBlock) *v1alpha1.AddressBlock {
		b.Name = "another"
		return b
	}
	onNode := func(p *v1alpha1.Port, node string) *v1alpha1.Port {
		p.Spec.Node = node
		return p
	}
	port := func(network, address string, onNode ...string) *v1alpha1.Port {
		return endpointPort("p.net1", network, ofPod("p", "1", "eth0"), []string{address}, onNode...)
	}
	tests := []struct {
		name    string
		podIPs  []string
		objects []any
		places  string // of the pod
		bad     string // "field value" of the Problems
	}{
		{name: "of its podCIDRs", podIPs: []string{"10.244.1.5", "fd00::5"}, places: "default:10.244.1.5 default:fd00::5"},
		{name: "of another node's podCIDRs", podIPs: []string{"10.244.2.5"}, bad: "status.podIPs 10.244.2.5"},
		{name: "of one family only", podIPs: []string{"10.244.1.5", "fd00:2::5"}, places: "default:10.244.1.5", bad: "status.podIPs fd00:2::5"},
		{name: "of no node", podIPs: []string{"198.51.100.5"}, bad: "status.podIPs 198.51.100.5"},
		{name: "of a node", podIPs: []string{"192.0.2.1"}, bad: "status.podIPs 192.0.2.1"},

		{name: "of its node's block of a shared Network", podIPs: []string{"10.8.0.5"},
			objects: []any{endpointBlock("green-net", "10.8.0.0/28", "n1", "")}, places: "default:10.8.0.5"},
		{name: "of another node's block", podIPs: []string{"10.8.0.5"},
			objects: []any{endpointBlock("green-net", "10.8.0.0/28", "n2", "")}, bad: "status.podIPs 10.8.0.5"},
		{name: "of a block of a private Network", podIPs: []string{"10.9.0.5"},
			objects: []any{endpointBlock("red-net", "10.9.0.0/28", "n1", "")}, bad: "status.podIPs 10.9.0.5"},
		{name: "of the controller's block", podIPs: []string{"10.8.0.5"},
			objects: []any{endpointBlock("green-net", "10.8.0.0/28", "", "")}, bad: "status.podIPs 10.8.0.5"},

		{name: "a Port on a private Network", podIPs: []string{"10.244.1.5"},
			objects: []any{endpointBlock("red-net", "10.9.0.0/28", "n1", ""), port("red-net", "10.9.0.5", "10.244.1.5")},
			places:  "default:10.244.1.5 red:10.9.0.5"},
		{name: "a Port in another node's block", podIPs: []string{"10.244.1.5"},
			objects: []any{endpointBlock("red-net", "10.9.0.0/28", "n2", ""), port("red-net", "10.9.0.5", "10.244.1.5")},
			places:  "default:10.244.1.5", bad: "port p.net1: status.addresses 10.9.0.5"},
		{name: "a Port in its node's block of another Network", podIPs: []string{"10.244.1.5"},
			objects: []any{endpointBlock("green-net", "10.9.0.0/28", "n1", ""), port("red-net", "10.9.0.5")},
			places:  "default:10.244.1.5", bad: "port p.net1: status.addresses 10.9.0.5"},
		{name: "a Port whose address in the cluster is another node's", podIPs: []string{"10.244.1.5"},
			objects: []any{endpointBlock("red-net", "10.9.0.0/28", "n1", ""), port("red-net", "10.9.0.5", "10.244.2.5")},
			places:  "default:10.244.1.5 red:10.9.0.5", bad: "port p.net1: status.nodeAddresses 10.244.2.5"},
		{name: "a Port that another node has made", podIPs: []string{"10.244.1.5"},
			objects: []any{endpointBlock("red-net", "10.9.0.0/28", "n1", ""), onNode(port("red-net", "10.9.0.5"), "n2")},
			places:  "default:10.244.1.5"},

		{name: "a fixed address", podIPs: []string{"10.8.0.9"},
			objects: []any{endpointBlock("green-net", "10.8.0.9/32", "n1", "a/p.net1"), port("green-net", "10.8.0.9")}, places: "default:10.8.0.9"},
		{name: "a fixed address that is claimed for another Port", podIPs: []string{"10.8.0.9"},
			objects: []any{endpointBlock("green-net", "10.8.0.9/32", "n1", "a/q.net1"), port("green-net", "10.8.0.9")},
			bad:     "port p.net1: status.addresses 10.8.0.9, status.podIPs 10.8.0.9"},
		{name: "a fixed address that has gone with its Port to another node", podIPs: []string{"10.244.1.5"},
			objects: []any{endpointBlock("green-net", "10.8.0.9/32", "n2", "a/p.net1"), port("green-net", "10.8.0.9")},
			places:  "default:10.244.1.5", bad: "port p.net1: status.addresses 10.8.0.9"},
		{name: "a fixed address in another node's block, unanswered", podIPs: []string{"10.244.1.5"},
			objects: []any{claim(), around(), port("green-net", "10.8.0.9")}, places: "default:10.244.1.5", bad: bad},
		{name: "granted by that node", podIPs: []string{"10.244.1.5"},
			objects: []any{granted(claim(), "n2"), around(), port("green-net", "10.8.0.9")}, places: "default:10.8.0.9 default:10.244.1.5"},
		{name: "granted by the controller", podIPs: []string{"10.244.1.5"},
			objects: []any{granted(claim(), ""), around(), port("green-net", "10.8.0.9")}, places: "default:10.8.0.9 default:10.244.1.5"},
		{name: "granted by itself", podIPs: []string{"10.244.1.5"},
			objects: []any{granted(claim(), "n1"), around(), port("green-net", "10.8.0.9")}, places: "default:10.244.1.5", bad: bad},
		{name: "granted by a third node", podIPs: []string{"10.244.1.5"},
			objects: []any{granted(claim(), "n3"), around(), port("green-net", "10.8.0.9")}, places: "default:10.244.1.5", bad: bad},
		{name: "refused by that node", podIPs: []string{"10.244.1.5"},
			objects: []any{answered(claim(), metav1.ConditionFalse, translate.RefusalMessage("n2", "a pod has it")), around(), port("green-net", "10.8.0.9")},
			places:  "default:10.244.1.5", bad: bad},
		{name: "refused by a third node, where no node has the block", podIPs: []string{"10.244.1.5"},
			objects: []any{answered(claim(), metav1.ConditionFalse, translate.RefusalMessage("n3", "a pod has it")), port("green-net", "10.8.0.9")},
			places:  "default:10.8.0.9 default:10.244.1.5"},
		{name: "older than the block around it", podIPs: []string{"10.244.1.5"},
			objects: []any{made(claim(), 1), made(around(), 2), port("green-net", "10.8.0.9")}, places: "default:10.8.0.9 default:10.244.1.5"},
		{name: "younger than the block around it", podIPs: []string{"10.244.1.5"},
			objects: []any{made(claim(), 2), made(around(), 1), port("green-net", "10.8.0.9")}, places: "default:10.244.1.5", bad: bad},
		{name: "in its own node's block", podIPs: []string{"10.244.1.5"},
			objects: []any{claim(), endpointBlock("green-net", "10.8.0.0/28", "n1", ""), port("green-net", "10.8.0.9")},
			places:  "default:10.8.0.9 default:10.244.1.5"},
		{name: "a claim of a gateway's address", podIPs: []string{"10.244.1.5"},
			objects: []any{endpointBlock("green-net", "10.8.0.1/32", "n1", "a/p.net1"), port("green-net", "10.8.0.1")},
			places:  "default:10.244.1.5", bad: "port p.net1: status.addresses 10.8.0.1"},
		{name: "a claim outside of the subnets", podIPs: []string{"10.244.1.5"},
			objects: []any{endpointBlock("green-net", "10.7.0.9/32", "n1", "a/p.net1"), port("green-net", "10.7.0.9")},
			places:  "default:10.244.1.5", bad: "port p.net1: status.addresses 10.7.0.9"},
		{name: "a block that is a whole subnet", podIPs: []string{"10.8.0.9"},
			objects: []any{endpointBlock("green-net", "10.8.0.0/24", "n1", ""), port("green-net", "10.8.0.9")},
			bad:     bad + ", status.podIPs 10.8.0.9"},
		{name: "a part of another node's block", podIPs: []string{"10.8.0.9"},
			objects: []any{endpointBlock("green-net", "10.8.0.8/30", "n1", ""), around(), port("green-net", "10.8.0.9")},
			bad:     bad + ", status.podIPs 10.8.0.9"},
		{name: "another node's block by another name", podIPs: []string{"10.8.0.9"},
			objects: []any{renamed(endpointBlock("green-net", "10.8.0.0/28", "n1", "")), around(), port("green-net", "10.8.0.9")},
			bad:     bad + ", status.podIPs 10.8.0.9"},
		{name: "a claim by another name", podIPs: []string{"10.244.1.5"},
			objects: []any{renamed(endpointBlock("green-net", "10.8.0.9/32", "n1", "a/p.net1")), port("green-net", "10.8.0.9")},
			places:  "default:10.244.1.5", bad: "port p.net1: status.addresses 10.8.0.9"},
		{name: "a claim without the Port", podIPs: []string{"10.8.0.9"},
			objects: []any{endpointBlock("green-net", "10.8.0.9/32", "n1", "a/p.net1")}, bad: "status.podIPs 10.8.0.9"},
	}
	world := []any{
		endpointRouter("red", 5, nil, nil), endpointRouter("green", 7, []string{v1alpha1.DefaultRouteTarget}, []string{v1alpha1.DefaultRouteTarget}),
		endpointNetwork("red-net", "red", 10, v1alpha1.Overlay), endpointNetwork("green-net", "green", 11, v1alpha1.Overlay),
		endpointNode("n1", "10.244.1.0/24", "fd00::/64"), endpointNode("n2", "10.244.2.0/24", "fd00:2::/64"),
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			// Whatever comes first, and whether the pod is checked in between.
			for range 20 {
				e := NewEndpoints()
				objects := slices.Concat(world, tc.objects, []any{endpointPod("p", "1", nil, tc.podIPs...)})
				translatetest.Shuffle(objects)
				for i, o := range objects {
					e.give(o)
					if i%3 == 0 {
						e.Changes()
					}
				}
				e.Changes()
				var places, bad []string
				for _, p := range e.made["pod/1"].Places {
					places = append(places, p.Space+":"+p.Address.String())
				}
				for _, p := range e.Problems() {
					if p.Reason != translate.NotOwned || p.UID != "1" || p.Port {
						t.Errorf("%+v", p)
					}
					bad = append(bad, p.Field+" "+p.Value)
				}
				if diff := cmp.Diff([]string{tc.places, tc.bad}, []string{strings.Join(places, " "), strings.Join(bad, ", ")}); diff != "" {
					t.Fatalf("places, problems (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// An address is a pod's no more when it is no more its node's, and again when it is: nothing but
// the node or the block has changed.
func TestAddressesFollowNodesAndBlocks(t *testing.T) {
	e := NewEndpoints()
	check := func(what string, want ...string) {
		t.Helper()
		e.Changes()
		var got []string
		for _, p := range e.made["pod/1"].Places {
			got = append(got, fmt.Sprint(p.Space, ":", p.Address))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	block := endpointBlock("red-net", "10.9.0.0/28", "n1", "")
	e.give(endpointRouter("red", 5, nil, nil))
	e.give(endpointNetwork("red-net", "red", 10, v1alpha1.Overlay))
	e.give(endpointPod("p", "1", nil, "10.244.1.5"))
	e.give(endpointPort("p.eth0", "red-net", ofPod("p", "1", "eth0"), []string{"10.9.0.5"}))
	check("of a node that is not known")
	if problems := e.Problems(); len(problems) > 0 {
		t.Errorf("that the node is not known yet is a problem of the pod: %v", problems)
	}
	e.give(endpointNode("n1"))
	check("of a node that has no podCIDRs yet")
	e.give(endpointNode("n1", "10.244.1.0/24"))
	check("and has some", "default:10.244.1.5")
	e.give(block)
	check("and a block", "default:10.244.1.5", "red:10.9.0.5")
	e.take(block)
	check("and has given it back", "default:10.244.1.5")
	other := block.DeepCopy()
	other.Spec.Node = "n2"
	e.give(other)
	check("and another node has it", "default:10.244.1.5")
	e.give(block)
	check("and it has it again", "default:10.244.1.5", "red:10.9.0.5")
	e.give(other)
	check("and the other one has it, with no news in between", "default:10.244.1.5")
	e.give(endpointNode("n1", "10.244.7.0/24"))
	check("and has other podCIDRs")
	e.take(endpointNode("n1"))
	e.take(endpointPod("p", "1", nil))
	if e.Changes(); len(e.foreign)+len(e.foreignOn)+len(e.onNode)+len(e.Problems()) > 0 {
		t.Errorf("something is left of the pod: %+v %+v %+v", e.foreign, e.foreignOn, e.onNode)
	}
}

// A node's agent tells the addresses of its pods before the API has them: those
// that are the node's.
func TestAttachmentsWithinTheNodesBlocks(t *testing.T) {
	e := NewEndpoints()
	for _, o := range []any{
		endpointRouter("green", 7, []string{v1alpha1.DefaultRouteTarget}, []string{v1alpha1.DefaultRouteTarget}),
		endpointNetwork("green-net", "green", 11, v1alpha1.Overlay), endpointNode("n1", "10.244.1.0/24"), endpointPod("p", "1", nil),
	} {
		e.give(o)
	}
	e.SetAttachment("n1", policy.Attachment{
		Namespace: "a", Name: "p", Subject: intent.PodSubject("1"),
		Addresses: []netip.Addr{netip.MustParseAddr("10.8.0.5"), netip.MustParseAddr("192.0.2.1")},
	})
	if e.Changes(); len(e.made["pod/1"].Places) != 0 {
		t.Errorf("before the block is known: %v", e.made["pod/1"].Places)
	}
	e.give(endpointBlock("green-net", "10.8.0.0/28", "n1", ""))
	set, _ := e.Changes()
	if len(set) != 1 || len(set[0].Places) != 1 || set[0].Places[0].Address.String() != "10.8.0.5" {
		t.Errorf("with the block: %+v", set)
	}
	if problems := e.Problems(); len(problems) > 0 {
		t.Errorf("a pod that has not started has problems: %v", problems)
	}
	e.give(endpointPod("p", "1", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }))
	if e.Changes(); len(e.foreign) > 0 {
		t.Errorf("left: %v", e.foreign)
	}
}
