// SPDX-License-Identifier: Apache-2.0

package openflow_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"coelan.io/coelan/openflow"
)

// A group and the flow that uses it come to be in one step.
func ExampleConn_Bundle() {
	address, stop := openflow.SwitchForExamples() // else: unix:/run/openvswitch/br0.mgmt
	defer stop()

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := openflow.Dial(ctx, address, openflow.ConnOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()

	group := openflow.Group{ID: 1, Type: openflow.GroupSelect, Buckets: []openflow.Bucket{
		{ID: 0, Weight: 100, Actions: []openflow.Action{openflow.Output(1)}},
		{ID: 1, Weight: 100, Actions: []openflow.Action{openflow.Output(2)}},
	}}
	flow := openflow.Flow{
		Priority: 100,
		Match:    openflow.NewMatch(openflow.IPDst(netip.MustParsePrefix("10.0.0.0/24"))),
		Actions:  []openflow.Action{openflow.ToGroup(group.ID)},
	}
	err = conn.Bundle(ctx, []openflow.Message{
		&openflow.GroupMod{Command: openflow.GroupAdd, Group: group},
		openflow.AddFlow(flow),
	})
	var refused *openflow.MessageError
	if errors.As(err, &refused) {
		fmt.Println("the switch refuses message", refused.Index, refused.Err)
		return
	}
	fmt.Println(err == nil, flow.String())
	// Output: true priority=100,ip,nw_dst=10.0.0.0/24 actions=group:1
}
