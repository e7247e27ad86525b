// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
)

// bank is an Egress on the Network office for all pods, with these addresses in effect.
func bank(change func(*v1alpha1.Egress), addresses ...string) *v1alpha1.Egress {
	o := &v1alpha1.Egress{ObjectMeta: metav1.ObjectMeta{Name: "bank", UID: "bank"}}
	o.Spec.Network, o.Spec.PodSelector, o.Status.Addresses = "office", &metav1.LabelSelector{}, addresses
	if change != nil {
		change(o)
	}
	return o
}

func egressBlock(address, egress string) *v1alpha1.AddressBlock {
	b := claimOf(address, "")
	b.Spec.Egress = egress
	return b
}

// pathTexts are the paths of Egresses, each as a line.
func pathTexts(list []intent.EgressPath) []string {
	var texts []string
	for _, p := range list {
		texts = append(texts, fmt.Sprintf("%s by %s to %v", p.Name, p.Network, p.Destinations))
	}
	slices.Sort(texts)
	return texts
}

// An address is the Egress's by its block and by its status; which nodes may be active is as for
// the gateways of Routers.
func TestEgressesInEffect(t *testing.T) {
	const v4 = "192.0.2.10"
	for _, tc := range []struct {
		name   string
		egress *v1alpha1.Egress
		block  *v1alpha1.AddressBlock
		want   []string
		path   []string
	}{
		{"all", bank(nil, v4), egressBlock(v4, "bank"), []string{"office 192.0.2.10 defaultbank [n1]"}, []string{"bank by office to []"}},
		{"with an active node", bank(nil, v4), activeOn(egressBlock(v4, "bank"), "n2"),
			[]string{"office 192.0.2.10 defaultbank [n1] active n2"}, []string{"bank by office to []"}},
		{"failback, and to some destinations", bank(func(o *v1alpha1.Egress) {
			o.Spec.Failback, o.Spec.Destinations = true, []string{"203.0.113.0/24", "198.51.100.0/24", "2001:db8::/32"}
		}, v4), egressBlock(v4, "bank"), []string{"office 192.0.2.10 defaultbank [n1] failback"},
			[]string{"bank by office to [198.51.100.0/24 203.0.113.0/24 2001:db8::/32]"}},
		{"a destination that cannot be read", bank(func(o *v1alpha1.Egress) { o.Spec.Destinations = []string{"203.0.113.1/24"} }, v4),
			egressBlock(v4, "bank"), []string{"office 192.0.2.10 defaultbank [n1]"}, nil},
		{"nodes that are not there", bank(func(o *v1alpha1.Egress) {
			o.Spec.Nodes = &metav1.LabelSelector{MatchLabels: map[string]string{"name": "n2"}}
		}, v4), egressBlock(v4, "bank"), []string{"office 192.0.2.10 defaultbank []"}, []string{"bank by office to []"}},
		{"no Egress", nil, egressBlock(v4, "bank"), nil, nil},
		{"an address that the controller has not given yet", bank(nil), egressBlock(v4, "bank"), nil, []string{"bank by office to []"}},
		{"without a block", bank(nil, v4), egressBlock("192.0.2.11", "bank"), nil, []string{"bank by office to []"}},
		{"another Egress's block", bank(nil, v4), egressBlock(v4, "shop"), nil, []string{"bank by office to []"}},
		{"a Router's block", bank(nil, v4), gatewayBlock(v4, "bank/*"), nil, []string{"bank by office to []"}},
		{"another Network", bank(func(o *v1alpha1.Egress) { o.Spec.Network = "lab" }, v4), egressBlock(v4, "bank"), nil,
			[]string{"bank by lab to []"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			steps := []func(*EgressSet){
				func(s *EgressSet) {
					if tc.egress != nil {
						s.Set("bank", tc.egress)
					}
				},
				func(s *EgressSet) { s.SetBlock(tc.block.Name, tc.block) },
				func(s *EgressSet) { s.SetNetwork("office", officeNetwork("p")) },
				func(s *EgressSet) { s.SetNode("n1", uplinkNode("n1", "p", nil)) },
			}
			for range 8 {
				order := rand.Perm(len(steps))
				s := NewEgressSet()
				addresses, paths := map[string]intent.EgressAddress{}, map[string]intent.EgressPath{}
				for _, i := range order {
					steps[i](s)
					c := s.Changes()
					follow(addresses, c.Addresses, func(e intent.EgressAddress) string { return e.Address.String() })
					follow(paths, c.Paths, func(e intent.EgressPath) string { return e.Name })
				}
				var gotAddresses []intent.EgressAddress
				var gotPaths []intent.EgressPath
				for _, e := range addresses {
					gotAddresses = append(gotAddresses, e)
				}
				for _, e := range paths {
					gotPaths = append(gotPaths, e)
				}
				if diff := gocmp.Diff([][]string{tc.want, tc.path}, [][]string{sharedTexts(gotAddresses), pathTexts(gotPaths)}); diff != "" {
					t.Errorf("order %v (-want +got):\n%s", order, diff)
				}
			}
		})
	}
}

// What a change does not touch stays as it is, and is not translated again.
func TestEgressesChange(t *testing.T) {
	const one, other = "192.0.2.10", "192.0.2.11"
	for _, tc := range []struct {
		name      string
		change    func(*EgressSet)
		set, gone []string // addresses
		paths     int
	}{
		{"nothing", func(*EgressSet) {}, nil, nil, 0},
		{"other conditions", func(s *EgressSet) {
			s.Set("bank", bank(func(o *v1alpha1.Egress) { o.Status.ActiveNodes = []string{"n1"} }, one))
		}, nil, nil, 0},
		{"other destinations", func(s *EgressSet) {
			s.Set("bank", bank(func(o *v1alpha1.Egress) { o.Spec.Destinations = []string{"203.0.113.0/24"} }, one))
		}, []string{one}, nil, 1},
		{"it goes", func(s *EgressSet) { s.Set("bank", nil) }, nil, []string{one}, 1},
		{"an address goes", func(s *EgressSet) { s.SetBlock(egressBlock(one, "bank").Name, nil) }, nil, []string{one}, 0},
		{"an address goes to another", func(s *EgressSet) { s.SetBlock(egressBlock(one, "bank").Name, egressBlock(one, "shop")) }, nil,
			[]string{one}, 0},
		{"a node comes", func(s *EgressSet) { s.SetNode("n2", uplinkNode("n2", "p", nil)) }, []string{one, other}, nil, 0},
		{"a node reports", func(s *EgressSet) {
			s.SetBlock(egressBlock(one, "bank").Name, activeOn(egressBlock(one, "bank"), "n1"))
		},
			[]string{one}, nil, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := NewEgressSet()
			s.Set("bank", bank(nil, one))
			shop := bank(nil, other)
			shop.Name, shop.UID = "shop", "shop"
			s.Set("shop", shop)
			s.SetNetwork("office", officeNetwork("p"))
			s.SetNode("n1", uplinkNode("n1", "p", nil))
			for _, b := range []*v1alpha1.AddressBlock{egressBlock(one, "bank"), egressBlock(other, "shop")} {
				s.SetBlock(b.Name, b)
			}
			if c := s.Changes(); len(c.Addresses.Set) != 2 || len(c.Paths.Set) != 2 {
				t.Fatalf("not all have effect: %+v", c)
			}
			tc.change(s)
			c := s.Changes()
			if diff := gocmp.Diff([][]string{tc.set, tc.gone}, [][]string{sharedAddresses(c.Addresses.Set), sharedAddresses(c.Addresses.Gone)}); diff != "" {
				t.Errorf("set, and gone (-want +got):\n%s", diff)
			}
			if n := len(c.Paths.Set) + len(c.Paths.Gone); n != tc.paths {
				t.Errorf("%d paths change, want %d", n, tc.paths)
			}
		})
	}
}

// Of Egresses that select a pod the oldest has it, and of those that came in the same second the
// first by name. One that says nothing, or something that cannot be read, has none.
func TestEgressOfPod(t *testing.T) {
	of := func(name string, age int, namespaces, pods *metav1.LabelSelector) *v1alpha1.Egress {
		o := &v1alpha1.Egress{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(int64(1e9-age), 0))}}
		o.Spec.NamespaceSelector, o.Spec.PodSelector = namespaces, pods
		return o
	}
	is := func(key, value string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
	}
	all := &metav1.LabelSelector{}
	bad := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}
	shop := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"team": "a"}}}
	web := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Labels: map[string]string{"app": "web"}}}
	host := web.DeepCopy()
	host.Spec.HostNetwork = true
	for _, tc := range []struct {
		name      string
		egresses  []*v1alpha1.Egress
		namespace *corev1.Namespace
		pod       *corev1.Pod
		want      string
	}{
		{"none", nil, shop, web, ""},
		{"by the pod", []*v1alpha1.Egress{of("e", 1, nil, is("app", "web"))}, shop, web, "e"},
		{"by the namespace", []*v1alpha1.Egress{of("e", 1, is("team", "a"), nil)}, shop, web, "e"},
		{"by both", []*v1alpha1.Egress{of("e", 1, is("team", "a"), is("app", "web"))}, shop, web, "e"},
		{"by the namespace alone", []*v1alpha1.Egress{of("e", 1, is("team", "a"), is("app", "db"))}, shop, web, ""},
		{"by the pod alone", []*v1alpha1.Egress{of("e", 1, is("team", "b"), is("app", "web"))}, shop, web, ""},
		{"all of all", []*v1alpha1.Egress{of("e", 1, all, all)}, shop, web, "e"},
		{"a pod of the host", []*v1alpha1.Egress{of("e", 1, all, all)}, shop, host, ""},
		{"a namespace that is not known", []*v1alpha1.Egress{of("e", 1, all, all)}, nil, web, ""},
		{"nothing selected", []*v1alpha1.Egress{of("e", 1, nil, nil)}, shop, web, ""},
		{"a bad selector of pods", []*v1alpha1.Egress{of("e", 1, all, bad), of("f", 0, all, nil)}, shop, web, "f"},
		{"a bad selector of namespaces", []*v1alpha1.Egress{of("e", 1, bad, all)}, shop, web, ""},
		{"the older", []*v1alpha1.Egress{of("a", 1, all, nil), of("b", 2, nil, all)}, shop, web, "b"},
		{"the older does not select it", []*v1alpha1.Egress{of("a", 1, all, nil), of("b", 2, nil, is("app", "db"))}, shop, web, "a"},
		{"of one second", []*v1alpha1.Egress{of("b", 1, all, nil), of("a", 1, nil, all)}, shop, web, "a"},
	} {
		s := NewEgressSet()
		for _, e := range tc.egresses {
			s.Set(e.Name, e)
		}
		if got := s.Selectors().Of(tc.namespace, tc.pod); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
		before := s.Selectors()
		for _, e := range tc.egresses {
			s.Set(e.Name, nil)
		}
		if got := s.Selectors().Of(tc.namespace, tc.pod); got != "" || before.Of(tc.namespace, tc.pod) != tc.want {
			t.Errorf("%s: without Egresses %q; the selectors of before have changed", tc.name, got)
		}
	}
}
