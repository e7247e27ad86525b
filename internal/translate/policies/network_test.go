// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/internal/policyapi"
	"coelan.io/coelan/internal/translate"
)

// What is wrong with a selector is told in the same words each time: an Event would be made of each
// other one, and a status written, which is a reason to look at the policy again.
func TestProblemsAreAlwaysTheSame(t *testing.T) {
	bad := &metav1.LabelSelector{MatchLabels: map[string]string{"a b": "c", "d e": "f", "g": "h i", "fine": "yes"}}
	var first []translate.Problem
	for range 50 {
		_, network := NetworkPolicy(&networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{
			PodSelector: *bad, Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: bad}, {PodSelector: bad}}}},
		}})
		_, cluster := ClusterNetworkPolicy(&policyapi.ClusterNetworkPolicy{Spec: policyapi.ClusterNetworkPolicySpec{
			Tier: policyapi.AdminTier, Subject: policyapi.Subject{Namespaces: bad},
			Egress: []policyapi.Rule{{Action: policyapi.Deny, To: []policyapi.Peer{{Nodes: bad}}}},
		}})
		got := append(network, cluster...)
		if len(got) != 5 {
			t.Fatalf("problems: %v", got)
		}
		if first == nil {
			first = got
		}
		if diff := cmp.Diff(first, got); diff != "" {
			t.Fatalf("problems (-first +now):\n%s", diff)
		}
	}
}
