// SPDX-License-Identifier: Apache-2.0

//go:build integration

package agent

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"coelan.io/coelan/internal/backend/ovs/pipeline"
	"coelan.io/coelan/test/lab/probe"
)

// conntrackLayout is the external_ids key of the bridge that says which
// release's marks conntrack has.
const conntrackLayout = "coelan-conntrack-layout"

// An agent deletes connections with marks of a release with another layout, once.
func TestConnectionsOfAnotherLayoutAreForgotten(t *testing.T) {
	if !isolate(t) {
		return
	}
	w := newWorld(t)
	w.start()
	w.ready()
	at := w.plug("a")
	src := netip.AddrPortFrom(at.Addresses[0].Addr(), 1000)
	frame := probe.Ethernet(at.MAC.HardwareAddr(), at.MAC.HardwareAddr(), 0x0800,
		probe.UDP(src, netip.MustParseAddrPort("10.244.1.77:2000"), []byte("x")))
	zones := pipeline.Zones(w.agent.intent.State())
	commit := func() {
		for _, zone := range zones {
			_, err := w.ovs.Ofctl(t.Context(), "packet-out", "br-int", fmt.Sprintf("in_port=controller packet=%s actions=ct(commit,zone=%d)",
				hex.EncodeToString(frame), zone))
			w.must(err)
		}
	}
	connections := func() int {
		out, err := w.ovs.Appctl(t.Context(), "dpctl/dump-conntrack")
		w.must(err)
		return strings.Count(out, "sport=1000,dport=2000")
	}
	restart := func() {
		w.must(w.stop())
		w.start()
		w.ready()
	}
	commit()
	restart()
	if n := connections(); n != len(zones) {
		t.Errorf("%d connections after a restart of the same release, want %d", n, len(zones))
	}
	if id := w.vsctl("--if-exists", "get", "bridge", "br-int", "external_ids:"+conntrackLayout); id != "" {
		t.Errorf("the bridge says layout %s; the first one is not written", id)
	}
	w.vsctl("set", "bridge", "br-int", "external_ids:"+conntrackLayout+"=0")
	restart()
	if n := connections(); n != 0 {
		t.Errorf("%d connections of another release's layout are left", n)
	}
	if id := strings.Trim(w.vsctl("get", "bridge", "br-int", "external_ids:"+conntrackLayout), `"`); id != fmt.Sprint(pipeline.ConntrackLayout) {
		t.Errorf("the bridge says layout %s, want %d", id, pipeline.ConntrackLayout)
	}
	commit()
	restart()
	if n := connections(); n != len(zones) {
		t.Errorf("%d connections after the next restart, want %d", n, len(zones))
	}
}
