// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// WriteCache has the newest versions of objects that were written or asked for, until the watches
// deliver them: a number must not be given out twice because the first time is not in memory yet.
// Only Keep may be called concurrently.
type WriteCache[T client.Object] struct {
	mu     sync.Mutex
	newest map[types.UID]T
}

// Keep remembers a version.
func (m *WriteCache[T]) Keep(obj T) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.newest == nil {
		m.newest = map[types.UID]T{}
	}
	m.newest[obj.GetUID()] = obj
}

// Merge replaces in a list what is known in a newer version, adds what the list lacks if the API
// server still has it, and forgets the rest.
func (m *WriteCache[T]) Merge(ctx context.Context, a *Access, list []T) ([]T, error) {
	listed := make(map[types.UID]bool, len(list))
	for i, obj := range list {
		uid := obj.GetUID()
		listed[uid] = true
		known, ok := m.newest[uid]
		switch {
		case ok && VersionOf(known) > VersionOf(obj):
			list[i] = known
		case ok:
			delete(m.newest, uid)
		}
	}
	for uid, obj := range m.newest {
		if listed[uid] {
			continue
		}
		now := obj.DeepCopyObject().(T)
		gone, err := a.Gone(ctx, obj.GetNamespace(), obj.GetName(), uid, now)
		if err != nil {
			return nil, err
		}
		if gone {
			delete(m.newest, uid)
			continue
		}
		list = append(list, now)
	}
	return list, nil
}

// VersionOf is an object's resource version, which grows with each write.
func VersionOf(obj client.Object) uint64 {
	v, err := ParseVersion(obj.GetResourceVersion())
	if err != nil {
		return 0
	}
	return v
}

// ParseVersion reads a resource version; they are compared as integers.
func ParseVersion(text string) (uint64, error) { return strconv.ParseUint(text, 10, 64) }
