// SPDX-License-Identifier: Apache-2.0

// Package intent holds what this node should bring about: the networks,
// routers, nodes and ports that it knows, as immutable tables in memory.
//
// Sources (Kubernetes objects, attachments on disk) are translated into intent
// by a single Update; backends read a State, compile it and compare it with
// what is there. A State never changes. Whoever holds one may read it without
// a lock and for as long as it likes, and learns from Replaced that a newer one
// exists:
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
