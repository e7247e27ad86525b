// SPDX-License-Identifier: Apache-2.0

// Package eventhandler adapts functions to the event handlers of client-go's informers.
package eventhandler

import "k8s.io/client-go/tools/cache"

// OnChange returns a handler that calls changed for each event of an informer. It skips updates for
// which relevant returns false; a nil relevant skips none.
func OnChange(changed func(), relevant func(old, now any) bool) cache.ResourceEventHandler {
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
