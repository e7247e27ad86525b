// SPDX-License-Identifier: Apache-2.0

//go:build integration

package bridge

import (
	"slices"
	"testing"

	"coelan.io/coelan/openflow"
)

// Open vSwitch does what the fake says of flows that packets learn: they stay while a flow learns
// them, through every Sync, and go with the last one.
func TestLearnedLive(t *testing.T) {
	ovs, _, client, ctx := live(t)
	table9 := func(table uint8) bool { return table == 9 }
	bridge := func() *Bridge { return New(Options{Connect: Via(client), Learned: table9}) }
	learner := func(extra ...openflow.Action) *Rules {
		learn := openflow.Learn{Table: 9, Cookie: 7, DeleteLearned: true, Specs: []openflow.LearnSpec{
			openflow.LearnMatchField(openflow.FieldEthSrc.All(), openflow.FieldEthSrc.All()),
		}}
		f := flow(0, 1, append([]openflow.Action{learn}, extra...)...)
		f.Match = openflow.Match{}
		return &Rules{Flows: []openflow.Flow{f}}
	}
	learned := func() bool {
		t.Helper()
		conn, err := client.Conn(ctx)
		if err != nil {
			t.Fatal(err)
		}
		flows, err := conn.Flows(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(flows, func(f openflow.FlowDesc) bool { return f.Flow.Table == 9 && f.Flow.Cookie == 7 })
	}
	b, d := bridge(), NewDesired()
	sync := func(b *Bridge) {
		t.Helper()
		if _, err := b.Sync(ctx, d); err != nil {
			t.Fatal(err)
		}
	}
	d.Set("a", learner())
	sync(b)
	packet := "ffffffffffff0a000000000108000000"
	if _, err := ovs.Ofctl(ctx, "-OOpenFlow15", "packet-out", "br0", "in_port=LOCAL,packet="+packet+",actions=TABLE"); err != nil {
		t.Fatal(err)
	}
	if !learned() {
		t.Fatal("the packet left no flow")
	}
	sync(bridge())
	if lines, err := bridge().Diff(ctx, d); err != nil || len(lines) > 0 {
		t.Errorf("%v, %v", lines, err)
	}
	d.Set("a", learner(openflow.Output(1)))
	sync(b)
	if !learned() {
		t.Error("it went although a flow still learns it")
	}
	d.Remove("a")
	sync(b)
	if learned() {
		t.Error("it is there although no flow learns it")
	}
}
