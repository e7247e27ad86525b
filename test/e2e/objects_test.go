// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/sandbox"
)

// objectTimeout bounds the wait for what Coelan writes into an object.
const objectTimeout = time.Minute

func newObjects(s *sandbox.Sandbox) (client.Client, error) {
	config, err := s.RESTConfig()
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	return client.New(config, client.Options{Scheme: scheme})
}

// named sets the name of a new object of the API, "name" or "namespace/name".
func named[T client.Object](object T, key string) T {
	namespace, name, ok := strings.Cut(key, "/")
	if !ok {
		namespace, name = "", key
	}
	object.SetNamespace(namespace)
	object.SetName(name)
	return object
}

// wait reads the object until done has no objection.
func wait[T client.Object](ctx context.Context, object T, done func(T) error) error {
	ctx, cancel := context.WithTimeout(ctx, objectTimeout)
	defer cancel()
	err := eventually(ctx, func() error {
		if err := world.objects.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		return done(object)
	})
	if err != nil {
		return fmt.Errorf("%T %s: %w", object, client.ObjectKeyFromObject(object), err)
	}
	return nil
}

// waitGone waits until the object is not there.
func waitGone(ctx context.Context, object client.Object) error {
	ctx, cancel := context.WithTimeout(ctx, objectTimeout)
	defer cancel()
	return eventually(ctx, func() error {
		err := world.objects.Get(ctx, client.ObjectKeyFromObject(object), object)
		if err == nil {
			return fmt.Errorf("%T %s is there", object, client.ObjectKeyFromObject(object))
		}
		return client.IgnoreNotFound(err)
	})
}

// says is an objection unless the condition has the status and the reason, and a message if that is
// not good news.
func says(conditions []metav1.Condition, kind string, status metav1.ConditionStatus, reason string) error {
	c := meta.FindStatusCondition(conditions, kind)
	if c == nil || c.Status != status || c.Reason != reason || c.Message == "" && reason != v1alpha1.ReasonReady {
		return fmt.Errorf("condition %s is %+v, want %s, %s", kind, c, status, reason)
	}
	return nil
}

func networkReady(n *v1alpha1.Network) error {
	return says(n.Status.Conditions, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
}

// portIn is an objection unless the Port is in that phase.
func portIn(phase v1alpha1.PortPhase) func(*v1alpha1.Port) error {
	return func(p *v1alpha1.Port) error {
		if p.Status.Phase != phase {
			return fmt.Errorf("phase %q (%s), want %s", p.Status.Phase, p.Status.LastError, phase)
		}
		return nil
	}
}

// apply applies a manifest's text. What it makes is deleted at the test's end by deleteAll,
// or with the cluster.
func apply(ctx context.Context, t *testing.T, manifest string) {
	t.Helper()
	if err := world.Apply(ctx, manifest); err != nil {
		t.Fatal(err)
	}
}

// remove deletes objects, named as for kubectl, and waits until they are gone.
func remove(ctx context.Context, t *testing.T, args ...string) {
	t.Helper()
	args = append([]string{"delete", "--ignore-not-found", "--timeout=90s"}, args...)
	if _, err := world.Kubectl(ctx, args...); err != nil {
		t.Error(err)
	}
}

func parseAddresses(texts []string) ([]netip.Addr, error) {
	var list []netip.Addr
	for _, text := range texts {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return nil, err
		}
		list = append(list, a)
	}
	return list, nil
}
