// SPDX-License-Identifier: Apache-2.0

// Package portstatus writes to the API what this node has attached: the Ports of pods, and the
// annotations that list a pod's interfaces. Only pods with fixed addresses wait for it, since other
// nodes have to know of these; while the API server is away it retries.
package portstatus
