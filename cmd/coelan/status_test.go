// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"

	"coelan.io/coelan/internal/agentapi"
)

func TestProgressOf(t *testing.T) {
	for want, p := range map[string]agentapi.OVNProgress{
		"ovn-northd follows within 12ms, all chassis within 80ms": {
			Northd: new(12 * time.Millisecond), Chassis: new(80 * time.Millisecond), Waited: 80 * time.Millisecond,
		},
		"ovn-northd follows within 12ms, all chassis NOT within 5s":   {Northd: new(12 * time.Millisecond), Waited: 5 * time.Second},
		"ovn-northd follows NOT within 5s, all chassis NOT within 5s": {Waited: 5 * time.Second},
	} {
		if got := progressOf(p); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
