// SPDX-License-Identifier: Apache-2.0

// Package wellknown reads the annotations and taints by which other programs of a cluster say
// something about pods and nodes.
package wellknown
