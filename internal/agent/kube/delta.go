// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"coelan.io/coelan/internal/trigger"
)

// Delta is how the objects of a kind differ from what was reported before. An object that was
// replaced by one of the same name is in Gone and the other one in Set: apply Gone first.
type Delta[T any] struct {
	// Whole says that Set has all objects that there are: what is not in it is gone.
	Whole     bool
	Set, Gone []T
}

// Whole is the Delta to exactly these objects.
func Whole[T any](objects []T) Delta[T] { return Delta[T]{Whole: true, Set: objects} }

// Apply brings objects to the Delta.
func (d Delta[T]) Apply(objects map[string]T, key func(T) string) {
	if d.Whole {
		clear(objects)
	}
	for _, o := range d.Gone {
		delete(objects, key(o))
	}
	for _, o := range d.Set {
		objects[key(o)] = o
	}
}

// pending gathers events of an informer until they are taken: of several for one object, the last.
type pending[T metav1.Object] struct {
	relevant func(old, now T) bool
	look     trigger.Trigger

	mu        sync.Mutex
	taken     bool // at least once
	set, gone map[string]T
}

func newPending[T metav1.Object](relevant func(old, now T) bool) *pending[T] {
	return &pending[T]{relevant: relevant, look: trigger.New(), set: map[string]T{}, gone: map[string]T{}}
}

// identity tells objects of one name apart that replace each other.
func identity(o metav1.Object) string {
	return o.GetNamespace() + "/" + o.GetName() + "/" + string(o.GetUID())
}

// OnAdd implements cache.ResourceEventHandler.
func (p *pending[T]) OnAdd(o any, _ bool) { p.note(nil, o) }

// OnUpdate implements cache.ResourceEventHandler.
func (p *pending[T]) OnUpdate(old, now any) {
	if p.relevant(old.(T), now.(T)) {
		p.note(old, now)
	}
}

// OnDelete implements cache.ResourceEventHandler.
func (p *pending[T]) OnDelete(o any) {
	if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = last.Obj
	}
	p.note(o, nil)
}

// note records that an object has become another one; nil: there is none.
func (p *pending[T]) note(old, now any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if o, ok := old.(T); ok {
		delete(p.set, identity(o))
		p.gone[identity(o)] = o
	}
	if o, ok := now.(T); ok {
		delete(p.gone, identity(o))
		p.set[identity(o)] = o
	}
	p.look.Fire()
}

// take returns what was gathered since the last call; the first Delta is a whole one.
func (p *pending[T]) take() Delta[T] {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := Delta[T]{Whole: !p.taken, Set: values(p.set)}
	if p.taken {
		d.Gone = values(p.gone)
	}
	p.taken, p.set, p.gone = true, map[string]T{}, map[string]T{}
	return d
}

func values[T any](m map[string]T) []T {
	list := make([]T, 0, len(m))
	for _, o := range m {
		list = append(list, o)
	}
	return list
}
