// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
)

func TestParseProjects(t *testing.T) {
	for setting, says := range map[string]string{
		"":                                "no id of a project",
		"=shop":                           "no id of a project",
		"a/b=shop":                        "no id of a project",
		"a b=shop":                        "no id of a project",
		"q":                               "names of namespaces are missing",
		"q=":                              "names of namespaces are missing",
		"q=shop,,bank":                    "names of namespaces are missing",
		"q=shop|q=bank":                   "twice",
		strings.Repeat("x", 65) + "=shop": "no id of a project",
	} {
		if all, err := ParseProjects(strings.Split(setting, "|")); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, %v; want %q", setting, all, err, says)
		}
	}
	all, err := ParseProjects([]string{"q=shop,bank", "0123456789abcdef0123456789abcdef=*"})
	if err != nil || !slices.Equal(all["q"], []string{"shop", "bank"}) || len(all) != 2 {
		t.Errorf("%v, %v", all, err)
	}
	if none, err := ParseProjects(nil); err != nil || none == nil {
		t.Errorf("without settings: %v, %v", none, err)
	}
}

// A Namespace has the project that it asks for only if the settings let this namespace.
func TestTenant(t *testing.T) {
	allowed := Projects{"q": {"shop", "bank"}, "open": {EveryNamespace}}
	for _, tc := range []struct {
		namespace, asks string
		want            intent.Tenant
	}{
		{"shop", "q", intent.Tenant{Project: "q"}},
		{"shop", "open", intent.Tenant{Project: "open"}},
		{"lab", "open", intent.Tenant{Project: "open"}},
		{"lab", "q", intent.Tenant{Denied: `"q"`}},
		{"sho", "q", intent.Tenant{Denied: `"q"`}},
		{"shop", "Q", intent.Tenant{Denied: `"Q"`}},
		{"shop", "other", intent.Tenant{Denied: `"other"`}},
		{"shop", "", intent.Tenant{Denied: `""`}},
		{"shop", "a\nb", intent.Tenant{Denied: `"a\nb"`}},
	} {
		o := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: tc.namespace, Annotations: map[string]string{v1alpha1.KuryrProjectAnnotation: tc.asks},
		}}
		tc.want.Namespace = tc.namespace
		if got := allowed.Tenant(o); got != tc.want {
			t.Errorf("%s asks for %q: %+v, want %+v", tc.namespace, tc.asks, got, tc.want)
		}
		if got := (Projects{}).Tenant(o); got.Project != "" || got.Denied == "" {
			t.Errorf("%s asks for %q without a setting: %+v", tc.namespace, tc.asks, got)
		}
	}
	if got := allowed.Tenant(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}); got != (intent.Tenant{Namespace: "shop"}) {
		t.Errorf("a Namespace that asks for none: %+v", got)
	}
}

func TestPlaceOfNetwork(t *testing.T) {
	allowed := Projects{"q": {"shop", "bank"}, "r": {"lab"}}
	selecting := &v1alpha1.Network{Spec: v1alpha1.NetworkSpec{NamespaceSelector: &metav1.LabelSelector{}}}
	all := &v1alpha1.Network{}
	subnets := []intent.NetworkSubnet{{}}
	shop, bank, lab, none := intent.Tenant{Namespace: "shop", Project: "q"}, intent.Tenant{Namespace: "bank", Project: "q"},
		intent.Tenant{Namespace: "lab", Project: "r"}, intent.Tenant{Namespace: "none"}
	for name, tc := range map[string]struct {
		network   intent.Network
		object    *v1alpha1.Network
		selected  []intent.Tenant
		without   bool // settings
		project   string
		undecided bool
	}{
		"of one namespace":      {intent.Network{Subnets: subnets}, selecting, []intent.Tenant{shop}, false, "q", false},
		"of two":                {intent.Network{Subnets: subnets}, selecting, []intent.Tenant{shop, bank}, false, "q", false},
		"of two projects":       {intent.Network{Subnets: subnets}, selecting, []intent.Tenant{shop, lab}, false, "", false},
		"of one without":        {intent.Network{Subnets: subnets}, selecting, []intent.Tenant{shop, none}, false, "", false},
		"of no namespace":       {intent.Network{Subnets: subnets}, selecting, nil, false, "", true},
		"without settings":      {intent.Network{Subnets: subnets}, selecting, nil, true, "", false},
		"of all namespaces":     {intent.Network{Subnets: subnets}, all, nil, false, "", false},
		"of the nodes' ranges":  {intent.Network{}, selecting, []intent.Tenant{shop}, false, "", false},
		"physical":              {intent.Network{Subnets: subnets, Physical: "dc"}, selecting, []intent.Tenant{shop}, false, "", false},
		"that says it":          {intent.Network{Subnets: subnets, Project: "x"}, selecting, []intent.Tenant{shop}, false, "x", false},
		"that says it for none": {intent.Network{Subnets: subnets, Project: "x"}, selecting, nil, false, "x", false},
	} {
		p := allowed
		if tc.without {
			p = Projects{}
		}
		got := p.Place(tc.network, tc.object, tc.selected)
		if got.Project != tc.project || got.Undecided != tc.undecided {
			t.Errorf("%s: in %q, undecided %v", name, got.Project, got.Undecided)
		}
	}
}

// What is no id of a project is a problem of the Network, and asked for nowhere.
func TestProjectOfNetwork(t *testing.T) {
	for id, want := range map[string]string{"q": "q", "../users": "", "": ""} {
		o := &v1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.KuryrProjectAnnotation: id}}}
		tables := new(networkTables)
		if n := tables.network(o); n.Project != want || (want == "") != (len(tables.problems) == 1) {
			t.Errorf("%q: project %q, problems %v", id, n.Project, tables.problems)
		}
	}
}
