// SPDX-License-Identifier: Apache-2.0

package northbound

import (
	"fmt"
	"testing"

	"coelan.io/coelan/internal/backend/ovn/nb"
	"coelan.io/coelan/internal/trigger"
)

// BenchmarkOnePortMore is the transaction for one Port more on a switch with 20,000.
func BenchmarkOnePortMore(b *testing.B) {
	v, rows := newView("", trigger.New()), nb.NewRows()
	sw := &nb.LogicalSwitch{UUID: switchUUID, Name: "net-red", ExternalIDs: map[string]string{"coelan.io/owner": "coelan/Network/red"}}
	var red nb.Unit
	ref := red.Add("Network/red", &nb.LogicalSwitch{Name: "net-red"})
	rows.Set("Network/red", red)
	unit := func(key string) (u nb.Unit) {
		u.AddTo(ref, "ports", key, &nb.LogicalSwitchPort{Name: key})
		return u
	}
	for i := range 20000 {
		uuid, key := fmt.Sprintf("00000000-0000-0000-0001-%012d", i), fmt.Sprintf("Port/a/p-%d", i)
		sw.Ports = append(sw.Ports, uuid)
		v.set("Logical_Switch_Port", &nb.LogicalSwitchPort{UUID: uuid, Name: key,
			ExternalIDs: map[string]string{"coelan.io/owner": "coelan/" + key}})
		rows.Set(key, unit(key))
	}
	v.set("Logical_Switch", sw)
	rows.Set("Port/a/more", unit("Port/a/more"))
	more, s := nb.Ref{Table: "Logical_Switch_Port", Key: "Port/a/more"}, schema(b)
	for b.Loop() {
		p := newPlan(v, s, rows)
		p.parts(ref, map[nb.ColumnValue]bool{{Column: "ports", Value: more.Key}: true})
		p.row(more)
		if n := len(p.operations()); n != 2 {
			b.Fatalf("%d operations, not 2", n)
		}
	}
}
