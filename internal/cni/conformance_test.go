// SPDX-License-Identifier: Apache-2.0

package cni_test

import (
	"net/netip"
	"testing"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/cni"
	"coelan.io/coelan/internal/cni/plannertest"
)

// TestFakePlanner keeps the Planner of this package's tests from meaning something
// else than the agent's.
func TestFakePlanner(t *testing.T) {
	plannertest.Run(t, func(*testing.T) plannertest.World {
		p, id, subnet := cni.FakePlanner("further-p")
		return plannertest.World{
			Planner: p, Network: "blue", ID: id, Subnet: subnet, Free: netip.MustParseAddr("10.9.0.5"),
			Pod: func(name string, further bool) cni.Request {
				if further {
					name = "further-" + name
				}
				return cni.Request{
					Key: attachment.Key{ContainerID: name, IfName: "eth0"}, PodNamespace: "shop", PodName: name, PodUID: "uid-" + name,
				}
			},
		}
	})
}
