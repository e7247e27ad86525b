// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// memory has the newest versions of objects that were written or asked for, as long as watches do not tell of them: a
// number must not be given out twice because the first time is not known yet. Only keep may be called at the same time.
type memory[T client.Object] struct {
	mu     sync.Mutex
	newest map[types.UID]T
}

// keep remembers a version.
func (m *memory[T]) keep(obj T) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.newest == nil {
		m.newest = map[types.UID]T{}
	}
	m.newest[obj.GetUID()] = obj
}

// merge replaces in a list what is known in a newer version, adds what the list lacks if the API server still has it, and
// forgets the rest.
func (m *memory[T]) merge(ctx context.Context, a *access, list []T) ([]T, error) {
	listed := make(map[types.UID]bool, len(list))
	for i, obj := range list {
		uid := obj.GetUID()
		listed[uid] = true
		known, ok := m.newest[uid]
		switch {
		case ok && versionOf(known) > versionOf(obj):
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
		gone, err := a.gone(ctx, obj.GetNamespace(), obj.GetName(), uid, now)
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

// versionOf is an object's resource version, which grows with each write.
func versionOf(obj client.Object) uint64 {
	v, err := strconv.ParseUint(obj.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return v
}
