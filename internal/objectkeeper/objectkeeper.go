// SPDX-License-Identifier: Apache-2.0

// Package objectkeeper reconciles single objects of the Kubernetes API. It watches them by name,
// and reconciles them after each change and when something is due, such as the rotation of a key.
package objectkeeper

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"coelan.io/coelan/internal/eventhandler"
	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/retry"
	"coelan.io/coelan/internal/trigger"
)

// Secret returns an informer of the Secret of that name and no other, which a right
// to that name allows.
func Secret(api kubernetes.Interface, namespace, name string) cache.SharedIndexInformer {
	return only(api, namespace, name).Core().V1().Secrets().Informer()
}

// ConfigMap is Secret for a ConfigMap.
func ConfigMap(api kubernetes.Interface, namespace, name string) cache.SharedIndexInformer {
	return only(api, namespace, name).Core().V1().ConfigMaps().Informer()
}

func only(api kubernetes.Interface, namespace, name string) informers.SharedInformerFactory {
	selector := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	return informers.NewSharedInformerFactoryWithOptions(api, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.FieldSelector = selector }))
}

// Find returns the object of that name that an informer knows, or the zero value.
func Find[T metav1.Object](informer cache.SharedIndexInformer, name string) (none T) {
	for _, o := range informer.GetStore().List() {
		if v, ok := o.(T); ok && v.GetName() == name {
			return v
		}
	}
	return none
}

// ErrNewer is for a look that has found that another writer was faster: the watch will deliver what
// that has written.
var ErrNewer = errors.New("another replica has written a newer one")

// The pauses between two tries to write, and the bound of one.
const (
	firstPause  = 200 * time.Millisecond
	lastPause   = 30 * time.Second
	lookTimeout = 30 * time.Second
)

// Options are what objects are kept with.
type Options struct {
	// Informers are of the objects.
	Informers []cache.SharedIndexInformer
	// Look compares what the informers know with what should be, writes what differs, and returns
	// when to look again.
	Look func(context.Context) (again time.Time, err error)
	// Failed is called when a look has failed and will be repeated.
	Failed func(error)
	// Loop reports a look that does not end.
	Loop *heartbeat.Loop
}

// Run keeps the objects until ctx ends.
func Run(ctx context.Context, o Options) error {
	changed := trigger.New()
	synced := make([]cache.InformerSynced, len(o.Informers))
	for i, informer := range o.Informers {
		if _, err := informer.AddEventHandler(eventhandler.OnChange(changed.Fire, nil)); err != nil {
			return err
		}
		synced[i] = informer.HasSynced
	}
	ctx, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	for _, informer := range o.Informers {
		go func() { informer.RunWithContext(ctx); done <- struct{}{} }()
	}
	defer func() {
		stop()
		for range o.Informers {
			<-done
		}
	}()
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil
	}
	return o.keep(ctx, changed)
}

// keep looks until ctx ends.
func (o Options) keep(ctx context.Context, changed trigger.Trigger) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for backoff := retry.New(firstPause, lastPause); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-timer.C:
		}
		again, err := o.look(ctx)
		switch {
		case err == nil:
			backoff.Reset()
			timer.Reset(time.Until(again))
		case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), errors.Is(err, ErrNewer):
			// The watch delivers what the other replica wrote.
			timer.Reset(lastPause)
		default:
			o.Failed(err)
			timer.Reset(backoff.Next())
		}
	}
}

func (o Options) look(ctx context.Context) (time.Time, error) {
	defer o.Loop.Step()()
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	return o.Look(ctx)
}
