// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
)

// What Kubernetes' API conventions say of names, as docs/develop/api-conventions.md has it.
var (
	fieldName = regexp.MustCompile(`^[a-z]+([A-Z]+[a-z]*)*$`)
	pascal    = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)
)

// properNames are values that are written as they are outside of Kubernetes.
var properNames = map[string]bool{"IPv4": true, "IPv6": true}

func TestFieldsFollowTheConventions(t *testing.T) {
	var look func(path string, s *structuralschema.Structural)
	look = func(path string, s *structuralschema.Structural) {
		if s.Type == "array" && s.XListType == nil {
			t.Errorf("%s is a list without a type: atomic, set or map", path)
		}
		if s.Type == "number" {
			t.Errorf("%s is a floating-point number", path)
		}
		values := s.ValueValidation
		if values == nil {
			values = &structuralschema.ValueValidation{}
		}
		if s.Type == "integer" && values.Format == "" {
			t.Errorf("%s is an integer without a size", path)
		}
		if values.Format == "date-time" && !strings.HasSuffix(path, "Time") {
			t.Errorf("%s is a time, and is not called so", path)
		}
		for _, v := range values.Enum {
			text, ok := v.Object.(string)
			// A value may be there in its former spelling, too.
			capital := slices.ContainsFunc(values.Enum, func(o structuralschema.JSON) bool {
				other, _ := o.Object.(string)
				return strings.EqualFold(other, text) && pascal.MatchString(other)
			})
			if !ok || !capital && !properNames[text] {
				t.Errorf("%s has the value %v, which does not begin with a capital letter", path, v.Object)
			}
		}
		for name, p := range s.Properties {
			if !fieldName.MatchString(name) {
				t.Errorf("%s.%s is not in camel case", path, name)
			}
			look(path+"."+name, &p)
		}
		if s.Items != nil {
			look(path+"[]", s.Items)
		}
	}
	for _, plural := range plurals {
		for name, p := range load(t, plural).schema.Properties {
			if name == "spec" || name == "status" {
				look(plural+"."+name, &p)
			}
		}
	}
}

// TestConditionsFollowTheConventions reads the constants, of which the schema knows nothing.
func TestConditionsFollowTheConventions(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "names.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]*regexp.Regexp{
		"Condition": pascal, "Reason": pascal,
		"Label": regexp.MustCompile(`^coelan\.io/[a-z]+(-[a-z]+)*$`), "Annotation": regexp.MustCompile(`^coelan\.io/[a-z]+(-[a-z]+)*$`),
	}
	seen := map[string]int{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for i, name := range spec.Names {
			for kind, form := range kinds {
				if !strings.HasPrefix(name.Name, kind) {
					continue
				}
				seen[kind]++
				value, err := strconv.Unquote(spec.Values[i].(*ast.BasicLit).Value)
				if err != nil || !form.MatchString(value) {
					t.Errorf("%s is %q, want %v", name.Name, value, form)
				}
			}
		}
		return true
	})
	for kind := range kinds {
		if seen[kind] == 0 {
			t.Errorf("no constant %s… is found", kind)
		}
	}
}
