// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"testing"

	"coelan.io/coelan/internal/attachment"
)

// A pod's port with a number of the node's own ports would get their packets.
func TestNumbersOfPodsAreTheirOwn(t *testing.T) {
	if attachment.FirstOFPort != FirstPodPort || FirstPodPort <= LastUplinkPort {
		t.Errorf("pods' ports begin at %d where they are handed out, at %d in flows, and uplinks' end at %d",
			attachment.FirstOFPort, FirstPodPort, LastUplinkPort)
	}
}
