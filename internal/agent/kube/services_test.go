// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func service(name string, port int32) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: port}}},
	}
}

// told collects what Changes hear, one line for each.
func told(send func(string)) *Changes[*corev1.Service] {
	return &Changes[*corev1.Service]{
		Set:    func(s *corev1.Service) { send(fmt.Sprintf("set %s %d", s.Name, s.Spec.Ports[0].Port)) },
		Delete: func(n types.NamespacedName) { send("delete " + n.String()) },
		Listed: func(exists func(types.NamespacedName) bool) {
			var there []string
			for _, name := range []string{"a", "b", "gone"} {
				if exists(types.NamespacedName{Namespace: "shop", Name: name}) {
					there = append(there, name)
				}
			}
			send("listed " + strings.Join(there, " "))
		},
		Failed: func(err error) { send("failed " + err.Error()) },
	}
}

func TestWatchServices(t *testing.T) {
	run := func(c *Client, ctx context.Context, update func(string)) error {
		return c.WatchServices(ctx, ServiceUpdates{Services: told(update)})
	}
	api, updates := watch(t, []runtime.Object{service("a", 80)}, run)
	expect := func(want string) {
		t.Helper()
		if got := next(t, updates); got != want {
			t.Fatalf("heard %q, want %q", got, want)
		}
	}
	expect("set a 80")
	expect("listed a")
	// The fake tells a watch of nothing that was before it.
	watched := func(a clienttesting.Action) bool { return a.GetVerb() == "watch" }
	for deadline := time.Now().Add(patience); !slices.ContainsFunc(api.Actions(), watched); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("Services are not watched")
		}
	}
	services := api.CoreV1().Services("shop")
	if _, err := services.Create(t.Context(), service("b", 81), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect("set b 81")
	if _, err := services.Update(t.Context(), service("b", 82), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect("set b 82")
	if err := services.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expect("delete shop/a")
	for _, a := range api.Actions() {
		l, ok := a.(clienttesting.ListAction)
		want := "!service.kubernetes.io/headless,!service.kubernetes.io/service-proxy-name"
		if ok && l.GetListRestrictions().Labels.String() != want {
			t.Errorf("asked for %q, want %q", l.GetListRestrictions().Labels, want)
		}
	}
}

// Kinds without a handler are not watched, and the prefixes of ClusterIPs come also from an API
// that has none.
func TestWatchServiceCIDRs(t *testing.T) {
	run := func(c *Client, ctx context.Context, update func(int)) error {
		return c.WatchServices(ctx, ServiceUpdates{CIDRs: func(d Delta[*networkingv1.ServiceCIDR]) { update(len(d.Set) - len(d.Gone)) }})
	}
	cidr := &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.96.0.0/16"}},
	}
	api, updates := watch(t, []runtime.Object{cidr}, run)
	if got := next(t, updates); got != 1 {
		t.Errorf("%d ServiceCIDRs, want 1", got)
	}
	for _, a := range api.Actions() {
		if a.GetResource().Resource != ServiceCIDRs {
			t.Errorf("asked for %s", a.GetResource().Resource)
		}
	}
}

func TestServicesCannotBeListed(t *testing.T) {
	refused := errors.New("connection refused")
	run := func(c *Client, ctx context.Context, update func(string)) error {
		c.api.(*fake.Clientset).PrependReactor("list", "services", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, refused
		})
		return c.WatchServices(ctx, ServiceUpdates{Services: told(update)})
	}
	_, updates := watch(t, nil, run)
	if got := next(t, updates); got != "failed connection refused" {
		t.Errorf("heard %q", got)
	}
}

// A list that fails midway, or is expired, is no list: nothing may be deleted for it.
func TestListInPages(t *testing.T) {
	var asked []metav1.ListOptions
	pages := map[string]*discoveryv1.EndpointSliceList{
		"": {
			ListMeta: metav1.ListMeta{Continue: "2", ResourceVersion: "7"},
			Items:    []discoveryv1.EndpointSlice{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a"}}},
		},
		"2": {
			ListMeta: metav1.ListMeta{ResourceVersion: "7"},
			Items:    []discoveryv1.EndpointSlice{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "b"}}},
		},
	}
	fail := true
	list := func(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
		asked = append(asked, o)
		if o.Continue == "2" && fail {
			fail = false
			return nil, errors.New("the continue parameter is too old")
		}
		return pages[o.Continue], nil
	}
	var heard []string
	s := &sink[*discoveryv1.EndpointSlice]{Changes: &Changes[*discoveryv1.EndpointSlice]{
		Set:    func(o *discoveryv1.EndpointSlice) { heard = append(heard, o.Name) },
		Listed: func(func(types.NamespacedName) bool) { heard = append(heard, "listed") },
	}}
	if _, err := s.list(t.Context(), list); err == nil {
		t.Fatal("a page is missing, but there was no error")
	}
	whole, err := s.list(t.Context(), list)
	if err != nil {
		t.Fatal(err)
	}
	if l := whole.(*metav1.List); l.ResourceVersion != "7" || len(l.Items) != 0 {
		t.Errorf("list for the reflector: %+v", l)
	}
	if err := s.Replace(nil, "7"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a", "a", "b", "listed"}, heard); diff != "" {
		t.Errorf("heard (-want +got):\n%s", diff)
	}
	if i := slices.IndexFunc(asked, func(o metav1.ListOptions) bool { return o.Limit != pageSize || o.LabelSelector != others }); i >= 0 {
		t.Errorf("asked for %+v", asked[i])
	}
}

// What the API server answers in place of Services is an error, not an empty list.
func TestListOfOthers(t *testing.T) {
	s := &sink[*corev1.Service]{Changes: told(func(string) { t.Error("told of something") })}
	_, err := s.list(t.Context(), func(context.Context, metav1.ListOptions) (runtime.Object, error) {
		return &corev1.PodList{Items: []corev1.Pod{{}}}, nil
	})
	if err == nil {
		t.Error("Pods were taken for Services")
	}
}
