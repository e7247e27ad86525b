// SPDX-License-Identifier: Apache-2.0

//go:build integration

package pipeline

import (
	"context"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"coelan.io/coelan/internal/backend/ovs/datapath"
)

// A packet visits as many tables, and as few are visited twice, with 1,000
// networks as with one.
func TestStepsDoNotGrowWithNetworks(t *testing.T) {
	tr := newTracers(t, 1)[0]
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	steps := func(all, used int) map[string][2]int {
		if err := tr.load(ctx, stateFrom(t, manyNetworks(all, used))); err != nil {
			t.Fatal(err)
		}
		a, b := portOfMany(0, 0), portOfMany(0, 1)
		found := map[string][2]int{}
		for name, p := range map[string]packet{
			"network":      {inPort: ofPort(a.ID), ethSrc: a.MAC, ethDst: b.MAC, src: a.Addresses[0], dst: b.Addresses[0]},
			"router":       {inPort: ofPort(a.ID), ethSrc: a.MAC, ethDst: datapath.RouterMAC, src: a.Addresses[0], dst: b.Addresses[0]},
			"other node":   {inPort: ofPort(a.ID), ethSrc: a.MAC, ethDst: datapath.RouterMAC, src: a.Addresses[0], dst: at(oneOfMany(0).network.Subnets[0].Prefix, 34)},
			"outside":      {inPort: ofPort(a.ID), ethSrc: a.MAC, ethDst: datapath.RouterMAC, src: a.Addresses[0], dst: netip.MustParseAddr("8.8.8.8")},
			"node address": {inPort: ofPort(a.ID), ethSrc: a.MAC, ethDst: datapath.RouterMAC, src: a.Addresses[1], dst: b.NodeAddresses[1]},
			"from host":    {inPort: datapath.GatewayPort, ethSrc: datapath.GatewayMAC, ethDst: datapath.RouterMAC, src: address4(10, 244, 0, 1), dst: a.NodeAddresses[0]},
			"to stranger":  {inPort: datapath.GatewayPort, ethSrc: datapath.GatewayMAC, ethDst: datapath.RouterMAC, src: a.NodeAddresses[0], dst: address4(10, 244, 0, 99)},
			"from tunnel":  {inPort: datapath.TunnelPort, tunSrc: address4(192, 168, 0, 2), vni: oneOfMany(0).router.VNI, ethSrc: datapath.RouterMAC, ethDst: datapath.RouterMAC, src: address4(10, 60, 0, 34), dst: a.Addresses[0]},
		} {
			p.kind, p.ttl = "ip", 64
			o, text, err := tr.trace(ctx, p)
			if err != nil || o.Drop && name != "to stranger" {
				t.Fatalf("%s: %+v %v\n%s", name, o, err, text)
			}
			found[name] = [2]int{len(visited.FindAllString(text, -1)), strings.Count(text, "resubmit(")}
		}
		return found
	}
	one, many := steps(1, 1), steps(1000, 200)
	for name, n := range one {
		t.Logf("%s: %d tables, %d resubmits", name, n[0], n[1])
		if many[name] != n {
			t.Errorf("%s: %v tables and resubmits with one network, %v with 1,000", name, n, many[name])
		}
		if n[1] > 1 {
			t.Errorf("%s: %d resubmits", name, n[1])
		}
	}
}

var visited = regexp.MustCompile(`(?m)^ *\d+\. `)
