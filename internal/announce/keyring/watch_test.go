// SPDX-License-Identifier: Apache-2.0

package keyring

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestWatch(t *testing.T) {
	first, second := bytes.Repeat([]byte{1}, keySize), bytes.Repeat([]byte{2}, keySize)
	secret := func(data []byte) *corev1.Secret {
		return &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: Secret}, Data: map[string][]byte{Keys: data},
		}
	}
	api := fake.NewClientset(secret(Format([][]byte{first})))
	// The fake's watches miss what happens before they begin.
	watched := make(chan struct{}, 10)
	api.PrependWatchReactor("secrets", func(a clienttesting.Action) (bool, watch.Interface, error) {
		w, err := api.Tracker().Watch(a.GetResource(), a.GetNamespace())
		watched <- struct{}{}
		return true, w, err
	})
	ctx, cancel := context.WithCancel(t.Context())
	updates, done := make(chan [][]byte, 10), make(chan struct{})
	go func() {
		defer close(done)
		Watch(ctx, api, namespace, slog.New(slog.DiscardHandler), func(keys [][]byte) { updates <- keys })
	}()
	defer func() { cancel(); <-done }()
	next := func(want ...[]byte) {
		t.Helper()
		select {
		case got := <-updates:
			if !slices.EqualFunc(got, want, bytes.Equal) {
				t.Fatalf("keys %x, want %x", got, want)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("no update; want %x", want)
		}
	}
	next(first)
	<-watched
	// Keys that cannot be read are no update: the next one is of those after them.
	for _, data := range [][]byte{[]byte("nonsense"), Format([][]byte{second, first})} {
		if _, err := api.CoreV1().Secrets(namespace).Update(ctx, secret(data), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	next(second, first)
}
