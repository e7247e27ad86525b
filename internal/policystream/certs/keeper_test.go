// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/objectkeeper"
	"coelan.io/coelan/internal/objectkeeper/keepertest"
	"coelan.io/coelan/internal/policystream/wire"
)

const namespace = "coelan-system"

func newKeeper(api *fake.Clientset) *Keeper {
	return NewKeeper(api, namespace, slog.New(slog.DiscardHandler), heartbeat.New(heartbeat.Bound).Loop("certificate"))
}

// run has a keeper run until the test ends.
func run(t *testing.T, k *Keeper) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := k.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
}

// serial waits until a keeper has a certificate other than those.
func serial(t *testing.T, k *Keeper, than ...string) string {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		if c, err := k.Certificate(nil); err == nil {
			s := c.Leaf.SerialNumber.String()
			known := false
			for _, old := range than {
				known = known || old == s
			}
			if !known {
				return s
			}
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-deadline:
			t.Fatal("there is no new certificate")
		}
	}
}

// versioned has the API refuse what is written over something newer, as a real one does.
func versioned(api *fake.Clientset) {
	last, current := 0, map[string]string{}
	write := func(action clienttesting.Action) (bool, runtime.Object, error) { // one at a time
		// A create action has the same method.
		o := action.(clienttesting.UpdateAction).GetObject().(metav1.Object)
		key := action.GetResource().Resource + "/" + o.GetName()
		if v := o.GetResourceVersion(); v != current[key] && action.GetVerb() == "update" {
			return true, nil, apierrors.NewConflict(action.GetResource().GroupResource(), o.GetName(), errors.New("is newer"))
		}
		last++
		if current[key] == "" || action.GetVerb() == "update" {
			current[key] = strconv.Itoa(last)
		}
		o.SetResourceVersion(current[key])
		return false, nil, nil
	}
	api.PrependReactor("create", "*", write)
	api.PrependReactor("update", "*", write)
	api.PrependReactor("delete", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		delete(current, action.GetResource().Resource+"/"+action.(clienttesting.DeleteAction).GetName())
		return false, nil, nil
	})
}

func TestKeepersShareOneCertificate(t *testing.T) {
	api := fake.NewClientset()
	versioned(api)
	a, b := newKeeper(api), newKeeper(api)
	if _, err := a.Certificate(nil); err == nil {
		t.Error("there is a certificate before there is any")
	}
	run(t, a)
	run(t, b)
	<-a.Ready()
	<-b.Ready()
	first := serial(t, a)
	if other := serial(t, b); other != first {
		t.Errorf("the replicas have the certificates %s and %s", first, other)
	}
	published := func() string {
		t.Helper()
		m, err := api.CoreV1().ConfigMaps(namespace).Get(t.Context(), wire.ConfigMap, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return m.Data[wire.RootsKey]
	}
	secrets := api.CoreV1().Secrets(namespace)
	secret, err := secrets.Get(t.Context(), Secret, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if published() != string(secret.Data[wire.RootsKey]) {
		t.Error("what is published is not what signs")
	}

	// It is damaged, and it is deleted.
	secret.Data[corev1.TLSCertKey] = []byte("garbage")
	if _, err := secrets.Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	second := serial(t, a, first)
	if other := serial(t, b, first); other != second {
		t.Errorf("the replicas have the certificates %s and %s", second, other)
	}
	if err := secrets.Delete(t.Context(), Secret, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	third := serial(t, a, first, second)
	if other := serial(t, b, first, second); other != third {
		t.Errorf("the replicas have the certificates %s and %s", third, other)
	}
	if _, err := a.server.Load().Leaf.Verify(verify(t, published())); err != nil {
		t.Errorf("who reads what is published does not know the server: %v", err)
	}
	if err := api.CoreV1().ConfigMaps(namespace).Delete(t.Context(), wire.ConfigMap, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	deadline := time.After(20 * time.Second)
	for {
		if _, err := api.CoreV1().ConfigMaps(namespace).Get(t.Context(), wire.ConfigMap, metav1.GetOptions{}); err == nil {
			break
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-deadline:
			t.Fatal("the authority is not published again")
		}
	}
}

// A server never has a certificate that agents cannot know.
func TestAuthorityIsPublishedFirst(t *testing.T) {
	api := fake.NewClientset()
	refused := make(chan struct{}, 100)
	var mu sync.Mutex
	refuse := true
	api.PrependReactor("create", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		if refuse {
			refused <- struct{}{}
			return true, nil, errors.New("refused")
		}
		return false, nil, nil
	})
	k := newKeeper(api)
	run(t, k)
	<-refused
	<-refused
	if _, err := k.Certificate(nil); err == nil {
		t.Error("there is a certificate that nobody knows")
	}
	mu.Lock()
	refuse = false
	mu.Unlock()
	serial(t, k)
}

// A replica that has not received a new Secret leaves alone what another one has published of it.
func TestOlderSecretIsNotPublished(t *testing.T) {
	api := fake.NewClientset()
	versioned(api)
	k := newKeeper(api)
	secrets, maps := api.CoreV1().Secrets(namespace), api.CoreV1().ConfigMaps(namespace)
	read := func() (*corev1.Secret, *corev1.ConfigMap) {
		t.Helper()
		secret, err := secrets.Get(t.Context(), Secret, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		roots, err := maps.Get(t.Context(), wire.ConfigMap, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		return secret, roots
	}
	look := func(secret *corev1.Secret, roots *corev1.ConfigMap) error {
		_, err := k.look(t.Context(), secret, roots)
		return err
	}
	if err := look(nil, nil); err != nil {
		t.Fatal(err)
	}
	old, _ := read()
	if err := look(old, nil); err != nil {
		t.Fatal(err)
	}
	// Another process makes an authority, publishes it and serves.
	_, published := read()
	damaged := old.DeepCopy()
	damaged.Data[authorityKey] = nil
	if err := look(damaged, published); err != nil {
		t.Fatal(err)
	}
	newer, _ := read()
	if err := look(newer, published); err != nil {
		t.Fatal(err)
	}
	_, published = read()
	if published.Data[wire.RootsKey] != string(newer.Data[wire.RootsKey]) || published.Data[wire.RootsKey] == string(old.Data[wire.RootsKey]) {
		t.Fatal("the new authority is not published")
	}
	for what, roots := range map[string]*corev1.ConfigMap{"it knows what is published": published, "it knows of nothing published": nil} {
		if err := look(old, roots); !errors.Is(err, objectkeeper.ErrNewer) {
			t.Errorf("%s: error %v", what, err)
		}
		if _, now := read(); now.Data[wire.RootsKey] != published.Data[wire.RootsKey] {
			t.Errorf("%s: an older authority is published over a newer one", what)
		}
	}
}

// A write that does not come back fails the liveness probe.
func TestKeeperIsStuck(t *testing.T) {
	keepertest.Stuck(t, "certificate", func(ctx context.Context, api *fake.Clientset, m *heartbeat.Monitor) error {
		return NewKeeper(api, namespace, slog.New(slog.DiscardHandler), m.Loop("certificate")).Run(ctx)
	})
}
