// SPDX-License-Identifier: Apache-2.0

//go:build integration

package ctflush

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"coelan.io/coelan/internal/backend/ovs/appctl"
	"coelan.io/coelan/internal/backend/ovs/conntrack"
	"coelan.io/coelan/internal/backend/ovs/streams"
	"coelan.io/coelan/internal/ovstest"
	"coelan.io/coelan/openflow"
)

// TestForget has the userspace datapath's conntrack forget one address's connections, which are
// nearly all that it knows. One search misses many of them.
func TestForget(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	ovs := ovstest.Start(t, ovstest.Options{Datapath: "netdev"})
	if err := ovs.AddBridge(ctx, "br0"); err != nil {
		t.Fatal(err)
	}
	vswitchd := appctl.Vswitchd(ovs.Dir)
	conn, err := openflow.Dial(ctx, "unix:"+ovs.MgmtSocket("br0"), openflow.ConnOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()

	const zone = 1
	open := func(src netip.Addr, count int) {
		t.Helper()
		messages := make([]openflow.Message, count)
		for i := range messages {
			c := conntrack.Connection{Zone: zone, Orig: conntrack.Tuple{
				Src: src, SrcPort: 1000 + uint16(i%50_000),
				Dst: netip.AddrFrom4([4]byte{10, 1, 0, byte(i / 50_000)}), DstPort: 53,
			}}
			messages[i] = &openflow.PacketOut{
				InPort: openflow.PortController, Packet: streams.Datagram(c),
				Actions: []openflow.Action{openflow.CT{Commit: true, Zone: c.Zone}},
			}
		}
		if err := conn.Do(ctx, messages); err != nil {
			t.Fatal(err)
		}
	}
	// of returns how many connections an address has.
	of := func(src netip.Addr) (n int) {
		t.Helper()
		list, err := vswitchd.Connections(ctx, zone)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range list {
			if c.Orig.Src == src {
				n++
			}
		}
		return n
	}
	gone, stays := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	open(stays, 1000)
	open(gone, 60_000)

	match := openflow.CTFlush{Zone: new(uint16(zone)), Orig: openflow.CTTuple{Src: gone}}
	if err := conn.Do(ctx, []openflow.Message{&match}); err != nil {
		t.Fatal(err)
	}
	missed := of(gone)
	t.Logf("one search leaves %d connections", missed)
	if missed == 0 {
		t.Skip("this Open vSwitch misses none")
	}
	open(gone, 60_000)
	open(stays, 1000) // anew, so that none is forgotten for its age

	table := Table{
		Conn:  func(context.Context) (*openflow.Conn, error) { return conn, nil },
		Count: vswitchd.CountConnections,
	}
	if err := table.Forget(ctx, []*openflow.CTFlush{&match}); err != nil {
		t.Fatal(err)
	}
	if n := of(gone); n > 0 {
		t.Errorf("%d connections are left", n)
	}
	if n := of(stays); n != 1000 {
		t.Errorf("the other address has %d connections, not 1000", n)
	}
}
