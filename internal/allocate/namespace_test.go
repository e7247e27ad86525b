// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"coelan.io/coelan/internal/translate/translatetest"
)

func TestNamespaceObjectsGolden(t *testing.T) {
	testNamespaceObjects(t, "testdata/namespace/*.txtar", false)
}

func TestPooledNamespaceObjectsGolden(t *testing.T) {
	testNamespaceObjects(t, "testdata/namespacepool/*.txtar", true)
}

func testNamespaceObjects(t *testing.T, files string, pooled bool) {
	translatetest.Golden(t, files, "objects.yaml", "result", parseWorld, func(w *world) string {
		routers, networks := NamespaceObjects(w.pods, w.namespaces, w.nodes, w.networks, pooled)
		var b strings.Builder
		for _, r := range routers {
			fmt.Fprintf(&b, "Router %s\n%s", r.Name, fields(r.Labels, r.Annotations, r.Finalizers, r.Spec))
		}
		for _, n := range networks {
			fmt.Fprintf(&b, "Network %s\n%s", n.Name, fields(n.Labels, n.Annotations, n.Finalizers, n.Spec))
		}
		return b.String()
	})
}

// fields is one line for each label and annotation, and those of the specification.
func fields(labels, annotations map[string]string, finalizers []string, spec any) string {
	var b strings.Builder
	for _, m := range []map[string]string{labels, annotations} {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			fmt.Fprintf(&b, "  %s=%s\n", k, m[k])
		}
	}
	text, err := yaml.Marshal(spec)
	if err != nil {
		return err.Error()
	}
	for line := range strings.Lines(string(text)) {
		b.WriteString("  " + line)
	}
	return b.String() + fmt.Sprintf("  %s\n", strings.Join(finalizers, " "))
}

func TestOwnRouteTargetsDiffer(t *testing.T) {
	seen := map[string]string{}
	for i := range 100000 {
		namespace := fmt.Sprintf("tenant-%d", i)
		target := ownRouteTarget(namespace)
		if other, taken := seen[target]; taken {
			t.Fatalf("%s and %s both have %s", namespace, other, target)
		}
		seen[target] = namespace
	}
}
