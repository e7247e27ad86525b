// SPDX-License-Identifier: Apache-2.0

package objectkeeper

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/trigger"
)

const namespace, name = "coelan-system", "kept"

// keep runs the loop in a bubble of synctest until stop is called.
func keep(t *testing.T, monitor *heartbeat.Monitor, failed func(error), look func() (time.Duration, error)) (changed trigger.Trigger, stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	changed = trigger.New()
	o := Options{Loop: monitor.Loop("kept"), Failed: failed, Look: func(context.Context) (time.Time, error) {
		after, err := look()
		return time.Now().Add(after), err
	}}
	ended := make(chan error, 1)
	go func() { ended <- o.keep(ctx, changed) }()
	return changed, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// It looks at the start, after a change, and when something is due.
func TestWhenItLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looks atomic.Int64
		changed, stop := keep(t, heartbeat.New(heartbeat.Bound), func(err error) { t.Error(err) }, func() (time.Duration, error) {
			looks.Add(1)
			return time.Hour, nil
		})
		expect := func(after time.Duration, want int64) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if n := looks.Load(); n != want {
				t.Errorf("%d looks, want %d", n, want)
			}
		}
		expect(0, 1)
		expect(59*time.Minute, 1)
		expect(2*time.Minute, 2)
		changed.Fire()
		expect(0, 3)
		expect(59*time.Minute, 3) // the change has put off what is due
		expect(2*time.Minute, 4)
		stop()
	})
}

// What fails is reported and tried again less and less often. That another replica was faster is no
// failure: the watch delivers what it has written.
func TestFailures(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "secrets"}, name, errors.New("is newer"))
	for _, tc := range []struct {
		name        string
		err         error
		failed      bool
		fewest, all int64 // looks in the first 29 seconds, and at most in three minutes
	}{
		{"away", errors.New("away"), true, 5, 15},
		{"conflict", conflict, false, 1, 7},
		{"newer", ErrNewer, false, 1, 7},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var looks, failures atomic.Int64
				changed, stop := keep(t, heartbeat.New(heartbeat.Bound), func(error) { failures.Add(1) }, func() (time.Duration, error) {
					looks.Add(1)
					return 0, tc.err
				})
				time.Sleep(lastPause - time.Second)
				synctest.Wait()
				if n := looks.Load(); n < tc.fewest || !tc.failed && n != tc.fewest || (failures.Load() > 0) != tc.failed {
					t.Errorf("%d looks, %d failures", n, failures.Load())
				}
				time.Sleep(3 * time.Minute)
				synctest.Wait()
				before := looks.Load()
				if before < 3 || before > tc.all {
					t.Errorf("%d looks in three minutes", before)
				}
				changed.Fire()
				synctest.Wait()
				if n := looks.Load(); n != before+1 {
					t.Errorf("%d looks after a change", n-before)
				}
				stop()
			})
		})
	}
}

// A look that does not come back fails the liveness probe, and waiting does not.
// Its context ends before.
func TestStuckLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		monitor, release, stuck := heartbeat.New(heartbeat.Bound), make(chan struct{}), false
		changed, stop := keep(t, monitor, func(error) {}, func() (time.Duration, error) {
			if stuck {
				<-release
			}
			return 100 * time.Hour, nil
		})
		time.Sleep(2 * heartbeat.Bound)
		if err := monitor.Check(); err != nil {
			t.Errorf("while it waits: %v", err)
		}
		stuck = true
		changed.Fire()
		time.Sleep(heartbeat.Bound + time.Second)
		if err := monitor.Check(); err == nil || !strings.Contains(err.Error(), "loop kept: stuck") {
			t.Errorf("a stuck look: %v", err)
		}
		close(release)
		synctest.Wait()
		if err := monitor.Check(); err != nil {
			t.Errorf("after it has come back: %v", err)
		}
		stop()
	})
}

// A look has a bound that is shorter than the heartbeat's.
func TestLookEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := Options{Loop: heartbeat.New(heartbeat.Bound).Loop("kept"), Look: func(ctx context.Context) (time.Time, error) {
			<-ctx.Done()
			return time.Time{}, ctx.Err()
		}}
		start := time.Now()
		if _, err := o.look(t.Context()); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) >= heartbeat.Bound {
			t.Errorf("%v after %s", err, time.Since(start))
		}
	})
}

// Of several objects the one of the name is found, and its changes are checked.
func TestRun(t *testing.T) {
	secret := func(name string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	api := fake.NewClientset(secret("other"), secret(name))
	secrets, maps := Secret(api, namespace, name), ConfigMap(api, namespace, name)
	ctx, cancel := context.WithCancel(t.Context())
	found, ended := make(chan string, 100), make(chan error, 1)
	go func() {
		ended <- Run(ctx, Options{
			Informers: []cache.SharedIndexInformer{secrets, maps}, Loop: heartbeat.New(heartbeat.Bound).Loop("kept"),
			Look: func(context.Context) (time.Time, error) {
				if s := Find[*corev1.Secret](secrets, name); s != nil && Find[*corev1.ConfigMap](maps, name) == nil {
					found <- s.Name
				}
				return time.Now().Add(time.Hour), nil
			},
		})
	}()
	select {
	case got := <-found:
		if got != name {
			t.Errorf("found %q", got)
		}
	case <-time.After(time.Minute):
		t.Error("it does not look")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
