// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/yaml"

	"coelan.io/coelan/api/v1alpha1"
)

var (
	yamlBlock = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")
	separator = regexp.MustCompile(`(?m)^---\n`)
)

// TestExamplesInTheDocumentation creates every object of Coelan's that a page shows.
func TestExamplesInTheDocumentation(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*/*.md")
	if err != nil {
		t.Fatal(err)
	}
	servers := map[string]server{}
	for _, plural := range plurals {
		s := load(t, plural)
		servers[s.kind] = s
	}
	examples := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range yamlBlock.FindAllSubmatch(text, -1) {
			for _, document := range separator.Split(string(block[1]), -1) {
				if o := example(document); o != nil {
					examples++
					servers[o.GetKind()].acceptExample(t, filepath.Base(page), o, document)
				}
			}
		}
	}
	if examples == 0 {
		t.Error("no page shows an object")
	}
}

// example is the object of Coelan's in a document; nil if it is something else, or a
// part of an object.
func example(document string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	text, err := yaml.YAMLToJSON([]byte(document))
	if err != nil || o.UnmarshalJSON(text) != nil || o.GetAPIVersion() != v1alpha1.GroupVersion.String() {
		return nil
	}
	return o
}

func (s server) acceptExample(t *testing.T, page string, o *unstructured.Unstructured, document string) {
	t.Helper()
	ctx := t.Context()
	if s.namespaced {
		ctx = genericrequest.WithNamespace(ctx, o.GetNamespace())
	}
	types := map[string]any{
		"Network": &v1alpha1.Network{}, "Router": &v1alpha1.Router{}, "Port": &v1alpha1.Port{}, "AddressBlock": &v1alpha1.AddressBlock{},
		"LoadBalancerPool": &v1alpha1.LoadBalancerPool{}, "SecurityGroup": &v1alpha1.SecurityGroup{},
		"FloatingIP": &v1alpha1.FloatingIP{}, "Egress": &v1alpha1.Egress{},
		"NodeNetworkConfig": &v1alpha1.NodeNetworkConfig{},
	}
	if err := yaml.UnmarshalStrict([]byte(document), types[s.kind]); err != nil {
		t.Errorf("%s: %s %s: %v", page, o.GetKind(), o.GetName(), err)
	}
	defaulting.Default(o.Object, s.schema)
	if errs := s.strategy.Validate(ctx, o); len(errs) > 0 {
		t.Errorf("%s: %s %s: %v", page, o.GetKind(), o.GetName(), errs.ToAggregate())
	}
}
