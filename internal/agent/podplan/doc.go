// SPDX-License-Identifier: Apache-2.0

// Package podplan says which interfaces a pod gets and on which Networks, and claims fixed
// addresses. It is the cni.Planner of an agent.
//
// What it needs of the API is in the cache. A pod on the default Network without requests needs
// nothing else. What the cache lacks is waited for a little and then requested; while the API
// server is away, the cache has to do, which restarts keep.
package podplan
