// SPDX-License-Identifier: Apache-2.0

package podplan

import (
	"fmt"
	"net/netip"
	"testing"

	"coelan.io/coelan/internal/cni"
	"coelan.io/coelan/internal/cni/plannertest"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/podnets"
)

func TestConformance(t *testing.T) {
	plannertest.Run(t, func(t *testing.T) plannertest.World {
		w := newWorld(t, config.MapFlat)
		return plannertest.World{
			Planner: w.Planner, Network: "lan", ID: 4, Subnet: subnet("10.3.0.0/24")[0], Free: netip.MustParseAddr("10.3.0.9"),
			Pod: func(name string, further bool) cni.Request {
				annotations := map[string]string{}
				if further {
					annotations[podnets.AnnotationNFNNetwork] = fmt.Sprintf(`{"interface":[{"name":%q,"interface":"net1"}]}`, "lan")
				}
				return w.pod("shop", name, annotations)
			},
		}
	})
}
