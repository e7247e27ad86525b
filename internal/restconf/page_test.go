// SPDX-License-Identifier: Apache-2.0

package restconf

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/restconf/mapping"
)

// TestPage does what docs/use/restconf.md shows: each call of rc makes the object that the YAML
// after it says.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/use/restconf.md")
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t)
	blocks := regexp.MustCompile("(?s)```(sh|yaml)\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	call := regexp.MustCompile(`(?s)^rc ([A-Z]+) (\S+) '([^']*)'\n$`)
	objects := 0
	for _, b := range blocks {
		if b[1] == "yaml" {
			objects++
			s.compare(b[2])
			continue
		}
		c := call.FindStringSubmatch(b[2])
		if c == nil {
			t.Fatalf("not a call: %s", b[2])
		}
		if got := s.do(c[1], c[2], c[3]); got.code >= 300 {
			t.Errorf("%s: %d %s", b[2], got.code, got.body)
		}
	}
	if objects < 7 {
		t.Errorf("%d objects on the page", objects)
	}
}

// compare fails if the object of a manifest is not there as the manifest says.
func (s *site) compare(manifest string) {
	s.Helper()
	var kind struct {
		Kind     string               `json:"kind"`
		Metadata types.NamespacedName `json:"metadata"`
	}
	if err := yaml.Unmarshal([]byte(manifest), &kind); err != nil {
		s.Fatal(err)
	}
	var got, want any
	var err error
	switch kind.Kind {
	case "Network":
		n := &v1alpha1.Network{}
		err = yaml.UnmarshalStrict([]byte(manifest), n)
		got, want = s.api.world.Networks[n.Name].Spec, n.Spec
	case "Router":
		r := &v1alpha1.Router{}
		err = yaml.UnmarshalStrict([]byte(manifest), r)
		got, want = s.api.world.Routers[r.Name].Spec, r.Spec
	case "Port":
		p := &v1alpha1.Port{}
		err = yaml.UnmarshalStrict([]byte(manifest), p)
		got, want = s.api.world.Ports[types.NamespacedName{Namespace: p.Namespace, Name: p.Name}].Spec, p.Spec
	case "Service":
		v := &corev1.Service{}
		err = yaml.UnmarshalStrict([]byte(manifest), v)
		got, want = s.api.world.Services[types.NamespacedName{Namespace: v.Namespace, Name: v.Name}].Spec, v.Spec
	case "FloatingIP":
		f := &v1alpha1.FloatingIP{}
		err = yaml.UnmarshalStrict([]byte(manifest), f)
		key := types.NamespacedName{Namespace: f.Namespace, Name: f.Name}
		got, want = s.api.world.Objects[mapping.FloatingIPs][key].(*v1alpha1.FloatingIP).Spec, f.Spec
	case "NetworkPolicy":
		p := &networkingv1.NetworkPolicy{}
		err = yaml.UnmarshalStrict([]byte(manifest), p)
		got, want = s.api.world.Policies[types.NamespacedName{Namespace: p.Namespace, Name: p.Name}].Spec, p.Spec
	default:
		s.Fatalf("kind %q", kind.Kind)
	}
	if err != nil {
		s.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		s.Errorf("%s (-page +got):\n%s", strings.TrimSpace(manifest), diff)
	}
}
