//go:build tools

// Package tools pins kwok, which plays nodes and pods that are objects of the
// API and nothing else.
package tools

import _ "sigs.k8s.io/kwok/cmd/kwok"
