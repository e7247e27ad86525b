// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/wellknown"
)

// centralizedRouter is a Router with a centralized gateway on the Network office, with these
// addresses in effect.
func centralizedRouter(name string, addresses ...string) *v1alpha1.Router {
	o := gatewayRouter(name, "office")
	o.Spec.Gateway.SNAT, o.Status.GatewayAddresses = v1alpha1.CentralizedSNAT, addresses
	return o
}

// officeNetwork is an external Network on a physical one.
func officeNetwork(physical string) *v1alpha1.Network {
	o := &v1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Name: "office"}}
	o.Spec.PhysicalNetwork = physical
	return o
}

// uplinkNode is connected to physical networks.
func uplinkNode(name, physical string, change func(*corev1.Node)) *corev1.Node {
	o := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{"name": name},
		Annotations: map[string]string{v1alpha1.AnnotationPhysicalNetworks: physical},
	}}
	if change != nil {
		change(o)
	}
	return o
}

func activeOn(b *v1alpha1.AddressBlock, node string) *v1alpha1.AddressBlock {
	b.Status.ActiveNode = node
	return b
}

// sharedTexts are addresses that fail over, each as a line.
func sharedTexts(list []intent.EgressAddress) []string {
	var texts []string
	for _, e := range list {
		text := fmt.Sprintf("%s %s %s%s %v", e.Network, e.Address, e.Router, e.Egress, e.Nodes)
		if len(e.Leaving) > 0 {
			text += fmt.Sprintf(" leaving %v", e.Leaving)
		}
		if e.Active != "" {
			text += " active " + e.Active
		}
		if e.Failback {
			text += " failback"
		}
		texts = append(texts, text)
	}
	slices.Sort(texts)
	return texts
}

// An address is the Router's by its block and by the Router's status; a node may be active if it is
// selected, connected, and here to stay.
func TestCentralizedAddresses(t *testing.T) {
	const v4, v6 = "192.0.2.10", "2001:db8:70::10"
	both := []*corev1.Node{uplinkNode("n2", "lab,p", nil), uplinkNode("n1", "p", nil)}
	block := func() *v1alpha1.AddressBlock { return gatewayBlock(v4, "red/*") }
	changed := func(change func(*v1alpha1.Router)) *v1alpha1.Router {
		r := centralizedRouter("red", v4)
		change(r)
		return r
	}
	one := func(change func(*corev1.Node)) []*corev1.Node {
		return []*corev1.Node{uplinkNode("n1", "p", nil), uplinkNode("n2", "p", change)}
	}
	for _, tc := range []struct {
		name    string
		router  *v1alpha1.Router
		block   *v1alpha1.AddressBlock
		network *v1alpha1.Network
		nodes   []*corev1.Node
		want    string // empty: it has no effect
	}{
		{"all", centralizedRouter("red", v4), block(), officeNetwork("p"), both, "office 192.0.2.10 red [n1 n2]"},
		{"IPv6", centralizedRouter("red", v4, v6), gatewayBlock(v6, "red/*"), officeNetwork("p"), both,
			"office 2001:db8:70::10 red [n1 n2]"},
		{"with an active node", centralizedRouter("red", v4), activeOn(block(), "n2"), officeNetwork("p"), both,
			"office 192.0.2.10 red [n1 n2] active n2"},
		{"with an active node that may not be it any more", centralizedRouter("red", v4), activeOn(block(), "n3"), officeNetwork("p"), both,
			"office 192.0.2.10 red [n1 n2] active n3"},
		{"failback", changed(func(r *v1alpha1.Router) { r.Spec.Gateway.Failback = true }), block(), officeNetwork("p"), both,
			"office 192.0.2.10 red [n1 n2] failback"},
		{"selected", changed(func(r *v1alpha1.Router) {
			r.Spec.Gateway.Nodes = &metav1.LabelSelector{MatchLabels: map[string]string{"name": "n2"}}
		}), block(), officeNetwork("p"), both, "office 192.0.2.10 red [n2]"},
		{"a selector that cannot be read", changed(func(r *v1alpha1.Router) {
			r.Spec.Gateway.Nodes = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}
		}), block(), officeNetwork("p"), both, "office 192.0.2.10 red []"},
		{"a node that goes", centralizedRouter("red", v4), block(), officeNetwork("p"), one(func(n *corev1.Node) {
			now := metav1.Now()
			n.DeletionTimestamp = &now
		}), "office 192.0.2.10 red [n1 n2] leaving [n2]"},
		{"a node that the autoscaler removes", centralizedRouter("red", v4), block(), officeNetwork("p"), one(func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: wellknown.TaintToBeDeleted}}
		}), "office 192.0.2.10 red [n1 n2] leaving [n2]"},
		{"an excluded node", centralizedRouter("red", v4), block(), officeNetwork("p"), one(func(n *corev1.Node) {
			n.Labels[corev1.LabelNodeExcludeBalancers] = ""
		}), "office 192.0.2.10 red [n1 n2] leaving [n2]"},
		{"a node that says nothing", centralizedRouter("red", v4), block(), officeNetwork("p"), one(func(n *corev1.Node) {
			n.Annotations = nil
		}), "office 192.0.2.10 red [n1]"},
		{"no node", centralizedRouter("red", v4), block(), officeNetwork("p"), nil, "office 192.0.2.10 red []"},
		{"on another physical network", centralizedRouter("red", v4), block(), officeNetwork("q"), both, "office 192.0.2.10 red []"},
		{"a Network that is not there", centralizedRouter("red", v4), block(), nil, both, "office 192.0.2.10 red []"},
		{"a Network on no physical one", centralizedRouter("red", v4), block(), officeNetwork(""),
			[]*corev1.Node{uplinkNode("n1", "", nil)}, "office 192.0.2.10 red []"},

		{"no Router", nil, block(), officeNetwork("p"), both, ""},
		{"a gateway on another Network", changed(func(r *v1alpha1.Router) { r.Spec.Gateway.Network = "lab" }), block(), officeNetwork("p"),
			both, ""},
		{"no gateway any more", changed(func(r *v1alpha1.Router) { r.Spec.Gateway = nil }), block(), officeNetwork("p"), both, ""},
		{"another kind of SNAT", changed(func(r *v1alpha1.Router) { r.Spec.Gateway.SNAT = v1alpha1.DistributedSNAT }), block(), officeNetwork("p"),
			both, ""},
		{"an address that the controller has not given yet", centralizedRouter("red"), block(), officeNetwork("p"), both, ""},
		{"without a block", centralizedRouter("red", v4), gatewayBlock(v6, "red/*"), officeNetwork("p"), both, ""},
		{"another Router's block", centralizedRouter("red", v4), gatewayBlock(v4, "blue/*"), officeNetwork("p"), both, ""},
		{"a node's block", centralizedRouter("red", v4), gatewayBlock(v4, "red/n1"), officeNetwork("p"), both, ""},
		{"by another name", centralizedRouter("red", v4), func() *v1alpha1.AddressBlock {
			b := block()
			b.Name = "office"
			return b
		}(), officeNetwork("p"), both, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var want []string
			if tc.want != "" {
				want = []string{tc.want}
			}
			// In every order of the kinds.
			steps := []func(*GatewaySet){
				func(s *GatewaySet) {
					if tc.router != nil {
						s.SetRouter("red", tc.router)
					}
				},
				func(s *GatewaySet) { s.SetBlock(tc.block.Name, tc.block) },
				func(s *GatewaySet) { s.SetNetwork("office", tc.network) },
				func(s *GatewaySet) {
					for _, n := range tc.nodes {
						s.SetNode(n.Name, n)
					}
				},
			}
			for range 8 {
				order := rand.Perm(len(steps))
				s, now := NewGatewaySet(), map[string]intent.EgressAddress{}
				for _, i := range order {
					steps[i](s)
					c := s.Changes()
					follow(now, c.Shared, func(e intent.EgressAddress) string { return e.Network + " " + e.Address.String() })
					if len(c.Nodes.Set)+len(c.Nodes.Gone) > 0 {
						t.Errorf("order %v: of single nodes %+v", order, c.Nodes)
					}
				}
				var got []intent.EgressAddress
				for _, e := range now {
					got = append(got, e)
				}
				if diff := gocmp.Diff(want, sharedTexts(got)); diff != "" {
					t.Errorf("order %v (-want +got):\n%s", order, diff)
				}
			}
		})
	}
}

// What a change does not touch stays as it is, and is not translated again.
func TestCentralizedAddressesChange(t *testing.T) {
	v4, v6, foreign := gatewayBlock("192.0.2.10", "red/*"), gatewayBlock("2001:db8:70::10", "red/*"), gatewayBlock("192.0.2.12", "blue/*")
	blue := centralizedRouter("blue", "192.0.2.12")
	blue.Spec.Gateway.Nodes = &metav1.LabelSelector{MatchLabels: map[string]string{"name": "n1"}}
	const one, six, other = "192.0.2.10", "2001:db8:70::10", "192.0.2.12"
	for _, tc := range []struct {
		name      string
		change    func(*GatewaySet)
		set, gone []string // addresses
	}{
		{"nothing", func(*GatewaySet) {}, nil, nil},
		{"a heartbeat", func(s *GatewaySet) { s.SetNode("n1", uplinkNode("n1", "lab,p", nil)) }, nil, nil},
		{"a node comes", func(s *GatewaySet) { s.SetNode("n3", uplinkNode("n3", "p", nil)) }, []string{one, six}, nil},
		{"a node comes that is not connected", func(s *GatewaySet) { s.SetNode("n3", uplinkNode("n3", "q", nil)) }, nil, nil},
		{"a node goes", func(s *GatewaySet) { s.SetNode("n1", nil) }, []string{one, other, six}, nil},
		{"a node loses a label", func(s *GatewaySet) {
			s.SetNode("n1", uplinkNode("n1", "p", func(n *corev1.Node) { n.Labels = nil }))
		}, []string{other}, nil},
		{"the Network moves", func(s *GatewaySet) { s.SetNetwork("office", officeNetwork("q")) }, []string{one, other, six}, nil},
		{"the Network stays", func(s *GatewaySet) { s.SetNetwork("office", officeNetwork("p")) }, nil, nil},
		{"another Network", func(s *GatewaySet) {
			o := officeNetwork("q")
			o.Name = "lab"
			s.SetNetwork("lab", o)
		}, nil, nil},
		{"a node reports", func(s *GatewaySet) { s.SetBlock(v4.Name, activeOn(gatewayBlock(one, "red/*"), "n2")) }, []string{one}, nil},
		{"a block goes", func(s *GatewaySet) { s.SetBlock(v4.Name, nil) }, nil, []string{one}},
		{"the controller takes an address back", func(s *GatewaySet) { s.SetRouter("red", centralizedRouter("red", six)) },
			[]string{six}, []string{one}},
		{"other conditions of the Router", func(s *GatewaySet) {
			o := centralizedRouter("red", one, six)
			o.Status.ID = 7
			s.SetRouter("red", o)
		}, nil, nil},
		{"failback", func(s *GatewaySet) {
			o := centralizedRouter("red", one, six)
			o.Spec.Gateway.Failback = true
			s.SetRouter("red", o)
		}, []string{one, six}, nil},
		{"no gateway", func(s *GatewaySet) { s.SetRouter("red", gatewayRouter("red", "")) }, nil, []string{one, six}},
		{"each node its own", func(s *GatewaySet) { s.SetRouter("red", gatewayRouter("red", "office")) }, nil, []string{one, six}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := NewGatewaySet()
			s.SetRouter("red", centralizedRouter("red", one, six))
			s.SetRouter("blue", blue)
			s.SetNetwork("office", officeNetwork("p"))
			for _, n := range []string{"n1", "n2"} {
				s.SetNode(n, uplinkNode(n, "p", nil))
			}
			for _, b := range []*v1alpha1.AddressBlock{v4, v6, foreign} {
				s.SetBlock(b.Name, b)
			}
			if c := s.Changes().Shared; len(c.Set) != 3 {
				t.Fatalf("not all have effect: %+v", c)
			}
			tc.change(s)
			c := s.Changes().Shared
			if diff := gocmp.Diff([][]string{tc.set, tc.gone}, [][]string{sharedAddresses(c.Set), sharedAddresses(c.Gone)}); diff != "" {
				t.Errorf("set, and gone (-want +got):\n%s", diff)
			}
			if c := s.Changes().Shared; len(c.Set)+len(c.Gone) > 0 {
				t.Errorf("nothing was touched, and changes are %+v", c)
			}
		})
	}
}

// A set that was given before is not written to: intent has it.
func TestCandidatesAreNotWrittenTo(t *testing.T) {
	s := NewGatewaySet()
	b := gatewayBlock("192.0.2.10", "red/*")
	s.SetRouter("red", centralizedRouter("red", "192.0.2.10"))
	s.SetNetwork("office", officeNetwork("p"))
	s.SetBlock(b.Name, b)
	var given [][]string
	for _, n := range []string{"n3", "n1", "n2"} {
		s.SetNode(n, uplinkNode(n, "p", nil))
		given = append(given, s.Changes().Shared.Set[0].Nodes)
	}
	s.SetNode("n1", nil)
	given = append(given, s.Changes().Shared.Set[0].Nodes)
	want := [][]string{{"n3"}, {"n1", "n3"}, {"n1", "n2", "n3"}, {"n2", "n3"}}
	if diff := gocmp.Diff(want, given); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func sharedAddresses(list []intent.EgressAddress) []string {
	var texts []string
	for _, e := range list {
		texts = append(texts, e.Address.String())
	}
	slices.SortFunc(texts, strings.Compare)
	return texts
}
