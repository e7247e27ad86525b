// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"context"
	"time"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"coelan.io/coelan/internal/controller/reconcile"
)

// refusedChanged asks for everything after other objects are refused than before. The pause is for
// agents that move from one controller to another, which are with none for a moment.
func refusedChanged(refusals Refusals, pause time.Duration) source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
		go func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-refusals.RefusedChanged():
					queue.AddAfter(reconcile.RequestFor("", "all")[0], pause)
				}
			}
		}()
		return nil
	})
}
