// SPDX-License-Identifier: Apache-2.0

package appctl

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"coelan.io/coelan/internal/backend/ovs/conntrack"
)

const dumpedConnections = `tcp,orig=(src=10.0.0.1,dst=10.96.0.1,sport=33510,dport=80),reply=(src=10.0.0.2,dst=10.0.0.1,sport=8080,dport=33510),zone=1,mark=5,protoinfo=(state=ESTABLISHED)
udp,orig=(src=fd00::1,dst=fd00::2,sport=1,dport=2),reply=(src=fd00::2,dst=fd00::1,sport=2,dport=1),zone=1,labels=0x1
icmp,orig=(src=10.0.0.1,dst=10.0.0.2,id=7,type=8,code=0),reply=(src=10.0.0.2,dst=10.0.0.1,id=7,type=0,code=0),zone=1,mark=0x10
89,orig=(src=10.0.0.1,dst=10.0.0.2),reply=(src=10.0.0.2,dst=10.0.0.1),zone=1
udp,orig=(src=10.0.0.1,dst=10.0.0.2,sport=1,dport=2),reply=(src=10.0.0.2,dst=10.0.0.1,sport=2,dport=1)
what,orig=(src=10.0.0.1,dst=10.0.0.2),reply=(src=10.0.0.2,dst=10.0.0.1),zone=1
`

func TestParseConnections(t *testing.T) {
	ip := netip.MustParseAddr
	one, two := ip("10.0.0.1"), ip("10.0.0.2")
	want := []conntrack.Connection{
		{
			Protocol: 6, Zone: 1, Mark: 5,
			Orig:  conntrack.Tuple{Src: one, Dst: ip("10.96.0.1"), SrcPort: 33510, DstPort: 80},
			Reply: conntrack.Tuple{Src: two, Dst: one, SrcPort: 8080, DstPort: 33510},
		},
		{
			Protocol: 17, Zone: 1,
			Orig:  conntrack.Tuple{Src: ip("fd00::1"), Dst: ip("fd00::2"), SrcPort: 1, DstPort: 2},
			Reply: conntrack.Tuple{Src: ip("fd00::2"), Dst: ip("fd00::1"), SrcPort: 2, DstPort: 1},
		},
		{
			Protocol: 1, Zone: 1, Mark: 16,
			Orig:  conntrack.Tuple{Src: one, Dst: two, ICMPID: 7, ICMPType: 8},
			Reply: conntrack.Tuple{Src: two, Dst: one, ICMPID: 7},
		},
		{Protocol: 89, Zone: 1, Orig: conntrack.Tuple{Src: one, Dst: two}, Reply: conntrack.Tuple{Src: two, Dst: one}},
	}
	if diff := cmp.Diff(want, parseConnections(dumpedConnections, 1), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("connections (-want +got):\n%s", diff)
	}
	if n := len(parseConnections(dumpedConnections, 0)); n != 1 {
		t.Errorf("%d connections of zone 0, want 1", n)
	}
}

func FuzzParseConnections(f *testing.F) {
	f.Add(dumpedConnections)
	f.Fuzz(func(t *testing.T, text string) {
		for _, c := range parseConnections(text, 1) {
			if !c.Orig.Src.IsValid() || c.Zone != 1 {
				t.Errorf("%q: connection %+v", text, c)
			}
		}
	})
}
