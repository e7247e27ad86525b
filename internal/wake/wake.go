// SPDX-License-Identifier: Apache-2.0

// Package wake is how somebody who waits hears that there is something to look at, once for all that has happened since the
// last look.
package wake

import "k8s.io/client-go/tools/cache"

// Wake has an element if there is something to look at. New makes it.
type Wake chan struct{}

// New is one of which nobody has heard yet.
func New() Wake { return make(Wake, 1) }

// Kick has whoever receives look once more. It never waits.
func (w Wake) Kick() {
	select {
	case w <- struct{}{}:
	default:
	}
}

// OnEvents calls changed for each event of an informer; of an update only if relevant says that it matters, nil: it always does.
func OnEvents(changed func(), relevant func(old, now any) bool) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { changed() },
		DeleteFunc: func(any) { changed() },
		UpdateFunc: func(old, now any) {
			if relevant == nil || relevant(old, now) {
				changed()
			}
		},
	}
}
