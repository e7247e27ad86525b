// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// access is what every reconciler works with.
type access struct {
	client.Client // reads from memory, writes to the API server
	// live reads from the API server: before something is removed because something else is gone, which may just not
	// be known here yet.
	live   client.Reader
	events record.EventRecorder
}

// queue has a bound for the time between two tries that is short enough for people who wait.
func queue(workers int) ctrlcontroller.Options {
	const first, most = 10 * time.Millisecond, 30 * time.Second
	return ctrlcontroller.Options{
		MaxConcurrentReconciles: workers,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](first, most),
	}
}

// all lists objects from memory. They are shared with others: nothing of them may be written to.
func all[L client.ObjectList](ctx context.Context, r client.Reader, list L, opts ...client.ListOption) (L, error) {
	err := r.List(ctx, list, append(opts, client.UnsafeDisableDeepCopy)...)
	if err != nil {
		return list, fmt.Errorf("list %T: %w", list, err)
	}
	return list, nil
}

// pointers are those to the elements of a list.
func pointers[T any](items []T) []*T {
	list := make([]*T, len(items))
	for i := range items {
		list[i] = &items[i]
	}
	return list
}

// find reads an object from memory; false if it is not there.
func (a *access) find(ctx context.Context, namespace, name string, into client.Object) (bool, error) {
	return found(a.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, into))
}

func found(err error) (bool, error) {
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// gone asks the API server whether an object that memory does not have is not there, or is another one of that name; an
// empty uid stands for any.
func (a *access) gone(ctx context.Context, namespace, name string, uid types.UID, of client.Object) (bool, error) {
	there, err := found(a.live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, of))
	if err != nil {
		return false, fmt.Errorf("%T %s: %w", of, name, err)
	}
	return !there || uid != "" && of.GetUID() != uid, nil
}

// remove deletes exactly this object. That it is gone, or was made anew, is as well.
func (a *access) remove(ctx context.Context, obj client.Object) error {
	uid := obj.GetUID()
	err := a.Delete(ctx, obj, client.Preconditions{UID: &uid})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// retry makes of an error that only says that somebody else was faster a wish to try again soon: that is no news.
func retry(err error) (reconcile.Result, error) {
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
		return reconcile.Result{RequeueAfter: conflictDelay}, nil
	}
	return reconcile.Result{}, err
}

// conflictDelay is about the time that a watch takes to tell what somebody else has written.
const conflictDelay = 100 * time.Millisecond
