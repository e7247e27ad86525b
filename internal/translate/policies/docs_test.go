// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/policyapi"
	"coelan.io/coelan/internal/translate"
)

var (
	pageBlock = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")
	separator = regexp.MustCompile(`(?m)^---\n`)
)

// What pages show of policies is understood, all of it.
func TestPoliciesInTheDocumentation(t *testing.T) {
	pages, err := filepath.Glob("../../../docs/*/*.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]int{}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range pageBlock.FindAllSubmatch(text, -1) {
			for _, document := range separator.Split(string(block[1]), -1) {
				kind, problems, err := shownPolicy([]byte(document))
				if err != nil || len(problems) > 0 {
					t.Errorf("%s: %v %v in\n%s", filepath.Base(page), err, problems, document)
				}
				shown[kind]++
			}
		}
	}
	for _, kind := range []string{"NetworkPolicy", policyapi.Kind, "SecurityGroup"} {
		if shown[kind] == 0 {
			t.Errorf("no page shows a %s", kind)
		}
	}
}

// shownPolicy translates a document; its kind is empty if it is no policy.
func shownPolicy(document []byte) (kind string, problems []translate.Problem, err error) {
	o := &unstructured.Unstructured{}
	if text, err := yaml.YAMLToJSON(document); err != nil || o.UnmarshalJSON(text) != nil {
		return "", nil, nil // a part of an object
	}
	switch kind = o.GetKind(); kind {
	case "NetworkPolicy":
		p := &networkingv1.NetworkPolicy{}
		err = yaml.UnmarshalStrict(document, p)
		_, problems = NetworkPolicy(p)
	case policyapi.Kind:
		_, problems = ClusterNetworkPolicy(policyapi.Parse(o))
	case "SecurityGroup":
		p := &v1alpha1.SecurityGroup{}
		err = yaml.UnmarshalStrict(document, p)
		_, problems = SecurityGroup(p)
	default:
		return "", nil, nil
	}
	return kind, problems, err
}
