// SPDX-License-Identifier: Apache-2.0

// Package removal deletes Coelan's own objects and finalizers from the API when Coelan is removed
// from a cluster, so that nothing is left that only a controller could delete. Users' objects stay.
package removal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/announce/keyring"
	"coelan.io/coelan/internal/policystream/certs"
	"coelan.io/coelan/internal/policystream/wire"
)

// Run deletes all objects that Coelan has made by itself, and all AddressBlocks, which mean nothing
// without the nodes' memory of them. It takes Coelan's finalizer from everything else. No
// controller may run meanwhile: it would make them again. It may be repeated; without the
// definitions there is nothing to do. The error joins what was not done, each by its object's name.
// The client reads from the API server, not from memory.
func Run(ctx context.Context, c client.Client, log *slog.Logger) error {
	var errs []error
	for _, kind := range []struct {
		name string
		list client.ObjectList
		own  func(client.Object) bool
	}{
		{"Port", &v1alpha1.PortList{}, made},
		{"AddressBlock", &v1alpha1.AddressBlockList{}, func(client.Object) bool { return true }},
		{"Network", &v1alpha1.NetworkList{}, made},
		{"Router", &v1alpha1.RouterList{}, made},
		{"LoadBalancerPool", &v1alpha1.LoadBalancerPoolList{}, made},
	} {
		removed, released, err := remove(ctx, c, kind.list, kind.own)
		if err != nil {
			errs = append(errs, fmt.Errorf("%ss: %w", kind.name, err))
		}
		log.Info("removed objects of a kind from the API", "kind", kind.name, "deleted", removed, "kept", released)
	}
	return errors.Join(errs...)
}

// Certificates deletes the certificate by which agents know controllers, and its CA; and the keys
// of the agents' membership.
func Certificates(ctx context.Context, c client.Client, namespace string) error {
	var errs []error
	for _, o := range []client.Object{
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: certs.Secret}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: keyring.Secret}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: wire.ConfigMap}},
	} {
		if err := client.IgnoreNotFound(c.Delete(ctx, o)); err != nil {
			errs = append(errs, fmt.Errorf("%T %s: %w", o, key(o), err))
		}
	}
	return errors.Join(errs...)
}

// made says whether Coelan has made an object by itself.
func made(o client.Object) bool {
	by := o.GetLabels()[v1alpha1.LabelManagedBy]
	return by == v1alpha1.ManagedByAgent || by == v1alpha1.ManagedByController
}

// key is namespace/name, or the name alone.
func key(o client.Object) string {
	return strings.TrimPrefix(client.ObjectKeyFromObject(o).String(), "/")
}

// remove returns how many objects it has deleted, and how many are left without the finalizer.
func remove(ctx context.Context, c client.Client, list client.ObjectList,
	own func(client.Object) bool,
) (int, int, error) {
	if err := c.List(ctx, list); meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return 0, 0, nil
	} else if err != nil {
		return 0, 0, err
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return 0, 0, err
	}
	var errs []error
	var deleted, left int
	for _, item := range items {
		o := item.(client.Object)
		count := &left
		if own(o) {
			count = &deleted
			if err := client.IgnoreNotFound(c.Delete(ctx, o)); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", key(o), err))
				continue
			}
		}
		if err := release(ctx, c, o); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", key(o), err))
			continue
		}
		*count++
	}
	return deleted, left, errors.Join(errs...)
}

// release takes the finalizer from an object; that it is gone is no error.
func release(ctx context.Context, c client.Client, o client.Object) error {
	return client.IgnoreNotFound(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		if !controllerutil.RemoveFinalizer(o, v1alpha1.FinalizerInUse) {
			return nil
		}
		return c.Update(ctx, o)
	}))
}
