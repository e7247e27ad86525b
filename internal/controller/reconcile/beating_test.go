// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"coelan.io/coelan/internal/heartbeat"
)

// A reconciliation that does not come back fails the liveness probe, also while others of
// the same reconciler do.
func TestStuckReconciler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		monitor, release := heartbeat.New(heartbeat.Bound), make(chan struct{})
		r := WithHeartbeat(monitor.Loop("ports"), reconcile.Func(func(_ context.Context, r ctrl.Request) (ctrl.Result, error) {
			if r.Name == "stuck" {
				<-release
			}
			return ctrl.Result{RequeueAfter: time.Hour}, nil
		}))
		go func() { _, _ = r.Reconcile(t.Context(), RequestFor("a", "stuck")[0]) }()
		for range 3 {
			time.Sleep(heartbeat.Bound / 3)
			if result, err := r.Reconcile(t.Context(), RequestFor("a", "other")[0]); err != nil || result.RequeueAfter != time.Hour {
				t.Errorf("%+v, %v", result, err)
			}
		}
		if err := monitor.Check(); err != nil {
			t.Errorf("within the bound: %v", err)
		}
		time.Sleep(time.Second)
		if err := monitor.Check(); err == nil || !strings.Contains(err.Error(), "loop ports: stuck") {
			t.Errorf("a stuck reconciler: %v", err)
		}
		close(release)
		synctest.Wait()
		if err := monitor.Check(); err != nil {
			t.Errorf("after it has come back: %v", err)
		}
	})
}
