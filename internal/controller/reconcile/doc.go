// SPDX-License-Identifier: Apache-2.0

// Package reconcile has what the controller's reconcilers share: reading from the cache and from
// the API server, requests and predicates of their watches, conditions and Events.
package reconcile
