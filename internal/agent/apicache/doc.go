// SPDX-License-Identifier: Apache-2.0

// Package apicache holds the newest list of each kind of the Kubernetes API that the agent watches.
// It is on disk as well, so that a start without the API server knows what the last run knew.
package apicache
