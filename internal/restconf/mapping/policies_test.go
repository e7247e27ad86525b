// SPDX-License-Identifier: Apache-2.0

package mapping_test

import (
	"strings"
	"testing"

	"github.com/openconfig/ygot/ygot"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"coelan.io/coelan/internal/restconf/mapping"
)

// addPolicies adds NetworkPolicies with all fields, and with none.
func addPolicies(w *mapping.World) {
	tcp, udp := corev1.ProtocolTCP, corev1.ProtocolUDP
	number, name, last := intstr.FromInt32(8000), intstr.FromString("dns"), int32(8010)
	web := metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": "web", "empty": ""}}
	some := metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "tier", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"b", "a"}}, {Key: "tier", Operator: metav1.LabelSelectorOpExists},
	}}
	for i, p := range []*networkingv1.NetworkPolicy{
		{ObjectMeta: meta("full"), Spec: networkingv1.NetworkPolicySpec{
			PodSelector: web, PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress, networkingv1.PolicyTypeIngress},
			Ingress: []networkingv1.NetworkPolicyIngressRule{
				{},
				{
					Ports: []networkingv1.NetworkPolicyPort{{Protocol: &tcp, Port: &number, EndPort: &last}, {Protocol: &udp}},
					From: []networkingv1.NetworkPolicyPeer{
						{PodSelector: &metav1.LabelSelector{}}, {NamespaceSelector: &metav1.LabelSelector{}, PodSelector: &some},
						{IPBlock: &networkingv1.IPBlock{CIDR: "192.168.1.1/24", Except: []string{"192.168.1.0/28"}}},
					},
				},
			},
			Egress: []networkingv1.NetworkPolicyEgressRule{{Ports: []networkingv1.NetworkPolicyPort{{Protocol: &udp, Port: &name}}, To: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &web}}}},
		}},
		{ObjectMeta: meta("closed"), Spec: networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}}},
	} {
		p.Namespace, p.UID = "a", types.UID("33333333-2222-3333-4444-55555555555"+string(rune('0'+i)))
		w.Policies[types.NamespacedName{Namespace: "a", Name: p.Name}] = p
	}
}

// TestManyRules keeps the order of more rules than have one digit.
func TestManyRules(t *testing.T) {
	w := newWorld()
	p := &networkingv1.NetworkPolicy{ObjectMeta: meta("many")}
	p.UID = "33333333-2222-3333-4444-555555555555"
	p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	for i := range 12 {
		port, tcp := intstr.FromInt32(int32(100-i)), corev1.ProtocolTCP
		p.Spec.Ingress = append(p.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{Ports: []networkingv1.NetworkPolicyPort{{Protocol: &tcp, Port: &port}}})
	}
	w.Policies[types.NamespacedName{Name: "many"}] = p
	l := mapping.Lists()["k8s"]
	to := newWorld()
	if err := l.Write(to, l.Entries(w)[0]); err != nil {
		t.Fatal(err)
	}
	made := to.Policies[types.NamespacedName{Namespace: "default", Name: "many"}]
	for i, rule := range made.Spec.Ingress {
		if got := rule.Ports[0].Port.IntValue(); got != 100-i {
			t.Errorf("rule %d is for port %d", i, got)
		}
	}
}

// TestClusters are this one and those that entries are of.
func TestClusters(t *testing.T) {
	const other = "00000000-0000-0000-0000-000000000009"
	w := full()
	w.Services[types.NamespacedName{Namespace: "a", Name: "plain"}] = &corev1.Service{ObjectMeta: metav1.ObjectMeta{
		Namespace: "a", Name: "plain", Annotations: map[string]string{mapping.AnnotationService: `{"cluster-id":"` + other + `"}`},
	}}
	var got []string
	for _, e := range mapping.Lists()["k8s-clusters-info"].Entries(w) {
		text, err := ygot.EmitJSON(e.(ygot.ValidatedGoStruct), nil)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, text)
	}
	all := strings.Join(got, " ")
	if !strings.Contains(all, other) || !strings.Contains(all, "00000000-2222-3333-4444-555555555555") {
		t.Error(all)
	}
}
