// SPDX-License-Identifier: Apache-2.0

package keyring

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/objectkeeper/keepertest"
)

const namespace = "coelan-system"

func newKeeper(api *fake.Clientset, monitor *heartbeat.Monitor) *Keeper {
	return NewKeeper(api, namespace, slog.New(slog.DiscardHandler), monitor.Loop("membership-keys"))
}

// look is one look of a keeper at what the API has.
func look(t *testing.T, api *fake.Clientset, now time.Time) (Rotation, time.Time) {
	t.Helper()
	k := newKeeper(api, heartbeat.New(heartbeat.Bound))
	get := func() *corev1.Secret {
		s, err := api.CoreV1().Secrets(namespace).Get(t.Context(), Secret, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	again, err := k.look(t.Context(), get(), now)
	if err != nil {
		t.Fatal(err)
	}
	r, recorded := k.read(get(), now)
	if !recorded {
		t.Fatal("the state of the keys is not written")
	}
	return r, again
}

func TestKeeper(t *testing.T) {
	api := fake.NewClientset()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r, again := look(t, api, now)
	if len(r.Keys) != 1 || r.Phase != Steady {
		t.Fatalf("%+v", r)
	}
	writes := func() (n int) {
		for _, a := range api.Actions() {
			if a.GetVerb() != "get" {
				n++
			}
		}
		return n
	}
	if same, _ := look(t, api, now.Add(time.Hour)); !cmp.Equal(same, r) || writes() != 1 {
		t.Errorf("without need %+v is written in place of %+v, %d writes", same, r, writes())
	}
	for _, phase := range []Phase{Added, Used, Steady} {
		now = again
		if r, again = look(t, api, now); r.Phase != phase {
			t.Errorf("%+v, want %s", r, phase)
		}
	}
}

func TestKeeperOfWhatThereIs(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	key := make([]byte, keySize)
	for name, tc := range map[string]struct {
		data string
		kept bool
	}{
		"made by hand": {string(Format([][]byte{key})), true},
		"damaged":      {"secret!", false},
		"empty":        {"", false},
	} {
		t.Run(name, func(t *testing.T) {
			api := fake.NewClientset(&corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: Secret}, Data: map[string][]byte{Keys: []byte(tc.data)},
			})
			r, again := look(t, api, now)
			if len(r.Keys) != 1 || cmp.Equal(r.Keys[0], key) != tc.kept || !again.Equal(now.Add(Lifetime)) {
				t.Errorf("%+v, again %v", r, again)
			}
		})
	}
}

// What is deleted is recreated at once; an API that fails is tried again.
func TestKeeperRuns(t *testing.T) {
	api := fake.NewClientset()
	// The fake's watches miss what happens before they begin.
	watched := make(chan struct{}, 10)
	api.PrependWatchReactor("secrets", func(a clienttesting.Action) (bool, watch.Interface, error) {
		w, err := api.Tracker().Watch(a.GetResource(), a.GetNamespace())
		watched <- struct{}{}
		return true, w, err
	})
	failures := 2
	api.PrependReactor("create", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		if failures == 2 {
			<-watched // by the test
			<-watched // by the keeper
		}
		if failures--; failures >= 0 {
			return true, nil, apierrors.NewServiceUnavailable("away")
		}
		return false, nil, nil
	})
	secrets := api.CoreV1().Secrets(namespace)
	written, err := secrets.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer written.Stop()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- newKeeper(api, heartbeat.New(heartbeat.Bound)).Start(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}()
	keys := func() string {
		t.Helper()
		for {
			select {
			case e := <-written.ResultChan():
				if s, ok := e.Object.(*corev1.Secret); ok && e.Type == watch.Added {
					return string(s.Data[Keys])
				}
			case <-time.After(time.Minute):
				t.Fatal("no keys are written")
			}
		}
	}
	first := keys()
	if err := secrets.Delete(ctx, Secret, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if second := keys(); second == first {
		t.Error("the keys that were deleted are used again")
	}
}

// A write that does not come back fails the liveness probe.
func TestKeeperIsStuck(t *testing.T) {
	keepertest.Stuck(t, "membership-keys", func(ctx context.Context, api *fake.Clientset, m *heartbeat.Monitor) error {
		return newKeeper(api, m).Start(ctx)
	})
}
