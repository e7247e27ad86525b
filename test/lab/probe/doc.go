// SPDX-License-Identifier: Apache-2.0

// Package probe sends traffic between network namespaces and measures the result: pings with
// all their ICMP errors, streams that count every lost packet, transfers that verify every
// byte, and raw frames.
//
// The two ends of a probe are goroutines of the test with sockets in two
// namespaces, so that they share one clock.
package probe

import (
	"net/netip"
	"time"
)

// Netns is a network namespace.
type Netns interface {
	// Do runs fn on a thread that is in the namespace.
	Do(fn func() error) error
}

// AnswerTimeout bounds the wait for an answer that may never come. It is to be
// changed before the first probe, where everything is slower.
var AnswerTimeout = 2 * time.Second

func network(protocol string, a netip.Addr) string {
	if a.Is4() {
		return protocol + "4"
	}
	return protocol + "6"
}
