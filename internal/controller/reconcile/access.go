// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlcontroller "sigs.k8s.io/controller-runtime/pkg/controller"

	"coelan.io/coelan/internal/allocate"
)

// Access is what every reconciler works with.
type Access struct {
	client.Client // reads from memory, writes to the API server
	// Live reads from the API server: before something is removed because something else is gone,
	// which may just not be known here yet.
	Live   client.Reader
	Events record.EventRecorder
}

// Queue returns options that bound the time between two tries: users wait for the result.
func Queue(workers int) ctrlcontroller.Options {
	const first, most = 10 * time.Millisecond, 30 * time.Second
	return ctrlcontroller.Options{
		MaxConcurrentReconciles: workers,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](first, most),
	}
}

// All lists objects from memory. They are shared: nothing of them may be written to.
func All[L client.ObjectList](ctx context.Context, r client.Reader, list L, opts ...client.ListOption) (L, error) {
	err := r.List(ctx, list, append(opts, client.UnsafeDisableDeepCopy)...)
	if err != nil {
		return list, fmt.Errorf("list %T: %w", list, err)
	}
	return list, nil
}

// Pointers returns pointers to the elements of a list.
func Pointers[T any](items []T) []*T {
	list := make([]*T, len(items))
	for i := range items {
		list[i] = &items[i]
	}
	return list
}

// Find reads an object from memory; false if it is not there.
func (a *Access) Find(ctx context.Context, namespace, name string, into client.Object) (bool, error) {
	return found(a.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, into))
}

func found(err error) (bool, error) {
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// Gone asks the API server whether an object that memory does not have is not there, or is another
// one of that name; an empty uid stands for any.
func (a *Access) Gone(ctx context.Context, namespace, name string, uid types.UID, of client.Object) (bool, error) {
	there, err := found(a.Live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, of))
	if err != nil {
		return false, fmt.Errorf("%T %s: %w", of, name, err)
	}
	return !there || uid != "" && of.GetUID() != uid, nil
}

// Remove deletes exactly this object. It is no error if the object is gone, or was recreated.
func (a *Access) Remove(ctx context.Context, obj client.Object) error {
	uid := obj.GetUID()
	err := a.Delete(ctx, obj, client.Preconditions{UID: &uid})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// Requeue turns the error that another writer was faster into a try soon: it is not worth a report.
func Requeue(err error) (ctrl.Result, error) {
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) &&
		!meta.IsNoMatchError(err) {
		return ctrl.Result{RequeueAfter: conflictDelay}, nil
	}
	return ctrl.Result{}, err
}

// conflictDelay is about the time that a watch takes to deliver what another writer has written.
const conflictDelay = 100 * time.Millisecond

// NodeGone reports whether a node is neither in memory nor in the API.
func (a *Access) NodeGone(ctx context.Context, name string) (bool, error) {
	there, err := a.Find(ctx, "", name, &corev1.Node{})
	if err != nil || there {
		return false, err
	}
	return a.Gone(ctx, "", name, "", &corev1.Node{})
}

// ServiceCIDRs are the API's prefixes of ClusterIPs; older API servers do not have them.
func (a *Access) ServiceCIDRs(ctx context.Context) ([]netip.Prefix, error) {
	list := &networkingv1.ServiceCIDRList{}
	if err := a.Live.List(ctx, list); meta.IsNoMatchError(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("list ServiceCIDRs: %w", err)
	}
	var prefixes []netip.Prefix
	for _, o := range list.Items {
		prefixes = allocate.AppendPrefixes(prefixes, o.Spec.CIDRs)
	}
	return prefixes, nil
}
