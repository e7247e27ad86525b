// SPDX-License-Identifier: Apache-2.0

// Package kernelview is what intent asks of a node's kernel, whatever the backend: Services that
// are led to the bridge, ports of the node that lead to pods, prefixes that it knows a way to.
// Package hostnet brings it about.
package kernelview
