// SPDX-License-Identifier: Apache-2.0

package removal

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/announce/keyring"
	"coelan.io/coelan/internal/policystream/certs"
	"coelan.io/coelan/internal/policystream/wire"
)

func world(t *testing.T, calls interceptor.Funcs) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	object := func(name, by string) metav1.ObjectMeta {
		m := metav1.ObjectMeta{Name: name, Finalizers: []string{v1alpha1.FinalizerInUse}}
		if by != "" {
			m.Labels = map[string]string{v1alpha1.LabelManagedBy: by}
		}
		return m
	}
	port := func(name, by string) *v1alpha1.Port {
		p := &v1alpha1.Port{ObjectMeta: object(name, by)}
		p.Namespace, p.Finalizers = "ns", nil
		return p
	}
	others := &v1alpha1.Network{ObjectMeta: object("others", "")}
	others.Finalizers = append(others.Finalizers, "example.org/keep")
	return fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(calls).WithObjects(
		&v1alpha1.Network{ObjectMeta: object("default", v1alpha1.ManagedByController)},
		&v1alpha1.Network{ObjectMeta: object("red", "")}, others,
		&v1alpha1.Network{ObjectMeta: object("somebody", "helm")},
		&v1alpha1.Router{ObjectMeta: object("ns-red", v1alpha1.ManagedByController)},
		&v1alpha1.Router{ObjectMeta: object("tenants", "")},
		&v1alpha1.LoadBalancerPool{ObjectMeta: object("outside", "")},
		port("web-0.net1", v1alpha1.ManagedByAgent), port("vm", ""),
		&v1alpha1.AddressBlock{ObjectMeta: metav1.ObjectMeta{Name: "red-10-1-0-0-26"}},
	).Build()
}

// left are all objects with their finalizers, sorted.
func left(t *testing.T, c client.Client) []string {
	t.Helper()
	var names []string
	for _, list := range []client.ObjectList{
		&v1alpha1.NetworkList{}, &v1alpha1.RouterList{}, &v1alpha1.PortList{}, &v1alpha1.AddressBlockList{}, &v1alpha1.LoadBalancerPoolList{},
	} {
		if err := c.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		items, err := meta.ExtractList(list)
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range items {
			o := item.(client.Object)
			names = append(names, strings.Join(append([]string{o.GetName()}, o.GetFinalizers()...), " "))
		}
	}
	slices.Sort(names)
	return names
}

func TestUsersObjectsStayWithoutTheFinalizer(t *testing.T) {
	c := world(t, interceptor.Funcs{})
	// The second time there is nothing left to do.
	for range 2 {
		if err := Run(t.Context(), c, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
		want := []string{"others example.org/keep", "outside", "red", "somebody", "tenants", "vm"}
		if diff := cmp.Diff(want, left(t, c)); diff != "" {
			t.Errorf("objects (-want +got):\n%s", diff)
		}
	}
}

func TestNothingToRemoveWithoutTheDefinitions(t *testing.T) {
	c := world(t, interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
		return &meta.NoKindMatchError{}
	}})
	if err := Run(t.Context(), c, slog.New(slog.DiscardHandler)); err != nil {
		t.Error(err)
	}
}

func TestOneFailureStopsNoOther(t *testing.T) {
	refused := errors.New("refused")
	c := world(t, interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if o.GetName() == "default" {
				return refused
			}
			return c.Delete(ctx, o, opts...)
		},
	})
	err := Run(t.Context(), c, slog.New(slog.DiscardHandler))
	if !errors.Is(err, refused) || !strings.Contains(err.Error(), "Networks: default: ") {
		t.Errorf("error %v does not say what was refused", err)
	}
	want := []string{"default coelan.io/in-use", "others example.org/keep", "outside", "red", "somebody", "tenants", "vm"}
	if diff := cmp.Diff(want, left(t, c)); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
}

func TestCertificates(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	object := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name}
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		&corev1.Secret{ObjectMeta: object("coelan-system", certs.Secret)}, &corev1.Secret{ObjectMeta: object("coelan-system", "other")},
		&corev1.Secret{ObjectMeta: object("other", certs.Secret)}, &corev1.Secret{ObjectMeta: object("coelan-system", keyring.Secret)},
		&corev1.ConfigMap{ObjectMeta: object("coelan-system", wire.ConfigMap)},
	).Build()
	for range 2 { // again, when they are gone
		if err := Certificates(t.Context(), c, "coelan-system"); err != nil {
			t.Fatal(err)
		}
	}
	var secrets corev1.SecretList
	var maps corev1.ConfigMapList
	if err := errors.Join(c.List(t.Context(), &secrets), c.List(t.Context(), &maps)); err != nil {
		t.Fatal(err)
	}
	if len(secrets.Items) != 2 || len(maps.Items) != 0 {
		t.Errorf("left are %v and %v", secrets.Items, maps.Items)
	}
}
