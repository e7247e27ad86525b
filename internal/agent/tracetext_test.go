// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/compile"
	"coelan.io/coelan/internal/intent"
)

// judgedTrace is a part of what ofproto/trace says of a packet whose sender is in no group.
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

// Where a packet goes on that no flow of a table matches, the trace says what that means; where it ends, that none does.
func TestTraceOfWhatNoFlowMatches(t *testing.T) {
	a := &Agent{intent: intent.NewStore(), flows: &flows{compiler: compile.New()}}
	trace := a.explainTrace("", judgedTrace)
	want := []TraceStep{
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
