// SPDX-License-Identifier: Apache-2.0

package streamtest

import (
	"context"
	"fmt"
	"sync"

	"coelan.io/coelan/internal/broadcast"
	"coelan.io/coelan/internal/policy"
)

// Versions are what a controller has seen of an API server, as the test says.
// It implements server.Source.
type Versions struct {
	mu      sync.Mutex
	basis   policy.Basis
	changed broadcast.Broadcast
	newest  map[string]uint64
}

func newVersions() *Versions { return &Versions{} }

func (v *Versions) set(b policy.Basis) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.basis = b
	v.changed.Send()
}

// SetNewest is what the API server says itself. Before it is called, the API
// server does not answer.
func (v *Versions) SetNewest(newest map[string]uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.newest = newest
}

// Basis implements server.Source.
func (v *Versions) Basis() policy.Basis {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.basis
}

// Changed implements server.Source.
func (v *Versions) Changed() <-chan struct{} { return v.changed.Changed() }

// Newest implements server.Source.
func (v *Versions) Newest(_ context.Context, kind string) (uint64, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	version, ok := v.newest[kind]
	if !ok {
		return 0, fmt.Errorf("%s: the API server is away", kind)
	}
	return version, nil
}
