// SPDX-License-Identifier: Apache-2.0

// Package intent holds the desired state as immutable tables in memory: networks, routers, nodes,
// ports, Services and policies, as far as this node knows them. It does not say how they are
// implemented: numbers, addresses and names that only a backend needs are the backend's, which can
// find objects by them with an Index of its own.
//
// Sources (Kubernetes objects, attachments on disk) are translated into intent by a single
// Update; backends read a State, compile it and compare it with what is there. A State never
// changes. Any goroutine may read it without a lock and for any time, and Replaced signals that
// a newer one exists:
//
//	state := store.State()
//	for {
//		apply(state)
//		select {
//		case <-state.Replaced():
//			state = store.State()
//		case <-ctx.Done():
//			return ctx.Err()
//		}
//	}
//
// Diff names the objects in which two States differ. Its cost follows from the
// number of changes, not from the size of the States.
package intent
