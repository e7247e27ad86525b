// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/heartbeat"
)

// A status that the API server does not take is tried again less and less often.
func TestStatusThatIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tries atomic.Int64
		var accepted atomic.Bool
		c := fake.NewClientBuilder().WithScheme(reconcile.NewScheme()).WithInterceptorFuncs(interceptor.Funcs{
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
			Access: &reconcile.Access{Client: c, Live: c}, log: p.log, policies: p, events: reconcile.EventDedup{}, interval: time.Second,
			loop: heartbeat.New(heartbeat.Bound).Loop("policy-status"),
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = s.Start(ctx) }()
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := tries.Load(); n < 100 || n > 130 {
			t.Errorf("%d tries in an hour", n)
		}
		accepted.Store(true)
		time.Sleep(lastPause)
		synctest.Wait()
		before := tries.Load()
		p.findingsChanged.Fire()
		time.Sleep(2 * s.interval)
		synctest.Wait()
		if now := tries.Load(); now != before+1 {
			t.Errorf("%d tries after news, when it is taken again", now-before)
		}
		cancel()
		synctest.Wait()
	})
}

// A look that does not come back fails the liveness probe, and waiting for changes does not.
func TestStatusThatIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		c := fake.NewClientBuilder().WithScheme(reconcile.NewScheme()).WithInterceptorFuncs(interceptor.Funcs{
			SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
				<-release
				return nil
			},
		}).Build()
		monitor := heartbeat.New(heartbeat.Bound)
		p, _ := testPolicies()
		close(p.complete)
		s := &policyStatus{
			Access: &reconcile.Access{Client: c, Live: c}, log: p.log, policies: p, interval: time.Second, loop: monitor.Loop("policy-status"),
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = s.Start(ctx) }()
		time.Sleep(2 * heartbeat.Bound)
		if err := monitor.Check(); err != nil {
			t.Errorf("while it waits: %v", err)
		}
		p.note(&v1alpha1.SecurityGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "web", UID: "g", Generation: 1}}, false)
		p.apply()
		time.Sleep(heartbeat.Bound + 2*s.interval)
		if err := monitor.Check(); err == nil || !strings.Contains(err.Error(), "loop policy-status: stuck") {
			t.Errorf("a stuck look: %v", err)
		}
		close(release)
		synctest.Wait()
		if err := monitor.Check(); err != nil {
			t.Errorf("after it has come back: %v", err)
		}
		cancel()
		synctest.Wait()
	})
}
