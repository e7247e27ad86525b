// SPDX-License-Identifier: Apache-2.0

package apicache

import (
	"context"
	"log/slog"
	"maps"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agent/kube"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/wellknown"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, path string) (*View, *attachment.Store) {
	t.Helper()
	store, err := attachment.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	v, err := New(slog.New(slog.DiscardHandler), store)
	if err != nil {
		t.Fatal(err)
	}
	return v, store
}

func named[T any](name string, set func(*T, metav1.ObjectMeta)) *T {
	o := new(T)
	set(o, metav1.ObjectMeta{Name: name, Namespace: "shop", UID: "uid"})
	return o
}

func TestWhatWasSeenIsRemembered(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	v, store := open(t, path)
	calls := 0
	u := v.Updates(func() { calls++ })
	u.Nodes(kube.Whole([]*corev1.Node{named("n1", func(o *corev1.Node, m metav1.ObjectMeta) { o.ObjectMeta = m })}))
	u.Namespaces(kube.Whole([]*corev1.Namespace{named("shop", func(o *corev1.Namespace, m metav1.ObjectMeta) { o.ObjectMeta = m })}))
	u.Networks(kube.Whole([]*v1alpha1.Network{
		named("lan", func(o *v1alpha1.Network, m metav1.ObjectMeta) { o.ObjectMeta, o.Spec.VNI = m, new(int32) }),
		named("gone", func(o *v1alpha1.Network, m metav1.ObjectMeta) { o.ObjectMeta = m }),
	}))
	u.Networks(kube.Whole([]*v1alpha1.Network{named("lan", func(o *v1alpha1.Network, m metav1.ObjectMeta) { o.ObjectMeta = m })}))
	u.Routers(kube.Whole([]*v1alpha1.Router{named("r", func(o *v1alpha1.Router, m metav1.ObjectMeta) { o.ObjectMeta = m })}))
	u.Blocks(kube.Whole([]*v1alpha1.AddressBlock{named("b", func(o *v1alpha1.AddressBlock, m metav1.ObjectMeta) { o.ObjectMeta = m })}))
	u.Ports(kube.Whole([]*v1alpha1.Port{named("vm", func(o *v1alpha1.Port, m metav1.ObjectMeta) { o.ObjectMeta = m })}))
	u.FloatingIPs(kube.Whole([]*v1alpha1.FloatingIP{named("f", func(o *v1alpha1.FloatingIP, m metav1.ObjectMeta) { o.ObjectMeta = m })}))
	u.Egresses(kube.Whole([]*v1alpha1.Egress{named("e", func(o *v1alpha1.Egress, m metav1.ObjectMeta) { o.ObjectMeta = m })}))
	u.Definitions(kube.Whole([]*kube.Definition{named("d", func(o *kube.Definition, m metav1.ObjectMeta) { o.ObjectMeta = m })}))
	static := named("static", func(o *corev1.Pod, m metav1.ObjectMeta) { o.ObjectMeta = m })
	static.Annotations = map[string]string{wellknown.AnnotationConfigHash: "0123456789abcdef0123456789abcdef"}
	v.SetPods(kube.Whole([]*corev1.Pod{static}))
	want := v.State()
	if calls != 10 || want.Networks.Get("gone") != nil || want.Pods.Get("0123456789abcdef0123456789abcdef") == nil || want.Ports.Get("shop/vm") == nil || !want.Listed(kube.Ports) {
		t.Errorf("after %d updates: %+v", calls, want)
	}
	if err := v.Save(); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	again, _ := open(t, path)
	got := again.State()
	if got.Listed(kube.Ports) {
		t.Error("what is remembered counts as heard of")
	}
	for name, pair := range map[string][2]any{
		"nodes": {maps.Collect(want.Nodes.All()), maps.Collect(got.Nodes.All())}, "namespaces": {maps.Collect(want.Namespaces.All()), maps.Collect(got.Namespaces.All())}, "networks": {maps.Collect(want.Networks.All()), maps.Collect(got.Networks.All())}, "routers": {maps.Collect(want.Routers.All()), maps.Collect(got.Routers.All())},
		"blocks": {maps.Collect(want.Blocks.All()), maps.Collect(got.Blocks.All())}, "ports": {maps.Collect(want.Ports.All()), maps.Collect(got.Ports.All())}, "definitions": {maps.Collect(want.Definitions.All()), maps.Collect(got.Definitions.All())},
		"floating IPs": {maps.Collect(want.FloatingIPs.All()), maps.Collect(got.FloatingIPs.All())}, "egresses": {maps.Collect(want.Egresses.All()), maps.Collect(got.Egresses.All())},
		"pods": {maps.Collect(want.Pods.All()), maps.Collect(got.Pods.All())},
	} {
		if diff := cmp.Diff(pair[0], pair[1]); diff != "" {
			t.Errorf("%s (-seen +remembered):\n%s", name, diff)
		}
	}
}

func TestRunSaves(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	v, store := open(t, path)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- v.Run(ctx) }()
	u := v.Updates(func() {})
	u.Routers(kube.Whole([]*v1alpha1.Router{named("r", func(o *v1alpha1.Router, m metav1.ObjectMeta) { o.ObjectMeta = m })}))
	for deadline := time.Now().Add(10 * time.Second); len(store.Objects(kube.Routers)) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not saved")
		}
	}
	u.Routers(kube.Whole[*v1alpha1.Router](nil))
	cancel()
	if err := <-done; err != nil || len(store.Objects(kube.Routers)) != 0 {
		t.Errorf("at the end: %v, saved %v", err, store.Objects(kube.Routers))
	}
}

func TestAwait(t *testing.T) {
	v, _ := open(t, filepath.Join(t.TempDir(), "state.db"))
	u := v.Updates(func() {})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	go func() {
		u.Absent(kube.Definitions)
		u.Routers(kube.Whole[*v1alpha1.Router](nil))
	}()
	if s, ok := v.Await(ctx, func(s State) bool { return s.Listed(kube.Routers) && s.Listed(kube.Definitions) }); !ok {
		t.Errorf("not heard of: %+v", s)
	}
	cancel()
	if _, ok := v.Await(ctx, func(State) bool { return false }); ok {
		t.Error("waited for nothing and got it")
	}
}

// A pod that claims another one's UID is not taken for it.
func TestPodByItsWholeName(t *testing.T) {
	v, _ := open(t, filepath.Join(t.TempDir(), "state.db"))
	const static, given = "0123456789abcdef0123456789abcdef", "0c1ff3ee-0000-0000-0000-000000000000"
	pod := func(name, uid, claims string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, UID: types.UID(uid), Annotations: map[string]string{wellknown.AnnotationConfigHash: claims},
		}}
	}
	v.SetPods(kube.Whole([]*corev1.Pod{pod("victim", given, ""), pod("static", "1", static), pod("thief", "2", given), pod("other", "3", static)}))
	s := v.State()
	if p := s.Pod("shop", "victim", given); p == nil {
		t.Error("a pod is not found by the UID that the API server gave it")
	}
	if p := s.Pod("shop", "static", static); p != nil && p.Name != "static" {
		t.Errorf("in place of a static pod: %s", p.Name)
	}
	if p := s.Pod("shop", "thief", given); p != nil {
		t.Error("found by a UID that it claims")
	}
}
