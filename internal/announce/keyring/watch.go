// SPDX-License-Identifier: Apache-2.0

package keyring

import (
	"context"
	"errors"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"coelan.io/coelan/internal/eventhandler"
	"coelan.io/coelan/internal/objectkeeper"
)

// newInformer watches the Secret and no other.
func newInformer(api kubernetes.Interface, namespace string) cache.SharedIndexInformer {
	return objectkeeper.Secret(api, namespace, Secret)
}

// find returns the Secret that an informer knows, or nil.
func find(informer cache.SharedIndexInformer) *corev1.Secret {
	return objectkeeper.Find[*corev1.Secret](informer, Secret)
}

// Watch calls update with the keys in the Secret once there are any, and after each change, until
// ctx ends. A Secret that is gone or cannot be read changes nothing: the controller makes another
// one.
func Watch(ctx context.Context, api kubernetes.Interface, namespace string, log *slog.Logger,
	update func(keys [][]byte),
) {
	informer := newInformer(api, namespace)
	changed := func() {
		secret := find(informer)
		if secret == nil {
			return
		}
		keys, err := Parse(secret.Data[Keys])
		if err != nil {
			log.Error("the Secret of the memberlist keys is invalid; keeping the current keys",
				"secret", Secret, "err", err)
			return
		}
		update(keys)
	}
	_, err := informer.AddEventHandler(eventhandler.OnChange(changed, nil))
	if err == nil {
		err = informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
			if ctx.Err() == nil && !errors.Is(err, context.Canceled) {
				log.Warn("cannot watch the Secret of the memberlist keys, retrying", "err", err)
			}
		})
	}
	if err != nil { // never of an informer that has not been started
		log.Error("cannot watch the Secret of the memberlist keys", "err", err)
		return
	}
	informer.RunWithContext(ctx)
}
