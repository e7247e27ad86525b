// SPDX-License-Identifier: Apache-2.0

//go:build integration

package bridge

import (
	"testing"

	"coelan.io/coelan/openflow"
)

// A client connects again after ovs-vswitchd has crashed, and after it has ended.
func TestClientReconnects(t *testing.T) {
	ovs, _, client, ctx := live(t)
	for _, stop := range []func(){ovs.KillVswitchd, ovs.StopVswitchd} {
		old, err := client.Conn(ctx)
		if err != nil {
			t.Fatal(err)
		}
		stop()
		<-old.Done()
		if err := ovs.SpawnVswitchd(); err != nil {
			t.Fatal(err)
		}
		c, err := client.Conn(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Bundle(ctx, []openflow.Message{openflow.AddFlow(openflow.Flow{})}); err != nil {
			t.Error(err)
		}
	}
}
