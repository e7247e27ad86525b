// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/backend/ovs/pipeline"
	"coelan.io/coelan/internal/intent"
)

// judgedTrace is a part of what ofproto/trace says of a packet from a sender in no group.
const judgedTrace = `Flow: tcp,in_port=17,nw_src=10.244.1.3,nw_dst=10.244.1.2,tp_dst=80

bridge("br-int")
----------------
87. reg3=0x10, priority 100
    set_field:0x180010->reg6
    set_field:0->xreg2
    resubmit(,88)
    88. No match.
            drop
    goto_table:92
92. No match.
    drop

Final flow: unchanged
`

// Where a packet goes on that no flow of a table matches, the trace says what that means; where it
// ends, that none does.
func TestTraceOfWhatNoFlowMatches(t *testing.T) {
	b := &tracer{intent: intent.NewStore(), flows: &flows{compiler: pipeline.New()}}
	trace := b.explainTrace("", judgedTrace)
	want := []agentapi.TraceStep{
		{Table: 87, TableName: "ingress-subject", Flow: "reg3=0x10", Actions: []string{"set_field:0x180010->reg6", "set_field:0->xreg2", "resubmit(,88)"}},
		{Table: 88, TableName: "ingress-peer", Flow: "No match.", Note: "the sender is in no group that rules ask for", Actions: []string{"goto_table:92"}},
		{Table: 92, TableName: "ingress-policy", Flow: "No match.", Note: "no flow matches", Actions: []string{"drop"}},
	}
	if diff := cmp.Diff(want, trace.Steps); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	if want := "no flow of table 92 matches"; trace.Outcome.Reason != want {
		t.Errorf("dropped: %q, want %q", trace.Outcome.Reason, want)
	}
}

// wiredTrace goes on in another bridge, twice, as packets do that leave by a patch port.
const wiredTrace = `Flow: ip,in_port=17,nw_dst=192.0.2.9

bridge("br-int")
----------------
 0. in_port=17, priority 100
    ct(table=100,zone=1)
    drop
     -> A clone of the packet is forked to recirculate. The forked pipeline will be resumed at table 100.

bridge("br-other")
------------------
 0. priority 0
    drop

Final flow: unchanged

===============================================================================
recirc(0x1) - resume conntrack with default ct_state=trk|new (use --ct-next to customize)
===============================================================================

bridge("br-int")
----------------
    thaw
        Resuming from table 100
100. priority 32768
    output:NXM_NX_REG3[]
     -> output port is 3

bridge("br-ex")
---------------
 0. in_port=7, priority 10
    output:2
    resubmit(,5)
     5. No match.
            drop

Final flow: unchanged
`

// What another bridge does with the packet is not this one's way.
func TestTraceBehindAPatchPort(t *testing.T) {
	b := &tracer{intent: intent.NewStore(), flows: &flows{compiler: pipeline.New()}, uplinks: map[string]uint32{"office": 3}}
	trace := b.explainTrace("", wiredTrace)
	var tables []int
	for _, s := range trace.Steps {
		tables = append(tables, s.Table)
	}
	if diff := cmp.Diff([]int{0, 100}, tables); diff != "" {
		t.Errorf("tables (-want +got):\n%s", diff)
	}
	if want := (agentapi.Outcome{Kind: "physical", Network: "office"}); trace.Outcome != want {
		t.Errorf("it ends at %+v, want %+v", trace.Outcome, want)
	}
}

// narrowTrace prints both branches of the comparison with what fits the way: the packet is too big,
// and it is not.
const narrowTrace = `Flow: ip,in_port=16

bridge("br-int")
----------------
50. ip, priority 124
    set_field:192.168.33.12->tun_dst
    set_field:0x7->tun_id
    set_field:0x1->reg3
    goto_table:100
100. reg3=0x1,tun_dst=192.168.33.12, priority 90
    set_field:0x514/0xffff->reg7
    check_pkt_larger(1314)->NXM_NX_REG0[22]
    goto_table:102
102. reg0=0x400000/0x400000,in_port=16, priority 100
    controller(reason=action,max_len=65535,id=0)
    goto_table:102
102. priority 0
    output:NXM_NX_REG3[]
     -> output port is 1

Final flow: unchanged
`

func TestTraceOfANarrowTunnel(t *testing.T) {
	store := intent.NewStore()
	if _, err := store.Update(func(tx *intent.Tx) error {
		tx.ReplaceNodes([]intent.Node{{Name: "n2", Addresses: []netip.Addr{netip.MustParseAddr("192.168.33.12")}}})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	b := &tracer{intent: store, flows: &flows{compiler: pipeline.New()}}
	want := agentapi.Outcome{Kind: "tunnel", Node: "n2", TunnelIP: "192.168.33.12", VNI: 7, MTU: 1300}
	if got := b.explainTrace("", narrowTrace).Outcome; got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
