// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/yaml"

	"coelan.io/coelan/api/v1alpha1"
)

const definitions = "../../deploy/helm/coelan/files/crds"

// plurals are the names of all resources.
var plurals = []string{"networks", "routers", "ports", "addressblocks", "loadbalancerpools", "securitygroups",
	"floatingips", "egresses", "nodenetworkconfigs"}

// server answers for one kind as an API server does, with the API server's own code.
type server struct {
	kind       string
	namespaced bool
	schema     *structuralschema.Structural
	strategy   strategy
}

type strategy interface {
	Validate(ctx context.Context, obj runtime.Object) field.ErrorList
	ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList
}

// load reads the generated definition of a resource; one that an API server would refuse, for what
// its rules may cost for instance, fails the test.
func load(t *testing.T, plural string) server {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(definitions, v1alpha1.GroupVersion.Group+"_"+plural+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	external := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(text, external); err != nil {
		t.Fatal(err)
	}
	apiextensionsv1.SetDefaults_CustomResourceDefinition(external)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&external.Spec)
	crd := &apiextensions.CustomResourceDefinition{}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(external, crd, nil); err != nil {
		t.Fatal(err)
	}
	crd.Status.StoredVersions = []string{v1alpha1.GroupVersion.Version}
	if errs := crdvalidation.ValidateCustomResourceDefinition(t.Context(), crd); len(errs) > 0 {
		t.Fatalf("the API server would refuse %s: %v", plural, errs.ToAggregate())
	}
	// The conversion has moved what all versions have in common.
	props := crd.Spec.Validation.OpenAPIV3Schema
	schema, err := structuralschema.NewStructural(props)
	if err != nil {
		t.Fatal(err)
	}
	validator, _, err := validation.NewSchemaValidator(props)
	if err != nil {
		t.Fatal(err)
	}
	namespaced := crd.Spec.Scope == apiextensions.NamespaceScoped
	kind := v1alpha1.GroupVersion.WithKind(crd.Spec.Names.Kind)
	return server{
		kind: kind.Kind, namespaced: namespaced, schema: schema,
		strategy: customresource.NewStrategy(nil, namespaced, kind, validator, nil, schema,
			&apiextensions.CustomResourceSubresourceStatus{}, nil, nil),
	}
}

// object is that of the kind with the name and the text of its spec, with the defaults.
func (s server) object(t *testing.T, name, spec string) *unstructured.Unstructured {
	t.Helper()
	meta := fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: %q, resourceVersion: \"1\"}\n", v1alpha1.GroupVersion, s.kind, name)
	text, err := yaml.YAMLToJSONStrict([]byte(meta + "spec: {" + spec + "}\n"))
	if err != nil {
		t.Fatalf("%v in %s", err, spec)
	}
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON(text); err != nil {
		t.Fatal(err)
	}
	if s.namespaced {
		o.SetNamespace("ns")
	}
	defaulting.Default(o.Object, s.schema)
	return o
}

func (s server) context(t *testing.T) context.Context {
	t.Helper()
	if s.namespaced {
		return genericrequest.WithNamespace(t.Context(), "ns")
	}
	return t.Context()
}

// create returns what a user sees after creating such an object.
func (s server) create(t *testing.T, name, spec string) string {
	t.Helper()
	return text(s.strategy.Validate(s.context(t), s.object(t, name, spec)))
}

// update returns what a user sees after changing one spec into the other.
func (s server) update(t *testing.T, name, before, after string) string {
	t.Helper()
	old, changed := s.object(t, name, before), s.object(t, name, after)
	return text(s.strategy.ValidateUpdate(s.context(t), changed, old))
}

func text(errs field.ErrorList) string {
	if len(errs) == 0 {
		return ""
	}
	return errs.ToAggregate().Error()
}

// refused compares an answer with the parts that a user has to find in it.
func refused(t *testing.T, got string, want ...string) {
	t.Helper()
	if got == "" {
		t.Fatal("accepted")
	}
	for _, w := range want {
		if !strings.Contains(got, w) {
			t.Errorf("the answer lacks %q:\n%s", w, got)
		}
	}
}

func TestDefinitionsAreAcceptable(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(definitions, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != len(plurals) {
		t.Fatalf("definitions %v, want one for each of %v", files, plurals)
	}
	for _, path := range files {
		_, name, _ := strings.Cut(filepath.Base(path), "_")
		t.Run(name, func(t *testing.T) { load(t, strings.TrimSuffix(name, ".yaml")) })
	}
}

// kubectl explain has something to say of each field.
func TestFieldsAreExplained(t *testing.T) {
	var look func(plural, path string, s *structuralschema.Structural)
	look = func(plural, path string, s *structuralschema.Structural) {
		for name, p := range s.Properties {
			if p.Description == "" && path+name != "metadata" {
				t.Errorf("%s: %s%s has no description", plural, path, name)
			}
			look(plural, path+name+".", &p)
		}
		if s.Items != nil {
			look(plural, path, s.Items)
		}
	}
	for _, plural := range plurals {
		look(plural, "", load(t, plural).schema)
	}
}
