// SPDX-License-Identifier: Apache-2.0

package restconf

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
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
	if err := errors.Join(v1alpha1.AddToScheme(scheme), clientgoscheme.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	fails := func(o client.Object, dryRun []string) error {
		if o.GetName() == "broken" && len(dryRun) == 0 {
			return errors.New("the API server is gone")
		}
		return nil
	}
	builder := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...)
	for _, o := range []client.Object{&corev1.Service{}, &corev1.Pod{}, &v1alpha1.Port{}} {
		builder.WithIndex(o, IndexUID, uidOf)
	}
	c := builder.WithInterceptorFuncs(interceptor.Funcs{
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
	w, err := s.Read(t.Context(), []mapping.Resource{mapping.Routers}, mapping.Entry{})
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
	from, err := s.Read(t.Context(), []mapping.Resource{mapping.Routers}, mapping.Entry{})
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
	from, err := s.Read(t.Context(), []mapping.Resource{mapping.Routers}, mapping.Entry{})
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
		only := mapping.Entry{Container: "coe", Key: uid}
		if uid == "" {
			only = mapping.Entry{}
		}
		w, err := s.Read(t.Context(), []mapping.Resource{mapping.Ports}, only)
		if err != nil || len(w.Ports) != want {
			t.Errorf("%q: %v, %d Ports, want %d", uid, err, len(w.Ports), want)
		}
	}
}

// TestReadOfOneService reads one Service with its slices and members, whichever client has made it.
func TestReadOfOneService(t *testing.T) {
	service := func(name, uid, label string) *corev1.Service {
		svc := &corev1.Service{ObjectMeta: serviceMeta("a", name, uid)}
		if label != "" {
			svc.Labels = map[string]string{mapping.LabelService: label}
		}
		return svc
	}
	slice := func(name, of, label string) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{ObjectMeta: serviceMeta("a", name, ""), Endpoints: []discoveryv1.Endpoint{
			{TargetRef: &corev1.ObjectReference{Kind: "Port", Namespace: "a", Name: "vm"}}, {TargetRef: &corev1.ObjectReference{Kind: "Port", Namespace: "a", Name: "gone"}}, {},
		}}
		s.Labels = map[string]string{discoveryv1.LabelServiceName: of}
		if label != "" {
			s.Labels[mapping.LabelEndpoints] = label
		}
		return s
	}
	port := func(name string) *v1alpha1.Port { return &v1alpha1.Port{ObjectMeta: serviceMeta("a", name, "")} }
	s := newStore(t, service("one", "1", "x"), service("two", "2", ""), service("three", "3", "y"), port("vm"), port("other"),
		slice("one-1", "one", ""), slice("one-2", "one", ""), slice("two-1", "two", "z"))
	for _, c := range []struct {
		container, uid, name string
		slices               int
	}{
		{"service-information", "x", "one", 2}, {"service-information", "2", "two", 1}, {"service-information", "y", "three", 0},
		{"service-information", "none", "", 0}, {"endpoints-info", "z", "two", 1}, {"endpoints-info", "x", "one", 2}, {"endpoints-info", "1", "one", 2},
	} {
		w, err := s.Read(t.Context(), []mapping.Resource{mapping.Services, mapping.Slices, mapping.Ports}, mapping.Entry{Container: c.container, Key: c.uid})
		if err != nil {
			t.Fatal(err)
		}
		ports := min(c.slices, 1)
		if c.name == "" && len(w.Services) == 0 {
			continue
		}
		if len(w.Services) != 1 || w.Services[types.NamespacedName{Namespace: "a", Name: c.name}] == nil || len(w.Slices) != c.slices || len(w.Ports) != ports {
			t.Errorf("%s %s: %d Services, %d slices, %d Ports", c.container, c.uid, len(w.Services), len(w.Slices), len(w.Ports))
		}
	}
}

// TestEditOfOneService edits one of many Services: no other one is read.
func TestEditOfOneService(t *testing.T) {
	const uid, kubectls = "22222222-2222-3333-4444-555555555555", "33333333-2222-3333-4444-555555555555"
	objects := []client.Object{
		&corev1.Service{ObjectMeta: serviceMeta("a", "by-kubectl", kubectls), Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.9", Ports: []corev1.ServicePort{{Port: 80}}}},
		&v1alpha1.Port{ObjectMeta: serviceMeta("a", "vm", "44444444-2222-3333-4444-555555555555"), Spec: v1alpha1.PortSpec{Network: "n", Addresses: []string{"10.10.0.9"}}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
	}
	for i := range 200 {
		objects = append(objects, &corev1.Service{ObjectMeta: serviceMeta("a", fmt.Sprintf("s%d", i), fmt.Sprintf("11111111-2222-3333-4444-%012d", i))})
	}
	store := newStore(t, objects...)
	counted := &countingReader{Reader: store.Live}
	store.Live, store.Cached = counted, counted
	h, err := newHandler(Options{Log: slog.New(slog.DiscardHandler), Kubernetes: reviewer(), API: store, Namespace: "coelan-system"})
	if err != nil {
		t.Fatal(err)
	}
	s := &site{T: t, h: h}
	const services, endpoints = "/restconf/data/service:service-information", "/restconf/data/service:endpoints-info"
	s.want(201, "POST", services, `{"service:services":[{"uid":"`+uid+`","network-NS":"a","name":"db","service-ports":[{"name":"sql","port":5432}],"endpoints":["44444444-2222-3333-4444-555555555555"]}]}`)
	s.want(204, "PATCH", services+"/services="+uid, `{"service:services":[{"uid":"`+uid+`","external-ip-address":["203.0.113.7"]}]}`)
	s.do("POST", services, `{"service:services":[{"uid":"55555555-2222-3333-4444-555555555555","network-NS":"a","name":"db"}]}`).refuses(t, 409, "data-exists", uid)
	s.want(204, "PATCH", services+"/services="+kubectls, `{"service:services":[{"uid":"`+kubectls+`","external-ip-address":["203.0.113.8"]}]}`)
	s.want(201, "PUT", endpoints+"/endpoints="+kubectls, `{"service:endpoints":[{"uid":"`+kubectls+`","endpoint-addresses":[{"ip-address":"10.10.0.12"}]}]}`)
	s.want(201, "PUT", endpoints+"/endpoints=66666666-2222-3333-4444-555555555555", `{"service:endpoints":[{"uid":"66666666-2222-3333-4444-555555555555","network-NS":"a","name":"s7","endpoint-addresses":[{"ip-address":"10.10.0.13"}]}]}`)
	s.want(204, "DELETE", services+"/services="+uid, "")
	if counted.most > 10 {
		t.Errorf("an answer of the API had %d objects", counted.most)
	}
	w, err := store.Read(t.Context(), []mapping.Resource{mapping.Services, mapping.Slices}, mapping.Entry{})
	if err != nil || len(w.Services) != 201 || len(w.Slices) != 2 {
		t.Errorf("%v: %d Services, %d slices", err, len(w.Services), len(w.Slices))
	}
}

// countingReader counts the objects in answers.
type countingReader struct {
	client.Reader
	most int
}

func (r *countingReader) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	err := r.Reader.List(ctx, list, opts...)
	r.most = max(r.most, apimeta.LenList(list))
	return err
}
