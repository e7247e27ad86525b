// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/wellknown"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 10 * time.Second

func node(name string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{"a": "b"}},
		Spec:       corev1.NodeSpec{PodCIDRs: []string{"10.244.1.0/24"}},
		Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.168.33.11"}},
			Images:    []corev1.ContainerImage{{Names: []string{"large"}}},
		},
	}
}

// watch runs a watch and returns its updates and what ends it.
func watch[T any](t *testing.T, objects []runtime.Object, run func(*Client, context.Context, func(T)) error) (*fake.Clientset, <-chan T) {
	t.Helper()
	api := fake.NewClientset(objects...)
	ctx, cancel := context.WithCancel(t.Context())
	updates, done := make(chan T), make(chan error, 1)
	go func() {
		done <- run(New(slog.New(slog.DiscardHandler), api, "n1"), ctx, func(u T) {
			select {
			case updates <- u:
			case <-ctx.Done():
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return api, updates
}

func next[T any](t *testing.T, updates <-chan T) T {
	t.Helper()
	select {
	case u := <-updates:
		return u
	case <-time.After(patience):
		t.Fatal("no update came")
		panic("unreachable")
	}
}

func none[T any](t *testing.T, updates <-chan T) {
	t.Helper()
	select {
	case u := <-updates:
		t.Errorf("unexpected update %v", u)
	case <-time.After(50 * time.Millisecond):
	}
}

func TestWatchNodes(t *testing.T) {
	api, updates := watch(t, []runtime.Object{node("n1")}, (*Client).watchNodes)
	nodes := api.CoreV1().Nodes()
	want := Whole([]*corev1.Node{slimNode(node("n1"))})
	if diff := cmp.Diff(want, next(t, updates)); diff != "" {
		t.Errorf("first update (-want +got):\n%s", diff)
	}
	labeled := node("n1")
	labeled.Labels["topology.kubernetes.io/zone"] = "a"
	labeled.Annotations = map[string]string{v1alpha1.AnnotationPhysicalNetworks: ""}
	labeled.Spec.Taints = []corev1.Taint{{Key: "other"}, {Key: wellknown.TaintToBeDeleted, Effect: corev1.TaintEffectNoSchedule}}
	if _, err := nodes.Update(t.Context(), labeled, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	got := next(t, updates).Set[0]
	_, connected := got.Annotations[v1alpha1.AnnotationPhysicalNetworks]
	if got.Labels["topology.kubernetes.io/zone"] != "a" || !wellknown.NodeLeaving(got) || !connected {
		t.Errorf("after a label, a taint and an annotation: %+v", got)
	}
	if _, err := nodes.Update(t.Context(), node("n1"), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := next(t, updates).Set[0]; wellknown.NodeLeaving(got) {
		t.Errorf("without the taint: %+v", got)
	}
	// A heartbeat changes nothing that is read.
	beat := node("n1")
	beat.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, LastHeartbeatTime: metav1.Now()}}
	if _, err := nodes.Update(t.Context(), beat, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	none(t, updates)
	moved := node("n1")
	moved.Status.Addresses[0].Address = "192.168.33.99"
	if _, err := nodes.Update(t.Context(), moved, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := next(t, updates).Set[0].Status.Addresses[0].Address; got != "192.168.33.99" {
		t.Errorf("address %s after the change", got)
	}
	if err := nodes.Delete(t.Context(), "n1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := next(t, updates); got.Whole || len(got.Set) != 0 || len(got.Gone) != 1 || got.Gone[0].Name != "n1" {
		t.Errorf("nodes after the last was deleted: %v", got)
	}
}

func TestWatchNodesWithoutAny(t *testing.T) {
	_, updates := watch(t, nil, (*Client).watchNodes)
	if got := next(t, updates); !got.Whole || len(got.Set) != 0 {
		t.Errorf("nodes: %v", got)
	}
}

func TestWatchPods(t *testing.T) {
	pod := func(name, uid string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(uid)}, Spec: corev1.PodSpec{NodeName: "n1"}}
	}
	api, updates := watch(t, []runtime.Object{pod("a", "1")}, (*Client).WatchPods)
	if got := next(t, updates); !got.Whole || len(got.Set) != 1 || got.Set[0].UID != "1" {
		t.Errorf("pods: %v", got)
	}
	// A pod of the same name comes back with another UID.
	if _, err := api.CoreV1().Pods("default").Update(t.Context(), pod("a", "2"), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := next(t, updates); len(got.Set) != 1 || got.Set[0].UID != "2" || len(got.Gone) != 1 || got.Gone[0].UID != "1" {
		t.Errorf("pods: %v", got)
	}
	labeled := pod("a", "2")
	labeled.Labels = map[string]string{"app": "web"}
	if _, err := api.CoreV1().Pods("default").Update(t.Context(), labeled, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := next(t, updates); len(got.Set) != 1 || len(got.Gone) != 0 || got.Set[0].Labels["app"] != "web" {
		t.Errorf("pods with another label: %v", got)
	}
	for _, a := range api.Actions() {
		if l, ok := a.(clienttesting.ListAction); ok && l.GetListRestrictions().Fields.String() != "spec.nodeName=n1" {
			t.Errorf("asked for pods with %q", l.GetListRestrictions().Fields)
		}
	}
}

func TestRecorder(t *testing.T) {
	api := fake.NewClientset()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := New(slog.New(slog.DiscardHandler), api, "n1").NewRecorder(ctx)
	defer r.Close()
	w, err := api.CoreV1().Events("").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	r.PodWarning("default", "web-0", "uid-1", "NetworkSetupFailed", strings.Repeat("x", 2000))
	r.NodeWarning("n1", "uid-n1", "NodeNotUsable", "no podCIDR")
	got := map[string]corev1.Event{}
	for len(got) < 2 {
		select {
		case e := <-w.ResultChan():
			event := e.Object.(*corev1.Event)
			got[event.Reason] = *event
		case <-time.After(patience):
			t.Fatalf("only these events came: %v", got)
		}
	}
	pod := got["NetworkSetupFailed"]
	if o := pod.InvolvedObject; o.Kind != "Pod" || o.Namespace != "default" || o.Name != "web-0" || o.UID != "uid-1" {
		t.Errorf("event about %+v", o)
	}
	if len(pod.Message) != maxMessage || pod.Type != corev1.EventTypeWarning || pod.Source.Host != "n1" {
		t.Errorf("event with %d bytes, type %s, host %s", len(pod.Message), pod.Type, pod.Source.Host)
	}
	if o := got["NodeNotUsable"].InvolvedObject; o.Kind != "Node" || o.Name != "n1" {
		t.Errorf("event about %+v", o)
	}
}

func TestConnectErrors(t *testing.T) {
	dir := t.TempDir()
	wrong := filepath.Join(dir, "wrong")
	if err := os.WriteFile(wrong, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{"no file": filepath.Join(dir, "none"), "not a kubeconfig": wrong, "not in a pod": ""} {
		if _, err := Connect(slog.New(slog.DiscardHandler), path, "n1", nil); err == nil || !strings.HasPrefix(err.Error(), "kubeconfig: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
