// SPDX-License-Identifier: Apache-2.0

//go:build integration

package pipeline

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"coelan.io/coelan/internal/ovstest"
)

// What the tables of policies ask of Open vSwitch's conjunctions, with flows written by
// hand. Packets come with reg1 as the subject and reg2 as the class; what they end in is
// known by the output port.
func TestConjunctions(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ovs := ovstest.Start(t, ovstest.Options{})
	if err := ovs.AddBridge(ctx, "br0"); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name    string
		flows   []string
		packets map[string]string // how the packet differs, and where it goes
	}{
		{"two and three clauses", []string{
			"priority=100,reg1=1 actions=conjunction(1,1/2),conjunction(2,1/3)",
			"priority=100,reg2=7 actions=conjunction(1,2/2),conjunction(2,2/3)",
			"priority=100,tcp,tp_dst=80 actions=conjunction(2,3/3)",
			"priority=100,conj_id=1 actions=goto_table:1", "priority=100,conj_id=2 actions=goto_table:2",
			"priority=10 actions=drop",
		}, map[string]string{
			"reg1=1,reg2=7,udp,udp_dst=80": "1", "reg1=1,reg2=8,tcp,tcp_dst=80": "drop", "reg1=2,reg2=7,tcp,tcp_dst=80": "drop",
		}},
		{"overlapping prefixes", []string{
			"priority=100,reg1=1 actions=conjunction(1,1/2)", "priority=100,reg1=2 actions=conjunction(2,1/2)", "priority=100,reg1=3 actions=conjunction(3,1/2)",
			"priority=100,ip,nw_dst=10.0.0.0/8 actions=conjunction(1,2/2)",
			"priority=100,ip,nw_dst=10.1.0.0/16 actions=conjunction(2,2/2)",
			"priority=100,reg2=7 actions=conjunction(3,2/2)",
			"priority=100,conj_id=1 actions=goto_table:1", "priority=100,conj_id=2 actions=goto_table:2", "priority=100,conj_id=3 actions=goto_table:3",
			"priority=10 actions=drop",
		}, map[string]string{
			"reg1=1,tcp,nw_dst=10.1.2.3": "1", "reg1=2,tcp,nw_dst=10.1.2.3": "2", "reg1=2,tcp,nw_dst=10.2.2.3": "drop",
			"reg1=3,reg2=7,tcp,nw_dst=10.1.2.3": "3", "reg1=1,reg2=7,tcp,nw_dst=10.1.2.3": "1", "reg1=3,reg2=8,tcp,nw_dst=10.1.2.3": "drop",
		}},
		// The flows of the lower priority have the same matches as those of the higher one.
		{"falls back", []string{
			"priority=300,reg1=1 actions=conjunction(1,1/3)", "priority=300,reg2=7 actions=conjunction(1,2/3)", "priority=300,tcp,tp_dst=80 actions=conjunction(1,3/3)",
			"priority=200,reg1=1 actions=conjunction(2,1/2)", "priority=200,reg2=7 actions=conjunction(2,2/2)",
			"priority=150,reg1=1,reg2=5 actions=goto_table:4",
			"priority=100,reg1=1 actions=conjunction(3,1/2)", "priority=100,tcp,tp_dst=0x50/0xfff0 actions=conjunction(3,2/2)",
			"priority=50,reg1=1 actions=goto_table:5",
			"priority=300,conj_id=1 actions=goto_table:1", "priority=200,conj_id=2 actions=goto_table:2", "priority=100,conj_id=3 actions=goto_table:3",
			"priority=10 actions=drop",
		}, map[string]string{
			"reg1=1,reg2=7,tcp,tcp_dst=80": "1", "reg1=1,reg2=7,tcp,tcp_dst=81": "2", "reg1=1,reg2=8,tcp,tcp_dst=81": "3",
			"reg1=1,reg2=5,tcp,tcp_dst=80": "4", "reg1=1,reg2=8,tcp,tcp_dst=1000": "5", "reg1=2,reg2=7,tcp,tcp_dst=80": "drop",
		}},
		// A list too long for one message goes on in a flow with one more
		// condition that always holds.
		{"split lists", []string{
			"priority=100,reg1=1 actions=conjunction(1,1/2)", "priority=100,reg1=2 actions=conjunction(2,1/2)",
			"priority=100,reg2=7 actions=conjunction(1,2/2)", "priority=100,reg2=7,reg3=0/1 actions=conjunction(2,2/2)",
			"priority=100,conj_id=1 actions=goto_table:1", "priority=100,conj_id=2 actions=goto_table:2",
			"priority=10 actions=drop",
		}, map[string]string{"reg1=1,reg2=7,tcp": "1", "reg1=2,reg2=7,tcp": "2", "reg1=2,reg2=8,tcp": "drop"}},
		// So a rule for all peers has no clause of peers: one flow with two clauses counts for one.
		{"one flow has two clauses", []string{
			"priority=100,reg1=1 actions=conjunction(1,1/3),conjunction(1,3/3)", "priority=100,reg2=7 actions=conjunction(1,2/3)",
			"priority=100,conj_id=1 actions=goto_table:1", "priority=10 actions=drop",
		}, map[string]string{"reg1=1,reg2=7,tcp": "drop"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			text := strings.Join(tc.flows, "\n")
			for i := 1; i <= 5; i++ {
				text += fmt.Sprintf("\ntable=%d,actions=output:%d", i, 100+i)
			}
			file := filepath.Join(t.TempDir(), "flows")
			if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := ovs.Ofctl(ctx, "-O", "OpenFlow15", "--bundle", "replace-flows", "br0", file); err != nil {
				t.Fatal(err)
			}
			for p, want := range tc.packets {
				out, err := ovs.Appctl(ctx, "ofproto/trace", "br0", p)
				if err != nil {
					t.Fatal(err)
				}
				mark := "output:10" + want
				if want == "drop" {
					mark = "Datapath actions: drop"
				}
				if !strings.Contains(out, mark) || want == "drop" && strings.Contains(out, "output:") {
					t.Errorf("%s does not end in %s:\n%s", p, want, out)
				}
			}
		})
	}
}
