// SPDX-License-Identifier: Apache-2.0

//go:build integration

package ctlimit

import (
	"context"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"coelan.io/coelan/internal/backend/ovs/appctl"
	"coelan.io/coelan/internal/backend/ovs/conntrack"
	"coelan.io/coelan/internal/backend/ovs/streams"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ovstest"
	"coelan.io/coelan/openflow"
)

// vswitchd is the userspace datapath's conntrack of a test.
type vswitchd struct{ *appctl.Client }

const netdev = "netdev@ovs-netdev"

func (v vswitchd) Table(ctx context.Context, _ intent.Datapath) (entries, size int, err error) {
	return v.ConnectionTable(ctx, netdev)
}

func (v vswitchd) Limits(ctx context.Context, _ intent.Datapath) (map[uint16]appctl.ZoneLimit, error) {
	return v.ZoneLimits(ctx, netdev)
}

func (v vswitchd) SetLimits(ctx context.Context, _ intent.Datapath, limits map[uint16]int) error {
	return v.SetZoneLimits(ctx, netdev, limits)
}

func (v vswitchd) DeleteLimits(ctx context.Context, _ intent.Datapath, zones []uint16) error {
	return v.DeleteZoneLimits(ctx, netdev, zones)
}

// table is the size of the connection table in TestFlood.
const table = "1000"

// TestFlood has a Router open more connections than the table of the node holds, and then another
// one open one.
func TestFlood(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	s := intent.NewStore()
	update(t, s, routers(red, blue))
	update(t, s, func(tx *intent.Tx) { tx.SetLocal(intent.Local{Node: "n1", Datapath: intent.DatapathNetdev}) })

	// flood returns how many connections the Routers have in a new Open vSwitch after red has
	// opened 2,000, and blue one.
	flood := func(limits config.ConntrackLimits) (ofRed, ofBlue int, usage Usage) {
		t.Helper()
		ovs := ovstest.Start(t, ovstest.Options{Datapath: "netdev"})
		if err := ovs.AddBridge(ctx, "br0"); err != nil {
			t.Fatal(err)
		}
		v := vswitchd{appctl.Vswitchd(ovs.Dir)}
		if _, err := v.Call(ctx, "dpctl/ct-set-maxconns", netdev, table); err != nil {
			t.Fatal(err)
		}
		l := New(slog.New(slog.DiscardHandler), config.Conntrack{Limits: limits}, s, v)
		if err := l.follow(ctx, s.State(), true); err != nil {
			t.Fatal(err)
		}
		conn, err := openflow.Dial(ctx, "unix:"+ovs.MgmtSocket("br0"), openflow.ConnOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		open := func(r intent.Router, count uint16) int {
			var messages []openflow.Message
			for port := range count {
				c := conntrack.Connection{Zone: uint16(r.ID), Orig: conntrack.Tuple{
					Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.0.0.2"), SrcPort: 1000 + port, DstPort: 53,
				}}
				messages = append(messages, &openflow.PacketOut{
					InPort: openflow.PortController, Packet: streams.Datagram(c),
					Actions: []openflow.Action{openflow.CT{Commit: true, Zone: c.Zone}},
				})
			}
			if err := conn.Do(ctx, messages); err != nil {
				t.Fatal(err)
			}
			list, err := v.Connections(ctx, uint16(r.ID))
			if err != nil {
				t.Fatal(err)
			}
			return len(list)
		}
		ofRed, ofBlue = open(red, 2000), open(blue, 1)
		if usage, err = l.Usage(ctx); err != nil {
			t.Fatal(err)
		}
		return ofRed, ofBlue, usage
	}

	if ofRed, ofBlue, _ := flood(config.NeverLimits); ofRed != 1000 || ofBlue != 0 {
		t.Fatalf("without limits red has %d connections and blue %d: want the 1000 of the table, and none", ofRed, ofBlue)
	}
	ofRed, ofBlue, usage := flood(config.AutoLimits)
	if ofRed != 100 || ofBlue != 1 {
		t.Errorf("red has %d connections and blue %d: want a tenth of 1000, and 1", ofRed, ofBlue)
	}
	if _, ok := usage.Findings()["Router red"]; !ok {
		t.Errorf("it is not found that red has all it may have: %+v", usage)
	}
}
