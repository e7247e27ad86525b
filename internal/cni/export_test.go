// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/intent"
)

// FakePlanner is the Planner of this package's tests: its Network blue is as they have it, and the
// pods named have net1 there.
func FakePlanner(pods ...string) (_ Planner, id intent.NetworkID, subnet intent.NetworkSubnet) {
	p := newPlanner()
	for _, pod := range pods {
		p.pods[pod] = []attachment.Plan{p.on("blue", "net1")}
	}
	blue := p.networks["blue"]
	return p, blue.id, blue.subnets[0]
}
