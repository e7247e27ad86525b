// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// parallel writes at a time, of one reconciliation.
const parallel = 16

// Each works on a list, some at a time. One failure does not keep the rest from being done. The
// first error that is not about a faster writer is returned, if there is one.
func Each[T any](ctx context.Context, list []T, do func(context.Context, T) error) error {
	var group errgroup.Group
	group.SetLimit(parallel)
	errs := make([]error, len(list))
	for i, item := range list {
		group.Go(func() error {
			errs[i] = do(ctx, item)
			return nil
		})
	}
	_ = group.Wait() // what it returns is in errs
	var faster error
	for _, err := range errs {
		switch {
		case IsFaster(err):
			faster = err
		case err != nil:
			return err
		}
	}
	return faster
}
