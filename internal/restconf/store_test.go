// SPDX-License-Identifier: Apache-2.0

package restconf

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/restconf/mapping"
)

// newStore is a Store of an API in memory in which writes of objects named "broken" fail, but not
// when they are only tried.
func newStore(t *testing.T, objects ...client.Object) *Store {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	fails := func(o client.Object, dryRun []string) error {
		if o.GetName() == "broken" && len(dryRun) == 0 {
			return errors.New("the API server is gone")
		}
		return nil
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := fails(o, (&client.CreateOptions{}).ApplyOptions(opts).DryRun); err != nil {
				return err
			}
			return c.Create(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if err := fails(o, (&client.DeleteOptions{}).ApplyOptions(opts).DryRun); err != nil {
				return err
			}
			return c.Delete(ctx, o, opts...)
		},
	}).Build()
	return &Store{Live: c, Cached: c, Client: c}
}

func testRouter(name, distinguisher string) *v1alpha1.Router {
	return &v1alpha1.Router{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.RouterSpec{RouteDistinguisher: distinguisher}}
}

// routers are the distinguishers of all Routers.
func routers(t *testing.T, s *Store) map[string]string {
	t.Helper()
	w, err := s.Read(t.Context(), []mapping.Resource{mapping.Routers}, "")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for name, r := range w.Routers {
		found[name] = r.Spec.RouteDistinguisher
	}
	return found
}

// TestCommitIsWhole has the last of several changes fail: those before it are taken back.
func TestCommitIsWhole(t *testing.T) {
	s := newStore(t, testRouter("changed", "1:1"), testRouter("deleted", "1:2"), testRouter("broken", "1:3"))
	from, err := s.Read(t.Context(), []mapping.Resource{mapping.Routers}, "")
	if err != nil {
		t.Fatal(err)
	}
	to := from.Clone()
	to.Routers["created"] = testRouter("created", "1:4")
	to.Routers["changed"] = from.Routers["changed"].DeepCopy()
	to.Routers["changed"].Spec.RouteDistinguisher = "1:5"
	delete(to.Routers, "deleted")
	delete(to.Routers, "broken")
	changes := mapping.Changes(from, to)
	// The one that fails is the last.
	for i, c := range changes {
		if c.Object.GetName() == "broken" {
			changes = append(append(changes[:i:i], changes[i+1:]...), c)
			break
		}
	}
	if err := s.Commit(t.Context(), changes); err == nil {
		t.Fatal("no error")
	}
	got := routers(t, s)
	if len(got) != 3 || got["changed"] != "1:1" || got["deleted"] != "1:2" || got["broken"] != "1:3" {
		t.Errorf("left behind: %v", got)
	}
}

// TestCommitNeedsTheVersionRead changes an object that another client has changed meanwhile.
func TestCommitNeedsTheVersionRead(t *testing.T) {
	s := newStore(t, testRouter("red", "1:1"))
	from, err := s.Read(t.Context(), []mapping.Resource{mapping.Routers}, "")
	if err != nil {
		t.Fatal(err)
	}
	other := from.Routers["red"].DeepCopy()
	other.Spec.RouteDistinguisher = "1:2"
	if err := s.Client.Update(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	changed := from.Clone()
	changed.Routers["red"] = from.Routers["red"].DeepCopy()
	changed.Routers["red"].Spec.RouteDistinguisher = "1:3"
	if err := s.Commit(t.Context(), mapping.Changes(from, changed)); !apierrors.IsConflict(err) {
		t.Errorf("update: %v", err)
	}
	created := from.Clone()
	delete(created.Routers, "red")
	again := created.Clone()
	again.Routers["red"] = testRouter("red", "1:4")
	if err := s.Commit(t.Context(), mapping.Changes(created, again)); !apierrors.IsAlreadyExists(err) {
		t.Errorf("create: %v", err)
	}
	if got := routers(t, s); got["red"] != "1:2" {
		t.Errorf("%v", got)
	}
}

// TestReadOfOnePod reads the Ports of one entry, whichever client has made them.
func TestReadOfOnePod(t *testing.T) {
	port := func(name, uid, label string) *v1alpha1.Port {
		p := &v1alpha1.Port{
			ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: types.UID(uid)},
			Spec:       v1alpha1.PortSpec{Network: "lan"},
		}
		if label != "" {
			p.Labels = map[string]string{mapping.LabelPod: label}
		}
		return p
	}
	s := newStore(t, port("one", "1", "x"), port("two", "2", "x"), port("three", "3", "y"), port("vm", "4", ""))
	for uid, want := range map[string]int{"x": 2, "y": 1, "4": 1, "none": 0, "": 4} {
		w, err := s.Read(t.Context(), []mapping.Resource{mapping.Ports}, uid)
		if err != nil || len(w.Ports) != want {
			t.Errorf("%q: %v, %d Ports, want %d", uid, err, len(w.Ports), want)
		}
	}
}
