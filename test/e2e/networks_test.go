// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"testing"
	"time"
)

// TestNetworks is all tests of Networks, Routers and Ports.
func TestNetworks(t *testing.T) {
	ctx := within(t, 3*time.Minute)
	if err := world.DefineAttachments(ctx); err != nil {
		t.Fatal(err)
	}
	apply(ctx, t, attachments)
	inOrder(t, []step{
		{"refused", testRefused},
		{"conflicts", testConflicts},
		{"shared", testShared},
		{"attachments", testAttachments},
		{"OVN4NFV", testNFN},
		{"pending", testPending},
		{"guests", testGuests},
		{"leader", testLeader},
		{"Multus", testMultus},
	})
}
