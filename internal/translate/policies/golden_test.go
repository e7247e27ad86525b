// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/policyapi"
	"coelan.io/coelan/internal/translate"
	"coelan.io/coelan/internal/translate/translatetest"
)

// policies are the translations of the objects of one golden file, each as text.
type policies []string

func (p policies) Shuffle() { translatetest.Shuffle(p) }

func (p policies) String() string { return strings.Join(slices.Sorted(slices.Values(p)), "") }

func parsePolicies(t *testing.T, text []byte) (list policies) {
	t.Helper()
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		p, problems := translatePolicy(t, document)
		list = append(list, showPolicy(p, problems))
	}
	return list
}

func translatePolicy(t *testing.T, document []byte) (policy.Policy, []translate.Problem) {
	t.Helper()
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal(document, &kind); err != nil {
		t.Fatal(err)
	}
	switch kind.Kind {
	case "NetworkPolicy":
		return NetworkPolicy(translatetest.Decode[networkingv1.NetworkPolicy](t, document))
	case "ClusterNetworkPolicy":
		u := &unstructured.Unstructured{}
		text, err := yaml.YAMLToJSONStrict(document)
		if err == nil {
			err = u.UnmarshalJSON(text)
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		return ClusterNetworkPolicy(policyapi.Parse(u))
	case "SecurityGroup":
		return SecurityGroup(translatetest.Decode[v1alpha1.SecurityGroup](t, document))
	}
	t.Fatalf("kind %q in\n%s", kind.Kind, document)
	return policy.Policy{}, nil
}

// showPolicy is a Policy for a reader: what is at its zero value is left out.
func showPolicy(p policy.Policy, problems []translate.Problem) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s tier %d", p.Ref, p.Tier)
	if p.Priority != 0 {
		fmt.Fprintf(&b, " priority %d", p.Priority)
	}
	for i, is := range []bool{p.Ingress, p.Egress} {
		if is {
			b.WriteString([]string{" isolates-ingress", " isolates-egress"}[i])
		}
	}
	b.WriteString("\n")
	for _, s := range p.Subjects {
		fmt.Fprintf(&b, "  for %s\n", showSelector(s))
	}
	for _, r := range p.Rules {
		b.WriteString("  " + showRule(r) + "\n")
	}
	for _, problem := range problems {
		fmt.Fprintf(&b, "  %s: %s\n", problem.Reason, problem.Error())
	}
	return b.String()
}

func showRule(r policy.Rule) string {
	parts := []string{
		map[intent.Direction]string{intent.Ingress: "ingress", intent.Egress: "egress"}[r.Direction], fmt.Sprint(r.Number),
		map[intent.Action]string{intent.Allow: "allow", intent.Deny: "deny", intent.Pass: "pass"}[r.Action],
	}
	if r.AnyPeer {
		parts = append(parts, "anybody")
	}
	for _, s := range r.Peers {
		parts = append(parts, "("+showSelector(s)+")")
	}
	for i, p := range r.Blocks {
		const most = 6
		if i == most {
			parts = append(parts, fmt.Sprintf("and %d blocks", len(r.Blocks)-most))
			break
		}
		parts = append(parts, p.String())
	}
	parts = append(parts, "at")
	if r.AnyPort {
		parts = append(parts, "any port")
	}
	for _, p := range r.Ports {
		switch {
		case p.Name != "":
			parts = append(parts, fmt.Sprintf("%d:%s", p.Protocol, p.Name))
		case p.ICMP:
			parts = append(parts, fmt.Sprintf("%d:type %d code %d", p.Protocol, p.First, p.Last))
		default:
			parts = append(parts, fmt.Sprintf("%d:%d-%d", p.Protocol, p.First, p.Last))
		}
	}
	if r.Closed != "" {
		parts = append(parts, "closed: "+r.Closed)
	}
	return strings.Join(parts, " ")
}

func showSelector(s policy.Selector) string {
	show := func(l labels.Selector) string {
		switch {
		case l == nil:
			return "none"
		case l.Empty():
			return "all"
		}
		return l.String()
	}
	switch {
	case s.Nodes != nil:
		return "nodes " + show(s.Nodes)
	case s.SecurityGroup != "":
		return fmt.Sprintf("group %s IPv%d", s.SecurityGroup, s.Family)
	case s.Namespace != "":
		return "namespace " + s.Namespace + " pods " + show(s.Pods)
	}
	return "namespaces " + show(s.Namespaces) + " pods " + show(s.Pods)
}

// Each file in testdata holds NetworkPolicies, ClusterNetworkPolicies and SecurityGroups, and what
// is made of them.
func TestPoliciesGolden(t *testing.T) {
	translatetest.Golden(t, "testdata/*.txtar", "objects.yaml", "policies", parsePolicies, policies.String)
}
