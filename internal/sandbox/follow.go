// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// errAgain ends one watch, as servers do now and then.
var errAgain = errors.New("the watch ended")

// again is the time between a watch that ended, or a server that did not answer, and the next try.
const again = 200 * time.Millisecond

// condition receives a list of objects and then of each change to one, and returns whether what
// it waits for is true. A list replaces all that it has been told before.
type condition interface {
	list([]runtime.Object) bool
	change(object runtime.Object, deleted bool) bool
}

// anyObject is a condition that a single object satisfies.
type anyObject func(runtime.Object) bool

func (done anyObject) list(objects []runtime.Object) bool { return slices.ContainsFunc(objects, done) }

func (done anyObject) change(object runtime.Object, deleted bool) bool {
	return !deleted && done(object)
}

// follow returns nil when the condition is true of what the watch shows.
func follow(ctx context.Context, objects *cache.ListWatch, c condition) error {
	for {
		err := followOnce(ctx, objects, c)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(again):
		case <-ctx.Done():
			if errors.Is(err, errAgain) || errors.Is(err, ctx.Err()) {
				return ctx.Err()
			}
			return fmt.Errorf("%w; the API server last said: %w", ctx.Err(), err)
		}
	}
}

func followOnce(ctx context.Context, objects *cache.ListWatch, c condition) error {
	list, err := objects.ListWithContext(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return err
	}
	if c.list(items) {
		return nil
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return err
	}
	w, err := objects.WatchWithContext(ctx, metav1.ListOptions{ResourceVersion: accessor.GetResourceVersion()})
	if err != nil {
		return err
	}
	defer w.Stop()
	for {
		select {
		case e, ok := <-w.ResultChan():
			if !ok || e.Type == watch.Error {
				return errAgain
			}
			if c.change(e.Object, e.Type == watch.Deleted) {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
