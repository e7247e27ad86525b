// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"coelan.io/coelan/api/v1alpha1"
)

// A status that the API server does not take is tried again less and less often.
func TestStatusThatIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tries atomic.Int64
		var accepted atomic.Bool
		c := fake.NewClientBuilder().WithScheme(newScheme()).WithInterceptorFuncs(interceptor.Funcs{
			SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
				tries.Add(1)
				if !accepted.Load() {
					return context.DeadlineExceeded
				}
				return nil
			},
		}).Build()
		p, _ := testPolicies(&v1alpha1.SecurityGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "web", UID: "g", Generation: 3}})
		close(p.complete)
		s := &policyStatus{
			access: &access{Client: c, live: c}, log: p.log, policies: p, told: told{known: map[finding]bool{}}, interval: time.Second,
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = s.Start(ctx) }()
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := tries.Load(); n < 100 || n > 130 {
			t.Errorf("%d tries in an hour", n)
		}
		accepted.Store(true)
		time.Sleep(longestPause)
		synctest.Wait()
		before := tries.Load()
		p.told.Kick()
		time.Sleep(2 * s.interval)
		synctest.Wait()
		if now := tries.Load(); now != before+1 {
			t.Errorf("%d tries after news, when it is taken again", now-before)
		}
		cancel()
		synctest.Wait()
	})
}
