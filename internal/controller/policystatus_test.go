// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
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
		tries, refused := 0, true
		c := fake.NewClientBuilder().WithScheme(newScheme()).WithInterceptorFuncs(interceptor.Funcs{
			SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
				tries++
				if refused {
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
		if tries < 100 || tries > 130 {
			t.Errorf("%d tries in an hour", tries)
		}
		refused = false
		time.Sleep(longestPause)
		synctest.Wait()
		before := tries
		kick(p.told)
		time.Sleep(2 * s.interval)
		synctest.Wait()
		if tries != before+1 {
			t.Errorf("%d tries after news, when it is taken again", tries-before)
		}
		cancel()
		synctest.Wait()
	})
}
