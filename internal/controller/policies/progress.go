// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"coelan.io/coelan/internal/broadcast"
	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/policy"
)

// Progress is how far the watches of the kinds are that policies depend on: what the API server has
// sent, and what of it is in the nodes' views.
type Progress struct {
	scheme *runtime.Scheme

	mu      sync.Mutex
	kinds   map[string]*kindProgress
	changed broadcast.Broadcast // after each change of a position
}

// kindProgress has resource versions, which are compared as integers.
type kindProgress struct {
	// used says that policies depend on the kind. Others are watched too.
	used bool
	// seen is the newest one that the API server has sent with a list, an event or a bookmark.
	seen uint64
	// passed is that of the newest change that it has sent, applied that of the newest one that is
	// in the views. Between the two are an informer's queues, which keep the order of events.
	passed, noted, applied uint64
}

func NewProgress(scheme *runtime.Scheme) *Progress {
	return &Progress{scheme: scheme, kinds: map[string]*kindProgress{}}
}

// kindOf is the kind's name in a Basis.
func (p *Progress) kindOf(o runtime.Object) string {
	if u, ok := o.(*unstructured.Unstructured); ok {
		return u.GroupVersionKind().GroupKind().String()
	}
	gvk, err := apiutil.GVKForObject(o, p.scheme)
	if err != nil {
		return fmt.Sprintf("%T", o)
	}
	return gvk.GroupKind().String()
}

// kind returns the kind's entry; p.mu is held.
func (p *Progress) kind(name string) *kindProgress {
	k := p.kinds[name]
	if k == nil {
		k = &kindProgress{}
		p.kinds[name] = k
	}
	return k
}

// NewInformer is for cache.Options: an informer of which the list and the watch are followed.
func (p *Progress) NewInformer(
	lw toolscache.ListerWatcher, o runtime.Object, resync time.Duration, indexers toolscache.Indexers,
) toolscache.SharedIndexInformer {
	return toolscache.NewSharedIndexInformer(p.follow(lw, p.kindOf(o)), o, resync, indexers)
}

func (p *Progress) follow(lw toolscache.ListerWatcher, kind string) toolscache.ListerWatcher {
	inner := toolscache.ToListerWatcherWithContext(lw)
	return &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := inner.ListWithContext(ctx, o)
			if err == nil {
				p.listed(kind, list)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := inner.WatchWithContext(ctx, o)
			if err != nil {
				return nil, err
			}
			return newFollowed(w, func(e watch.Event) { p.sent(kind, e) }), nil
		},
	}
}

// followed is a watch that inspects events before it passes them on.
type followed struct {
	watch.Interface
	events  chan watch.Event
	stopped chan struct{}
	once    sync.Once
}

func newFollowed(w watch.Interface, look func(watch.Event)) *followed {
	f := &followed{Interface: w, events: make(chan watch.Event), stopped: make(chan struct{})}
	go func() {
		defer close(f.events)
		for e := range w.ResultChan() {
			look(e)
			select {
			case f.events <- e:
			case <-f.stopped:
				return
			}
		}
	}()
	return f
}

// ResultChan implements watch.Interface.
func (f *followed) ResultChan() <-chan watch.Event { return f.events }

// Stop implements watch.Interface.
func (f *followed) Stop() {
	f.once.Do(func() { close(f.stopped) })
	f.Interface.Stop()
}

// listed notes a list. A list older than what was sent before means that the API's data was
// restored from a backup.
func (p *Progress) listed(kind string, list runtime.Object) {
	m, err := meta.ListAccessor(list)
	if err != nil {
		return
	}
	version, err := reconcile.ParseVersion(m.GetResourceVersion())
	if err != nil {
		return
	}
	var newest uint64
	_ = meta.EachListItem(list, func(o runtime.Object) error {
		newest = max(newest, ofObject(o))
		return nil
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.kind(kind)
	if version < k.seen {
		k.seen, k.passed, k.noted, k.applied = version, newest, newest, newest
	}
	k.passed = max(k.passed, newest)
	if m.GetContinue() == "" {
		k.seen = max(k.seen, version)
	}
	p.changed.Send()
}

// sent notes an event before the informer has it.
func (p *Progress) sent(kind string, e watch.Event) {
	if e.Type == watch.Error {
		return
	}
	version := ofObject(e.Object)
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.kind(kind)
	k.seen = max(k.seen, version)
	if e.Type != watch.Bookmark {
		k.passed = max(k.passed, version)
	}
	p.changed.Send()
}

// note says that a change of an object waits to be applied.
func (p *Progress) note(o runtime.Object) {
	kind, version := p.kindOf(o), ofObject(o)
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.kind(kind)
	k.noted = max(k.noted, version)
}

// passed returns the resource version of the newest change of a kind that the API server has sent.
func (p *Progress) passed(o runtime.Object) uint64 {
	kind := p.kindOf(o)
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.kind(kind).passed
}

// noteUpTo says that all changes of a kind up to that version are noted, those among them that
// cannot be: of objects that were deleted before anything asked for changes.
func (p *Progress) noteUpTo(o runtime.Object, version uint64) {
	kind := p.kindOf(o)
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.kind(kind)
	k.noted = max(k.noted, version)
}

// noted returns what has been noted so far.
func (p *Progress) noted() map[string]uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make(map[string]uint64, len(p.kinds))
	for name, k := range p.kinds {
		list[name] = k.noted
	}
	return list
}

// apply says that what was noted is in the views.
func (p *Progress) apply(noted map[string]uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, version := range noted {
		k := p.kind(name)
		k.applied = max(k.applied, min(version, k.noted))
	}
	p.changed.Send()
}

// reached says that all changes of a kind up to that version are in the views. It is for a kind
// that has no effect of its own.
func (p *Progress) reached(o runtime.Object, version uint64) {
	kind := p.kindOf(o)
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.kind(kind)
	k.noted = max(k.noted, version)
	k.applied = max(k.applied, version)
	p.changed.Send()
}

// use makes the kind a part of the Basis, or takes it out.
func (p *Progress) use(o runtime.Object, used bool) {
	kind := p.kindOf(o)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kind(kind).used = used
}

// Basis implements server.Source.
func (p *Progress) Basis() policy.Basis {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := policy.Basis{}
	for name, k := range p.kinds {
		if !k.used {
			continue
		}
		v := policy.Versions{Changed: k.applied, Seen: k.applied}
		if k.applied >= k.passed {
			v.Seen = k.seen
		}
		b[name] = v
	}
	return b
}

// Changed implements server.Source.
func (p *Progress) Changed() <-chan struct{} {
	return p.changed.Changed()
}

// ofObject is versionOf for what an informer takes.
func ofObject(o runtime.Object) uint64 {
	if obj, ok := o.(client.Object); ok {
		return reconcile.VersionOf(obj)
	}
	return 0
}
