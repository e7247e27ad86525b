// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"coelan.io/coelan/internal/backend/ovs/ovsdb"
	"coelan.io/coelan/internal/backend/ovs/pipeline"
	"coelan.io/coelan/openflow"
)

// idConntrackLayout is the external_ids key of the bridge with the pipeline.ConntrackLayout of the
// connections in conntrack. The bridge has none until there is a layout other than the first.
const idConntrackLayout = "coelan-conntrack-layout"

const firstLayout = "1"

// renewConntrack forgets the connections of the bridge if a release with another
// layout has committed them. The present flows are on the switch, so that what comes
// next is committed by these.
func (v *vswitch) renewConntrack(ctx context.Context) error {
	bridges, err := v.db.Bridges(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(bridges, func(s ovsdb.BridgeState) bool { return s.Name == v.config.Bridge })
	if i < 0 {
		return fmt.Errorf("bridge %s does not exist", v.config.Bridge)
	}
	before, now := bridges[i].ExternalIDs[idConntrackLayout], strconv.Itoa(pipeline.ConntrackLayout)
	if before == "" {
		before = firstLayout
	}
	if before == now {
		return nil
	}
	state := v.intent.State()
	var messages []openflow.Message
	for _, zone := range pipeline.Zones(state) {
		messages = append(messages, &openflow.CTFlushZone{Zone: zone})
	}
	if err := v.send(ctx, messages); err != nil {
		return fmt.Errorf("forget the connections of a release with another layout of conntrack marks: %w", err)
	}
	v.log.Warn("conntrack has connections of a release with other marks: flushed them, policies judge them again",
		"layout", before, "now", now)
	return v.db.EnsureBridge(ctx, ovsdb.Bridge{
		Name: v.config.Bridge, Datapath: string(state.Local().Datapath),
		ExternalIDs: map[string]string{idConntrackLayout: now},
	})
}
