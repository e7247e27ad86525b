//go:build tools

// Package tools pins the CoreDNS server that the sandbox builds.
package tools

import _ "github.com/coredns/coredns"
