// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"errors"
	"fmt"
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

// follow shows done every object of a list and then every change, until done accepts one or the context ends.
func follow(ctx context.Context, objects *cache.ListWatch, done func(runtime.Object) bool) error {
	for {
		err := followOnce(ctx, objects, done)
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

func followOnce(ctx context.Context, objects *cache.ListWatch, done func(runtime.Object) bool) error {
	list, err := objects.ListWithContext(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return err
	}
	for _, item := range items {
		if done(item) {
			return nil
		}
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
			if e.Type != watch.Deleted && done(e.Object) {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
