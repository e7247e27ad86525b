// SPDX-License-Identifier: Apache-2.0

package keyring

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/objectkeeper"
)

// The annotations of the Secret in which the state of the rotation is. A Secret that was made by
// hand has none: its keys stay for Lifetime after it was first seen.
const (
	annotationPhase   = "coelan.io/memberlist-rotation"
	annotationChanged = "coelan.io/memberlist-rotation-since"
)

// Keeper makes the Secret and rotates its keys. Only the leader runs it.
type Keeper struct {
	api       kubernetes.Interface
	namespace string
	log       *slog.Logger
	loop      *heartbeat.Loop
}

// NewKeeper keeps the Secret of that namespace. The loop reports a step that does not end.
func NewKeeper(api kubernetes.Interface, namespace string, log *slog.Logger, loop *heartbeat.Loop) *Keeper {
	return &Keeper{api: api, namespace: namespace, log: log, loop: loop}
}

// NeedLeaderElection says that one replica writes.
func (k *Keeper) NeedLeaderElection() bool { return true }

// Start works until ctx ends.
func (k *Keeper) Start(ctx context.Context) error {
	informer := newInformer(k.api, k.namespace)
	return objectkeeper.Run(ctx, objectkeeper.Options{
		Informers: []cache.SharedIndexInformer{informer}, Loop: k.loop,
		Look: func(ctx context.Context) (time.Time, error) { return k.look(ctx, find(informer), time.Now()) },
		Failed: func(err error) {
			k.log.Warn("cannot maintain the memberlist keys, retrying", "err", err)
		},
	})
}

// look takes the step that is due and returns when to look again. The watch
// delivers what it writes.
func (k *Keeper) look(ctx context.Context, old *corev1.Secret, now time.Time) (time.Time, error) {
	have, recorded := k.read(old, now)
	next, again, err := Rotate(have, now)
	if err != nil {
		return time.Time{}, fmt.Errorf("key of the membership: %w", err)
	}
	if recorded && next.Phase == have.Phase && next.Changed.Equal(have.Changed) {
		return again, nil
	}
	if err := k.write(ctx, old, next); err != nil {
		return time.Time{}, fmt.Errorf("secret %s/%s: %w", k.namespace, Secret, err)
	}
	k.log.Info("memberlist keys written", "secret", Secret, "phase", next.Phase, "keys", len(next.Keys))
	return again, nil
}

// read returns the state that the Secret is in; recorded is false if the state has to be written.
func (k *Keeper) read(s *corev1.Secret, now time.Time) (r Rotation, recorded bool) {
	if s == nil {
		return Rotation{}, false
	}
	keys, err := Parse(s.Data[Keys])
	if err != nil {
		k.log.Error("the Secret of the memberlist keys is invalid; generating new keys", "secret", Secret, "err", err)
		return Rotation{}, false
	}
	r = Rotation{Keys: keys, Phase: Phase(s.Annotations[annotationPhase])}
	switch r.Phase {
	case Steady, Added, Used:
	default:
		return Rotation{keys, Steady, now}, false
	}
	if r.Changed, err = time.Parse(time.RFC3339, s.Annotations[annotationChanged]); err != nil || r.Changed.After(now) {
		r.Changed = now
		return r, false
	}
	return r, true
}

var labels = map[string]string{
	"app.kubernetes.io/name": "coelan", "app.kubernetes.io/component": "controller",
}

func (k *Keeper) write(ctx context.Context, old *corev1.Secret, r Rotation) error {
	api := k.api.CoreV1().Secrets(k.namespace)
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: Secret, Labels: labels}}
	if old != nil {
		s = old.DeepCopy()
	}
	s.Data = map[string][]byte{Keys: Format(r.Keys)}
	metav1.SetMetaDataAnnotation(&s.ObjectMeta, annotationPhase, string(r.Phase))
	metav1.SetMetaDataAnnotation(&s.ObjectMeta, annotationChanged, r.Changed.UTC().Format(time.RFC3339))
	var err error
	if old == nil {
		_, err = api.Create(ctx, s, metav1.CreateOptions{})
	} else {
		_, err = api.Update(ctx, s, metav1.UpdateOptions{})
	}
	return err
}
